import numpy as np
import pytest
import scipy.sparse
import torch

import krylow as kl
from krylow.certificate import Status, certify
from krylow.nn import GaussianProbe, UnrolledLanczos
from krylow.operators import DenseOperator, FunctionOperator
from krylow.testing import (
    REAL_GAP,
    block_diagonal,
    complete,
    cycle,
    from_spectrum,
    gap_at,
    grid,
    laplacian_matrix,
    lowest,
    path,
    random_graph,
)

F32, F64 = torch.float32, torch.float64
K = 3


def population(count, n, seed, dtype=F64):
    """Laplacians of ``count`` random graphs with a real gap at K: sparse, dense, weighted, signed, with components."""
    rng = np.random.default_rng(seed)
    found = []
    while sum(map(len, found)) < count:
        density = rng.uniform(0.1, 0.9, (256, 1, 1))
        weights = np.where(rng.random((256, 1, 1)) < 0.5, 1.0, rng.lognormal(0, 1, (256, n, n)))
        weights = np.where((rng.random((256, 1, 1)) < 0.3) & (rng.random((256, n, n)) < 0.2), -weights, weights)
        communities = rng.integers(0, 4, (256, n))
        far = communities[:, :, None] != communities[:, None, :]
        density = np.where(far, density * rng.choice([1.0, 0.2, 0.02], (256, 1, 1)), density)
        W = np.tril(np.where(rng.random((256, n, n)) < density, weights, 0.0), -1)
        L = laplacian_matrix(torch.from_numpy(W + W.swapaxes(1, 2))).to(dtype)
        L = L[L.abs().amax((-2, -1)) > 0]
        found.append(L[gap_at(L, K) > REAL_GAP])
    return torch.cat(found)[:count]


def true_errors(basis, L, k=K):
    U = lowest(L, k)[1]
    B = basis.detach().double()
    return (U - B @ (B.mT @ U)).square().sum((-2, -1)) / k


OPTIONS = {
    "exact": {},
    "lanczos m=6": {"method": "lanczos", "m": 6},
    "lanczos m=14": {"method": "lanczos", "m": 14},
    "unrolled": {"method": "unrolled"},
    "unrolled, far from neutral": {"method": "unrolled", "weights": UnrolledLanczos(K, 8, init=0.7)},
    "thick_restart tol=1e-1": {"method": "thick_restart", "tol": 1e-1},
    "thick_restart": {"method": "thick_restart"},
    "chebyshev tol=1e-2": {"method": "chebyshev", "tol": 1e-2},
    "chebyshev": {"method": "chebyshev"},
    "chebyshev, out of products": {"method": "chebyshev", "max_products": 60},
    "lobpcg": {"method": "lobpcg"},
}


@pytest.mark.parametrize("name", list(OPTIONS))
@pytest.mark.parametrize(("dtype", "count"), [(F64, 1000), (F32, 300)], ids=["float64", "float32"])
def test_the_bound_is_never_below_the_true_error(name, dtype, count):
    options = {"method": name, **OPTIONS[name]}
    for n, part in ((16, count // 2), (24, count - count // 2)):
        L = population(part, n, seed=n, dtype=dtype)
        found = kl.subspace(L, K, **options)
        errors = true_errors(found.basis, L)
        bound = found.error_bound.double()
        assert bound.shape == (part,)
        assert not bound.isnan().any()
        assert (bound >= errors).all(), f"{int((bound < errors).sum())} of {part} bounds lie"
        done = found.statuses == Status.CONVERGED
        assert (bound[done] <= found.tol).all()
        if options["method"] in ("exact", "thick_restart", "chebyshev", "lobpcg") and "max_products" not in options:
            assert done.double().mean() > 0.98


@pytest.mark.parametrize("name", ["lanczos m=6", "lanczos m=14", "thick_restart", "chebyshev"])
def test_estimated_bounds_hold_where_no_entries_are_known(name):
    """Without entries the gap cannot be proved; nothing may be called converged that is not, all the same."""
    options = {"method": name, **OPTIONS[name]}
    for L in population(100, 20, seed=5):
        found = kl.subspace(FunctionOperator(L.matmul, 20), K, **options)
        assert not found.certificate.proved
        error = float(true_errors(found.basis, L))
        if found.status == Status.CONVERGED:
            assert float(found.error_bound) >= error


@pytest.mark.parametrize("kind", ["dense", "function", "sparse"])
@pytest.mark.parametrize("method", ["lanczos", "thick_restart", "chebyshev", "lobpcg"])
def test_equal_values_at_the_cut_are_no_gap(kind, method):
    """Values in pairs: a single Krylov sequence sees one of each, and must not take the next pair for the gap."""
    W = cycle(40)
    L = laplacian_matrix(W)
    operator = {
        "dense": lambda: DenseOperator(L),
        "function": lambda: FunctionOperator(L.matmul, 40),
        "sparse": lambda: kl.laplacian(scipy.sparse.csr_array(W.numpy())),
    }[kind]()
    options = {"m": 21} if method == "lanczos" else {}
    for k in (2, 4):
        found = kl.subspace(operator, k, method=method, **options)
        assert found.status != Status.CONVERGED
        assert float(found.error_bound) == float("inf")


@pytest.mark.parametrize("method", ["exact", "thick_restart", "chebyshev", "lobpcg"])
@pytest.mark.parametrize("dtype", [F32, F64], ids=["float32", "float64"])
def test_no_gap_status(method, dtype):
    for W, k in ((complete(12), 3), (grid(5, 5), 2), (block_diagonal(path(4), path(4), path(4)), 2)):
        found = kl.subspace(laplacian_matrix(W).to(dtype), k, method=method)
        assert found.status == Status.NO_GAP
        assert float(found.error_bound) == float("inf")


@pytest.mark.parametrize("form", ["dense", "function"])
def test_low_frequencies_that_are_still_mixed_show_no_tie(form):
    """Residuals far below the root of eps, but not below the gaps: more iterations will separate these vectors."""
    scale = 1e-10
    L = from_spectrum(np.r_[0, scale * np.array([1, 1.3, 2]), np.linspace(0.1, 1, 46)])
    lam, U = torch.linalg.eigh(L)
    mixed, operator = U[:, :4].mean(1, keepdim=True) * 2, DenseOperator(L)
    if form == "function":
        operator = FunctionOperator(L.matmul, 50)
    assert certify(operator, mixed, following=lam[2]).statuses == Status.MAX_STEPS
    assert certify(operator, U[:, :1], following=lam[1]).statuses == Status.CONVERGED


@pytest.mark.parametrize("residual", [1e-7, 1e-10])
def test_a_tie_needs_no_more_than_values_that_are_right_to_rounding(residual):
    L = from_spectrum(np.r_[0, 1, 1, np.linspace(2, 3, 47)])
    lam, U = torch.linalg.eigh(L)
    basis = U[:, :2] + residual * U[:, 3:5]
    assert certify(DenseOperator(L), basis, following=lam[2]).statuses == Status.NO_GAP


def test_a_wrong_subspace_is_missed():
    """Exact eigenvectors, but not the lowest ones: small residuals are no proof."""
    L = laplacian_matrix(random_graph(20, seed=0))
    lam, U = lowest(L, 20)
    for wrong in (U[:, 1:4], U[:, [0, 1, 5]], U[:, -3:]):
        found = certify(DenseOperator(L), wrong)
        assert int(found.statuses) == Status.MISSED
        assert float(found.error_bound) == float("inf")
        assert found.proved
    right = certify(DenseOperator(L), U[:, :3])
    assert int(right.statuses) == Status.CONVERGED
    assert float(right.floor) <= float(lam[3]) + 1e-12
    assert float(right.floor) > float(lam[2])


def test_any_basis_of_the_span_will_do():
    L = laplacian_matrix(random_graph(20, seed=0))
    U = lowest(L, 3)[1]
    mix = torch.randn(3, 3, dtype=F64, generator=torch.Generator().manual_seed(0))
    found = certify(DenseOperator(L), U @ mix)
    assert int(found.statuses) == Status.CONVERGED
    assert (found.residuals <= 1e-12).all()


def test_residuals_are_those_of_the_ritz_pairs_inside():
    L = laplacian_matrix(random_graph(20, seed=0))
    X = torch.linalg.qr(torch.randn(20, 3, dtype=F64, generator=torch.Generator().manual_seed(0))).Q
    theta, Y = np.linalg.eigh((X.mT @ L @ X).numpy())
    pairs = X @ torch.from_numpy(Y)
    expected = (L @ pairs - pairs * torch.from_numpy(theta)).norm(dim=-2)
    torch.testing.assert_close(certify(DenseOperator(L), X).residuals, expected)


def test_missing_columns_are_a_breakdown():
    L = laplacian_matrix(random_graph(10, seed=0))
    U = lowest(L, 3)[1].clone()
    U[:, 1] = 0
    found = certify(DenseOperator(L), U)
    assert int(found.statuses) == Status.BREAKDOWN
    assert float(found.error_bound) == float("inf")
    assert found.residuals.isinf().sum() == 1


def test_everything_kept_is_no_error():
    L = laplacian_matrix(random_graph(5, seed=0))
    found = certify(DenseOperator(L), torch.eye(5, dtype=F64))
    assert int(found.statuses) == Status.CONVERGED
    assert float(found.error_bound) <= 1e-14


def test_every_item_of_a_batch_has_its_own_status():
    graphs = [random_graph(12, 0.6, seed=1), block_diagonal(complete(6), complete(6)), cycle(12)]
    net = UnrolledLanczos(2, 12, GaussianProbe(), init=0.0).double()
    found = kl.subspace(laplacian_matrix(torch.stack(graphs)), 2, method="unrolled", weights=net)
    assert found.statuses[0] == Status.CONVERGED
    assert found.statuses[1] == Status.MISSED
    assert found.statuses[2] != Status.CONVERGED
    assert found.status == max(Status(int(s)) for s in found.statuses)


@pytest.mark.parametrize("gap", [1e-3, 1e-5, 1e-7, 1e-9])
def test_small_gaps_are_seen_as_long_as_rounding_allows(gap):
    L = from_spectrum([0.0, 1.0, 2.0, 2.0 + gap, 3.0, 4.0, 5.0, 6.0])
    found = kl.subspace(DenseOperator(L), 3, method="exact")
    assert found.status == Status.CONVERGED
    assert float(true_errors(found.basis, L)) <= float(found.error_bound) <= 1e-3


def test_advice_for_every_status():
    for status in Status:
        assert status.advice.endswith(".")
    assert len({status.advice for status in Status}) == len(Status)


def test_certifying_costs_the_operator_nothing():
    L = kl.laplacian(random_graph(30, seed=0))
    found = kl.subspace(L, 3, method="lanczos")
    before = L.products
    assert found.status in Status
    assert L.products == before


def test_components_of_a_large_sparse_graph_are_proved_and_not_missed():
    parts = [random_graph(40, 0.15, seed=s) for s in range(60)]
    W = scipy.sparse.block_diag([p.numpy() for p in parts], format="csr")
    L = kl.laplacian(W)
    assert L.n == 2400
    found = kl.subspace(L, 60, method="chebyshev")
    assert found.certificate.proved  # they are all null vectors there can be
    assert not kl.subspace(L, 61, method="chebyshev").certificate.proved
    indicators = torch.from_numpy(np.kron(np.eye(60), np.ones((40, 1))) / 40**0.5)
    missed = indicators - found.basis @ (found.basis.mT @ indicators)
    error = float(missed.square().sum()) / 60
    assert error <= 1e-3
    assert found.status == Status.CONVERGED
    assert float(found.error_bound) >= error
    single = kl.subspace(L, 3, method="lanczos", m=60)
    assert single.status != Status.CONVERGED


def test_repr_names_method_and_cost():
    found = kl.subspace(laplacian_matrix(path(10)), 2, method="lanczos", m=5)
    assert "lanczos" in repr(found)
    assert "products=5" in repr(found)


def test_the_bound_is_sharp():
    """Where a floor is found, the filtered residual makes the bound hardly larger than the error it bounds."""
    W = torch.stack([random_graph(40, 0.2, seed=s) for s in range(60)])
    L = kl.laplacian(W)
    found = kl.subspace(L, 3, method="lanczos", m=20)
    error = kl.metrics.subspace_error(found.basis, torch.linalg.eigh(L.to_dense())[1][..., :3])
    seen = found.error_bound.isfinite() & (error > 1e-6)
    ratio = found.error_bound[seen] / error[seen]
    assert int(seen.sum()) >= 10
    assert float(ratio.min()) >= 1
    assert float(ratio.median()) <= 3


def test_a_status_says_its_name_and_what_to_do():
    names = ["CONVERGED", "MAX_STEPS", "NO_GAP", "MISSED", "BREAKDOWN", "INTERRUPTED"]
    assert [str(status) for status in Status] == names
    assert all(status.advice.endswith(".") for status in Status)
