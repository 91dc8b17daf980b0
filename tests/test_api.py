import numpy as np
import pytest
import scipy.sparse
import torch
from scipy.sparse.linalg import aslinearoperator
from torch.autograd import gradcheck

import krylow as kl
from krylow import InputError
from krylow._floor import PROOF_LIMIT
from krylow.api import SIGNAL_METHODS
from krylow.certificate import Status
from krylow.choose import LIMITS, choose
from krylow.graph import as_operator
from krylow.nn import GaussianProbe, UnrolledLanczos
from krylow.operators import FunctionOperator
from krylow.profile import GraphProfile
from krylow.testing import (
    block_diagonal,
    complete,
    cycle,
    grid,
    laplacian_matrix,
    lowest,
    path,
    projector,
    random_graph,
    rounding,
)
from krylow_lab.large.graphs import make

F32, F64 = torch.float32, torch.float64
ITERATIVE = ["thick_restart", "chebyshev", "lobpcg"]


def randn(*shape, seed=0, dtype=F64):
    return torch.randn(*shape, dtype=F64, generator=torch.Generator().manual_seed(seed)).to(dtype)


# Bad input ------------------------------------------------------------------------------------------------------

L5 = laplacian_matrix(path(5))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, r"either k .*or cutoff .*got neither"),
        ({"k": 2, "cutoff": 1.0}, r"either k .*or cutoff .*got k=2 and cutoff=1\.0"),
        ({"k": 0}, r"k must be between 1 and 5 .*got 0"),
        ({"k": -1}, r"k must be between 1 and 5 .*got -1"),
        ({"k": 6}, r"k must be between 1 and 5 \(the number of nodes.*got 6"),
        ({"k": 1.5}, r"k must be an integer, got 1\.5"),
        ({"k": "two"}, r"k must be an integer, got 'two'"),
        ({"cutoff": float("nan")}, r"cutoff must be a number, got nan"),
        ({"k": 2, "method": "magic"}, r"method must be one of 'exact', 'lanczos'.*got 'magic'"),
        ({"k": 2, "tol": 0.0}, r"tol must be a positive number, got 0\.0"),
        ({"k": 2, "tol": -1.0}, r"tol must be a positive number"),
        ({"k": 2, "m": 0}, r"m must be at least 1, got 0"),
        ({"k": 2, "m": 2.5}, r"m must be an integer, got 2\.5"),
        ({"k": 2, "seed": 0, "generator": torch.Generator()}, r"either seed or generator, got both"),
        ({"k": 2, "method": "exact", "weights": UnrolledLanczos(2)}, r"weights are for method=\"unrolled\""),
        ({"k": 2, "weights": UnrolledLanczos(3)}, r"trained for k=3.*got k=2"),
        ({"k": 2, "weights": "no such network"}, r"no file is called 'no such network'"),
        ({"k": 3, "method": "chebyshev", "m": 2}, r"width m must be at least k = 3, got 2"),
        ({"k": 3, "method": "lobpcg", "m": 2}, r"width m must be at least k = 3, got 2"),
        ({"k": 2, "method": "thick_restart", "max_products": 0}, r"max_products must be at least 1, got 0"),
        ({"k": 2, "method": "thick_restart", "max_products": "all"}, r"max_products must be an integer, got 'all'"),
    ],
)
def test_bad_arguments(arguments, message):
    with pytest.raises(InputError, match=message):
        kl.subspace(L5, **arguments)
    if "weights" not in arguments and arguments.get("method") != "magic":
        with pytest.raises(InputError, match=message):
            kl.lowpass(L5, torch.ones(5, dtype=F64), **arguments)


def test_k_is_limited_by_the_smallest_graph():
    with pytest.raises(InputError, match=r"between 1 and 3 \(the number of nodes of the smallest graph\), got 4"):
        kl.subspace(kl.laplacian([path(3), path(6)]), 4)


@pytest.mark.parametrize(
    ("L", "message"),
    [
        (path(5), r"must be a Laplacian, got .*adjacency.*Pass krylow\.laplacian"),
        (torch.ones(3, 4), "must be square"),
        (torch.triu(torch.ones(3, 3)), "must be symmetric"),
        (torch.full((3, 3), float("nan")), "must be finite"),
        (torch.ones(0, 3, 3), "empty batch"),
        (torch.ones(3, 3) + 0j, "must be real"),
    ],
)
def test_bad_matrices(L, message):
    with pytest.raises(InputError, match=message):
        kl.subspace(L, 1)
    with pytest.raises(InputError, match=message):
        kl.lowpass(L, torch.ones(3), 1)


@pytest.mark.parametrize(
    ("x", "message"),
    [
        (torch.ones(4, dtype=F64), r"one row per node, \(5, c\), got shape \(4,\)"),
        (np.ones((4, 2)), r"one row per node, \(5, c\), got shape \(4, 2\)"),
        (np.ones(5, dtype=complex), r"must be real"),
        (np.array([1, 2, 3, 4, np.nan]), r"must be finite, got 1 NaN"),
    ],
)
@pytest.mark.parametrize("method", ["auto", "polynomial"])
def test_bad_signals(x, message, method):
    with pytest.raises(InputError, match=message):
        kl.lowpass(L5, x, 2, method=method)


# Forms of input and output --------------------------------------------------------------------------------------


def test_every_form_of_a_laplacian_gives_the_same_signal():
    L = laplacian_matrix(random_graph(12, seed=0))
    x = randn(12, 2)
    expected = projector(lowest(L, 3)[1]) @ x
    forms = [L, L.to_sparse_coo(), L.to_sparse_csr(), L.numpy(), scipy.sparse.csr_array(L.numpy())]
    for form in [*forms, kl.laplacian(random_graph(12, seed=0)), aslinearoperator(L.numpy())]:
        torch.testing.assert_close(kl.lowpass(form, x, 3, tol=1e-12), expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize("shape", [(5,), (5, 1), (5, 3), (2, 5, 3)])
@pytest.mark.parametrize("method", ["auto", *SIGNAL_METHODS])
def test_the_answer_is_of_the_signals_kind_and_shape(shape, method):
    x = np.random.default_rng(0).standard_normal(shape)
    y = kl.lowpass(L5, x, 2, method=method)
    assert isinstance(y, np.ndarray)
    assert y.shape == shape
    assert y.dtype == np.float64
    torch_y = kl.lowpass(L5, torch.from_numpy(x), 2, method=method)
    assert isinstance(torch_y, torch.Tensor)
    np.testing.assert_array_equal(y, torch_y.numpy())


def test_integer_signals():
    y = kl.lowpass(L5, np.arange(5), 1)
    np.testing.assert_allclose(y, 2.0)


def test_a_batch_filters_its_own_and_shared_signals():
    L = torch.stack([laplacian_matrix(random_graph(9, seed=s)) for s in range(3)])
    own, shared = randn(3, 9, 2), randn(9, 2)
    P = projector(lowest(L, 2)[1])
    torch.testing.assert_close(kl.lowpass(L, own, 2), P @ own, rtol=0, atol=1e-9)
    torch.testing.assert_close(kl.lowpass(L, shared, 2), P @ shared, rtol=0, atol=1e-9)


def test_filtering_twice_changes_nothing_and_keeps_the_low_frequencies():
    L = laplacian_matrix(random_graph(20, seed=1))
    x = randn(20, 1)
    y = kl.lowpass(L, x, 5)
    torch.testing.assert_close(kl.lowpass(L, y, 5), y, rtol=0, atol=rounding(F64, 20))
    U = lowest(L, 20)[1]
    torch.testing.assert_close(U[:, :5].mT @ y, U[:, :5].mT @ x, rtol=0, atol=1e-12)
    assert float((U[:, 5:].mT @ y).abs().max()) <= 1e-12


def test_everything_kept_is_the_identity():
    x = randn(5, 2)
    torch.testing.assert_close(kl.lowpass(L5, x, 5), x, rtol=0, atol=1e-13)


# Cutoff ---------------------------------------------------------------------------------------------------------


def between(lam, k):
    return float(lam[k - 1] + lam[k]) / 2


@pytest.mark.parametrize("method", ["exact", "lanczos", *ITERATIVE])
@pytest.mark.parametrize("signed", [False, True])
@pytest.mark.parametrize("k", [1, 3, 11])
def test_cutoff_keeps_what_is_below(method, signed, k):
    L = laplacian_matrix(random_graph(24, 0.4, seed=1, signed=signed))
    lam, U = lowest(L, 24)
    options = {"m": 24} if method == "lanczos" else {"tol": 1e-10}
    found = kl.subspace(L, cutoff=between(lam, k), method=method, **options)
    assert found.k == k
    torch.testing.assert_close(projector(found.basis), projector(U[:, :k]), rtol=0, atol=1e-4)
    assert found.status == Status.CONVERGED
    x = randn(24, 1)
    y = kl.lowpass(L, x, cutoff=between(lam, k), method=method, **options)
    torch.testing.assert_close(y, projector(U[:, :k]) @ x, rtol=0, atol=1e-4)


def test_the_cutoff_itself_is_kept():
    """f(lambda) = 1 for lambda <= omega, eq. (1)."""
    L = torch.diag(torch.tensor([0.0, 1.0, 2.0, 3.0], dtype=F64))
    assert kl.subspace(L, cutoff=2.0, method="exact").ritz_values.tolist() == [0, 1, 2]
    assert kl.subspace(L, cutoff=0.0, method="exact").ritz_values.tolist() == [0]


@pytest.mark.parametrize("method", ["exact", *ITERATIVE])
def test_nothing_below_the_cutoff_gives_the_zero_signal(method):
    L = laplacian_matrix(random_graph(12, seed=0)) + torch.eye(12, dtype=F64)
    x = randn(12, 1)
    y = kl.lowpass(L, x, cutoff=0.5, method=method)
    assert (y == 0).all()
    found = kl.subspace(L, cutoff=0.5, method=method)
    assert found.status == Status.CONVERGED  # that nothing is kept is the right answer


@pytest.mark.parametrize("method", ["exact", *ITERATIVE])
def test_everything_below_the_cutoff_gives_the_signal(method):
    x = randn(12, 1)
    L = laplacian_matrix(random_graph(12, seed=0))
    torch.testing.assert_close(kl.lowpass(L, x, cutoff=1e6, method=method), x, rtol=0, atol=1e-9)


@pytest.mark.parametrize("method", ["exact", "lanczos", *ITERATIVE])
def test_cutoff_of_a_batch_keeps_each_graphs_own_number(method):
    L = torch.stack([laplacian_matrix(random_graph(16, d, seed=s)) for s, d in enumerate((0.2, 0.5, 0.9))])
    lam, U = lowest(L, 16)
    cutoff = 2.5
    counts = [int((row <= cutoff).sum()) for row in lam]
    assert len(set(counts)) > 1
    assert float((lam - cutoff).abs().min()) > 1e-2
    options = {"m": 16} if method == "lanczos" else {"tol": 1e-10}
    found = kl.subspace(L, cutoff=cutoff, method=method, **options)
    for i, c in enumerate(counts):
        assert int((found.basis[i].norm(dim=-2) > 0.5).sum()) == c
        torch.testing.assert_close(projector(found.basis[i]), projector(U[i, :, :c]), rtol=0, atol=1e-4)
        assert int(found.ritz_values[i].isfinite().sum()) == c
    assert (found.statuses == Status.CONVERGED).all()


@pytest.mark.parametrize("method", ["exact", *ITERATIVE])
@pytest.mark.parametrize("cutoff", [2.5, 6.0])
def test_cutoff_of_a_ragged_batch_is_not_limited_by_its_smallest_graph(method, cutoff):
    graphs = [path(3), random_graph(20, 0.3, seed=1)]
    spectra = [lowest(laplacian_matrix(W), W.shape[0]) for W in graphs]
    counts = [int((lam <= cutoff).sum()) for lam, _ in spectra]
    if counts[1] > 3 and method != "exact":
        with pytest.raises(InputError, match=r"smallest graph has nodes, 3, got 6\.0.*method=\"exact\""):
            kl.subspace(kl.laplacian(graphs), cutoff=cutoff, method=method)
        return
    found = kl.subspace(kl.laplacian(graphs), cutoff=cutoff, method=method, tol=1e-10)
    for i, ((_, U), c) in enumerate(zip(spectra, counts, strict=True)):
        torch.testing.assert_close(projector(found.basis[i, : len(U)]), projector(U[:, :c]), rtol=0, atol=1e-4)


def test_the_ragged_cutoffs_above_are_of_both_kinds():
    lam = lowest(laplacian_matrix(random_graph(20, 0.3, seed=1)), 20)[0]
    assert int((lam <= 2.5).sum()) <= 3 < int((lam <= 6.0).sum())


def test_gradient_at_a_cutoff():
    n = 8
    L = laplacian_matrix(random_graph(n, seed=2))
    cutoff = between(lowest(L, n)[0], 3)
    x = randn(n, 1)
    for method in ("exact", *ITERATIVE):
        assert gradcheck(
            lambda L, method=method: kl.lowpass((L + L.mT) / 2, x, cutoff=cutoff, method=method, tol=1e-26),
            (L.clone().requires_grad_(),),
            eps=1e-6,
            atol=1e-5,
            fast_mode=True,
        )


def test_gradient_at_a_cutoff_of_a_batch_that_keeps_different_numbers():
    L = torch.stack([laplacian_matrix(random_graph(10, d, seed=s)) for s, d in enumerate((0.2, 0.9))])
    counts = (lowest(L, 10)[0] <= 2.0).sum(-1)
    assert counts[0] != counts[1]
    x = randn(10, 1)
    grads = {}
    for method in ("exact", "thick_restart"):
        A = L.clone().requires_grad_()
        kl.lowpass(A, x, cutoff=2.0, method=method, tol=1e-26).square().sum().backward()
        grads[method] = (A.grad + A.grad.mT) / 2
    torch.testing.assert_close(grads["thick_restart"], grads["exact"], rtol=0, atol=1e-7)


@pytest.mark.parametrize("method", ["lanczos", "unrolled"])
def test_no_gradient_is_better_than_a_wrong_one(method):
    """Their tape is that of the larger space the cut was made in."""
    L = laplacian_matrix(random_graph(12, seed=0)).requires_grad_()
    with pytest.raises(InputError, match=r"no gradient at a cutoff: pass k, or use method=\"exact\""):
        kl.lowpass(L, randn(12, 1), cutoff=2.0, method=method)
    kl.lowpass(L.detach(), randn(12, 1), cutoff=2.0, method=method)


@pytest.mark.parametrize("method", ["exact", *ITERATIVE])
def test_repeated_values_below_the_cutoff_are_all_kept(method):
    L = laplacian_matrix(grid(6, 6))
    lam, U = lowest(L, 36)
    k = 6  # 0, a pair, one, a pair
    assert float(lam[k] - lam[k - 1]) > 0.1
    found = kl.subspace(L, cutoff=between(lam, k), method=method, tol=1e-10)
    assert found.k == k
    torch.testing.assert_close(projector(found.basis), projector(U[:, :k]), rtol=0, atol=1e-4)


# auto and the network -------------------------------------------------------------------------------------------


def test_auto_says_what_it_chose_and_why():
    small = kl.subspace(laplacian_matrix(random_graph(20, seed=0)), 3)
    assert small.method == "exact"
    assert "20 nodes" in small.why
    W = scipy.sparse.csr_array(random_graph(LIMITS.exact + 100, 0.02, seed=0).numpy())
    large = kl.subspace(kl.laplacian(W), 3)
    assert large.method != "exact"
    assert str(LIMITS.exact + 100) in large.why
    assert large.status == Status.CONVERGED
    function = kl.subspace(FunctionOperator(laplacian_matrix(path(30)).matmul, 30), 3)
    assert "only products" in function.why
    assert function.status == Status.CONVERGED


def test_auto_takes_given_weights():
    assert choose(kl.laplacian(path(9)), 2, UnrolledLanczos(2))[0] == "unrolled"
    found = kl.subspace(kl.laplacian(path(9)), 2, weights=UnrolledLanczos(2))
    assert found.method == "unrolled"
    assert "weights were given" in found.why


def test_a_chosen_method_is_not_swapped():
    L = laplacian_matrix(random_graph(20, seed=0))
    for method in ("exact", "lanczos", "unrolled", *ITERATIVE):
        assert kl.subspace(L, 2, method=method).method == method


def test_untrained_network_says_so():
    assert "untrained" in kl.subspace(kl.laplacian(path(12)), 2, method="unrolled").why


@pytest.mark.parametrize("weights", [None, UnrolledLanczos(2)])
def test_the_probe_says_that_it_shifted_an_indefinite_matrix(weights):
    found = kl.subspace(kl.laplacian(random_graph(12, seed=1, signed=True)), 2, method="unrolled", weights=weights)
    assert "shifted" in found.why
    assert "Gershgorin" in found.why
    positive = kl.subspace(kl.laplacian(path(12)), 2, method="unrolled", weights=weights)
    assert "shifted" not in positive.why


def test_network_by_file(tmp_path):
    net = UnrolledLanczos(2, 5, GaussianProbe(), init=0.2)
    net.save(tmp_path / "net.safetensors")
    L = laplacian_matrix(random_graph(12, seed=0)).float()
    by_file = kl.subspace(L, 2, weights=tmp_path / "net.safetensors")
    torch.testing.assert_close(by_file.basis, net(L).basis, rtol=0, atol=0)


def test_lanczos_default_steps():
    L = kl.laplacian(random_graph(60, 0.2, seed=0))
    assert kl.subspace(L, 3, method="lanczos").products == 20
    assert kl.subspace(L, 15, method="lanczos").products == 30
    assert kl.subspace(kl.laplacian(path(7)), 3, method="lanczos").products == 7
    assert kl.subspace(L, 3, method="lanczos", m=11).products == 11


def test_fewer_steps_than_k_are_said():
    found = kl.subspace(kl.laplacian(random_graph(20, seed=0)), 5, method="lanczos", m=3)
    assert found.status == Status.BREAKDOWN
    assert found.basis.shape == (20, 5)
    assert float(found.error_bound) == float("inf")


@pytest.mark.parametrize("method", ITERATIVE)
@pytest.mark.parametrize("tol", [1e-2, 1e-5, 1e-9])
def test_tol_is_what_was_asked_for(method, tol):
    L = laplacian_matrix(random_graph(100, 0.06, seed=4))
    found = kl.subspace(L, 4, method=method, tol=tol)
    U = lowest(L, 4)[1]
    error = float((U - found.basis @ (found.basis.mT @ U)).square().sum()) / 4
    assert error <= tol
    assert found.status == Status.CONVERGED
    assert error <= float(found.error_bound) <= tol


@pytest.mark.parametrize("method", ["exact", *ITERATIVE])
def test_generalised_laplacian_by_default_with_self_loops(method):
    W = random_graph(12, seed=0) + torch.diag(torch.linspace(0, 1, 12, dtype=F64))
    D = np.diag(W.numpy().sum(1))
    L = torch.from_numpy(D - W.numpy() + np.diag(np.diag(W.numpy())))
    found = kl.subspace(kl.laplacian(W), 3, method=method, tol=1e-10)
    torch.testing.assert_close(found.ritz_values, lowest(L, 3)[0], rtol=0, atol=1e-6)


@pytest.mark.parametrize("method", ["exact", *ITERATIVE])
def test_normalised_laplacian_with_isolated_nodes(method):
    """Isolated nodes are zero frequencies, as are components."""
    W = block_diagonal(complete(5), cycle(7), torch.zeros(2, 2, dtype=F64))
    found = kl.subspace(kl.laplacian(W, "normalized"), 4, method=method)
    assert found.status == Status.CONVERGED
    assert float(found.ritz_values.abs().max()) <= 1e-3
    indicators = torch.zeros(14, 4, dtype=F64)  # D^(1/2) 1 on components, and unit vectors
    indicators[:5, 0], indicators[5:12, 1], indicators[12, 2], indicators[13, 3] = 5**-0.5, 7**-0.5, 1, 1
    torch.testing.assert_close(projector(found.basis), projector(indicators), rtol=0, atol=0.05)


def test_public_names():
    for name in kl.__all__:
        assert getattr(kl, name) is not None
    assert "subspace" in dir(kl)
    with pytest.raises(AttributeError, match="no attribute 'subspaces'"):
        kl.subspaces  # noqa: B018


def test_auto_factorises_a_large_graph_that_is_nearly_a_tree_and_not_a_grid():
    generator = np.random.default_rng(0)
    parents = np.array([generator.integers(max(0, i - 50), i) for i in range(1, 6000)])
    tree = scipy.sparse.coo_array((np.ones(5999), (np.arange(1, 6000), parents)), shape=(6000, 6000))
    assert choose(kl.laplacian(tree + tree.T), 5)[0] == "shift_invert"
    ends = generator.integers(6000, size=(2, 200))
    more = scipy.sparse.coo_array((np.ones(200), ends), shape=(6000, 6000))
    thin = kl.laplacian(tree + tree.T + more + more.T)
    assert GraphProfile(thin).fill.ratio > LIMITS.tree_fill  # but its Schur complement is small
    assert choose(thin, 5)[0] == "shift_invert"
    path = scipy.sparse.diags_array([np.ones(79), np.ones(79)], offsets=[-1, 1])
    grid = scipy.sparse.kronsum(path, path)
    assert choose(kl.laplacian(grid), 5)[0] == "multilevel"


def test_auto_decomposes_a_dense_matrix_with_a_hub_and_filters_one_without():
    """Low frequencies of a star are far below its largest: a filter would take as long as several decompositions."""
    W = torch.zeros(1200, 1200, dtype=F64)
    W[0, 1:] = W[1:, 0] = 1
    assert kl.subspace(kl.laplacian(W), 1).method == "exact"
    assert choose(kl.laplacian(1 - torch.eye(1200, dtype=F64)), 1)[0] == "chebyshev"


def test_auto_proves_answers_of_up_to_some_thousand_nodes_cheaply():
    """A light factor proves by itself; what fills up is decomposed while small, then filtered."""
    for family, n, method in (
        ("grid", 700, "shift_invert"),
        ("road", 2000, "shift_invert"),
        ("sbm20", 700, "exact"),
        ("sbm20", 1600, "chebyshev"),
        ("powerlaw", 1600, "exact"),
        ("sbm20", 3000, "chebyshev"),
        ("knn2d", 3000, "shift_invert"),
        ("knn3d", 4000, "multilevel"),
    ):
        L = as_operator(make(family, n, 0))
        found = kl.subspace(L, 7)
        assert found.method == method, found.why
        assert found.status.name == "CONVERGED"
        assert found.certificate.proved == (n <= PROOF_LIMIT or method == "shift_invert")
    assert choose(L, L.n // 6)[0] == "exact"
    W = scipy.sparse.random_array((1500, 1500), density=0.006, rng=0)
    scale = scipy.sparse.diags_array(10 ** np.random.default_rng(0).uniform(-2, 2, 1500))
    assert choose(kl.laplacian(scale @ (W + W.T) @ scale), 5)[0] == "exact"


def test_what_a_refinement_measured_is_no_certificate_where_one_is_proved():
    """Without an inertia count the dense proof is made, and agrees."""
    L = as_operator(make("sbm20", 1900, 0))
    sub = kl.subspace(L, 20, method=kl.solvers.ShiftInvert(inertia=False))
    assert sub.evidence is not None
    assert not sub.evidence.proved
    assert sub.certificate.proved
    assert sub.status.name == "CONVERGED"
    lam = torch.linalg.eigvalsh(L.to_dense())
    assert lam[19] < sub.certificate.floor < lam[20]


def test_auto_takes_other_methods_where_weights_lie_far_apart():
    """Islands of heavy edges in light water: a plane of them is factorised, and what has no geometry is not."""
    generator, side = np.random.default_rng(0), 65
    path, n = scipy.sparse.diags_array([np.ones(side - 1)] * 2, offsets=[-1, 1]), side**2
    plane = scipy.sparse.triu(scipy.sparse.kronsum(path, path)).tocoo()
    random = generator.integers(n, size=(2, 3 * n))
    ring = np.stack([np.arange(n), np.roll(np.arange(n), 1)])
    random = np.concatenate([random[:, random[0] != random[1]], ring], axis=1)
    for ends, method in (((plane.row, plane.col), "shift_invert"), (random, "davidson")):
        land = generator.random(n) < 0.5
        weights = np.where(land[ends[0]] & land[ends[1]], 1e3, 1e-2)
        W = scipy.sparse.coo_array((weights, ends), shape=(n, n)).tocsr()
        L = kl.laplacian(W + W.T)
        values, U = scipy.sparse.linalg.eigsh(L.to_scipy(), 12, sigma=-1e-4, tol=1e-13, v0=generator.random(n))
        order = np.argsort(values)
        k = 2 + int(np.argmax(np.diff(values[order][1:])))
        truth = torch.from_numpy(np.ascontiguousarray(U[:, order[:k]]))
        for tol in (1e-3, 1e-6):
            found = kl.subspace(L, k, tol=tol)
            assert found.method == method
            assert "harmonic" in found.why
            assert found.status.name == "CONVERGED"
            assert float(kl.metrics.subspace_error(found.basis, truth)) <= tol
