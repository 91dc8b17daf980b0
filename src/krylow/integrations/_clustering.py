"""Spectral clustering in the place of scikit-learn's own."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import scipy.sparse
from sklearn.base import ClusterMixin
from sklearn.base import _fit_context as fit_context
from sklearn.cluster import SpectralClustering, k_means
from sklearn.cluster._spectral import cluster_qr, discretize
from sklearn.metrics.pairwise import pairwise_kernels
from sklearn.neighbors import NearestNeighbors, kneighbors_graph
from sklearn.utils import check_random_state
from sklearn.utils.validation import validate_data

from krylow._checks import InputError
from krylow.integrations._samples import OnGraph, inverse_root

#: Parameters that mean what they mean in scikit-learn's SpectralClustering, and so are checked as there.
SHARED = (
    "n_clusters", "n_components", "n_init", "gamma", "affinity", "n_neighbors", "assign_labels", "degree", "coef0",
    "kernel_params", "verbose",
)  # fmt: skip
#: Affinities for which X is not samples.
GIVEN = ("precomputed", "precomputed_nearest_neighbors")


class LowPassClustering(ClusterMixin, OnGraph):
    r"""Spectral clustering: :class:`sklearn.cluster.SpectralClustering` with krylow's methods for the eigenvectors.

    The normalised cut of the graph of samples, relaxed (Shi and Malik, 2000; von Luxburg, 2007): labels by k-means on
    the K lowest frequencies of the normalised Laplacian, the trivial one included,

    $$L u_i = \lambda_i u_i, \qquad \text{sample } v \mapsto (u_1(v), \ldots, u_K(v)) / \sqrt{d_v}.$$

    Parameters have the names, the meaning and the defaults of ``SpectralClustering``; ``method`` and ``tol`` stand for
    its ``eigen_solver`` and ``eigen_tol``. Self-loops of the affinities do not count, as there. Isolated samples are
    components of their own here.

    Parameters
    ----------
    n_clusters : int, default=8
        Number of clusters.
    n_components : int or None, default=None
        Number of frequencies K; None: ``n_clusters``.
    random_state : int, RandomState or None, default=None
        Of the start vectors and of the labels.
    n_init : int, default=10
        Runs of k-means, of which the best is kept.
    gamma, degree, coef0, kernel_params
        Of the kernels: "rbf" is $\exp(-\gamma \|x - y\|^2)$.
    affinity : {"rbf", "nearest_neighbors", "precomputed", "precomputed_nearest_neighbors"} or kernel, default="rbf"
        How weights come from samples; a kernel is a name of ``sklearn.metrics.pairwise`` or a function. Kernels have
        n_samples^2 weights: for more than some thousand samples take "nearest_neighbors".
    n_neighbors : int, default=10
        Neighbours of a sample, itself counted; at most all.
    assign_labels : {"kmeans", "discretize", "cluster_qr"}, default="kmeans"
        How labels come from the frequencies.
    method, tol
        As in :class:`LowPassEmbedding`.
    n_jobs : int or None, default=None
        Threads of the search for neighbours.
    verbose : bool, default=False
        Of k-means.

    Attributes
    ----------
    labels_ : ndarray of shape (n_samples,)
        The clusters.
    affinity_matrix_ : array or sparse matrix of shape (n_samples, n_samples)
        The graph.
    subspace_ : krylow.Subspace
        The frequencies with their certificate: ``subspace_.status``, ``subspace_.error_bound``.
    n_features_in_, feature_names_in_
        What ``fit`` has seen.

    Examples
    --------
    >>> from sklearn.datasets import make_moons
    >>> from sklearn.metrics import adjusted_rand_score
    >>> X, y = make_moons(300, noise=0.05, random_state=0)
    >>> moons = LowPassClustering(2, affinity="nearest_neighbors", random_state=0)
    >>> float(adjusted_rand_score(y, moons.fit_predict(X)))
    1.0
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        **{name: limits for name, limits in OnGraph._parameter_constraints.items() if name != "kind"},
        **{name: SpectralClustering._parameter_constraints[name] for name in SHARED},
    }
    kind = "normalized"

    def __init__(
        self,
        n_clusters: int = 8,
        *,
        n_components: int | None = None,
        random_state: Any = None,
        n_init: int = 10,
        gamma: float = 1.0,
        affinity: Any = "rbf",
        n_neighbors: int = 10,
        assign_labels: str = "kmeans",
        degree: float = 3,
        coef0: float = 1,
        kernel_params: dict[str, Any] | None = None,
        method: str = "auto",
        tol: float = 1e-6,
        n_jobs: int | None = None,
        verbose: bool = False,
    ) -> None:
        self.n_clusters = n_clusters
        self.n_components = n_components
        self.random_state = random_state
        self.n_init = n_init
        self.gamma = gamma
        self.affinity = affinity
        self.n_neighbors = n_neighbors
        self.assign_labels = assign_labels
        self.degree = degree
        self.coef0 = coef0
        self.kernel_params = kernel_params
        self.method = method
        self.tol = tol
        self.n_jobs = n_jobs
        self.verbose = verbose

    @fit_context(prefer_skip_nested_validation=True)
    def fit(self, X: Any, y: Any = None) -> LowPassClustering:
        """Cluster samples, or the nodes of a graph.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            The samples; ``(n_samples, n_samples)`` symmetric weights for ``affinity="precomputed"``, distances for
            "precomputed_nearest_neighbors".
        y
            Ignored.
        """
        X = validate_data(self, X, accept_sparse=["csr", "csc", "coo"], dtype=np.float64, ensure_min_samples=2)
        n, k = X.shape[0], self.n_clusters if self.n_components is None else self.n_components
        if max(k, self.n_clusters) > n:
            name = "n_clusters" if k < self.n_clusters or self.n_components is None else "n_components"
            raise InputError(f"{name} must be at most n_samples={n}, got {max(k, self.n_clusters)}.")
        if self.affinity in GIVEN and X.shape[1] != n:
            raise InputError(f"X must be square for affinity={self.affinity!r}, got shape {X.shape}.")
        self.affinity_matrix_ = W = self._affinities(X)
        dense = isinstance(W, np.ndarray) and 4 * np.count_nonzero(W) > n * n  # then a dense product is the faster one
        graph = np.array(W) if dense else scipy.sparse.csr_array(W)
        graph -= np.diag(W.diagonal()) if dense else scipy.sparse.diags_array(W.diagonal())
        planar = self.affinity == "nearest_neighbors" and X.shape[1] <= 2
        self.subspace_ = self._subspace(graph, k, planar=planar)
        degree = np.asarray(graph.sum(axis=1))
        u = self.subspace_.basis.numpy() * inverse_root(degree, np.float64)[:, None]
        self.labels_ = self._labels(np.ascontiguousarray(u))
        return self

    def _affinities(self, X: Any) -> Any:
        """Return the weights between samples, as scikit-learn defines them."""
        neighbors = min(self.n_neighbors, X.shape[0])
        if self.affinity == "precomputed":
            return X
        if self.affinity == "nearest_neighbors":
            A = kneighbors_graph(X, neighbors, include_self=True, n_jobs=self.n_jobs)
            return scipy.sparse.csr_array((A + A.T) / 2)
        if self.affinity == "precomputed_nearest_neighbors":
            known = NearestNeighbors(n_neighbors=neighbors, n_jobs=self.n_jobs, metric="precomputed").fit(X)
            A = known.kneighbors_graph(X=X, mode="connectivity")
            return scipy.sparse.csr_array((A + A.T) / 2)
        options = dict(self.kernel_params or {})
        if not callable(self.affinity):
            options |= {"gamma": self.gamma, "degree": self.degree, "coef0": self.coef0}
        return pairwise_kernels(X, metric=self.affinity, filter_params=True, n_jobs=self.n_jobs, **options)

    def _labels(self, u: np.ndarray) -> np.ndarray:
        """Return labels of the rows of u."""
        source = check_random_state(self.random_state)
        if self.assign_labels == "cluster_qr":
            return np.asarray(cluster_qr(u))
        if self.assign_labels == "discretize":
            directed = np.where(u.any(axis=1, keepdims=True), u, 1)  # it divides by the lengths of rows
            return np.asarray(discretize(directed, random_state=source))
        found = k_means(u, self.n_clusters, n_init=self.n_init, verbose=self.verbose, random_state=source)
        return np.asarray(found[1])

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.pairwise = self.affinity in GIVEN
        tags.input_tags.positive_only = self.affinity == "precomputed"
        return tags
