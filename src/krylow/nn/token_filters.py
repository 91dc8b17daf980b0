r"""Low-pass filters on token graphs: what :class:`~krylow.nn.LowPassAttention` applies to its values.

Every filter approximates $y = f(L) x$, where f keeps the k lowest frequencies or those up to a cutoff. The Krylov
filters know L on an orthonormal basis Q, $H = Q^\top L Q$, and take it for

$$\tilde L = Q H Q^\top + \mu (I - Q Q^\top), \qquad \mu = \frac{\mathrm{tr} L - \mathrm{tr} H}{n - m},$$

with $\mu$ the mean eigenvalue on the orthogonal complement of the basis. So $f(\tilde L)$ either drops the complement
and keeps some Ritz vectors, or, where $\mu$ is below the cutoff, keeps the complement and removes some at the top end:

$$y = Q B B^\top Q^\top x \qquad \text{or} \qquad y = x - Q B B^\top Q^\top x .$$

The graph's gradient is that of $f(L)$ at $\tilde L$, which is the exact filter's where the basis is complete. No
recurrence is differentiated for it: that divides by $\beta_j$ at every step, which gives the exact filter's gradient
where it has converged, and up to thousands of times its norm, or rounding, where it has not. The gradient of the gammas
and of a probe goes through the relaxed recurrence, which is where they act.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from krylow import _checks
from krylow._checks import InputError
from krylow._random import fixed
from krylow.autodiff.projector import lowest_eigenspace, orthonormalize
from krylow.density import COUNT_PROBES, estimated_cutoff
from krylow.expansion import chebyshev_lowpass
from krylow.krylov.lanczos import lanczos
from krylow.krylov.probe import function_of
from krylow.krylov.relaxed import relaxed_recurrence
from krylow.krylov.restart import block_lanczos
from krylow.krylov.ritz import symmetrized_matrix
from krylow.linalg.eigh import eigvalsh
from krylow.nn.graph_learning import EqualTokens, TokenGraph, equal_tokens
from krylow.nn.kernel_krylov import BasisOf, basis_and_product, krylov_basis
from krylow.nn.probes import Probe
from krylow.operators import DenseOperator

#: Rows of the random start that are drawn together: a token's number does not depend on how many follow it.
ROWS = 64
#: Least gap to the unseen part of the spectrum that the gradient divides by, as a part of the spectrum's spread.
UNSEEN_GAP = 1e-3


@dataclass(frozen=True)
class Band:
    """What is kept: the k lowest frequencies, or where k is None those up to the cutoff."""

    k: int | None = None
    cutoff: float = math.inf


@dataclass(frozen=True)
class Relaxation:
    """The factors of the relaxed recurrence, each ``(m,)``."""

    gamma1: Tensor
    gamma2: Tensor


def start_block(graph: TokenGraph, columns: int, *, generator: torch.Generator | None = None) -> Tensor:
    """Return a Gaussian block ``(batch, n, columns)``, zero on padding.

    Without a generator it is the same at every call and for every sequence, and a token's row depends on its position
    alone: padding a batch changes nothing. With one it is drawn anew.
    """
    batch, n = graph.points.shape[:2]
    like = graph.points
    if generator is not None:
        if _checks.traced():
            raise InputError(
                "torch records no draw from a generator: leave it out, for the fixed start, or draw eagerly."
            )
        z = torch.randn(batch, n, columns, generator=generator, device=generator.device)
    else:
        z = torch.cat([fixed((ROWS, columns), block) for block in range(-(-n // ROWS))])[:n].expand(batch, n, columns)
    z = z.to(like)
    return z if graph.mask is None else z * graph.mask[..., None]


@dataclass(frozen=True)
class KrylovSettings:
    """How a Krylov space of a graph is made and what is taken from it.

    Attributes
    ----------
    m
        Basis vectors.
    block_size
        Columns of the start. More than one sees repeated frequencies.
    relaxation
        Factors of the relaxed recurrence, which changes the Ritz vectors inside the space and not the space. The
        recurrence commutes with a change of basis: it runs on the m x m matrix H, from the first unit vector. Where a
        graph has no more than m different frequencies the space is full, and the exact Ritz vectors are taken.
    probe, probe_steps
        What makes the relaxed recurrence's start from a random vector, on H too, and the basis vectors added to
        the m for it. None: the random vector itself.
    merge_equal
        Whether the basis is of what equal tokens have in common, on normalized Laplacians: their differences have the
        highest frequency, 1, and are dropped without being looked for.
    literal
        The paper's filter, step by step: nothing is merged, the relaxed recurrence goes on for m steps (or as many as
        there are tokens) even where the space is full, its Ritz vectors are always the ones applied, and the rest of
        the space is always dropped.
    through_recurrence
        Whether to differentiate the basis too, on a tape; the probe then runs on L, and nothing is merged.
    """

    m: int
    block_size: int = 1
    relaxation: Relaxation | None = None
    probe: Probe | None = None
    probe_steps: int = 0
    merge_equal: bool = True
    literal: bool = False
    through_recurrence: bool = False


def krylov_filter(
    graph: TokenGraph, x: Tensor, band: Band, settings: KrylovSettings, *, generator: torch.Generator | None = None
) -> Tensor:
    """Return the signal filtered inside a Krylov space of the graph, ``(batch, n, c)``, x being zero on padding.

    Exact for a complete basis, unless ``literal``. Costs m passes over each graph from one vector, m / b from a block
    of b, and one more; a graph is made from its points when needed, and never kept. The start is random, from
    ``generator``; None: a fixed one.
    """
    m, literal, on_tape = settings.m, settings.literal, settings.through_recurrence
    signal, z = x, start_block(graph, settings.block_size, generator=generator)
    tokens = None if literal else equal_tokens(graph)
    mergeable = settings.merge_equal and graph.kind == "normalized" and not on_tape
    merged = tokens is not None and mergeable and (_checks.traced() or bool(tokens.repeated.any()))
    if tokens is not None and merged:
        x, z = tokens.mean(x), tokens.mean(z)
    if on_tape:
        space = _space_on_tape(graph, z, m, settings.probe)
    else:
        space = _krylov_space(graph, z, m + settings.probe_steps, tokens if merged else None)
    sign = torch.ones_like(space.mu)
    if band.k is None and not literal:
        sign = torch.where((space.rest > 0) & (space.mu <= band.cutoff), -sign, sign)
    dropped = band.k is not None or literal
    keeps = None if dropped else ((1 - sign) / 2)[:, None, None]  # the response to the rest, 0 or 1
    A = sign[:, None, None] * space.H
    C = _lowest(A, space.live, band, sign)  # carries the graph's gradient
    B = C if on_tape else C.detach()
    if settings.relaxation is not None:
        full = None if tokens is None else tokens.different + (0 if merged else tokens.repeated) <= m
        B = _relaxed_basis(B, A if on_tape else A.detach(), space.live, band, sign, settings, _sizes(graph), full)
    y: Tensor
    if on_tape:
        y = _response(x, space.Q @ B, keeps)
    else:
        # Kept frequencies may lie on both sides of a rest that is dropped although it is in the band: no gap to it.
        gapped = (space.rest > 0) & ((sign < 0) | (space.mu > (band.cutoff if band.k is None else -math.inf)))
        inverse = _inverse_gaps(C.detach(), space.H.detach(), space.mu, sign) * gapped[:, None]
        y = _Project.apply(x, space.Q, B, C, space.LQ, keeps, inverse[:, None, :])
    if merged:
        n = _sizes(graph)
        everything = n <= band.k if band.k is not None else torch.full_like(n, band.cutoff >= 1)
        y = y + everything[:, None, None] * (signal - x)
    return y


def _relaxed_basis(
    B: Tensor,
    A: Tensor,
    live: Tensor,
    band: Band,
    sign: Tensor,
    settings: KrylovSettings,
    sizes: Tensor,
    full: Tensor | None,
) -> Tensor:
    """Return the relaxed recurrence's Ritz vectors in the place of B, but for graphs whose Krylov space is ``full``.

    A full space leaves nothing out, and its Ritz vectors are exact; the last relaxed residual lies in it.
    """
    relaxation, probe = settings.relaxation, None if settings.through_recurrence else settings.probe
    assert relaxation is not None
    found = _relaxed(A, live, band, sign, relaxation, probe, sizes if settings.literal else None)
    found = nn.functional.pad(found, (0, B.shape[-1] - found.shape[-1]))
    if full is not None:
        return torch.where(full[:, None, None], B, found)
    if settings.probe is not None:
        return found
    return torch.where(_neutral(relaxation), B, found)  # at 1 on a full space the recurrence would go on with rounding


@dataclass(frozen=True)
class _Space:
    """A Krylov basis of each graph and what is known of L from it.

    Q, L Q, H = Q^T L Q, which columns live, and of the rest of the space its dimension and its mean frequency.
    """

    Q: Tensor
    LQ: Tensor
    H: Tensor
    live: Tensor
    rest: Tensor
    mu: Tensor


def _krylov_space(graph: TokenGraph, z: Tensor, m: int, tokens: EqualTokens | None) -> _Space:
    """Return the Krylov space of a start ``(batch, n, b)``; with ``tokens``, of what equal tokens have in common."""
    n, b = z.shape[-2:]
    Q, LQ, trace = basis_and_product(graph, z, _basis(min(m, -(-n // b) * b), b), tokens)
    if tokens is None:
        return _space(Q, LQ, trace, _sizes(graph))
    return _space(Q, LQ, trace - (_sizes(graph) - tokens.different), tokens.different)  # frequency 1 a difference


def _space_on_tape(graph: TokenGraph, z: Tensor, m: int, probe: Probe | None) -> _Space:
    L = graph.laplacian()
    Q = lanczos(L, z if probe is None else probe(L, z), min(m, L.n), reorthogonalize=True).V
    return _space(Q, L @ Q, L.diagonal().sum(-1).detach(), _sizes(graph))


def _space(Q: Tensor, LQ: Tensor, trace: Tensor, dimension: Tensor) -> _Space:
    """Return the space of a basis in an invariant subspace of this dimension and trace of L, both ``(batch,)``."""
    live = torch.linalg.vector_norm(Q.detach(), dim=-2) > 0.5  # (batch, s)
    live = live & (live.cumsum(-1) <= dimension[:, None])
    Q, LQ = Q * live[:, None, :], LQ * live[:, None, :]
    H = Q.mT @ LQ
    H = (H + H.mT) / 2  # (batch, s, s)
    rest = dimension - live.sum(-1)
    return _Space(Q, LQ, H, live, rest, (trace - H.detach().diagonal(dim1=-2, dim2=-1).sum(-1)) / rest.clamp(min=1))


def exact_filter(graph: TokenGraph, x: Tensor, band: Band) -> Tensor:
    """Return the signal filtered by the eigendecomposition of each graph, ``(batch, n, c)``: O(n^3)."""
    L = graph.laplacian().matrix
    real = _sizes(graph)[:, None] > torch.arange(L.shape[-1], device=L.device)
    padding = None if graph.mask is None else ~graph.mask
    if padding is not None:
        L = L + torch.diag_embed(padding * _above(L))
    if band.k is not None:
        _, U = lowest_eigenspace(L, min(band.k, L.shape[-1]), real.sum(-1).clamp(max=band.k))
    else:
        count = ((eigvalsh(L) <= band.cutoff) & real).sum(-1)
        _, U = lowest_eigenspace(L, L.shape[-1], count)
    return U @ (U.mT @ x)


def chebyshev_filter(
    graph: TokenGraph, x: Tensor, band: Band, degree: int, *, generator: torch.Generator | None = None
) -> Tensor:
    """Return the signal filtered by a Jackson-damped Chebyshev polynomial, ``(batch, n, c)``.

    Costs ``degree`` passes. With k the cutoff is where about k frequencies lie below, by a stochastic count.
    """
    dense = graph.laplacian()
    # The filter approximated does not depend on the interval, which so carries no gradient. A normalized Laplacian's
    # spectrum is known to lie in [0, 1], closer than Gershgorin's bounds.
    high = 1.0 if graph.kind == "normalized" else dense.norm_bound()
    L = function_of(dense, dense.__matmul__, (0.0, high), psd=dense.psd)
    cutoff: float | Tensor = band.cutoff
    if band.k is not None:
        z = start_block(graph, COUNT_PROBES, generator=generator)
        cutoff = estimated_cutoff(L, band.k, degree=degree, z=z)
    return chebyshev_lowpass(L, x, cutoff=cutoff, degree=degree)


def kernel_filter(graph: TokenGraph, x: Tensor) -> Tensor:
    """Return $D^{-1} W x$, ``(batch, n, c)``: plain kernel attention on the same graph, the control."""
    W = graph.weights()
    return (W @ x) / W.sum(-1, keepdim=True).clamp(min=1)


def _basis(m: int, block_size: int) -> BasisOf:
    if block_size == 1:
        return partial(krylov_basis, m=m)
    return lambda L, X, norm, tokens: block_lanczos(L, X, -(-m // block_size))[0]


def _lowest(A: Tensor, live: Tensor, band: Band, sign: Tensor) -> Tensor:
    """Return an orthonormal basis ``(batch, s, w)`` of the lowest Ritz vectors of A = +-H that are in the band.

    For A = -H these are the ones at the top end, out of the band. Zero columns where there are fewer than w.
    """
    lifted = A + torch.diag_embed(~live * _above(A))  # dead steps come last
    steps = live.sum(-1)
    if band.k is not None:
        width = min(band.k, A.shape[-1])
        return lowest_eigenspace(lifted, width, steps.clamp(max=width))[1]
    theta = eigvalsh(lifted)
    limit = (sign * band.cutoff)[:, None]
    inside = torch.where(sign[:, None] > 0, theta <= limit, theta < limit)
    count = torch.minimum(inside.sum(-1), steps)
    return lowest_eigenspace(lifted, A.shape[-1], count)[1]


def _relaxed(
    A: Tensor,
    live: Tensor,
    band: Band,
    sign: Tensor,
    relaxation: Relaxation,
    probe: Probe | None,
    longest: Tensor | None = None,
) -> Tensor:
    """Return the same of the relaxed recurrence on A; ``longest`` as in :func:`.relaxed_recurrence`."""
    m = min(relaxation.gamma1.shape[0], A.shape[-1])
    gamma1, gamma2 = relaxation.gamma1[:m].to(A.dtype), relaxation.gamma2[:m].to(A.dtype)
    start = torch.eye(A.shape[-1], 1, dtype=A.dtype, device=A.device) * live[:, :1, None]
    if probe is not None:
        start = probe(DenseOperator(A, mask=live), start)
    krylov = relaxed_recurrence(A, start, gamma1, gamma2, live, longest=longest)
    S, log_d = symmetrized_matrix(krylov)
    alive = torch.arange(m, device=A.device) < krylov.steps[..., None]
    Y = _lowest(S, alive, band, sign)
    return orthonormalize(krylov.V @ (log_d.exp()[..., None] * Y))


def _neutral(relaxation: Relaxation) -> Tensor:
    """Say whether all gammas are 1, and the recurrence so the classical one, ``(1,)``."""
    return torch.stack([relaxation.gamma1.detach() == 1, relaxation.gamma2.detach() == 1]).all()[None]


def _inverse_gaps(B: Tensor, H: Tensor, mu: Tensor, sign: Tensor) -> Tensor:
    r"""Return $1 / (\theta_i - \mu)$, ``(batch, w)``, for the Ritz values of B's columns.

    Where the rest is dropped (sign 1) those are below it, where it is kept above: a gap of the wrong sign, or hardly
    any, counts as the least one.
    """
    gap = (B * (H @ B)).sum(-2) - mu[:, None]
    spread = torch.maximum(H.diagonal(dim1=-2, dim2=-1).amax(-1), mu)[:, None]
    gap = -sign[:, None] * torch.maximum(-sign[:, None] * gap, UNSEEN_GAP * spread)
    return torch.where(gap != 0, 1 / gap, torch.zeros_like(gap))


def _above(A: Tensor) -> Tensor:
    """Return a number above every eigenvalue, ``(batch, 1)``, without a gradient."""
    return 1 + 2 * A.detach().abs().sum(-1).amax(-1, keepdim=True)


def _sizes(graph: TokenGraph) -> Tensor:
    batch, n = graph.points.shape[:2]
    if graph.mask is None:
        return torch.full((batch,), n, device=graph.points.device)
    return graph.mask.sum(-1)


def _response(x: Tensor, U: Tensor, keeps: Tensor | None) -> Tensor:
    """Return U U^T x, or x - U U^T x where ``keeps`` ``(batch, 1, 1)`` is 1; None: 0 everywhere."""
    inside = U.mT @ x
    if keeps is None:
        return U @ inside
    return torch.addcmul(U @ ((1 - 2 * keeps) * inside), keeps, x)


class _Project(torch.autograd.Function):
    r"""The response with $U = Q B$, and the gradient of $f(L)$ at $\tilde L$.

    A change $F = (I - Q Q^\top) \, dL \, Q$ couples the basis with its complement, and moves each Ritz vector
    $Q c_i$ by $F c_i / (\theta_i - \mu)$; what L does inside the basis goes through C, the Ritz vectors of H. Those of
    the relaxed recurrence, B, are the ones applied, and pass the gradient on to what was learned there.
    """

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, Q: Tensor, B: Tensor, C: Tensor, LQ: Tensor, keeps: Tensor | None, inverse: Tensor
    ) -> Tensor:
        ctx.save_for_backward(x, Q, B, C, keeps, inverse)
        return _response(x, Q @ B, keeps)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, Q, B, C, keeps, inverse = ctx.saved_tensors
        grad_B = Q.mT @ _basis_gradient(grad, x, Q @ B, keeps) if ctx.needs_input_grad[2] else None
        grad_U = _basis_gradient(grad, x, Q @ C, keeps)
        grad_C = Q.mT @ grad_U
        outside = grad_U - Q @ grad_C
        return _response(grad, Q @ B, keeps), None, grad_B, grad_C, (outside * inverse) @ C.mT, None, None


def _basis_gradient(grad: Tensor, x: Tensor, U: Tensor, keeps: Tensor | None) -> Tensor:
    """Return the gradient of :func:`_response` with respect to U, ``(batch, n, w)``."""
    xU, gU = x.mT @ U, grad.mT @ U  # (batch, c, w)
    if keeps is not None:
        xU, gU = (1 - 2 * keeps) * xU, (1 - 2 * keeps) * gU
    return grad @ xU + x @ gU
