"""Series on an interval that ends at an estimate of the largest frequency: nothing beyond it passes unseen."""

import copy
import pickle

import networkx as nx
import numpy as np
import pytest
import scipy.sparse
import torch

import krylow as kl
from krylow import responses as r
from krylow._response import is_bank, response_of
from krylow._short_interval import shortened
from krylow.expansion import expand
from krylow.operators import SparseOperator

F64 = torch.float64
RESPONSES = {
    "heat": r.Heat(8.0),
    "tikhonov": r.Tikhonov(10.0),
    "smooth low-pass": r.LowPass(2.0, width=9.0),
    "several": [r.Heat(0.2), r.Heat(8.0)],
    "mexican hat": r.MexicanHat(5, lmax=10.0),
    "itersine": r.Itersine(5, lmax=10.0),
}
#: Eigenvalues of the lattice below, and of a bound that is known of it.
END, BOUND = 10.0, 14.0


def randn(*shape, seed=0):
    return torch.randn(*shape, dtype=F64, generator=torch.Generator().manual_seed(seed))


def values_of(response, lam):
    values = response_of(response).evaluate(lam)
    return values if is_bank(response_of(response)) else values[..., None]


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
@pytest.mark.parametrize("tol", [1e-2, 1e-4, 1e-9])
@pytest.mark.parametrize("name", ["heat", "smooth low-pass", "several", "mexican hat", "itersine"])
def test_frequencies_beyond_the_interval_hide_no_more_than_they_show(name, tol, dtype):
    """On diagonal matrices, whose filters are known: a frequency anywhere beyond the end, its part of any size."""
    if dtype == torch.float32 and tol < 1e-4:
        pytest.skip("below what float32 holds")
    if name == "itersine" and tol < 1e-4:
        pytest.skip("kinks take thousands of products")

    def g(lam):
        return values_of(RESPONSES[name], lam)

    low, high, bound = (torch.tensor(end, dtype=F64) for end in (0.0, END, BOUND))
    long = expand(g, low, bound, tol)
    short = shortened(g, long, high, F64, dtype)
    assert short is not None
    assert short.degree < long.degree
    parts = torch.logspace(-20, 0, 21, dtype=F64)
    passed, refused = 0, 0
    for beyond in (10.0001, 10.1, 11.0, 14.0):
        lam = torch.cat([torch.linspace(0, END, 60, dtype=F64), torch.tensor([beyond], dtype=F64)])
        L = SparseOperator.from_matrix(scipy.sparse.diags_array(lam.numpy())).to(dtype)
        x = randn(61, len(parts))
        x[-1] = parts * x[:-1].norm(dim=0)
        y = g(lam)[:, None] * x[..., None]
        for i in range(len(parts)):
            column = x[:, i : i + 1].to(dtype)
            found = short.apply_watched(L, column)
            if found is None:
                refused += 1
                continue
            passed += 1
            error = (found.double() - y[:, i : i + 1]).norm(dim=0)[0]
            rounding = short.rounding(dtype) + torch.finfo(dtype).eps * short.size
            assert bool((error <= (short.error + rounding) * x[:, i].norm()).all()), (beyond, float(parts[i]))
    assert passed
    assert refused


@pytest.mark.parametrize("scale", [1e-30, 1.0, 1e30])
def test_norms_that_cannot_be_compared_are_not(scale):
    """Squares in float32 that are zero or infinite say nothing; a signal of zeros has nothing to hide."""

    def g(lam):
        return values_of(r.Heat(1.0), lam)

    low, high, bound = (torch.tensor(end, dtype=F64) for end in (0.0, END, BOUND))
    short = shortened(g, expand(g, low, bound, 1e-3), high, F64, torch.float32)
    inside = SparseOperator.from_matrix(scipy.sparse.diags_array(np.linspace(0, END, 50))).float()
    x = torch.full((50, 2), scale)
    x[:, 1] = 0
    assert (short.apply_watched(inside, x) is None) == (scale != 1)
    assert short.apply_watched(inside, torch.zeros(50, 2)) is not None


def lattice():
    """A triangular lattice on a torus: 10^4 nodes of degree 6, frequencies up to 9; shuffled."""
    i = np.arange(10_000).reshape(100, 100)
    rows = np.tile(i.ravel(), 3)
    ends = np.concatenate([np.roll(i, s, (0, 1)).ravel() for s in ((1, 0), (0, 1), (1, 1))])
    A = scipy.sparse.coo_array((np.ones(rows.size), (rows, ends)), shape=(10_000, 10_000))
    order = np.random.default_rng(0).permutation(10_000)
    return (A + A.T).tocsr()[order][:, order]


def star(weights):
    n = len(weights)
    A = scipy.sparse.coo_array((weights, (np.zeros(n, int), np.arange(1, n + 1))), shape=(n + 1, n + 1))
    return (A + A.T).tocsr()


#: Small components beside the lattice, whose largest frequency the 8 steps of Lanczos may overlook.
HIDDEN = {
    "an edge that is overlooked": star([4.8]),
    "an edge, nearly as light": star([4.6]),
    "an edge that is found": star([50.0]),
    "a heavy edge": star([1e6]),
    "a star": star(np.ones(8)),
    "a star of 12 orders": star(10.0 ** np.arange(-6, 7)),
    "a complete bipartite graph": nx.to_scipy_sparse_array(nx.complete_bipartite_graph(5, 5), dtype=float),
}


@pytest.mark.parametrize("tol", [1e-3, 1e-8])
@pytest.mark.parametrize("name", ["heat", "tikhonov", "several", "smooth low-pass"])
@pytest.mark.parametrize("hidden", list(HIDDEN))
def test_an_overlooked_component_is_filtered_within_the_reported_error(hidden, name, tol):
    part = HIDDEN[hidden]
    heavy = part.max() > 100
    if heavy and name != "heat":
        pytest.skip("a series for six orders of frequencies takes thousands of products")
    response = r.Heat(1.0 / part.max()) if heavy else RESPONSES[name]
    m = part.shape[0]
    W = scipy.sparse.block_diag([lattice(), part], format="csr")
    L = kl.laplacian(W)
    small = torch.from_numpy(np.diag(part.sum(0)) - part.toarray())
    lam, U = torch.linalg.eigh(small)
    x = torch.zeros(10_000 + m, 12, dtype=F64)
    x[-m:, 0] = U[:, -1]
    x[-m:, 1:4] = randn(m, 3)
    x[:, 4:] = randn(10_000 + m, 8)
    x[-m:, 6] = 1e-3 * U[:, -1]
    x[-m:, 7] = 1e-8 * U[:, -1]
    found = kl.filtered(L, x, response, method="chebyshev", tol=tol)
    wanted = torch.einsum("ij,jf,jc->icf", U, values_of(response, lam), U.T @ x[-m:])
    signal = found.signal if found.signal.ndim == 3 else found.signal[..., None]
    bound = found.error_bound if found.error_bound.ndim == 2 else found.error_bound[..., None]
    error = (signal[-m:] - wanted).norm(dim=0)
    assert bool((error <= bound + 1e-14 * x.norm(dim=0)[:, None]).all())
    assert found.status.name == "CONVERGED"
    reference = kl.filter(L, x, response, method="chebyshev", degree=4 * found.degree)  # on the proved interval
    rest = (found.signal - reference).norm(dim=0).reshape(bound.shape)
    assert bool((rest <= 1.1 * bound).all())


def test_a_signal_of_an_overlooked_frequency_goes_back_to_the_proved_interval():
    L = kl.laplacian(scipy.sparse.block_diag([lattice(), HIDDEN["an edge that is overlooked"]], format="csr"))
    x = randn(10_002, 10)
    x[-2:] = 0
    without = kl.filtered(L, x, r.Heat(8.0), method="chebyshev", tol=1e-8)
    x[-2:, 3] = torch.tensor([1.0, -1.0])
    within = kl.filtered(L, x, r.Heat(8.0), method="chebyshev", tol=1e-8)
    assert "does not contradict" in without.why
    assert "too low" in within.why
    assert without.degree < within.degree
    assert within.products > without.products


def test_what_is_kept_of_an_operator_changes_no_bit_and_follows_its_values():
    L, x = kl.laplacian(lattice()), randn(10_000, 10)
    first = kl.filtered(L, x, r.Heat(8.0), tol=1e-10)
    second = kl.filtered(L, x, r.Heat(8.0), tol=1e-10)
    assert torch.equal(first.signal, second.signal)
    assert second.products == 10 * second.degree < first.products
    for other in (copy.copy(L), pickle.loads(pickle.dumps(L))):
        assert torch.equal(kl.filter(other, x, r.Heat(8.0), tol=1e-10), first.signal)
    L.values.mul_(2)
    twice = kl.filter(kl.laplacian(2 * lattice()), x, r.Heat(8.0), tol=1e-10)
    torch.testing.assert_close(kl.filter(L, x, r.Heat(8.0), tol=1e-10), twice, rtol=0, atol=1e-8)
    assert float((twice - first.signal).norm()) > 1


@pytest.mark.parametrize("tol", [1e-3, 1e-10])
def test_a_long_series_has_the_gradient_of_its_filter(tol):
    """Recording a gradient takes the proved interval, and gives the same signal."""
    L, x = kl.laplacian(lattice()), randn(10_000, 10).requires_grad_()
    y = kl.filter(L, x, r.Heat(8.0), tol=tol)
    with torch.no_grad():
        torch.testing.assert_close(kl.filter(L, x, r.Heat(8.0), tol=tol), y, rtol=0, atol=10 * tol)
    v = randn(10_000, 10, seed=1)
    (y * v).sum().backward()
    torch.testing.assert_close(x.grad, kl.filter(L, v, r.Heat(8.0), tol=tol), rtol=0, atol=10 * tol)
