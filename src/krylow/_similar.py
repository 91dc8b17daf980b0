r"""The subspace of a Laplacian that is no real symmetric matrix, through that of its core ($L = T^{-1} S T$)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from krylow import _checks
from krylow._checks import InputError
from krylow.certificate import Certificate
from krylow.operators import MagneticOperator, SimilarOperator
from krylow.result import Subspace

#: Methods that find both copies of a repeated frequency without a graph's structure, or that the pair completes.
MAGNETIC_METHODS = ("exact", "lanczos", "thick_restart", "chebyshev", "lobpcg")
#: Largest magnetic Laplacian, in nodes, that is decomposed without being asked to.
MAGNETIC_EXACT = 1000


@dataclass(frozen=True, repr=False)
class SimilarSubspace(Subspace):
    r"""The low subspace of a random-walk or magnetic Laplacian $L = T^{-1} S T$.

    ``basis`` holds right eigenvectors' span $\hat U = T^{-1} \hat V$ for the orthonormal basis $\hat V$ of the
    symmetric S: of a random walk orthonormal in the inner product of the degrees, $\hat U^\top D \hat U = I$; of a
    magnetic Laplacian complex, with $\hat U^* \hat U = I$.
    """

    core: Subspace | None = None

    @property
    def _core(self) -> Subspace:
        assert self.core is not None
        return self.core

    @property
    def _L(self) -> SimilarOperator:
        assert isinstance(self.operator, SimilarOperator)
        return self.operator

    def project(self, x: Any) -> Any:
        r"""Return $T^{-1} \hat V \hat V^\top T x$: a random walk's $\hat U \hat U^\top D x$, or $\hat U \hat U^* x$."""
        L = self._L
        return answer(L, through(L, signal(L, x), self._core.project), x)

    def gft(self, x: Any) -> Any:
        r"""Return the coefficients c with ``project(x) = basis @ c``: $\hat U^\top D x$, or $\hat U^* x$."""
        L = self._L
        if L.real == 2:
            return answer(L, self.basis.mH @ signal(L, x), x)
        return answer(L, through(L, signal(L, x), self._core.gft, back=False), x)

    def inverse_gft(self, c: Any) -> Any:
        r"""Return the signal $\hat U c$ of coefficients ``(k,)``, ``(k, c)`` or ``(*batch, k, c)``."""
        L = self._L
        return answer(L, self.basis @ signal(L, c, self.k), c)

    def plot(self, **options: Any) -> Any:
        """Draw the frequencies, and the first of them on the graph, of a random walk."""
        if self._L.real == 2:
            raise InputError("plot() draws real signals, got a complex basis: plot its parts or moduli.")
        return replace(self._core, basis=self.basis).plot(**options)

    @property
    def certificate(self) -> Certificate:
        """The evidence for the subspace of the symmetric core, in whose coordinates the error is measured."""
        return self._core.certificate


def signal(L: SimilarOperator, x: Any, rows: int | None = None) -> Tensor:
    """Return a checked signal in the dtype of L; real and imaginary parts are finite."""
    row, n = ("node", L.n) if rows is None else ("coefficient", rows)
    given = _checks.numbers(x, "the signal")
    if L.real == 1 or not given.is_complex():
        return _checks.signal(given, L.batch_shape, n, L.core.dtype, L.device, row).to(L.dtype)
    parts = [_checks.signal(part, L.batch_shape, n, L.core.dtype, L.device, row) for part in (given.real, given.imag)]
    return torch.complex(*parts)


def through(L: SimilarOperator, x: Tensor, apply: Callable[[Tensor], Any], *, back: bool = True) -> Tensor:
    """Return T^-1 f(T x) of a signal ``(n,)`` or ``(*batch, n, c)``, or f(T x)."""
    y = apply(L.lift(x if x.ndim > 1 else x[:, None]))
    y = L.lower(y) if back else y
    return y if x.ndim > 1 else y[..., 0]


def filter_similar(L: SimilarOperator, x: Any, apply: Callable[[Tensor], Tensor]) -> Any:
    """Return g(L) x, with a last dimension of filters for a bank, by g of the core."""
    column = signal(L, x)
    flat = column.ndim == 1
    y = apply(L.lift(column[:, None] if flat else column))
    bank = y.ndim > (2 if flat else column.ndim)
    y = L.lower(y.movedim(-1, 0)).movedim(0, -1) if bank else L.lower(y)
    return answer(L, (y[:, 0] if flat else y), x)


def answer(L: SimilarOperator, y: Tensor, x: Any) -> Any:
    """Return an answer of x's kind: complex where L is."""
    if L.real == 1:
        return _checks.as_given(y, x)
    return y.to(x.device) if isinstance(x, Tensor) else y.detach().cpu().numpy()


def similar_subspace(
    L: SimilarOperator, k: int | None, cutoff: float | None, method: Any, start: Any, solve: Callable[..., Subspace]
) -> Subspace:
    """Return the subspace of L; ``solve(core, k, cutoff=, method=, start=)`` finds that of its core."""
    k, cutoff, why = *_checks.k_or_cutoff(k, cutoff, int(L.sizes.min())), None
    name = method if isinstance(method, str) else getattr(method, "name", "")
    if isinstance(L, MagneticOperator):
        if name == "auto":
            method = name = "exact" if L.n <= MAGNETIC_EXACT or L.batch_shape else "chebyshev"
            size = "small enough" if name == "exact" else "too large"
            why = f"a magnetic Laplacian of {L.n} nodes is {size} to decompose"
        if name not in MAGNETIC_METHODS:
            raise InputError(f"a magnetic Laplacian takes {', '.join(MAGNETIC_METHODS)}, got method={name!r}.")
        if cutoff is not None and (name == "lanczos" or L.batch_shape):
            raise InputError("a cutoff takes one magnetic Laplacian and no lanczos: index the batch, or give k.")
    if isinstance(start, SimilarSubspace):
        start = start._core.basis
    elif start is not None:
        start = L.lift(_checks.numbers(start, "start").to(L.device, L.dtype))
    wanted = k if k is None else L.real * k
    core = solve(L.core, wanted, cutoff=cutoff, method=method, start=start)
    if isinstance(L, MagneticOperator):
        basis, theta, core = _complex(L, core, single=name == "lanczos")
    else:
        basis, theta = L.lower(core.basis), core.ritz_values
    kept = None if core.kept is None else core.kept // L.real
    return SimilarSubspace(
        basis,
        theta,
        L,
        core.products,
        core.passes,
        core.method,
        why or core.why,
        core.tol,
        exact=core.exact,
        cutoff=cutoff,
        kept=kept,
        interrupted=core.interrupted,
        core=core,
    )


@torch.no_grad()
def _complex(L: MagneticOperator, core: Subspace, *, single: bool) -> tuple[Tensor, Tensor, Subspace]:
    """Return an orthonormal complex basis of Ritz vectors of the real subspace, their values, and that subspace.

    The real basis V of 2 k columns holds u and i u of every pair, so that the complex block Z of its columns has
    $Z Z^* = 2 P$: k singular values are the root of 2, and k are zero. A single Krylov space has one vector of each
    pair, from which the other follows, and perhaps, by rounding, some others: of these the k lowest are taken.
    """
    Z = L.lower(core.basis)
    if core.kept is not None and not bool(core.kept.any()):  # nothing below the cutoff: one column of zeros
        return Z[..., :1], core.ritz_values[..., :1], core
    k = Z.shape[-1] // 2
    Q = torch.linalg.svd(Z, full_matrices=False).U
    Q = Q if single else Q[..., :k]
    theta, Y = torch.linalg.eigh(Q.mH @ L.lower(L.core.detach() @ L.lift(Q)))
    theta, basis = theta[..., :k], Q @ Y[..., :k]
    if single:
        if core.proof is not None:
            raise InputError("prove takes another method than lanczos for a magnetic Laplacian.")
        pairs = torch.cat([L.lift(basis), L.lift(1j * basis)], dim=-1)
        core = replace(core, basis=pairs, ritz_values=torch.cat([theta, theta], dim=-1), following=None, evidence=None)
    return basis, theta, core
