"""What the scikit-learn estimators share: a graph of samples, its low frequencies, their extension to new samples."""

from __future__ import annotations

import warnings
from dataclasses import replace
from numbers import Integral, Real
from typing import Any, ClassVar

import numpy as np
import scipy.sparse
from sklearn.base import BaseEstimator
from sklearn.exceptions import ConvergenceWarning
from sklearn.neighbors import NearestNeighbors
from sklearn.utils import check_random_state
from sklearn.utils._param_validation import Interval, StrOptions

from krylow._checks import InputError
from krylow.api import METHODS, subspace
from krylow.certificate import Status
from krylow.choose import LIMITS
from krylow.graph import laplacian
from krylow.integrations._frequencies import unconverged
from krylow.result import Subspace

DTYPES = (np.float64, np.float32)


class OnGraph(BaseEstimator):
    """An estimator on a graph of samples, either given or of nearest neighbours."""

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "n_neighbors": [Interval(Integral, 1, None, closed="left")],
        "kind": [StrOptions({"normalized", "combinatorial"})],
        "method": [StrOptions({"auto", *METHODS} - {"unrolled"})],
        "tol": [Interval(Real, 0, None, closed="neither")],
        "random_state": ["random_state"],
        "n_jobs": [Integral, None],
    }

    def _neighbor_graph(self, X: Any) -> Any:
        """Return the symmetrised graph of nearest neighbours, (A + A^T) / 2, and keep what answers queries."""
        self.n_neighbors_ = min(self.n_neighbors, X.shape[0] - 1)
        self._neighbors = NearestNeighbors(n_neighbors=self.n_neighbors_, n_jobs=self.n_jobs).fit(X)
        A = self._neighbors.kneighbors_graph(mode="connectivity")  # a sample is not its own neighbour
        return scipy.sparse.csr_array((A + A.T) / 2)

    def _solve(self, W: Any, k: int | None, cutoff: float | None = None, *, planar: bool = False) -> None:
        """Find the low frequencies of the graph, in float64; its affinity matrix is kept as a sparse one."""
        W = scipy.sparse.csr_array(W).astype(np.float64)
        found = self._subspace(W, k, cutoff, planar=planar)
        self.affinity_matrix_, self._degree, self.subspace_ = W, W.sum(axis=1), found

    def _subspace(self, W: Any, k: int | None, cutoff: float | None = None, *, planar: bool = False) -> Subspace:
        """Return the low frequencies of a graph of non-negative weights, an array or a sparse matrix."""
        given = W.data if scipy.sparse.issparse(W) else W
        if given.size and given.min() < 0:
            least = given.min()
            raise InputError(f"Negative values in data: weights must be at least 0, got {least:.3g}: clip them.")
        L = laplacian(W, self.kind)
        seed = None if self.random_state is None else int(check_random_state(self.random_state).randint(2**31 - 1))
        method, why = self.method, None
        if method == "auto" and planar and L.n > LIMITS.sparse_exact:
            method, why = "shift_invert", "a graph of neighbours in the plane is cheap to factorise"
        prove = getattr(self, "prove", False)
        found = subspace(L, k, cutoff=cutoff, method=method, tol=self.tol, seed=seed, prove=prove)
        advice = found.status.advice if prove and found.status != Status.CONVERGED else unconverged(found)
        if advice:
            warnings.warn(f"The low frequencies are inaccurate. {advice}", ConvergenceWarning, stacklevel=5)
        return found if why is None else replace(found, why=why)

    def _extended(self, rows: Any) -> np.ndarray:
        """Return the frequencies at new samples with weights ``rows`` ``(samples, n)`` to those of the graph."""
        lam, u, dtype = self.eigenvalues_, self._basis, self._basis.dtype
        degree = rows.sum(axis=1).astype(dtype)[:, None]
        if self.kind == "normalized":
            sums = rows @ (u * inverse_root(self._degree, dtype)[:, None]) * inverse_root(degree, dtype)
            rest = np.broadcast_to(1 - lam, sums.shape)
        else:
            sums = rows @ u
            rest = degree - lam
        near = np.abs(rest) <= np.sqrt(np.finfo(dtype).eps) * np.maximum(1, degree)
        return np.where(near, 0, sums / np.where(near, 1, rest))

    def _at(self, X: Any) -> tuple[np.ndarray, np.ndarray]:
        """Return frequencies ``(samples, k)`` and degrees at samples: those of the graph keep theirs."""
        reference = self._neighbors._fit_X
        indices = self._neighbors.kneighbors(X, return_distance=False)  # (samples, neighbours)
        pointers = np.arange(0, indices.size + 1, indices.shape[1])
        weights = np.ones(indices.size, dtype=self._basis.dtype)
        rows = scipy.sparse.csr_array((weights, indices.ravel(), pointers), shape=(X.shape[0], reference.shape[0]))
        u, degree = self._extended(rows), rows.sum(axis=1)
        for nearest in indices.T[::-1]:
            same = np.asarray(abs(X - reference[nearest]).sum(axis=1)).ravel() == 0
            u[same], degree[same] = self._basis[nearest[same]], self._degree[nearest[same]]
        return u, degree

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags


def inverse_root(degree: np.ndarray, dtype: Any) -> np.ndarray:
    """Return degree^-1/2, and 1 for isolated nodes, whose entries stay as they are."""
    return (1 / np.sqrt(np.where(degree > 0, degree, 1))).astype(dtype)
