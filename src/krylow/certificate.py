r"""How good an answer is: residuals, a bound on the error, and a status in words.

Davis and Kahan bound the error of a subspace by its residual over the gap $\delta = \lambda_{k+1} - \theta_k$. The
residual is computed; the gap needs a lower bound of $\lambda_{k+1}$ (the floor), which no set of Ritz values gives,
since these bound it from above: :mod:`krylow._floor` proves one for graphs of up to 2048 nodes whose entries are known,
and estimates one for the others.

Where the plain bound is above the error that was asked for, it is sharpened by the same theorem for a polynomial of L,
to little more than the true error. Everything is computed in float64, when it is first asked for, and is not counted in
the subspace's own products.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

import torch
from torch import Tensor

from krylow._floor import PROOF_LIMIT, Inside, complement_probe, estimated_floor, proved_floor, proved_tie
from krylow.graph import as_operator
from krylow.krylov.chebyshev import chebyshev_filter
from krylow.krylov.ritz import Evidence
from krylow.linalg.perturbation import davis_kahan, entry_error
from krylow.linalg.row_blocks import exact_gram
from krylow.operators import FunctionOperator, Operator

#: What rounding adds to every bound, and the least tol that can be met: all is computed in float64.
LEAST_BOUND = 4 * torch.finfo(torch.float64).eps


class Status(IntEnum):
    """What happened, ordered by severity; :attr:`advice` says what to do."""

    CONVERGED = 0
    MAX_STEPS = 1
    NO_GAP = 2
    MISSED = 3
    BREAKDOWN = 4
    INTERRUPTED = 5

    def __str__(self) -> str:
        return self.name

    @property
    def advice(self) -> str:
        """One sentence on what happened and what to do."""
        return _ADVICE[self]


_ADVICE = {
    Status.CONVERGED: "The error bound is at most tol.",
    Status.MAX_STEPS: (
        "The error bound did not reach tol: raise m or max_products, use a restarted method, or, where the bound is "
        "that of entries rounded to float32, give the graph in float64. With prove=True also: neither a proof nor a "
        "check was made, and why says what stood in the way."
    ),
    Status.NO_GAP: (
        "The k-th and the next eigenvalue cannot be told apart, so the subspace is not unique: choose another k, or a "
        "cutoff between eigenvalues."
    ),
    Status.MISSED: (
        "The complement holds an eigenvalue below the cut, as where an eigenvalue is repeated or the graph is "
        "disconnected: use a block or restarted method."
    ),
    Status.BREAKDOWN: (
        "The Krylov space closed before it held k vectors, so the missing columns are zero: use another start vector, "
        "a block or a restarted method."
    ),
    Status.INTERRUPTED: (
        "Ctrl-C ended the iteration before the error bound reached tol: this is the best subspace so far."
    ),
}


@dataclass(frozen=True)
class Certificate:
    r"""The evidence for a subspace.

    Attributes
    ----------
    residuals
        ``(*batch, k)`` norms of $L x_i - \theta_i x_i$ over the Ritz pairs inside the subspace; infinite for missing
        columns.
    floor
        ``(*batch,)`` lower bound of $\lambda_{k+1}$; -inf where none was found, inf where nothing was dropped.
    error_bound
        ``(*batch,)`` bound of the normalised squared subspace error, infinite where no gap shows. It is about the
        graph: where entries were rounded to float32, it includes what that changes
        (:mod:`krylow.linalg.perturbation`).
    statuses
        ``(*batch,)`` integer codes of :class:`Status`.
    proved
        Whether the floor is proved rather than estimated.
    well_defined
        ``(*batch,)`` the largest number of vectors, at most k, after which a gap shows: so many of the basis span a
        unique subspace, though k of them may not (NO_GAP).
    checked
        Whether a second, independent random block has found nothing below the floor (:mod:`krylow.proof`), which is no
        proof.
    """

    residuals: Tensor
    floor: Tensor
    error_bound: Tensor
    statuses: Tensor
    proved: bool
    well_defined: Tensor
    checked: bool = False

    @property
    def kind(self) -> str:
        """What the status and the bound are: "proved" (a theorem), "checked" or "estimated"."""
        return "proved" if self.proved else "checked" if self.checked else "estimated"

    def __str__(self) -> str:
        """Return the worst status of the batch, the largest bound, and what they are."""
        return f"{Status(int(self.statuses.max()))} ({self.kind}), error bound {float(self.error_bound.max()):.2g}"


def deviation(basis: Tensor) -> Tensor:
    r"""Return the error that a basis B has because it is not orthonormal, ``(*batch,)``.

    If Q is orthonormal and spans the same space, $(I - B B^\top) U = (I - Q Q^\top) U + (Q Q^\top - B B^\top) U$ is
    a sum of orthogonal parts, and the norm of the second is at most that of $B^\top B - I$.
    """
    wide = basis if basis.ndim == 2 else basis.to(torch.float64)
    gram = exact_gram(basis) if basis.ndim == 2 else wide.mT @ wide
    there = gram.diagonal(dim1=-2, dim2=-1) > 0
    return torch.linalg.matrix_norm(gram - torch.diag_embed(there.to(gram.dtype))).square() / basis.shape[-1]


def interrupted(statuses: Tensor) -> Tensor:
    """Return the statuses of an iteration that Ctrl-C ended: those that had not converged say so."""
    return torch.where(statuses == Status.CONVERGED, statuses, torch.full_like(statuses, Status.INTERRUPTED))


def from_evidence(
    L: Operator, basis: Tensor, theta: Tensor, evidence: Evidence, *, tol: float, cutoff: float | None = None
) -> Certificate:
    """Return the certificate of one large graph from what its solver measured, without a product."""
    k = basis.shape[-1]
    unique = evidence.well_defined >= k
    if cutoff is not None:  # the first frequency that was dropped has to be known to be above it
        unique = unique and evidence.floor > cutoff
    error = evidence.error
    if unique and math.isfinite(error):
        with torch.no_grad():
            floor = torch.tensor(evidence.floor, dtype=torch.float64, device=basis.device)
            off = entry_error(L, theta, floor, None if evidence.restored else basis)
        own = torch.finfo(basis.dtype).eps  # of the vectors themselves, which were measured in float64
        error = float((math.sqrt(error) + off + own).square())
    status = Status.NO_GAP if not unique else Status.CONVERGED if error <= tol else Status.MAX_STEPS
    return Certificate(
        residuals=evidence.residuals.to(basis.dtype),
        floor=torch.full_like(L.sizes, evidence.floor, dtype=basis.dtype),
        error_bound=torch.full_like(L.sizes, error if unique else torch.inf, dtype=basis.dtype),
        statuses=torch.full_like(L.sizes, status),
        proved=evidence.proved,
        well_defined=torch.full_like(L.sizes, min(evidence.well_defined, k)),
    )


def certify(
    L: Any,
    basis: Tensor,
    *,
    tol: float = 1e-3,
    following: Tensor | None = None,
    following_residual: Tensor | None = None,
    exact: bool = False,
    cutoff: float | None = None,
    kept: Tensor | None = None,
) -> Certificate:
    r"""Return the evidence that ``basis`` spans the subspace of the k lowest eigenvalues of L, whoever computed it.

    Parameters
    ----------
    L
        As in :func:`krylow.subspace`.
    basis
        ``(*batch, n, k)``; need not be orthonormal, zero columns count as missing.
    tol
        Normalised squared subspace error that counts as converged.
    following, following_residual
        ``(*batch,)`` the (k+1)-st Ritz value of whoever computed the basis, an upper bound of $\lambda_{k+1}$, and its
        residual. None: found by a Lanczos run in the complement.
    exact
        Whether ``following`` is $\lambda_{k+1}$ itself.
    cutoff
        If the subspace is meant to hold all eigenvalues up to this one: then the rest must lie above it, too.
    kept
        ``(*batch,)`` how many columns are meant, where that differs over a batch; k is then that number. None: all.
    """
    L = as_operator(L)
    with torch.no_grad():
        kept = torch.full_like(L.sizes, basis.shape[-1]) if kept is None else kept
        inside = Inside.of(L, basis.detach(), kept)
        return _certify(inside, tol, following, following_residual, exact, cutoff)


def _certify(
    inside: Inside,
    tol: float,
    following: Tensor | None,
    following_residual: Tensor | None,
    exact: bool,
    cutoff: float | None,
    *,
    probe_steps: int = 60,
) -> Certificate:
    L, theta_k, noise, everything = inside.L, inside.theta_k, inside.noise, inside.everything
    proved = exact or (L.n <= PROOF_LIMIT and not isinstance(L, FunctionOperator))
    factored = proved or L.n <= probe_steps  # so few products of a function cost no more than an estimate
    following, following_residual = next_value(inside, following, following_residual, probe_steps)
    below = torch.zeros_like(everything)  # whether the complement is known to reach below the cut
    if exact:
        floor = following - noise / 8
    elif factored:
        floor, below = proved_floor(inside, following, cutoff)
    else:
        floor, below = estimated_floor(inside, following, following_residual, probe_steps)
    floor = floor.masked_fill(everything, torch.inf)
    if cutoff is not None:  # a floor under the cutoff does not show how many eigenvalues lie below that
        floor = floor.masked_fill(floor < cutoff, -torch.inf)

    no_gap = floor - theta_k <= noise
    error = bound_above(inside, floor, no_gap, tol)
    codes = torch.full_like(L.sizes, Status.MAX_STEPS)
    codes[no_gap & ~below & _no_gap_known(inside, following, factored, exact, cutoff)] = Status.NO_GAP
    codes[no_gap & below & (inside.total <= torch.finfo(inside.dtype).eps ** 0.5 * inside.norm)] = Status.MISSED
    codes[error <= max(tol, LEAST_BOUND)] = Status.CONVERGED
    codes[inside.missing] = Status.BREAKDOWN
    dtype = inside.dtype
    well_defined = torch.where(no_gap, _gaps_before(inside), inside.kept)
    return Certificate(inside.residuals.to(dtype), floor.to(dtype), error.to(dtype), codes, proved, well_defined)


def _no_gap_known(inside: Inside, following: Tensor, factored: bool, exact: bool, cutoff: float | None) -> Tensor:
    r"""Return where a floor that shows no gap means that there is none, and not that values have yet to fall.

    All residuals are rounding; or the next Ritz value, an upper bound of $\lambda_{k+1}$, is equal to $\theta_k$ (or to
    the cutoff) to rounding, and $\lambda_k$ is, too: this is proved by a factorisation, or estimated by the square of
    the residuals over the distance from the spectrum's end.
    """
    theta_k, noise = inside.theta_k, inside.noise
    if exact:
        return torch.ones_like(inside.everything)
    rounding = inside.total <= noise
    if cutoff is not None:
        return rounding | (following - theta_k.clamp(min=cutoff) <= noise)
    equal = following - theta_k <= noise
    if factored:
        return rounding | proved_tie(inside, equal & ~rounding)
    size = torch.maximum(following - inside.A.gershgorin()[0], noise)
    near = following - theta_k <= 10 * inside.total + noise  # a guard that has not converged shows no gap either
    return (rounding & near) | (equal & (inside.total.square() <= noise * size))


def next_value(
    inside: Inside, following: Tensor | None, residual: Tensor | None, steps: int = 60
) -> tuple[Tensor, Tensor | None]:
    """Return the (k+1)-st Ritz value and its residual; those of a Lanczos run in the complement where none is given."""
    unknown = torch.full_like(inside.theta_k, torch.inf)
    following = unknown if following is None else following.detach().to(unknown)
    lost = following.isinf() & ~inside.everything
    if bool(lost.any()):
        lowest, own = complement_probe(inside, steps)
        following = torch.where(lost, lowest, following)
        residual = own if residual is None else torch.where(lost, own, residual)
    return following, residual


def bound_above(inside: Inside, floor: Tensor, no_gap: Tensor, tol: float) -> Tensor:
    """Return Davis and Kahan's bound with the floor for lambda_{k+1}, infinite where there is no gap, ``(*batch,)``."""
    gaps = torch.where(inside.absent, (floor - inside.theta_k)[..., None], floor[..., None] - inside.theta)
    gaps = gaps.masked_fill(no_gap[..., None], 0.0)
    error = davis_kahan(inside.share * inside.residuals, gaps) + LEAST_BOUND
    loose = (error > tol) & ~no_gap & floor.isfinite() & ~inside.missing
    if bool(loose.any()):
        error = torch.minimum(error, _filtered_bound(inside, floor, loose) + LEAST_BOUND)
    error = (error.sqrt() + entry_error(inside.L, inside.theta, floor)).square()
    return error.masked_fill(inside.everything, LEAST_BOUND).masked_fill(inside.missing, torch.inf)


def _gaps_before(inside: Inside) -> Tensor:
    """Return the largest count of vectors, less than k, after which the Ritz values show a gap, ``(*batch,)``."""
    gaps = inside.theta.diff(dim=-1) - inside.noise[..., None]  # (*batch, k - 1), NaN between two absent columns
    square = inside.residuals.square().amax(-1, keepdim=True)
    shows = gaps > 10 * square / gaps.abs().clamp(min=torch.finfo(gaps.dtype).tiny)
    counts = torch.arange(1, inside.theta.shape[-1], device=gaps.device)
    return torch.nn.functional.pad(torch.where(shows, counts, torch.zeros_like(counts)), (1, 0)).amax(-1)


def _filtered_bound(inside: Inside, floor: Tensor, wanted: Tensor, *, amplify: float = 2.0) -> Tensor:
    r"""Return Davis and Kahan's bound for a polynomial p(L) instead of L, infinite where it says nothing.

    L and p(L) have the same invariant subspaces. With the Chebyshev polynomial of [floor, high], which is small on all
    that is dropped and grows below, to cosh of ``amplify`` at theta_k, the residual $p(L) X - X (X^\top p(L) X)$ over
    the gap is hardly more than the error itself, whereas the residual of L overestimates components at high frequencies
    by $(\lambda / \delta)^2$.
    """
    A, X, theta, theta_k = inside.A, inside.X, inside.theta, inside.theta_k
    high = torch.maximum(A.gershgorin()[1], 2 * floor - theta_k)
    low = torch.where(wanted, floor, high / 2)
    first = torch.where(wanted, torch.where(inside.absent, theta_k[..., None], theta).amin(-1), 2 * low - high)
    rate = torch.acosh(1 + 2 * (low - torch.where(wanted, theta_k, first)) / (high - low))
    degrees = torch.exp2(torch.log2(amplify / rate).ceil()).clamp(1, 512)
    best = torch.full_like(rate, torch.inf)
    for degree in degrees[wanted].unique().int().tolist():  # powers of two, so that a batch needs few of them
        Y = chebyshev_filter(A, X, degree, low, high, first)  # p is 1 at its largest
        dropped = 1 / torch.cosh(degree * torch.acosh(1 + 2 * (low - first) / (high - low)))  # |p| on [floor, high]
        rounding = 4 * degree * A.n**0.5 * torch.finfo(X.dtype).eps
        G = X.mT @ Y
        mu, Q = torch.linalg.eigh((G + G.mT) / 2 + torch.diag_embed(inside.absent.to(X.dtype)))
        residuals = torch.linalg.vector_norm((Y - X @ G) @ Q, dim=-2) + rounding
        bound = davis_kahan(inside.share * residuals, mu - dropped[..., None] - rounding)
        best = torch.where(wanted & (degrees == degree), bound, best)
    return best
