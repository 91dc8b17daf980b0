r"""Ours and the peers behind one call: a Laplacian, k, how accurate, a seed; a basis, and whether it says it succeeded.

A peer does not take a subspace error. It gets what it cannot know, the true gap at k: ``accuracy`` asks for residuals
of at most ``accuracy * gap``, translated into the peer's own tolerance with the true eigenvalue at k. That favours the
peers, and makes one ladder of accuracies serve them all.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import scipy.sparse

#: Accuracies of the ladder that a peer climbs until its answers are right: residual over gap.
LADDER = (1.0, 0.3, 0.1, 0.03, 0.01, 1e-3, 1e-4, 1e-6, 1e-8)
#: Degrees of the ladder that a polynomial filter climbs.
DEGREES = (30, 100, 300, 1000)


@dataclass(frozen=True)
class Problem:
    """What a solver is given. The eigenvalues at the cut are for the peers, who are tuned with them."""

    L: Any
    k: int
    lam_k: float
    lam_next: float

    @property
    def gap(self) -> float:
        """The gap at k."""
        return self.lam_next - self.lam_k

    @property
    def high(self) -> float:
        """An upper bound of the spectrum."""
        return 2 * float(self.L.diagonal().max())


@dataclass(frozen=True)
class Answer:
    """What a solver returned: a basis ``(n, k)`` or None, whether it says it succeeded, and what else it says."""

    basis: Any
    success: bool
    note: str = ""


def eigsh(problem: Problem, accuracy: float, seed: int, dtype: Any = np.float64) -> Answer:
    """Run ARPACK's Lanczos on L."""
    from scipy.sparse.linalg import ArpackNoConvergence
    from scipy.sparse.linalg import eigsh as arpack

    k, start = problem.k, _start(problem, seed, 1)[:, 0].astype(dtype)
    ncv, tol = max(2 * k + 1, k + 30), accuracy * problem.gap / problem.lam_k
    try:
        _, X = arpack(problem.L.astype(dtype), k, which="SA", v0=start, ncv=ncv, tol=tol, maxiter=100_000)
    except ArpackNoConvergence as error:
        return Answer(error.eigenvectors, False, "not converged")
    return Answer(X, True)


def shift_invert(problem: Problem, accuracy: float, seed: int, ordering: str = "COLAMD") -> Answer:
    """Run ARPACK on the inverse of L plus a small shift, factorised with this ordering."""
    from scipy.sparse.linalg import LinearOperator, splu
    from scipy.sparse.linalg import eigsh as arpack

    L, k = problem.L, problem.k
    shift = 1e-2 * problem.lam_k
    symmetric = {"diag_pivot_thresh": 0.0, "options": {"SymmetricMode": True}} if ordering != "COLAMD" else {}
    A = (L + shift * scipy.sparse.eye_array(L.shape[0])).tocsc()
    factor = splu(A, permc_spec=ordering, **symmetric)
    inverse = LinearOperator(L.shape, matvec=factor.solve, dtype=np.float64)
    start = _start(problem, seed, 1)[:, 0]
    _, X = arpack(L, k, sigma=-shift, OPinv=inverse, v0=start, tol=accuracy * problem.gap / problem.lam_next)
    return Answer(X, True)


def lobpcg(problem: Problem, accuracy: float, seed: int, preconditioner: str | None = None) -> Answer:
    """Run scipy's LOBPCG with a few guard vectors."""
    from scipy.sparse.linalg import lobpcg as scipy_lobpcg

    k = problem.k
    X = _start(problem, seed, k + max(3, k // 5))
    M = _preconditioner(problem, preconditioner)
    residual = accuracy * problem.gap
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            theta, X = scipy_lobpcg(problem.L, X, M=M, largest=False, tol=residual, maxiter=2000)
        except Exception as error:  # scipy raises a bare Exception where its Gram matrix loses definiteness
            return Answer(None, False, f"{type(error).__name__}: {error}"[:200])
    order = np.argsort(theta)[:k]
    return Answer(X[:, order], not caught, str(caught[0].message)[:100] if caught else "")


def primme(problem: Problem, accuracy: float, seed: int, preconditioner: str | None = None) -> Answer:
    """Run PRIMME's default method, a near-optimal Davidson or Jacobi-Davidson."""
    from primme import PrimmeError
    from primme import eigsh as davidson

    start = _start(problem, seed, 1)
    M = _preconditioner(problem, preconditioner)
    tol = accuracy * problem.gap / problem.high * 2  # relative to its own estimate of the largest eigenvalue
    try:
        _, X = davidson(problem.L, problem.k, which="SA", v0=start, OPinv=M, tol=tol)
    except PrimmeError as error:
        return Answer(None, False, str(error)[:200])
    return Answer(X, True)


def krylow(problem: Problem, tol: float, seed: int, method: str = "auto") -> Answer:
    """Run ours; its only setting is the wanted error."""
    import krylow as kl

    return Answer(kl.subspace(problem.L, problem.k, tol=tol, seed=seed, method=method), True)


def pygsp(problem: Problem, degree: int, seed: int) -> Answer:
    """Filter a random block by PyGSP's Chebyshev approximation of the ideal filter: no basis, the filtered block."""
    from pygsp import filters, graphs

    diagonal = scipy.sparse.diags_array(problem.L.diagonal())
    graph = graphs.Graph(scipy.sparse.csr_matrix(diagonal - problem.L))
    graph._lmax, graph._lmax_method = problem.high, "bounds"
    cutoff = (problem.lam_k + problem.lam_next) / 2
    ideal = filters.Filter(graph, lambda x: (x < cutoff).astype(float))
    return Answer(ideal.filter(signals(problem, seed), method="chebyshev", order=degree), True)


def signals(problem: Problem, seed: int) -> Any:
    """Return the random block that a filter without a basis is judged by."""
    return _start(problem, seed, 8)


def _start(problem: Problem, seed: int, columns: int) -> Any:
    return np.random.default_rng(seed).standard_normal((problem.L.shape[0], columns))


def _preconditioner(problem: Problem, name: str | None) -> Any:
    """Return None, the inverse diagonal, or one V-cycle of smoothed aggregation on L with a little of the identity."""
    from scipy.sparse.linalg import LinearOperator

    if name is None:
        return None
    L = problem.L
    if name == "jacobi":
        inverse = 1 / L.diagonal()[:, None]
        apply = lambda X: inverse * X if X.ndim == 2 else inverse[:, 0] * X  # noqa: E731
        return LinearOperator(L.shape, matvec=apply, matmat=apply, dtype=np.float64)
    import pyamg

    shifted = scipy.sparse.csr_matrix(L + 1e-2 * problem.lam_k * scipy.sparse.eye_array(L.shape[0]))
    shifted.indices, shifted.indptr = shifted.indices.astype(np.int32), shifted.indptr.astype(np.int32)
    return pyamg.smoothed_aggregation_solver(shifted).aspreconditioner()


@dataclass(frozen=True)
class Solver:
    """A solver by name: its call, its title in tables, and the package it needs in addition to scipy."""

    title: str
    run: Callable[[Problem, float, int], Answer]
    package: str | None = None
    ladder: tuple[float, ...] = LADDER


#: The peers, quick ones first: the best so far decides how long the next may take.
PEERS: dict[str, Solver] = {
    "shift-mmd": Solver("scipy shift-invert, MMD", partial(shift_invert, ordering="MMD_AT_PLUS_A")),
    "eigsh32": Solver("scipy eigsh, float32", partial(eigsh, dtype=np.float32)),
    "primme-amg": Solver("primme + AMG", partial(primme, preconditioner="amg"), "primme"),
    "primme-jacobi": Solver("primme + Jacobi", partial(primme, preconditioner="jacobi"), "primme"),
    "primme": Solver("primme", primme, "primme"),
    "lobpcg-amg": Solver("scipy lobpcg + pyamg", partial(lobpcg, preconditioner="amg"), "pyamg"),
    "eigsh64": Solver("scipy eigsh", eigsh),
    "shift-colamd": Solver("scipy shift-invert, COLAMD", shift_invert),
    "lobpcg": Solver("scipy lobpcg", lobpcg),
    "pygsp": Solver("PyGSP Chebyshev", lambda p, a, s: pygsp(p, int(a), s), "pygsp", DEGREES),
}
#: Ours: what the table shows, and single methods for a closer look.
OURS: dict[str, Solver] = {
    "krylow": Solver("krylow", krylow),
    **{
        f"krylow-{method}": Solver(f"krylow, {method}", partial(krylow, method=method))
        for method in ("chebyshev", "multilevel", "davidson", "lobpcg", "shift_invert", "thick_restart")
    },
}
SOLVERS = {**OURS, **PEERS}
