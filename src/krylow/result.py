"""What a method returns: the subspace, what it cost, and how good it is."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from krylow import _checks
from krylow._floor import PROOF_LIMIT
from krylow._html import html_table
from krylow._reduce import summed
from krylow.certificate import (
    LEAST_BOUND,
    Certificate,
    Status,
    certify,
    deviation,
    from_evidence,
    interrupted,
)
from krylow.krylov.ritz import Evidence, Ritz
from krylow.operators import Operator

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True, repr=False)
class Subspace:
    r"""The low-frequency subspace that a method found, what it cost, and how good it is.

    Attributes
    ----------
    basis
        ``(*batch, n, k)``, orthonormal columns. A zero column means that no such vector was found.
    ritz_values
        ``(*batch, k)``, ascending; infinite for a zero column.
    products
        Products with L that the method spent; a block of s columns costs s.
    passes
        Sweeps over L; a block costs one.
    method
        The method that was used.
    why
        Why it was chosen, in words.
    tol
        The error that was asked for.
    """

    basis: Tensor
    ritz_values: Tensor
    operator: Operator
    products: int = 0
    passes: int = 0
    method: str = ""
    why: str = ""
    tol: float = 1e-3
    #: ``(*batch,)`` the method's (k+1)-st Ritz value and its residual, where it has them; exact: the eigenvalue itself.
    following: Tensor | None = None
    following_residual: Tensor | None = None
    exact: bool = False
    #: With a cutoff: the cutoff, and ``(*batch,)`` how many columns each graph keeps.
    cutoff: float | None = None
    kept: Tensor | None = None
    #: Whether Ctrl-C ended the iteration, and what a refinement of a large graph measured of its own error.
    interrupted: bool = False
    evidence: Evidence | None = None
    #: With ``prove=True``: what the proof has shown.
    proof: Certificate | None = None
    #: Where a warm start was refined: the products of the last answer before it that began at random, where known.
    cold: int | None = None

    @property
    def k(self) -> int:
        """Number of kept frequencies."""
        return self.basis.shape[-1]

    def project(self, x: Any) -> Any:
        r"""Return $\hat U \hat U^\top x$ for x ``(n,)``, ``(n, c)`` or ``(*batch, n, c)``, of x's kind and dtype."""
        L = self.operator
        signal = _checks.signal(x, L.batch_shape, L.rows, self.basis.dtype, self.basis.device)
        with L.together():
            return _checks.as_given(self.basis @ summed(self.basis.mT @ signal)[0], x)

    @cached_property
    def certificate(self) -> Certificate:
        """The evidence, computed when first asked for: k products, and what the floor costs (see the module)."""
        found = self._evidence()
        error = found.error_bound + deviation(self.basis.detach()).to(found.error_bound)
        statuses = found.statuses.clone()
        statuses[(statuses == Status.CONVERGED) & (error > max(self.tol, 2 * LEAST_BOUND))] = Status.MAX_STEPS
        return replace(found, error_bound=error, statuses=statuses)

    def _evidence(self) -> Certificate:
        """Return the evidence for the span of the basis."""
        if self.proof is not None:
            found = self.proof
        elif self.evidence is not None and (self.evidence.proved or self.operator.n > PROOF_LIMIT):
            basis, theta = self.basis.detach(), self.ritz_values.detach()
            found = from_evidence(self.operator, basis, theta, self.evidence, tol=self.tol, cutoff=self.cutoff)
        else:
            found = certify(
                self.operator,
                self.basis,
                tol=self.tol,
                following=self.following,
                following_residual=self.following_residual,
                exact=self.exact,
                cutoff=self.cutoff,
                kept=self.kept,
            )
        return replace(found, statuses=interrupted(found.statuses)) if self.interrupted else found

    @property
    def residuals(self) -> Tensor:
        """``(*batch, k)`` residual norms of the Ritz pairs inside the subspace."""
        return self.certificate.residuals

    @property
    def error_bound(self) -> Tensor:
        """``(*batch,)`` bound of the normalised squared subspace error, infinite where no gap shows."""
        return self.certificate.error_bound

    @property
    def status(self) -> Status:
        """The worst status of the batch; :attr:`statuses` has one for each graph."""
        return Status(int(self.certificate.statuses.max()))

    @property
    def statuses(self) -> Tensor:
        """``(*batch,)`` codes of :class:`Status`."""
        return self.certificate.statuses

    def gft(self, x: Any) -> Any:
        r"""Return the graph Fourier coefficients $\hat U^\top x$, ``(k,)``, ``(k, c)`` or ``(*batch, k, c)``."""
        L = self.operator
        signal = _checks.signal(x, L.batch_shape, L.rows, self.basis.dtype, self.basis.device)
        with L.together():
            return _checks.as_given(summed(self.basis.mT @ signal)[0], x)

    def inverse_gft(self, c: Any) -> Any:
        r"""Return the signal $\hat U c$ of graph Fourier coefficients ``(k,)``, ``(k, c)`` or ``(*batch, k, c)``."""
        L = self.operator
        coefficients = _checks.signal(c, L.batch_shape, self.k, self.basis.dtype, self.basis.device, "coefficient")
        return _checks.as_given(self.basis @ coefficients, c)

    def plot(self, **options: Any) -> Figure:
        """Draw the frequencies, and the first of them on the graph: :func:`krylow.plot.subspace` and its options."""
        from krylow import plot

        return plot.subspace(self, **options)

    def _repr_html_(self) -> str:
        """Return what a notebook shows; of the certificate only what has been computed."""
        low, high = (float(self.ritz_values.detach().flatten()[i]) for i in (0, -1))
        rows = {
            "basis": f"{tuple(self.basis.shape)}, {self.basis.dtype}",
            "frequencies": f"{self.k}, from {low:.4g} to {high:.4g}" if not self.operator.batch_shape else str(self.k),
            "method": f"{self.method}: {self.why}",
            "cost": f"{self.products:,} products with L in {self.passes:,} passes",
        }
        if "certificate" in self.__dict__:
            kind = "proved" if self.certificate.proved else "estimated"
            rows["error bound"] = f"{float(self.error_bound.max()):.2g} ({kind}), asked for {self.tol:.2g}"
            rows["status"] = f"{self.status}: {self.status.advice}"
        else:
            rows["status"] = "not computed yet: sub.status, sub.error_bound"
        return html_table("Subspace", rows)

    def __repr__(self) -> str:
        return (
            f"Subspace(method={self.method!r}, shape={tuple(self.basis.shape)}, products={self.products}, "
            f"passes={self.passes})"
        )

    def __str__(self) -> str:
        """Return what it is and how good, with the word for it: estimated, checked or proved."""
        return f"{self!r}: {self.certificate}"


def from_pairs(L: Operator, k: int, pairs: Ritz, cost: tuple[int, int], why: str) -> Subspace:
    """Return the subspace of the k lowest Ritz pairs of a solver; ``cost`` are the products and passes spent."""
    kept = pairs.kept
    k = k if kept is None else max(1, kept)
    X, theta = pairs.X[..., :k], pairs.theta[..., :k]
    if kept == 0:
        X, theta = torch.zeros_like(X), torch.full_like(theta, torch.inf)
    guard = pairs.theta.shape[-1] > k
    return Subspace(
        basis=X,
        ritz_values=theta,
        operator=L,
        products=cost[0],
        passes=cost[1],
        why=why,
        following=pairs.theta[..., k] if guard else None,
        following_residual=pairs.residuals[..., k] if guard else None,
        interrupted=pairs.interrupted,
        evidence=pairs.evidence,
        kept=None if kept is None else torch.full_like(L.sizes, kept),
    )
