"""The estimators by scikit-learn's own checks, beside SpectralEmbedding and SpectralClustering, by their equations."""

import importlib
import sys

import networkx as nx
import numpy as np
import pytest
import scipy.sparse
from sklearn.base import clone
from sklearn.cluster import KMeans, SpectralClustering
from sklearn.datasets import load_digits, load_iris, make_blobs, make_circles, make_moons
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.manifold import SpectralEmbedding
from sklearn.metrics import adjusted_rand_score
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.utils.estimator_checks import parametrize_with_checks

from krylow import InputError, Status, laplacian
from krylow.integrations.sklearn import LowPassClustering, LowPassEmbedding, LowPassFilter
from krylow.testing import block_diagonal, cycle, path, random_graph


@parametrize_with_checks(
    [
        LowPassEmbedding(),
        LowPassEmbedding(kind="combinatorial", drop_first=False),
        LowPassEmbedding(output="diagonal"),
        LowPassEmbedding(output="projector"),
        LowPassEmbedding(affinity="precomputed"),
        LowPassFilter(),
        LowPassFilter(kind="normalized"),
        LowPassClustering(),
        LowPassClustering(affinity="nearest_neighbors", assign_labels="cluster_qr"),
        LowPassClustering(affinity="precomputed", assign_labels="discretize"),
    ],
    expected_failed_checks=lambda estimator: (
        {"check_clustering": "gives samples to an estimator that takes weights"}
        if isinstance(estimator, LowPassClustering) and estimator.affinity == "precomputed"
        else {}
    ),
)
def test_scikit_learns_own_checks(estimator, check):
    check(estimator)


@pytest.fixture(scope="module")
def digits():
    X, y = load_digits(return_X_y=True)
    return X, y


def projector(U):
    U = np.linalg.qr(U.astype(np.float64))[0]
    return U @ U.T


def normalized_laplacian(W):
    degree = W.sum(1)
    return np.eye(len(W)) - W / np.sqrt(np.outer(degree, degree))


def pipeline(clusters, n_components, **options):
    return make_pipeline(LowPassEmbedding(n_components, **options), KMeans(clusters, n_init=10, random_state=0))


def test_the_embedding_is_that_of_spectral_embedding(digits):
    X = digits[0][:400]
    ours = LowPassEmbedding(4, n_neighbors=9)
    theirs = SpectralEmbedding(4, affinity="nearest_neighbors", n_neighbors=10, random_state=0)
    Y, Z = ours.fit_transform(X), theirs.fit_transform(X)
    loops = theirs.affinity_matrix_.diagonal()
    assert abs(ours.affinity_matrix_ + scipy.sparse.diags_array(loops) - theirs.affinity_matrix_).max() == 0
    gaps = np.diff(np.linalg.eigvalsh(normalized_laplacian(ours.affinity_matrix_.toarray()))[:6])
    assert (gaps > 1e-4).all()
    for i in range(4):
        assert min(abs(Y[:, i] - Z[:, i]).max(), abs(Y[:, i] + Z[:, i]).max()) < 1e-8


def test_clusters_of_digits_are_at_least_as_good_as_scikit_learns(digits):
    X, y = digits
    graph = {"affinity": "nearest_neighbors", "n_neighbors": 10}
    clustering = SpectralClustering(10, random_state=0, **graph).fit_predict(X)  # 9 frequencies and the trivial one
    embedding = SpectralEmbedding(10, random_state=0, **graph).fit_transform(X)
    embedding = KMeans(10, n_init=10, random_state=0).fit_predict(embedding)
    for n_components, theirs in ((9, clustering), (10, embedding)):
        ours = adjusted_rand_score(y, pipeline(10, n_components, n_neighbors=9).fit_predict(X))
        assert ours > 0.7
        assert ours >= adjusted_rand_score(y, theirs)


def test_two_moons_come_apart():
    X, y = make_moons(600, noise=0.06, random_state=0)
    theirs = SpectralClustering(2, affinity="nearest_neighbors", random_state=0).fit_predict(X)
    ours = pipeline(2, 1).fit_predict(X)
    assert adjusted_rand_score(y, ours) >= adjusted_rand_score(y, theirs)
    assert adjusted_rand_score(y, ours) > 0.95
    assert adjusted_rand_score(y, KMeans(2, n_init=10, random_state=0).fit_predict(X)) < 0.6  # it is the graph's doing


def test_a_pipeline_labels_new_samples_like_their_neighbours():
    X, y = make_moons(800, noise=0.06, random_state=0)
    fitted = pipeline(2, 1).fit(X[:600])
    assert adjusted_rand_score(y[600:], fitted.predict(X[600:])) > 0.95
    search = GridSearchCV(pipeline(2, 1), {"lowpassembedding__n_neighbors": [3, 10]}, cv=2).fit(X[:200])
    assert search.best_params_["lowpassembedding__n_neighbors"] in (3, 10)


@pytest.mark.parametrize("kind", ["normalized", "combinatorial"])
def test_new_samples_satisfy_the_equation_of_the_samples(kind):
    W = random_graph(40, 0.3, seed=1).numpy()
    W[np.diag_indices(40)] = np.arange(40) % 2  # self-loops included
    fitted = LowPassEmbedding(5, affinity="precomputed", kind=kind, drop_first=False).fit(W)
    assert np.allclose(fitted.transform(W), fitted.embedding_, atol=1e-9)  # exact for the samples themselves
    new = np.zeros((3, 40))
    new[0, [3, 7]], new[1, 5] = (1.0, 2.0), 4.0
    f, lam = fitted.embedding_, fitted.eigenvalues_
    extended = fitted.transform(new)
    if kind == "normalized":
        assert np.allclose(extended[0], (f[3] + 2 * f[7]) / 3 / (1 - lam))
        assert np.allclose(extended[1], f[5] / (1 - lam))
    else:
        assert np.allclose(extended[0], (f[3] + 2 * f[7]) / (3 - lam))
    assert (extended[2] == 0).all()  # no weights, nothing known


def test_a_frequency_that_cannot_be_extended_gives_zero():
    star = np.zeros((5, 5))
    star[0, 1:] = star[1:, 0] = 1  # normalised frequencies 0, 1, 1, 1, 2
    fitted = LowPassEmbedding(2, affinity="precomputed").fit(star)
    assert np.allclose(fitted.eigenvalues_, 1)
    assert (fitted.transform(star[:2]) == 0).all()


@pytest.mark.parametrize("as_sparse", [False, True])
def test_samples_of_the_graph_keep_their_embedding(digits, as_sparse):
    X = scipy.sparse.csr_array(digits[0][:150]) if as_sparse else digits[0][:150]
    fitted = LowPassEmbedding(3).fit(X)
    assert np.array_equal(fitted.transform(X[20:50]), fitted.embedding_[20:50])
    moved = fitted.transform(X[20:50] * 1.01)
    assert not np.array_equal(moved, fitted.embedding_[20:50])
    assert np.corrcoef(moved[:, 0], fitted.embedding_[20:50, 0])[0, 1] > 0.95


def test_outputs_that_do_not_depend_on_a_basis():
    W = cycle(12).numpy()  # frequencies in pairs: single vectors are arbitrary
    U = np.linalg.eigh(normalized_laplacian(W))[1]
    P = U[:, 1:5] @ U[:, 1:5].T
    options = {"affinity": "precomputed", "kind": "normalized"}
    assert np.allclose(LowPassEmbedding(4, output="projector", **options).fit_transform(W), P)
    assert np.allclose(LowPassEmbedding(4, output="diagonal", **options).fit_transform(W), P.diagonal()[:, None])
    rows = LowPassEmbedding(4, kind="combinatorial", affinity="precomputed").fit_transform(W)
    assert np.allclose(((rows[0] - rows[5]) ** 2).sum(), ((P[0] - P[5]) ** 2).sum())  # the same distances
    assert [
        LowPassEmbedding(4, output=o, **options).fit(W).get_feature_names_out().size
        for o in ("vectors", "diagonal", "projector")
    ] == [4, 1, 12]


def test_signs_do_not_depend_on_the_method_or_the_start(digits):
    X = digits[0][:600]
    reference = LowPassEmbedding(3, method="exact").fit_transform(X)
    assert (reference.max(0) >= 0.99 * abs(reference).max(0)).any()
    for options in ({"method": "chebyshev"}, {"method": "thick_restart", "random_state": 5}):
        assert np.allclose(LowPassEmbedding(3, tol=1e-12, **options).fit_transform(X), reference, atol=1e-4)


def test_of_a_disconnected_graph_the_trivial_vector_is_left_out():
    W = block_diagonal(random_graph(9, seed=1), random_graph(7, seed=2), random_graph(5, seed=3)).numpy()
    fitted = LowPassEmbedding(2, affinity="precomputed").fit(W)
    degree = W.sum(1)
    U = np.linalg.eigh(normalized_laplacian(W))[1]
    t = np.sqrt(degree / degree.sum())
    assert np.allclose(projector(fitted.embedding_ * np.sqrt(degree)[:, None]), U[:, :3] @ U[:, :3].T - np.outer(t, t))
    with_it = LowPassEmbedding(3, affinity="precomputed", drop_first=False).fit(W)
    assert np.allclose(projector(with_it.embedding_ * np.sqrt(degree)[:, None]), U[:, :3] @ U[:, :3].T)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_dtypes_names_and_containers(dtype):
    import pandas as pd

    X = pd.DataFrame(make_moons(60, noise=0.1, random_state=0)[0].astype(dtype), columns=["a", "b"])
    embedding = LowPassEmbedding(3).set_output(transform="pandas")
    Y = embedding.fit_transform(X)
    assert list(Y.columns) == ["lowpassembedding0", "lowpassembedding1", "lowpassembedding2"]
    assert (Y.dtypes == dtype).all()
    assert embedding.transform(X[:7]).shape == (7, 3)
    smooth = LowPassFilter(4).set_output(transform="pandas")
    assert list(smooth.fit_transform(X).columns) == ["a", "b"] == list(smooth.get_feature_names_out())
    assert (smooth.transform(X).dtypes == dtype).all()


def test_the_answer_comes_with_its_certificate(digits):
    fitted = LowPassEmbedding(5).fit(digits[0][:800])
    assert fitted.subspace_.status is Status.CONVERGED
    assert float(fitted.subspace_.error_bound) <= 1e-6
    with pytest.warns(ConvergenceWarning, match="inaccurate"):
        LowPassEmbedding(5, method="lanczos").fit(digits[0][:800])


def test_the_laplacian_is_krylows():
    W = block_diagonal(random_graph(12, seed=1), path(1)).numpy()  # with an isolated node
    W[np.diag_indices(13)] = np.arange(13) % 3 == 0  # and self-loops
    W[12, 12] = 0
    for kind in ("combinatorial", "normalized"):
        fitted = LowPassEmbedding(2, affinity="precomputed", kind=kind).fit(W)
        assert np.allclose(fitted.subspace_.operator.to_dense().numpy(), laplacian(W, kind).to_dense().numpy())


def test_auto_factorises_graphs_of_neighbours_in_the_plane_and_says_so(digits):
    X, _ = make_moons(700, noise=0.06, random_state=0)
    fitted = LowPassEmbedding(3).fit(X)
    assert fitted.subspace_.method == "shift_invert"
    assert "plane" in fitted.subspace_.why
    exact = LowPassEmbedding(3, method="exact").fit(X)
    assert np.allclose(fitted.eigenvalues_, exact.eigenvalues_, atol=1e-8)
    assert np.allclose(projector(fitted.embedding_), projector(exact.embedding_), atol=1e-3)
    assert fitted.set_params(method="thick_restart").fit(X).subspace_.method == "thick_restart"
    assert LowPassEmbedding(3).fit(X[:300]).subspace_.method == "exact"
    assert "plane" not in LowPassEmbedding(3).fit(digits[0][:700]).subspace_.why
    assert "plane" not in LowPassFilter(3, graph=fitted.affinity_matrix_).fit(X).subspace_.why


def test_the_filter_is_the_projector_on_the_low_frequencies():
    W = random_graph(30, 0.2, seed=3).numpy()
    L = np.diag(W.sum(1)) - W
    lam, U = np.linalg.eigh(L)
    rng = np.random.default_rng(0)
    X = rng.standard_normal((30, 4))
    for graph in (W, scipy.sparse.csr_array(W), nx.from_numpy_array(W)):
        fitted = LowPassFilter(6, graph=graph).fit(X)
        assert np.allclose(fitted.transform(X), U[:, :6] @ (U[:, :6].T @ X))
        other = rng.standard_normal((30, 4))  # any columns on that graph
        assert np.allclose(fitted.transform(other), U[:, :6] @ (U[:, :6].T @ other))
    cutoff = (lam[6] + lam[7]) / 2
    by_cutoff = LowPassFilter(None, cutoff=cutoff, graph=W).fit(X)
    assert np.allclose(by_cutoff.eigenvalues_, lam[:7])
    assert np.allclose(by_cutoff.transform(X), U[:, :7] @ (U[:, :7].T @ X))
    assert (LowPassFilter(None, cutoff=-1.0, graph=W).fit_transform(X) == 0).all()  # nothing is below


def test_the_filter_denoises_and_keeps_constants():
    rng = np.random.default_rng(0)
    angle = np.sort(rng.uniform(0, np.pi, 400))
    clean = np.c_[np.cos(angle), np.sin(angle)]
    noisy = clean + 0.15 * rng.standard_normal(clean.shape)
    fitted = LowPassFilter(6).fit(noisy)
    error = np.square(fitted.transform(noisy) - clean).mean() / np.square(noisy - clean).mean()
    assert error < 0.65
    assert np.allclose(fitted.transform(noisy), fitted.fit_transform(noisy))
    new = clean[::7] + 0.15 * rng.standard_normal(clean[::7].shape)  # not in the graph
    assert np.square(fitted.transform(new) - clean[::7]).mean() < 0.65 * np.square(new - clean[::7]).mean()
    constant = LowPassFilter(3, graph=fitted.affinity_matrix_).fit_transform(np.full((400, 1), 2.5))
    assert np.allclose(constant, 2.5)


@pytest.mark.parametrize(
    ("estimator", "X", "words"),
    [
        (LowPassEmbedding(5), np.eye(5), "n_components must be at most 4"),
        (LowPassFilter(6), np.eye(5), "n_components must be at most n_samples=5"),
        (LowPassEmbedding(1, affinity="precomputed"), np.ones((3, 2)), "square"),
        (LowPassEmbedding(1, affinity="precomputed"), np.triu(np.ones((3, 3))), "symmetric"),
        (LowPassEmbedding(1, affinity="precomputed"), -path(4).numpy(), "at least 0"),
        (LowPassFilter(2, graph=path(4).numpy()), np.ones((5, 1)), "one row for each of the 4 nodes"),
        (LowPassFilter(2, cutoff=1.0), np.eye(5), "either k"),
        (LowPassFilter(None), np.eye(5), "either k"),
        (LowPassEmbedding(output="rows"), np.eye(5), "output"),
        (LowPassEmbedding(method="unrolled"), np.eye(5), "method"),
        (LowPassClustering(6), np.eye(5), "n_clusters must be at most n_samples=5"),
        (LowPassClustering(2, n_components=6), np.eye(5), "n_components must be at most n_samples=5"),
        (LowPassClustering(2, affinity="linear"), -np.eye(5)[:, :1] + 0.5, "at least 0"),
        (LowPassClustering(2, affinity="precomputed"), np.ones((3, 2)), "square"),
        (LowPassClustering(2, affinity="cosines"), np.eye(5), "affinity"),
    ],
)
def test_bad_input_is_refused_by_fit_and_in_words(estimator, X, words):
    with pytest.raises(ValueError, match=words):
        clone(estimator).fit(X)


def test_a_wrong_number_of_rows_and_an_unfitted_estimator():
    fitted = LowPassFilter(2, graph=path(4).numpy()).fit(np.ones((4, 1)))
    with pytest.raises(InputError, match="4 nodes"):
        fitted.transform(np.ones((3, 1)))
    with pytest.raises(NotFittedError):
        LowPassEmbedding().transform(np.eye(4))


USUAL = {
    "digits, neighbours": (lambda: load_digits(return_X_y=True), 10, {"affinity": "nearest_neighbors"}),
    "iris, rbf": (lambda: load_iris(return_X_y=True), 3, {"gamma": 0.5}),
    "blobs, rbf": (lambda: make_blobs(1500, 6, centers=5, random_state=1), 5, {"gamma": 0.05}),
    "moons, neighbours": (lambda: make_moons(900, noise=0.06, random_state=0), 2, {"affinity": "nearest_neighbors"}),
    "circles, neighbours": (
        lambda: make_circles(700, factor=0.4, noise=0.05, random_state=0), 2, {"affinity": "nearest_neighbors"}
    ),
    "iris, cosine": (lambda: load_iris(return_X_y=True), 3, {"affinity": "cosine"}),
    "blobs, cluster_qr": (
        lambda: make_blobs(600, 3, centers=4, random_state=2), 4, {"gamma": 0.1, "assign_labels": "cluster_qr"}
    ),
    "blobs, discretize": (
        lambda: make_blobs(600, 3, centers=4, random_state=2), 4, {"gamma": 0.1, "assign_labels": "discretize"}
    ),
}  # fmt: skip


@pytest.mark.filterwarnings("ignore:Graph is not fully connected")
@pytest.mark.parametrize("name", USUAL)
def test_clusters_are_those_of_spectral_clustering(name):
    made, clusters, options = USUAL[name]
    X, _ = made()
    theirs = SpectralClustering(clusters, random_state=0, **options).fit(X)
    ours = LowPassClustering(clusters, random_state=0, **options).fit(X)
    assert abs(ours.affinity_matrix_ - theirs.affinity_matrix_).max() == 0
    assert adjusted_rand_score(theirs.labels_, ours.labels_) > 0.99
    assert ours.subspace_.status is Status.CONVERGED
    assert ours.subspace_.k == options.get("n_components", clusters)


def test_clustering_of_given_graphs_and_distances(digits):
    X = digits[0][:500]
    by_rotation = {"assign_labels": "cluster_qr", "random_state": 0}  # the same labels from any basis of the subspace
    graph = SpectralClustering(10, affinity="nearest_neighbors", **by_rotation).fit(X)
    for W in (graph.affinity_matrix_, graph.affinity_matrix_.toarray()):
        ours = LowPassClustering(10, affinity="precomputed", **by_rotation).fit_predict(W)
        assert adjusted_rand_score(graph.labels_, ours) == 1
    distances = np.sqrt(np.square(X[:, None] - X[None]).sum(-1))
    for given, options in (
        (distances, {"affinity": "precomputed_nearest_neighbors"}),
        (X, {"affinity": "laplacian", "gamma": 0.02}),
        (X, {"affinity": lambda x, y: 1 / (1 + np.square(x - y).sum())}),
        (X, {"affinity": "nearest_neighbors", "n_components": 7}),
    ):
        theirs, ours = (c(10, **options, **by_rotation) for c in (SpectralClustering, LowPassClustering))
        assert adjusted_rand_score(theirs.fit_predict(given), ours.fit_predict(given)) == 1


@pytest.mark.parametrize("assign_labels", ["kmeans", "discretize", "cluster_qr"])
def test_components_are_clusters(assign_labels):
    parts = [random_graph(9, seed=1), random_graph(7, seed=2), path(1)]
    W = block_diagonal(*parts).numpy()
    clustering = LowPassClustering(3, affinity="precomputed", assign_labels=assign_labels, random_state=0)
    assert adjusted_rand_score([0] * 9 + [1] * 7 + [2], clustering.fit_predict(W)) == 1
    assert len(clustering.set_params(n_clusters=2).fit_predict(W)) == 17  # more components than clusters


def test_parameters_of_clustering_are_those_of_scikit_learn():
    theirs, ours = (estimator.get_params() for estimator in (SpectralClustering(), LowPassClustering()))
    assert theirs.keys() - ours.keys() == {"eigen_solver", "eigen_tol"}
    assert ours.keys() - theirs.keys() == {"method", "tol"}
    assert all(ours[name] == theirs[name] for name in theirs.keys() & ours.keys())


def test_without_scikit_learn_the_error_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "sklearn.base", None)
    monkeypatch.delitem(sys.modules, "krylow.integrations.sklearn")
    with pytest.raises(ImportError, match=r"pip install '\.\[sklearn\]'"):
        importlib.import_module("krylow.integrations.sklearn")
