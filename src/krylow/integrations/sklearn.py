r"""scikit-learn estimators: the low frequencies of a graph of samples as features, as a filter, and as clusters.

>>> from sklearn.cluster import KMeans
>>> from sklearn.datasets import make_moons
>>> from sklearn.metrics import adjusted_rand_score
>>> from sklearn.pipeline import make_pipeline
>>> X, y = make_moons(300, noise=0.05, random_state=0)
>>> moons = make_pipeline(LowPassEmbedding(n_components=1), KMeans(2, n_init=10, random_state=0))
>>> float(adjusted_rand_score(y, moons.fit_predict(X)))
1.0

The embedding and the filter extend to new samples as Nystroem did: a new sample x with weights $w_i$ to the samples of
the graph (1 for its nearest neighbours) and $d_x = \sum_i w_i$ must satisfy the same equation as they do,

$$u(x) = \frac{1}{1 - \lambda} \sum_i \frac{w_i u_i}{\sqrt{d_x d_i}} \quad \text{(normalised)}, \qquad
u(x) = \frac{1}{d_x - \lambda} \sum_i w_i u_i \quad \text{(combinatorial)}.$$

That is exact for the samples of the graph themselves, good where the frequency is well below 1 (or $d_x$), and
undefined at it, where the extension is set to 0.
"""

from __future__ import annotations

import sys
from numbers import Integral, Real
from typing import Any, ClassVar

import numpy as np
import scipy.sparse
import torch

from krylow._checks import InputError
from krylow.integrations._frequencies import fixed_signs, missing_extra, without_trivial, zero_frequency

try:
    from sklearn.base import ClassNamePrefixFeaturesOutMixin, OneToOneFeatureMixin, TransformerMixin
    from sklearn.base import _fit_context as fit_context
    from sklearn.utils._param_validation import Interval, StrOptions
    from sklearn.utils.validation import check_is_fitted, validate_data

    from krylow.integrations._clustering import LowPassClustering
    from krylow.integrations._samples import DTYPES, OnGraph, inverse_root
except ModuleNotFoundError as error:
    raise missing_extra(__name__, "scikit-learn", "sklearn") from error

__all__ = ["LowPassClustering", "LowPassEmbedding", "LowPassFilter"]


class LowPassEmbedding(ClassNamePrefixFeaturesOutMixin, TransformerMixin, OnGraph):
    r"""Embed samples by the lowest frequencies of their graph: Laplacian eigenmaps by krylow's methods.

    $$L u_i = \lambda_i u_i, \qquad \text{sample } v \mapsto (u_2(v), \ldots, u_{K+1}(v)) / \sqrt{d_v}$$

    with the normalised Laplacian, or without the division with the combinatorial one. Up to signs the same as
    ``SpectralEmbedding(affinity="nearest_neighbors")`` with one neighbour more, since there a sample is its own
    neighbour. Of a disconnected graph the trivial vector itself is dropped; self-loops count in the degrees.

    Parameters
    ----------
    n_components : int, default=2
        Number of frequencies K.
    affinity : {"nearest_neighbors", "precomputed"}, default="nearest_neighbors"
        X are samples, or a symmetric matrix of non-negative weights, dense or sparse. New samples are then rows.
    n_neighbors : int, default=10
        Neighbours of a sample, itself not counted; at most all others.
    kind : {"normalized", "combinatorial"}, default="normalized"
        The Laplacian.
    output : {"vectors", "diagonal", "projector"}, default="vectors"
        "vectors": K columns, each with the first of its largest entries positive. Independent of the basis are
        "diagonal", one column $\sum_i u_i(v)^2$, and "projector", the n columns of $U U^\top$.
    drop_first : bool, default=True
        Whether to leave out the trivial frequency, which is constant.
    method, tol
        As in :func:`krylow.subspace`, without the networks; "auto" takes "shift_invert" for more than 500 samples of at
        most two features, whose graph is nearly planar.
    prove : bool, default=False
        Whether the frequencies are to be proved, as in :func:`krylow.subspace`; what is not warns.
    random_state : int, RandomState or None, default=None
        Of the start vectors. None: the same ones at every call.
    n_jobs : int or None, default=None
        Threads of the search for neighbours.

    Attributes
    ----------
    embedding_ : ndarray of shape (n_samples, n_features_out)
        The samples' embedding.
    eigenvalues_ : ndarray of shape (n_components,)
        The frequencies, ascending.
    affinity_matrix_ : scipy.sparse.csr_array of shape (n_samples, n_samples)
        The graph.
    subspace_ : krylow.Subspace
        The answer with its certificate: ``subspace_.status``, ``subspace_.error_bound``.
    n_neighbors_ : int
        Neighbours used.
    n_features_in_, feature_names_in_
        What ``fit`` has seen.

    Examples
    --------
    >>> path = np.diag(np.ones(3), 1) + np.diag(np.ones(3), -1)
    >>> LowPassEmbedding(1, affinity="precomputed", kind="combinatorial").fit_transform(path).round(4)
    array([[ 0.6533],
           [ 0.2706],
           [-0.2706],
           [-0.6533]])
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        **OnGraph._parameter_constraints,
        "n_components": [Interval(Integral, 1, None, closed="left")],
        "affinity": [StrOptions({"nearest_neighbors", "precomputed"})],
        "output": [StrOptions({"vectors", "diagonal", "projector"})],
        "prove": ["boolean"],
        "drop_first": ["boolean"],
    }

    def __init__(
        self,
        n_components: int = 2,
        *,
        affinity: str = "nearest_neighbors",
        n_neighbors: int = 10,
        kind: str = "normalized",
        output: str = "vectors",
        drop_first: bool = True,
        method: str = "auto",
        tol: float = 1e-6,
        prove: bool = False,
        random_state: Any = None,
        n_jobs: int | None = None,
    ) -> None:
        self.n_components = n_components
        self.affinity = affinity
        self.n_neighbors = n_neighbors
        self.kind = kind
        self.output = output
        self.drop_first = drop_first
        self.method = method
        self.tol = tol
        self.prove = prove
        self.random_state = random_state
        self.n_jobs = n_jobs

    @fit_context(prefer_skip_nested_validation=True)
    def fit(self, X: Any, y: Any = None) -> LowPassEmbedding:
        """Find the low frequencies of the graph of X.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            The samples, or their graph ``(n_samples, n_samples)`` if ``affinity="precomputed"``.
        y
            Ignored.
        """
        X = validate_data(self, X, accept_sparse="csr", dtype=DTYPES, ensure_min_samples=2)
        n, first = X.shape[0], int(self.drop_first)
        if self.n_components + first > n:
            raise InputError(f"n_components must be at most {n - first} for n_samples={n}, got {self.n_components}.")
        given = self.affinity == "precomputed"
        W = X if given else self._neighbor_graph(X)
        self._solve(W, self.n_components + first, planar=not given and X.shape[1] <= 2)
        basis, theta = self.subspace_.basis, self.subspace_.ritz_values
        if self.drop_first:
            trivial = np.sqrt(self._degree) if self.kind == "normalized" else np.ones(n)
            zero = zero_frequency(n, basis.dtype) * self.subspace_.operator.norm_bound()
            basis, theta = without_trivial(basis, theta, torch.from_numpy(trivial), zero)
        self._basis, self.eigenvalues_ = (x.numpy().astype(X.dtype) for x in (fixed_signs(basis), theta))
        self.embedding_ = self._shown(self._basis, self._degree)
        self._n_features_out = self.embedding_.shape[1]
        return self

    def fit_transform(self, X: Any, y: Any = None) -> np.ndarray:
        """Find the low frequencies of the graph of X, and return the embedding of its samples."""
        return self.fit(X).embedding_

    def transform(self, X: Any) -> np.ndarray:
        """Return the embedding of samples, extended to those that are not in the graph.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_new, n_features)
            Samples; for ``affinity="precomputed"`` their weights to those of the graph, ``(n_new, n_samples)``.
        """
        check_is_fitted(self)
        X = validate_data(self, X, accept_sparse="csr", dtype=DTYPES, reset=False)
        if self.affinity == "precomputed":
            rows = scipy.sparse.csr_array(X)
            return self._shown(self._extended(rows), rows.sum(axis=1))
        return self._shown(*self._at(X))

    def _shown(self, u: np.ndarray, degree: np.ndarray) -> np.ndarray:
        if self.output == "diagonal":
            return np.square(u).sum(axis=1, keepdims=True)
        if self.output == "projector":
            return u @ self._basis.T
        return u * inverse_root(degree, u.dtype)[:, None] if self.kind == "normalized" else u

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.pairwise = tags.input_tags.positive_only = self.affinity == "precomputed"
        return tags


class LowPassFilter(OneToOneFeatureMixin, TransformerMixin, OnGraph):
    r"""Denoise the columns of X on a graph of its rows: keep their low frequencies, drop the rest.

    $$Y = U_K U_K^	op X, \qquad L u_i = \lambda_i u_i$$

    The rows are the nodes. Without ``graph`` it is the graph of their nearest neighbours, and ``transform`` extends the
    filtered columns to new rows (see the module). With ``graph``, ``transform`` filters any columns on that graph.

    Parameters
    ----------
    n_components : int or None, default=5
        Number of kept frequencies K.
    graph : array, sparse matrix, networkx graph or None, default=None
        Symmetric non-negative weights ``(n_samples, n_samples)``. None: that of nearest neighbours.
    cutoff : float or None, default=None
        Instead of ``n_components``, which is then None: keep every frequency up to this one.
    n_neighbors : int, default=10
        Neighbours of a row, itself not counted; at most all others.
    kind : {"combinatorial", "normalized"}, default="combinatorial"
        The Laplacian. The combinatorial one keeps constant columns as they are.
    method, tol, random_state, n_jobs
        As in :class:`LowPassEmbedding`.

    Attributes
    ----------
    eigenvalues_ : ndarray of shape (K,)
        The kept frequencies, ascending.
    affinity_matrix_, subspace_, n_neighbors_, n_features_in_, feature_names_in_
        As in :class:`LowPassEmbedding`.

    Examples
    --------
    >>> edge = np.array([[0.0, 1.0], [1.0, 0.0]])
    >>> LowPassFilter(1, graph=edge).fit_transform([[1.0, 5.0], [3.0, 5.0]]).round(6)
    array([[2., 5.],
           [2., 5.]])
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        **OnGraph._parameter_constraints,
        "prove": ["boolean"],
        "n_components": [Interval(Integral, 1, None, closed="left"), None],
        "graph": "no_validation",  # type: ignore[dict-item]  # read, and refused in words, by krylow itself
        "cutoff": [Real, None],
    }

    def __init__(
        self,
        n_components: int | None = 5,
        *,
        graph: Any = None,
        cutoff: float | None = None,
        n_neighbors: int = 10,
        kind: str = "combinatorial",
        method: str = "auto",
        tol: float = 1e-6,
        prove: bool = False,
        random_state: Any = None,
        n_jobs: int | None = None,
    ) -> None:
        self.n_components = n_components
        self.graph = graph
        self.cutoff = cutoff
        self.n_neighbors = n_neighbors
        self.kind = kind
        self.method = method
        self.tol = tol
        self.prove = prove
        self.random_state = random_state
        self.n_jobs = n_jobs

    @fit_context(prefer_skip_nested_validation=True)
    def fit(self, X: Any, y: Any = None) -> LowPassFilter:
        """Find the low frequencies of the graph.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            The columns to filter.
        y
            Ignored.
        """
        X = validate_data(self, X, accept_sparse="csr", dtype=DTYPES, ensure_min_samples=2)
        k, n = self.n_components, X.shape[0]
        if k is not None and k > n:
            raise InputError(f"n_components must be at most n_samples={n}, got {k}.")
        given = self.graph is not None
        W = self._given_graph() if given else self._neighbor_graph(X)
        self._solve(W, k, self.cutoff, planar=not given and X.shape[1] <= 2)
        self._check_rows(X)
        kept = self.subspace_.basis.abs().amax(-2) > 0  # a cutoff below every frequency keeps none
        basis, theta = fixed_signs(self.subspace_.basis[:, kept]), self.subspace_.ritz_values[kept]
        self._basis, self.eigenvalues_ = (x.numpy().astype(X.dtype) for x in (basis, theta))
        self._coefficients = self._basis.T @ X
        return self

    def fit_transform(self, X: Any, y: Any = None) -> np.ndarray:
        """Find the low frequencies of the graph, and return the filtered columns of X."""
        self.fit(X)
        return self._basis @ self._coefficients

    def transform(self, X: Any) -> np.ndarray:
        """Return the filtered columns at new rows or, with ``graph``, of new columns.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_new, n_features)
            With ``graph``: one row a node.
        """
        check_is_fitted(self)
        X = validate_data(self, X, accept_sparse="csr", dtype=DTYPES, reset=False)
        if self.graph is None:
            return self._at(X)[0] @ self._coefficients
        self._check_rows(X)
        return self._basis.astype(X.dtype) @ (self._basis.T.astype(X.dtype) @ X)

    def _given_graph(self) -> Any:
        networkx = sys.modules.get("networkx")  # imported already if the graph is one of its own
        if networkx is not None and isinstance(self.graph, networkx.Graph):
            return networkx.to_scipy_sparse_array(self.graph, dtype=float)
        return self.graph if scipy.sparse.issparse(self.graph) else np.asarray(self.graph)

    def _check_rows(self, X: Any) -> None:
        n = self.affinity_matrix_.shape[0]
        if X.shape[0] != n:
            raise InputError(f"X must have one row for each of the {n} nodes of the graph, got {X.shape[0]}.")
