"""kl.filter against the eigendecomposition: every response by every method, gradients, errors, input."""

import networkx as nx
import numpy as np
import pytest
import scipy.sparse
import torch

import krylow as kl
from krylow import responses as r
from krylow._response import response_of
from krylow.filtering import FILTER_METHODS
from krylow.operators import DenseOperator, FunctionOperator
from krylow.testing import cycle, grid, laplacian_matrix, path, random_graph

F64 = torch.float64


def randn(*shape, seed=0):
    return torch.randn(*shape, dtype=F64, generator=torch.Generator().manual_seed(seed))


def between(lam, part):
    """A frequency in the widest gap around a part of the spectrum, where a jump harms nobody."""
    middle = int(part * len(lam))
    near = range(max(middle - 4, 0), min(middle + 4, len(lam) - 1))
    i = max(near, key=lambda i: float(lam[i + 1] - lam[i]))
    return float(lam[i] + lam[i + 1]) / 2


def bump(lam):
    return torch.sin(lam) / (1 + lam.square())


GRAPH = random_graph(40, 0.2, seed=1)
LAM = torch.linalg.eigvalsh(laplacian_matrix(GRAPH))
SMOOTH = {
    "heat": r.Heat(0.7),
    "tikhonov": r.Tikhonov(0.5),
    "gaussian": r.Gaussian(2.0, 3.0),
    "exponential": r.Exponential(3.0),
    "exponential of power 2": r.Exponential(5.0, 2.0),
    "rational": r.Rational([1.0, 0.1], [1.0, 0.2, 0.05]),
    "smooth low-pass": r.LowPass(5.0, width=8.0),
    "smooth high-pass": r.HighPass(5.0, width=8.0),
    "smooth band-pass": r.BandPass(3.0, 8.0, width=5.0),
    "function": bump,
    "constant": lambda lam: 2.0,
}
BANKS = {
    "several": [r.Heat(0.3), r.Tikhonov(2.0), bump],
    "mexican hat": r.MexicanHat(4),
    "meyer": r.Meyer(4),
    "itersine": r.Itersine(4),
    "hann": r.Hann(5),
    "half-cosine": r.HalfCosine(5),
}
JUMPS = {
    "low-pass": r.LowPass(between(LAM, 0.2)),
    "high-pass": r.HighPass(between(LAM, 0.2)),
    "band-pass": r.BandPass(between(LAM, 0.15), between(LAM, 0.4)),
}
ALL = SMOOTH | BANKS | JUMPS


def exact(matrix, x, response):
    """U g(Lambda) U^T x by numpy, filters last where there are several."""
    L = DenseOperator(matrix)
    lam, U = np.linalg.eigh(matrix.numpy())
    values = np.asarray(response_of(response).on(L).evaluate(torch.from_numpy(lam)))
    c = U.T @ x.numpy()
    if values.ndim == 1:
        return torch.from_numpy(U @ (values[:, None] * c))
    return torch.from_numpy(np.einsum("ij,jf,jc->icf", U, values, c))


@pytest.mark.parametrize("method", ["auto", "exact", "chebyshev", "lanczos"])
@pytest.mark.parametrize("name", list(SMOOTH | BANKS))
def test_every_response_by_every_method_is_the_eigendecomposition(name, method):
    L, x = laplacian_matrix(GRAPH), randn(40, 3)
    found = kl.filter(L, x, ALL[name], method=method, tol=1e-7)
    wanted = exact(L, x, ALL[name])
    assert found.shape == wanted.shape
    torch.testing.assert_close(found, wanted, rtol=0, atol=1e-5)


@pytest.mark.parametrize("method", ["auto", "exact", "lanczos", "lowpass"])
@pytest.mark.parametrize("name", list(JUMPS))
def test_jumps_are_met_by_all_but_polynomials(name, method):
    L, x = laplacian_matrix(GRAPH), randn(40, 3)
    torch.testing.assert_close(kl.filter(L, x, ALL[name], method=method), exact(L, x, ALL[name]), rtol=0, atol=1e-6)


@pytest.mark.parametrize("name", list(JUMPS))
def test_a_damped_series_stays_within_the_response_and_nears_it(name):
    L, x = laplacian_matrix(GRAPH), randn(40, 2)
    wanted, worst = exact(L, x, ALL[name]), []
    for degree in (50, 200, 2000):
        worst.append(float((kl.filter(L, x, ALL[name], method="chebyshev", degree=degree) - wanted).norm()))
        assert float(kl.filter(L, x, ALL[name], method="chebyshev", degree=degree).norm()) <= float(x.norm()) * (
            1 + 1e-9
        )
    assert worst[2] < worst[1] < worst[0]
    assert worst[2] < 0.02 * float(x.norm())


@pytest.mark.parametrize("width", [3.0, 0.0])
@pytest.mark.parametrize("kind", [r.LowPass, r.HighPass])
def test_the_low_subspace_serves_smooth_bands_too(kind, width):
    L, x = laplacian_matrix(GRAPH), randn(40, 2)
    response = kind(between(LAM, 0.2), width)
    torch.testing.assert_close(kl.filter(L, x, response, method="lowpass"), exact(L, x, response), rtol=0, atol=1e-6)


# What an operator is ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["auto", "exact", "chebyshev", "lanczos"])
@pytest.mark.parametrize("response", [r.Heat(0.5), r.Itersine(3)], ids=["one", "bank"])
def test_dense_sparse_and_function_agree(response, method):
    matrix, x = laplacian_matrix(GRAPH), randn(40, 2)
    sparse = kl.laplacian(scipy.sparse.csr_array(GRAPH.numpy()))
    # The bank is placed by the end of the interval, which has to be the same one.
    end = float(kl.responses.Itersine(3).on(sparse).lmax)
    response = response if isinstance(response, r.Heat) else r.Itersine(3, lmax=end)
    function = FunctionOperator(lambda X: matrix @ X, 40, bounds=(0.0, end))
    wanted = kl.filter(matrix, x, response, method="exact")
    for L in (sparse, function, DenseOperator(matrix, psd=True)):
        found = kl.filter(L, x, response, method=method, tol=1e-8)
        torch.testing.assert_close(found, wanted, rtol=0, atol=1e-6)


@pytest.mark.parametrize("method", FILTER_METHODS)
@pytest.mark.parametrize("response", [r.LowPass(1.3, width=1.0), r.Meyer(3)], ids=["one", "bank"])
def test_a_batch_is_the_loop(response, method):
    if method == "lowpass" and isinstance(response, r.Bank):
        pytest.skip("a bank is constant nowhere")
    L = torch.stack([laplacian_matrix(random_graph(12, 0.4, seed=s)) for s in range(3)])
    x = randn(3, 12, 2)
    found = kl.filter(L, x, response, method=method, tol=1e-8)
    for i in range(3):
        torch.testing.assert_close(
            found[i], kl.filter(L[i], x[i], response, method=method, tol=1e-8), rtol=0, atol=1e-6
        )


@pytest.mark.parametrize("method", ["exact", "chebyshev", "lanczos"])
def test_one_graph_takes_a_batch_of_signals_and_a_batch_one_signal(method):
    L = kl.laplacian(scipy.sparse.csr_array(GRAPH.numpy()))
    x = randn(2, 3, 40, 2)
    found = kl.filter(L, x, r.Hann(4), method=method)
    assert found.shape == (2, 3, 40, 2, 4)
    torch.testing.assert_close(found[1, 2], kl.filter(L, x[1, 2], r.Hann(4), method=method), rtol=0, atol=1e-6)
    graphs = torch.stack([laplacian_matrix(random_graph(9, 0.5, seed=s)) for s in range(2)])
    shared = kl.filter(graphs, x[0, 0, :9], r.Heat(1.0), method=method)
    torch.testing.assert_close(
        shared[1], kl.filter(graphs[1], x[0, 0, :9], r.Heat(1.0), method=method), rtol=0, atol=1e-6
    )


@pytest.mark.parametrize("method", ["auto", "exact", "chebyshev", "lanczos"])
def test_graphs_of_several_sizes(method):
    graphs = [path(5), cycle(8), grid(3, 4)]
    x = [randn(5), randn(8), randn(12)]
    found = kl.filter([kl.laplacian(g).to_dense() for g in graphs], x, r.Meyer(3), method=method, tol=1e-8)
    for W, signal, y in zip(graphs, x, found, strict=True):
        assert y.shape == (len(W), 3)
        alone = kl.filter(kl.laplacian(W), signal, r.Meyer(3), method=method, tol=1e-8)
        torch.testing.assert_close(y, alone, rtol=0, atol=1e-6)


def test_the_answer_is_of_the_signals_kind():
    G, x = nx.path_graph(6), np.arange(6, dtype=np.float32)
    y = kl.filter(G, x, r.Heat(1.0))
    assert isinstance(y, np.ndarray)
    assert y.dtype == np.float32
    assert y.shape == (6,)
    assert kl.filter(G, x, r.Meyer(3)).shape == (6, 3)
    assert kl.filter(kl.laplacian(G), [[1.0], [0], [0], [0], [0], [0]], r.Heat(1.0)).shape == (6, 1)


@pytest.mark.parametrize("method", ["exact", "chebyshev", "lanczos"])
def test_single_precision(method):
    L, x = laplacian_matrix(GRAPH), randn(40, 2)
    found = kl.filter(L.float(), x.float(), r.Heat(0.5), method=method)
    assert found.dtype == torch.float32
    torch.testing.assert_close(found.double(), exact(L, x, r.Heat(0.5)), rtol=0, atol=3e-5)


@pytest.mark.parametrize("method", ["auto", "exact", "chebyshev", "lanczos"])
@pytest.mark.parametrize("W", [torch.zeros(5, 5, dtype=F64), torch.zeros(1, 1, dtype=F64), cycle(6), -cycle(6)])
def test_degenerate_graphs(W, method):
    L = kl.laplacian(W)
    x = randn(len(W), 2)
    wanted = torch.linalg.matrix_exp(-0.5 * L.to_dense()) @ x
    torch.testing.assert_close(kl.filter(L, x, r.Heat(0.5), method=method), wanted, rtol=0, atol=1e-5)


@pytest.mark.parametrize("method", ["exact", "chebyshev", "lanczos"])
def test_no_signal_stays_none(method):
    assert not kl.filter(laplacian_matrix(path(6)), torch.zeros(6, dtype=F64), bump, method=method).any()
    assert not kl.filter(laplacian_matrix(path(6)), torch.zeros(6, 2, dtype=F64), r.Heat(1.0), method=method).any()


# What is reported -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["auto", *FILTER_METHODS])
@pytest.mark.parametrize("name", list(ALL))
def test_the_reported_error_is_no_less_than_the_true_one(name, method):
    L, x, response = laplacian_matrix(GRAPH), randn(40, 3), ALL[name]
    if method == "lowpass" and response_of(response).tail is None:
        pytest.skip("constant nowhere")
    found, wanted = kl.filtered(L, x, response, method=method, tol=1e-5), exact(L, x, response)
    error = (found.signal - wanted).norm(dim=0)
    assert error.shape == found.error_bound.shape
    assert bool((error <= found.error_bound + 1e-13 * x.norm()).all())  # the reference has rounding of its own
    sharp = name in JUMPS and method == "chebyshev"
    assert found.status.name == ("MAX_STEPS" if sharp else "CONVERGED")
    assert float(found.error_bound.max()) < (0.1 if sharp else 1e-4) * float(wanted.norm() + x.norm())


@pytest.mark.parametrize("name", list(JUMPS))
@pytest.mark.parametrize("degree", [10, 40, 150])
def test_the_error_at_a_jump_is_seen_in_the_signal(name, degree):
    """Even where eigenvalues are at the jump; and not blindly: a signal far from the jump has a small bound."""
    L = laplacian_matrix(grid(6, 7))
    lam, U = torch.linalg.eigh(L)
    cutoff = float(lam[12]) + 1e-9
    response = {"low-pass": r.LowPass(cutoff), "high-pass": r.HighPass(cutoff), "band-pass": r.BandPass(cutoff, 6.0)}[
        name
    ]
    x = torch.cat([U[:, 12:13] + randn(42, 1) / 10, randn(42, 2), U[:, 0:1]], dim=-1)
    found = kl.filtered(L, x, response, method="chebyshev", degree=degree)
    error = (found.signal - exact(L, x, response)).norm(dim=0)
    assert bool((error <= found.error_bound).all())
    if degree == 150:
        assert float(found.error_bound[3]) < 0.01


def test_steps_of_lanczos_that_do_not_suffice_are_told():
    L, x = laplacian_matrix(path(60)), randn(60, 2)
    found = kl.filtered(L, x, r.Tikhonov(1000.0), method="lanczos", degree=12)
    error = (found.signal - exact(L, x, r.Tikhonov(1000.0))).norm(dim=0)
    assert found.status.name == "MAX_STEPS"
    assert bool((error <= found.error_bound).all())


def test_cost_is_counted():
    L, x = kl.laplacian(scipy.sparse.csr_array(GRAPH.numpy())), randn(40, 3)
    found = kl.filtered(L, x, [r.Heat(0.5), r.Heat(1.0)], method="chebyshev")
    assert found.products == 3 * found.degree + 4  # a product a degree and column, however many filters
    assert found.passes == found.degree + 4
    assert L.products == found.products
    assert kl.filtered(L, x, r.Heat(0.5), method="chebyshev", degree=7).degree == 7
    assert "Filtered(method='chebyshev', degree=" in repr(found)


def test_a_loose_tolerance_is_met_in_single_precision():
    """A large sparse graph's series runs in float32 where rounding is small beside the tolerance, and counts it."""
    L = kl.laplacian(nx.grid_2d_graph(30, 40))
    x, matrix = randn(1200, 2), L.to_dense()
    wanted = exact(matrix, x, r.Heat(3.0))
    for tol in (1e-2, 1e-3, 1e-4, 1e-9):
        found = kl.filtered(L, x, r.Heat(3.0), method="chebyshev", tol=tol)
        error = (found.signal - wanted).norm(dim=0)
        assert found.signal.dtype == F64
        assert bool((error <= found.error_bound).all())
        assert bool((error <= tol * x.norm(dim=0)).all())
        assert found.products == L.products == 2 * found.degree + 4
        L = kl.laplacian(nx.grid_2d_graph(30, 40))


def test_a_smaller_tolerance_takes_a_higher_degree():
    L, x = laplacian_matrix(GRAPH), randn(40, 1)
    degrees, errors = [], []
    for tol in (1e-2, 1e-5, 1e-10):
        found = kl.filtered(L, x, r.Heat(2.0), method="chebyshev", tol=tol)
        degrees.append(found.degree)
        errors.append(float((found.signal - exact(L, x, r.Heat(2.0))).norm()))
        assert errors[-1] <= tol * float(x.norm())
    assert degrees[0] < degrees[1] < degrees[2]


def test_auto_takes_what_fits():
    small, large = kl.laplacian(grid(5, 5)), kl.laplacian(nx.grid_2d_graph(70, 70))
    x, y = randn(25), randn(4900)
    assert kl.filtered(small, x, r.LowPass(1.0)).method == "exact"
    assert kl.filtered(large, y, r.Heat(1.0)).method == "chebyshev"
    few = kl.filtered(large, y, r.LowPass(0.02))
    assert few.method == "lowpass"
    assert "jumps" in few.why
    torch.testing.assert_close(few.signal, kl.lowpass(large, y, cutoff=0.02, tol=1e-12), rtol=0, atol=1e-5)
    assert kl.filtered(large, y, r.HighPass(3.0)).method == "chebyshev"  # half of the frequencies


# Bad input --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"response": 3.0}, "a response must be"),
        ({"response": lambda lam: lam[:1]}, "a value a frequency|a real value a frequency"),
        ({"response": lambda lam: torch.exp(1j * lam)}, "real value"),
        ({"response": lambda lam: lam / 0}, "finite"),
        ({"response": []}, "at least one"),
        ({"method": "magic"}, "method must be one of"),
        ({"method": "lowpass"}, "constant beyond a band"),
        ({"tol": 0.0}, "tol must be"),
        ({"degree": 0}, "degree must be"),
        ({"degree": 2.5}, "degree must be"),
        ({"x": torch.ones(4)}, "one row per node"),
        ({"x": torch.full((6,), float("nan"))}, "finite"),
        ({"L": cycle(6)}, "Laplacian|adjacency"),
    ],
)
def test_bad_input_is_refused(change, said):
    asked = {"L": kl.laplacian(cycle(6)), "x": torch.ones(6), "response": r.Heat(1.0)} | change
    rest = {key: asked[key] for key in ("method", "tol", "degree") if key in asked}
    with pytest.raises(kl.InputError, match=said):
        kl.filter(asked["L"], asked["x"], asked["response"], **rest)


def test_bad_coefficients_are_refused():
    L, bank = kl.laplacian(cycle(6)), r.Meyer(3)
    for c in (torch.ones(6, 2), torch.ones(6), torch.ones(5, 2, 3)):
        with pytest.raises(kl.InputError):
            bank.synthesize(L, c)
    with pytest.raises(kl.InputError, match="put together"):
        bank.adjoint(L, torch.ones(6, 3), method="lanczos")
