"""What every method must do. Adding a method is adding a row to ``ROWS``."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest
import scipy.sparse
import torch
from torch.autograd import gradcheck

import krylow as kl
from krylow.api import METHODS
from krylow.certificate import Status
from krylow.nn import GaussianProbe, UnrolledLanczos
from krylow.operators import DenseOperator, DiagonalOperator, FunctionOperator
from krylow.testing import (
    HARD_GRAPHS,
    block_diagonal,
    complete,
    cycle,
    grid,
    laplacian_matrix,
    lowest,
    path,
    projector,
    random_graph,
    real_gaps,
    rounding,
)

F32, F64 = torch.float32, torch.float64
#: Error asked of the iterative methods where their answer is compared with the exact one.
TIGHT = 1e-12
#: Largest entry by which two projectors may differ if each has an error of TIGHT (sqrt(2 k TIGHT)).
SAME = 1e-5


def neutral(k, m):
    """The network as classical Lanczos from a Gaussian vector."""
    return UnrolledLanczos(k, m, GaussianProbe(), init=0.0).double()


@dataclass(frozen=True)
class Row:
    """Options with which the method answers to TIGHT on a graph of n nodes, and what it can do.

    ``whole``: it sees repeated values. ``products``: it works by products with L, so that a function will do.
    ``entries``: it needs to know the entries of L.
    """

    options: Callable[[int, int], dict]
    whole: bool = True
    products: bool = True
    entries: bool = False


ROWS = {
    "exact": Row(lambda n, k: {}, products=False),
    "lanczos": Row(lambda n, k: {"m": n}, whole=False),
    "unrolled": Row(lambda n, k: {"weights": neutral(k, n)}, whole=False),
    "thick_restart": Row(lambda n, k: {"tol": TIGHT}),
    "chebyshev": Row(lambda n, k: {"tol": TIGHT}),
    "multilevel": Row(lambda n, k: {"tol": TIGHT}, products=False, entries=True),
    "davidson": Row(lambda n, k: {"tol": TIGHT}, products=False, entries=True),
    "lobpcg": Row(lambda n, k: {"tol": TIGHT}),
    "shift_invert": Row(lambda n, k: {"tol": TIGHT}, entries=True),
}
WHOLE = [name for name, row in ROWS.items() if row.whole]
MATRIX_FREE = [name for name, row in ROWS.items() if not row.entries]
ITERATIVE = [name for name in ROWS if name != "exact"]


def solve(method, L, k, **options):
    n = L.n if hasattr(L, "n") else L.shape[-1]
    return kl.subspace(L, k, method=method, **{**ROWS[method].options(n, k), **options})


def sample(n=14, seed=0, least=2e-2, **options):
    """A Laplacian and a k of at least 2 with a real gap."""
    L = laplacian_matrix(random_graph(n, 0.4, seed=seed, **options))
    return L, next(k for k in real_gaps(L, least=least) if 2 <= k <= n // 2)


def true_error(basis, L, k):
    """Normalised squared subspace error against numpy, by its definition."""
    U = lowest(L, k)[1].numpy()
    B = basis.detach().double().numpy()
    missed = U - B @ (np.swapaxes(B, -1, -2) @ U)
    return (missed**2).sum((-2, -1)) / k


@pytest.fixture(params=list(ROWS))
def method(request):
    return request.param


def test_every_method_has_a_row():
    assert set(ROWS) == set(METHODS)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("signed", [False, True], ids=["positive", "signed"])
def test_finds_the_lowest_subspace(method, seed, signed):
    L, k = sample(seed=seed, signed=signed)
    found = solve(method, L, k)
    assert true_error(found.basis, L, k) <= 10 * TIGHT
    assert found.basis.shape == (L.shape[0], k)
    assert found.k == k
    np.testing.assert_allclose(found.ritz_values.detach().numpy(), lowest(L, k)[0].numpy(), atol=1e-6)
    assert (found.ritz_values.diff() >= 0).all()
    assert found.status == Status.CONVERGED
    assert found.method == method
    assert found.why


@pytest.mark.parametrize("seed", range(3))
def test_projector_is_one(method, seed):
    L, k = sample(seed=seed)
    U = solve(method, L, k).basis.detach()
    P = projector(U)
    noise = rounding(F64, L.shape[0])
    torch.testing.assert_close(U.mT @ U, torch.eye(k, dtype=F64), rtol=0, atol=noise)
    torch.testing.assert_close(P @ P, P, rtol=0, atol=noise)
    torch.testing.assert_close(P, P.mT, rtol=0, atol=0)


@pytest.mark.parametrize("k", [1, 3, 12])
def test_all_steps_or_all_vectors_give_the_exact_subspace(method, k):
    L = laplacian_matrix(random_graph(12, seed=3))
    if k < 12 and k not in real_gaps(L):
        k += 1
    found = solve(method, L, k)
    assert true_error(found.basis, L, k) <= 10 * TIGHT
    assert found.status == Status.CONVERGED


def test_more_steps_than_nodes(method):
    L, k = sample(n=10, seed=1)
    options = {"weights": neutral(k, 25)} if method == "unrolled" else {"m": 25}
    found = solve(method, L, k, **options)
    assert true_error(found.basis, L, k) <= 10 * TIGHT


def test_dense_sparse_and_function_agree(method):
    L, k = sample(n=16, seed=2)
    operators = [DenseOperator(L), kl.laplacian(scipy.sparse.csr_array(random_graph(16, 0.4, seed=2).numpy()))]
    function = FunctionOperator(lambda X: L @ X, 16)
    if ROWS[method].entries:
        with pytest.raises(kl.InputError, match="entries must be known, got a function"):
            solve(method, function, k)
    else:
        operators.append(function)
    answers = [solve(method, A, k).basis for A in operators]
    for U in answers[1:]:
        torch.testing.assert_close(projector(U), projector(answers[0]), rtol=0, atol=SAME)


def test_diagonal_is_the_same_operator_in_its_eigenbasis(method):
    L, k = sample(n=16, seed=2)
    lam, Q = lowest(L, 16)
    U = solve(method, DiagonalOperator(lam), k).basis.detach()
    torch.testing.assert_close(projector(Q @ U), projector(solve(method, L, k).basis.detach()), rtol=0, atol=SAME)


@pytest.mark.parametrize("shape", [(3,), (2, 2)])
def test_batch_is_the_loop_of_singles(method, shape):
    items = [laplacian_matrix(random_graph(14, seed=s)) for s in range(int(np.prod(shape)))]
    batch = torch.stack(items).reshape(*shape, 14, 14)
    k = next(k for k in real_gaps(batch, least=1e-2) if k >= 2)
    found = solve(method, batch, k)
    assert found.basis.shape == (*shape, 14, k)
    assert found.ritz_values.shape == found.residuals.shape == (*shape, k)
    assert found.error_bound.shape == found.statuses.shape == shape
    for U, L in zip(found.basis.reshape(-1, 14, k), items, strict=True):
        single = solve(method, L, k)
        torch.testing.assert_close(projector(U), projector(single.basis), rtol=0, atol=SAME)
    assert (true_error(found.basis, batch, k) <= 10 * TIGHT).all()


def test_permuting_the_nodes_permutes_the_answer(method):
    L, k = sample(seed=4)
    order = torch.randperm(14, generator=torch.Generator().manual_seed(0))
    P = projector(solve(method, L, k).basis)
    permuted = projector(solve(method, L[order][:, order], k).basis)
    torch.testing.assert_close(permuted, P[order][:, order], rtol=0, atol=SAME)


def test_float32_is_float64_to_its_rounding(method):
    L, k = sample(seed=0, least=5e-2)
    single = solve(method, L.float(), k, **({"tol": 1e-6} if "tol" in ROWS[method].options(14, k) else {}))
    assert single.basis.dtype == single.ritz_values.dtype == F32
    P = projector(solve(method, L, k).basis)
    # The projector moves by the rounding of L over the gap.
    gap = float(lowest(L, k + 1)[0].diff()[-1])
    atol = rounding(F32, 14, float(torch.linalg.matrix_norm(L, 2)) / gap)
    torch.testing.assert_close(projector(single.basis).double(), P, rtol=0, atol=atol)
    assert single.status == Status.CONVERGED
    assert float(single.error_bound) >= true_error(single.basis, L.float().double(), k)


def test_ragged_batch_is_the_singles(method):
    sizes = (7, 12, 9)
    graphs = [random_graph(n, 0.5, seed=s) for s, n in enumerate(sizes)]
    k = next(k for k in range(2, 7) if all(k in real_gaps(laplacian_matrix(W), least=1e-2) for W in graphs))
    L = kl.laplacian(graphs)
    assert L.sizes.tolist() == list(sizes)
    found = solve(method, L, k)
    for W, U, status in zip(graphs, found.basis, found.statuses, strict=True):
        n = W.shape[0]
        assert (U[n:] == 0).all() or float(U[n:].abs().max()) <= rounding(F64, n)
        assert true_error(U[:n], laplacian_matrix(W), k) <= 10 * TIGHT
        assert status == Status.CONVERGED


@pytest.mark.parametrize("name", list(HARD_GRAPHS))
@pytest.mark.parametrize("k", [1, 3])
def test_hard_graphs_give_no_nan_and_no_lie(method, name, k):
    W = HARD_GRAPHS[name]()
    L = laplacian_matrix(W)
    n = L.shape[0]
    k = min(k, n)
    found = solve(method, kl.laplacian(W), k)
    U = found.basis.detach()
    assert U.isfinite().all()
    norms = torch.linalg.vector_norm(U, dim=-2)
    assert ((norms - 1).abs() <= rounding(F64, n)).logical_or(norms == 0).all()
    live = U[:, norms > 0]
    torch.testing.assert_close(live.mT @ live, torch.eye(live.shape[-1], dtype=F64), rtol=0, atol=rounding(F64, n))
    assert (norms == 0).any().item() == (found.status == Status.BREAKDOWN)
    bound = float(found.error_bound)
    if found.status == Status.CONVERGED:
        assert bound <= max(found.tol, 1e-15) * (1 + 1e-9)
        # Where the k lowest values are met, so is the trace, whichever vectors of a repeated one were taken.
        trace = float(torch.trace(U.mT @ L @ U))
        assert trace <= float(lowest(L, k)[0].sum()) + rounding(F64, n, float(L.abs().max())) + 1e-5
    if k < n and k in real_gaps(L, least=1e-11):  # numpy's own subspace is right to about 1e-16 over that
        assert bound >= true_error(U, L, k)
    elif k < n:
        assert found.status != Status.CONVERGED
        assert bound == float("inf")


@pytest.mark.parametrize("extra", [0, 1, 2])
@pytest.mark.parametrize("name", ["two K4", "three components", "isolated nodes", "zero"])
@pytest.mark.parametrize("method", WHOLE)
def test_whole_null_space_of_a_disconnected_graph(method, name, extra):
    W = HARD_GRAPHS[name]()
    c = scipy.sparse.csgraph.connected_components(scipy.sparse.csr_array(W.numpy()))[0]
    k = min(c + extra, W.shape[0])
    found = solve(method, kl.laplacian(W), k)
    labels = scipy.sparse.csgraph.connected_components(scipy.sparse.csr_array(W.numpy()))[1]
    null = torch.from_numpy(np.eye(c)[labels] / np.sqrt(np.bincount(labels)))  # indicators of the components
    U = found.basis.detach()
    missed = null - U @ (U.mT @ null)
    assert float(missed.norm()) <= SAME


@pytest.mark.parametrize("name", ["two K4", "three components", "isolated nodes", "zero"])
@pytest.mark.parametrize("method", [name for name, row in ROWS.items() if not row.whole])
def test_single_vector_methods_say_that_they_missed(method, name):
    W = HARD_GRAPHS[name]()
    c = scipy.sparse.csgraph.connected_components(scipy.sparse.csr_array(W.numpy()))[0]
    found = solve(method, kl.laplacian(W), c)
    assert true_error(found.basis, laplacian_matrix(W), c) > 0.1
    assert found.status in (Status.MISSED, Status.BREAKDOWN)
    assert float(found.error_bound) >= true_error(found.basis, laplacian_matrix(W), c)


@pytest.mark.parametrize("method", WHOLE)
@pytest.mark.parametrize("kind", ["sparse", "function"])
def test_many_components_of_a_larger_graph(method, kind):
    parts = [random_graph(30 + 7 * i, 0.2, seed=i) for i in range(5)]
    W = block_diagonal(*parts)
    L = laplacian_matrix(W)
    n = L.shape[0]
    if kind == "function" and method not in MATRIX_FREE:
        pytest.skip("needs the entries of L")
    operator = kl.laplacian(scipy.sparse.csr_array(W.numpy())) if kind == "sparse" else FunctionOperator(L.matmul, n)
    found = kl.subspace(operator, 5, method=method)
    assert true_error(found.basis, L, 5) <= 1e-3
    assert found.status == Status.CONVERGED
    assert float(found.error_bound) >= true_error(found.basis, L, 5)


def test_no_gap_is_said(method):
    L = laplacian_matrix(cycle(12))  # eigenvalues in pairs after the first
    for k in (2, 4):
        found = solve(method, L, k)
        assert found.status != Status.CONVERGED
        assert float(found.error_bound) == float("inf")
    assert solve("exact", L, 2).status == Status.NO_GAP


@pytest.mark.parametrize("method", WHOLE)
def test_no_gap_is_named(method):
    found = solve(method, laplacian_matrix(complete(9)), 4)
    assert found.status == Status.NO_GAP
    assert "choose another k" in found.status.advice


@pytest.mark.parametrize("method", MATRIX_FREE)
def test_products_and_passes_are_what_the_operator_counted(method):
    L, k = sample(n=30)
    calls = []

    def multiply(X):
        calls.append(X.shape[-1])
        return L @ X

    operator = FunctionOperator(multiply, 30, bounds=(0.0, 60.0))
    found = solve(method, operator, k)
    spent = (found.products, found.passes)
    if ROWS[method].products:
        assert spent == (sum(calls), len(calls)) == (operator.products, operator.passes)
        assert spent > (0, 0)
    else:
        assert spent == (0, 0)
    assert found.status in Status  # the certificate has its own products
    assert (found.products, found.passes) == spent


@pytest.mark.parametrize("method", ["thick_restart", "chebyshev", "lobpcg"])
def test_product_limit_is_kept(method):
    L = laplacian_matrix(grid(20, 20))
    found = kl.subspace(L, 4, method=method, tol=1e-12, max_products=100)
    assert found.products <= 100
    assert found.status == Status.MAX_STEPS
    assert "raise m or max_products" in found.status.advice


def test_same_call_same_answer_and_seed_matters(method):
    L, k = laplacian_matrix(random_graph(40, 0.2, seed=0)), 3
    options = {} if method == "exact" else {"m": 12} if method in ("lanczos", "unrolled") else {"tol": 1e-2}
    first, again = (kl.subspace(L, k, method=method, **options).basis for _ in range(2))
    torch.testing.assert_close(first, again, rtol=0, atol=0)
    seeded = kl.subspace(L, k, method=method, seed=7, **options).basis
    generator = torch.Generator().manual_seed(7)
    drawn = kl.subspace(L, k, method=method, generator=generator, **options).basis
    torch.testing.assert_close(seeded, drawn, rtol=0, atol=0)
    if method not in (
        "exact",
        "multilevel",
        "davidson",
    ):  # so small a graph is decomposed, which takes no random vector
        assert not torch.equal(seeded, first)


@pytest.mark.parametrize("method", ["exact", "thick_restart", "chebyshev", "lobpcg"])
def test_global_random_state_is_left_alone(method):
    state = torch.get_rng_state()
    kl.subspace(laplacian_matrix(random_graph(30, seed=0)), 3, method=method)
    assert torch.equal(torch.get_rng_state(), state)


def test_project_and_lowpass(method):
    L, k = sample(seed=1)
    found = solve(method, L, k)
    P = projector(lowest(L, k)[1])
    for shape in [(14,), (14, 3), (5, 14, 3)]:
        x = torch.randn(shape, dtype=F64, generator=torch.Generator().manual_seed(0))
        expected = P @ x
        torch.testing.assert_close(found.project(x).detach(), expected, rtol=0, atol=SAME)
        y = kl.lowpass(L, x, k, method=method, **ROWS[method].options(14, k))
        torch.testing.assert_close(y.detach(), expected, rtol=0, atol=SAME)


# Gradients ------------------------------------------------------------------------------------------------------


def weights_to_laplacian(w, n):
    """A Laplacian from the weights of the n (n - 1) / 2 pairs of nodes."""
    row, col = torch.tril_indices(n, n, -1)
    W = torch.zeros(n, n, dtype=w.dtype).index_put((row, col), w)
    return laplacian_matrix(W + W.mT)


def pair_weights(W):
    row, col = torch.tril_indices(*W.shape, -1)
    return W[row, col].clone()


def gradient_options(method, n, k):
    if method in ("thick_restart", "chebyshev", "lobpcg"):
        return {"tol": 1e-26}  # the implicit gradient is that of the exact subspace
    return ROWS[method].options(n, k)


@pytest.mark.parametrize("signed", [False, True], ids=["positive", "signed"])
def test_gradcheck_of_the_filtered_signal(method, signed):
    n = 8
    L, k = sample(n=n, seed=2, signed=signed, least=3e-2)
    x = torch.randn(n, 2, dtype=F64, generator=torch.Generator().manual_seed(3), requires_grad=True)
    w = pair_weights(-L).requires_grad_()

    def filtered(w, x):
        return kl.lowpass(weights_to_laplacian(w, n), x, k, method=method, **gradient_options(method, n, k))

    assert gradcheck(filtered, (w, x), eps=1e-6, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("method", ["lanczos", "unrolled"])
def test_gradcheck_of_truncated_recurrences(method):
    n, k, m = 10, 2, 5
    W = random_graph(n, 1.0, seed=6)  # at a missing edge Gershgorin's bounds, which scale the probe, have a kink
    w = pair_weights(W).requires_grad_()
    x = torch.randn(n, 1, dtype=F64, generator=torch.Generator().manual_seed(3))
    net = UnrolledLanczos(k, m, init=0.3).double()
    options = {"m": m} if method == "lanczos" else {"weights": net}
    assert gradcheck(lambda w: kl.lowpass(weights_to_laplacian(w, n), x, k, method=method, **options), (w,))


def test_gradcheck_of_sparse_edge_weights(method):
    n = 9
    W = random_graph(n, 0.3, seed=1)
    k = next(k for k in real_gaps(laplacian_matrix(W), least=2e-2) if k >= 2)
    row, col = torch.tril(W, -1).nonzero(as_tuple=True)
    x = torch.randn(n, 1, dtype=F64, generator=torch.Generator().manual_seed(3))
    edge_index = torch.stack([torch.cat([row, col]), torch.cat([col, row])])

    def filtered(w):
        L = kl.laplacian((edge_index, torch.cat([w, w])), num_nodes=n)
        return kl.lowpass(L, x, k, method=method, **gradient_options(method, n, k))

    assert gradcheck(filtered, (W[row, col].clone().requires_grad_(),), eps=1e-6, atol=1e-5, rtol=1e-4)


GRADIENT_CASES = {
    "two K4, k=2": (block_diagonal(complete(4), complete(4)), 2),
    "three components, k=3": (block_diagonal(path(5), complete(4), cycle(6)), 3),
    "10 x 10 grid, k=6": (grid(10, 10), 6),
}


@pytest.mark.parametrize("method", WHOLE)
@pytest.mark.parametrize("case", list(GRADIENT_CASES))
def test_gradient_where_kept_values_coincide(method, case):
    W, k = GRADIENT_CASES[case]
    n = W.shape[0]
    assert k in real_gaps(laplacian_matrix(W), least=1e-2)
    rng = torch.Generator().manual_seed(1)
    x, c = (torch.randn(n, 2, dtype=F64, generator=rng) for _ in range(2))
    L = laplacian_matrix(W).requires_grad_()
    loss = (kl.lowpass(L, x, k, method=method, **gradient_options(method, n, k)) * c).sum()
    (grad,) = torch.autograd.grad(loss, L)
    assert grad.isfinite().all()

    def value(A):
        P = projector(lowest(A, k)[1])
        return float(((P @ x) * c).sum())

    h = 1e-5
    for seed in range(4):  # symmetric perturbations: the gap at k stays open, repeated values inside may split
        E = torch.randn(n, n, dtype=F64, generator=torch.Generator().manual_seed(seed))
        E = (E + E.mT) / 2
        E = E / E.norm()
        L0 = L.detach()
        difference = (value(L0 + h * E) - value(L0 - h * E)) / (2 * h)
        assert float((grad * E).sum()) == pytest.approx(difference, rel=1e-5, abs=1e-6 * float(grad.norm()))


def test_breakdown_in_a_batch_leaves_the_others_and_their_gradient(method):
    n, k = 8, 2
    good = [random_graph(n, 0.6, seed=s) for s in (0, 3)]
    k = next(k for k in range(2, n) if all(k in real_gaps(laplacian_matrix(W), least=1e-2) for W in good))
    bad = torch.zeros(n, n, dtype=F64)
    x = torch.randn(n, 1, dtype=F64, generator=torch.Generator().manual_seed(5))
    L = torch.stack([laplacian_matrix(W) for W in (good[0], bad, good[1])]).requires_grad_()
    y = kl.lowpass(L, x, k, method=method, **gradient_options(method, n, k))
    assert y.isfinite().all()
    for i in (0, 2):
        expected = projector(lowest(L[i].detach(), k)[1]) @ x
        torch.testing.assert_close(y[i].detach(), expected, rtol=0, atol=SAME)
    y.sum().backward()
    assert L.grad.isfinite().all()
    alone = L[0].detach().clone().requires_grad_()
    kl.lowpass(alone, x, k, method="exact").sum().backward()
    symmetric = (L.grad[0] + L.grad[0].mT) / 2
    torch.testing.assert_close(symmetric, alone.grad, rtol=0, atol=1e-5 * float(alone.grad.norm()))


@pytest.mark.parametrize("lacks", [0, 1])
def test_a_warm_start_that_lacks_a_vector(method, lacks):
    L, k = sample(n=40, seed=1)
    U = lowest(L, k + 1)[1]
    start = torch.cat([U[:, :lacks], U[:, lacks + 1 :]], dim=-1)
    found = solve(method, L, k, start=start)
    assert true_error(found.basis, L, k) <= 10 * TIGHT
    assert found.status == Status.CONVERGED


def test_a_warm_start_from_a_graph_that_has_changed(method):
    graphs = torch.stack([laplacian_matrix(random_graph(14, seed=s)) for s in (0, 1)])
    k = next(k for k in real_gaps(graphs, least=1e-2) if k >= 2)
    first = solve(method, graphs, k)
    change = 1e-3 * laplacian_matrix(random_graph(14, seed=5))
    found = solve(method, graphs + change, k, start=first)
    assert (true_error(found.basis, graphs + change, k) <= 10 * TIGHT).all()
