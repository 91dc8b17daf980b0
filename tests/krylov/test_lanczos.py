import numpy as np
import pytest
import scipy.sparse as sp
import torch
from torch.autograd import gradcheck

import krylow as kl
from krylow import InputError
from krylow.krylov.lanczos import breakdown_threshold, lanczos, relaxed_step
from krylow.krylov.ritz import relaxed_matrix
from krylow.operators import DenseOperator, DiagonalOperator, FunctionOperator
from krylow.testing import (
    HARD_GRAPHS,
    complete,
    cycle,
    grid,
    laplacian_matrix,
    path,
    random_graph,
    rounding,
    star,
)

F32, F64 = torch.float32, torch.float64


def start(*shape, seed=0, dtype=F64):
    return torch.randn(*shape, 1, generator=torch.Generator().manual_seed(seed), dtype=F64).to(dtype)


def gammas(m, seed=0, dtype=F64):
    """Within the paper's constraints: gamma1 <= 1 <= gamma2."""
    u = torch.rand(2, m, generator=torch.Generator().manual_seed(seed), dtype=F64).to(dtype)
    return 1 - u[0] ** 2, 1 + u[1] ** 2


def recurrence(L, krylov):
    """The residual of L V = V T + r e_m^T, by T as the paper writes it, built here entry by entry."""
    V, alpha, beta, m = krylov.V, krylov.alpha, krylov.beta, krylov.alpha.shape[-1]
    g1 = torch.ones(m, dtype=V.dtype) if krylov.gamma1 is None else krylov.gamma1
    g2 = torch.ones(m, dtype=V.dtype) if krylov.gamma2 is None else krylov.gamma2
    T = torch.zeros(*alpha.shape, m, dtype=V.dtype)
    for j in range(m):
        T[..., j, j] = g1[j] * alpha[..., j]
        if j + 1 < m:
            T[..., j + 1, j] = beta[..., j]
            T[..., j, j + 1] = g2[j + 1] * beta[..., j]
    e = torch.zeros(m, 1, dtype=V.dtype)
    e[-1] = 1
    return L @ V - (V @ T + krylov.residual @ e.mT), T


@pytest.mark.parametrize("dtype", [F32, F64], ids=["float32", "float64"])
@pytest.mark.parametrize("m", [1, 2, 7, 20])
@pytest.mark.parametrize("form", ["classical", "reorthogonalised", "relaxed"])
@pytest.mark.parametrize("signed", [False, True])
def test_the_recurrence_holds(dtype, m, form, signed):
    L = laplacian_matrix(random_graph(40, 0.2, seed=1, signed=signed)).to(dtype)
    options = {"reorthogonalize": form == "reorthogonalised"}
    if form == "relaxed":
        options = dict(zip(("gamma1", "gamma2"), gammas(m, dtype=dtype), strict=True))
    krylov = lanczos(DenseOperator(L), start(40, dtype=dtype), m, **options)
    residual, T = recurrence(L, krylov)
    size = float(krylov.beta.max() + krylov.alpha.abs().max() + torch.linalg.matrix_norm(L, 2))
    assert float(residual.abs().max()) <= rounding(dtype, 1, size)
    torch.testing.assert_close(relaxed_matrix(krylov), T, rtol=0, atol=0)
    assert krylov.V.shape == (40, m)
    assert int(krylov.steps) == m


@pytest.mark.parametrize("name", ["square grid", "signed", "three components", "weights over 12 orders", "cycle"])
@pytest.mark.parametrize("dtype", [F32, F64], ids=["float32", "float64"])
def test_reorthogonalised_vectors_are_orthonormal(name, dtype):
    W = HARD_GRAPHS[name]().to(dtype)
    n = W.shape[0]
    krylov = lanczos(kl.laplacian(W), start(n, dtype=dtype), n, reorthogonalize=True)
    live = int(krylov.steps)
    V = krylov.V[:, :live]
    torch.testing.assert_close(V.mT @ V, torch.eye(live, dtype=dtype), rtol=0, atol=rounding(dtype, n))
    assert (krylov.V[:, live:] == 0).all()


def test_a_basis_over_many_nodes_is_orthonormal():
    """A null vector has as many nearly equal entries as there are nodes, whose sums in float32 are far off."""
    n, k = 40_000, 5
    W = sp.random_array((n, n), density=10 / n, rng=np.random.default_rng(0))
    V = kl.subspace(kl.laplacian(sp.csr_array(W + W.T)).to(F32), k, method="lanczos").basis.double()
    torch.testing.assert_close(V.mT @ V, torch.eye(k, dtype=F64), rtol=0, atol=30 * torch.finfo(F32).eps)


def test_orthogonality_is_lost_without_it():
    """The reorthogonalisation is needed: on this graph the plain recurrence loses orthogonality altogether."""
    L = kl.laplacian(star(60) + 1e-3 * random_graph(60, 0.3, seed=1))
    plain = lanczos(L, start(60), 40).V
    assert float((plain.mT @ plain - torch.eye(40, dtype=F64)).abs().max()) > 1e-2


def test_first_vector_and_coefficients():
    L = laplacian_matrix(random_graph(10, seed=0))
    v = start(10)
    krylov = lanczos(DenseOperator(L), v, 2)
    q = v / v.norm()
    torch.testing.assert_close(krylov.V[:, :1], q)
    alpha = float(q.mT @ L @ q)
    assert float(krylov.alpha[0]) == pytest.approx(alpha)
    r = L @ q - alpha * q
    assert float(krylov.beta[0]) == pytest.approx(float(r.norm()))
    torch.testing.assert_close(krylov.V[:, 1:], r / r.norm())


def test_one_step_by_hand():
    L = DenseOperator(torch.tensor([[2.0, -1], [-1, 3]], dtype=F64))
    v, v_prev = torch.tensor([[1.0], [0.0]], dtype=F64), torch.tensor([[0.0], [1.0]], dtype=F64)
    alpha, r = relaxed_step(L, v, v_prev, torch.tensor(5.0, dtype=F64), 0.5, 2.0)
    assert float(alpha) == 2
    assert r[:, 0].tolist() == [2 - 0.5 * 2, -1 - 2 * 5]  # w - gamma1 alpha v - gamma2 beta v_prev


def test_neutral_gammas_are_the_classical_recurrence():
    L = kl.laplacian(random_graph(30, 0.2, seed=3))
    one = torch.ones(12, dtype=F64)
    relaxed, classical = lanczos(L, start(30), 12, gamma1=one, gamma2=one), lanczos(L, start(30), 12)
    for name in ("V", "alpha", "beta", "residual", "steps"):
        torch.testing.assert_close(getattr(relaxed, name), getattr(classical, name), rtol=0, atol=0)


def test_gammas_do_not_change_the_krylov_space():
    L = laplacian_matrix(random_graph(30, 0.2, seed=3))
    v, m = start(30), 6
    power = [v / v.norm()]
    for _ in range(m - 1):
        power.append(L @ power[-1] / (L @ power[-1]).norm())
    Q = torch.linalg.qr(torch.cat(power, -1)).Q
    g1, g2 = gammas(m)
    V = lanczos(DenseOperator(L), v, m, gamma1=g1, gamma2=g2).V
    assert float((V - Q @ (Q.mT @ V)).abs().max()) <= 1e-10
    assert int(torch.linalg.matrix_rank(V)) == m


@pytest.mark.parametrize("dtype", [F32, F64], ids=["float32", "float64"])
@pytest.mark.parametrize("seed", range(20))
def test_rounding_grows_no_ghosts(seed, dtype):
    """A complete graph has two eigenvalues; a third vector of the plain recurrence is rounding, however it starts."""
    krylov = lanczos(kl.laplacian(complete(50).to(dtype)), start(50, seed=seed, dtype=dtype), 6)
    assert int(krylov.steps) == 2
    V = krylov.V[:, :2]
    beta = float(krylov.beta[0])  # the second vector is right to eps ||L|| / beta
    assert float((V.mT @ V - torch.eye(2)).abs().max()) <= 4 * torch.finfo(dtype).eps * 98 / beta


def test_gammas_of_each_graph():
    L = torch.stack([laplacian_matrix(random_graph(9, seed=s)) for s in range(2)])
    v = start(2, 9)
    g1, g2 = (torch.stack(g) for g in zip(gammas(5, 1), gammas(5, 2), strict=True))
    batch = lanczos(DenseOperator(L), v, 5, gamma1=g1, gamma2=g2)
    for i in range(2):
        single = lanczos(DenseOperator(L[i]), v[i], 5, gamma1=g1[i], gamma2=g2[i])
        torch.testing.assert_close(batch.V[i], single.V)


@pytest.mark.parametrize("relaxed", [False, True])
def test_batch_is_the_loop_of_singles(relaxed):
    L = torch.stack([laplacian_matrix(random_graph(11, seed=s)) for s in range(4)]).reshape(2, 2, 11, 11)
    v = start(2, 2, 11)
    options = dict(zip(("gamma1", "gamma2"), gammas(6), strict=True)) if relaxed else {}
    batch = lanczos(DenseOperator(L), v, 6, **options)
    for i in np.ndindex(2, 2):
        single = lanczos(DenseOperator(L[i]), v[i], 6, **options)
        for name in ("V", "alpha", "beta", "residual"):
            torch.testing.assert_close(getattr(batch, name)[i], getattr(single, name), rtol=0, atol=1e-11)


def test_permuting_nodes_permutes_the_vectors():
    L, v = laplacian_matrix(random_graph(12, seed=5)), start(12)
    order = torch.randperm(12, generator=torch.Generator().manual_seed(1))
    plain = lanczos(DenseOperator(L), v, 6)
    permuted = lanczos(DenseOperator(L[order][:, order]), v[order], 6)
    torch.testing.assert_close(permuted.V, plain.V[order], rtol=0, atol=1e-11)
    torch.testing.assert_close(permuted.alpha, plain.alpha)


def test_eigenbasis_gives_the_same_coefficients():
    L, v = laplacian_matrix(random_graph(12, seed=5)), start(12)
    lam, U = torch.linalg.eigh(L)
    plain, diagonal = lanczos(DenseOperator(L), v, 6), lanczos(DiagonalOperator(lam), U.mT @ v, 6)
    torch.testing.assert_close(diagonal.alpha, plain.alpha)
    torch.testing.assert_close(diagonal.beta, plain.beta)
    torch.testing.assert_close(U @ diagonal.V, plain.V, rtol=0, atol=1e-11)


def test_float32_follows_float64():
    L, v = laplacian_matrix(random_graph(30, 0.2, seed=1)), start(30)
    single = lanczos(DenseOperator(L.float()), v.float(), 5, reorthogonalize=True)
    double = lanczos(DenseOperator(L), v, 5, reorthogonalize=True)
    size = float(torch.linalg.matrix_norm(L, 2))
    torch.testing.assert_close(single.alpha.double(), double.alpha, rtol=0, atol=rounding(F32, 30, size))
    torch.testing.assert_close(single.V.double(), double.V, rtol=0, atol=rounding(F32, 30, 10))


def test_cost_is_m_products():
    L = kl.laplacian(random_graph(20, seed=0))
    lanczos(L, start(20), 7, reorthogonalize=True)
    assert (L.products, L.passes) == (7, 7)


# Breakdown ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [F32, F64], ids=["float32", "float64"])
@pytest.mark.parametrize(
    ("W", "v", "steps"),
    [
        (complete(50), None, 2),  # two different eigenvalues
        (star(9), None, 3),
        (cycle(8), None, 5),
        (path(7), torch.ones(7, 1), 1),  # the constant vector is an eigenvector
        (torch.zeros(5, 5), None, 1),
        (torch.zeros(1, 1), None, 1),
        (path(6), None, 6),  # as many steps as nodes
        (path(6), torch.zeros(6, 1), 0),
    ],
)
@pytest.mark.parametrize("reorthogonalize", [False, True])
def test_breakdown_freezes(W, v, steps, dtype, reorthogonalize):
    n = W.shape[0]
    v = start(n, dtype=dtype) if v is None else v.to(dtype)
    L = laplacian_matrix(W.to(dtype))
    krylov = lanczos(DenseOperator(L), v, 12, reorthogonalize=reorthogonalize)
    if reorthogonalize and steps == 2:
        # Reorthogonalised, a vector that rounding made is as good as a random one: it may come before the end.
        assert int(krylov.steps) in (2, 3)
        steps = int(krylov.steps)
    assert int(krylov.steps) == steps
    assert (krylov.V[:, max(steps, 1) :] == 0).all()
    for name in ("V", "alpha", "beta", "residual"):
        assert getattr(krylov, name).isfinite().all()
    assert (krylov.beta[max(steps, 1) - 1 :] == 0).all()
    residual, _ = recurrence(L, krylov)
    size = float(torch.linalg.matrix_norm(L, torch.inf))
    beta = float(krylov.beta[: max(steps, 1)].where(krylov.beta[: max(steps, 1)] > 0, torch.inf).min())
    noise = max(4 * n**0.5, 2 * size / beta)  # what was taken for rounding, and dropped
    assert float(residual.norm()) <= noise * torch.finfo(dtype).eps * size


@pytest.mark.parametrize("relaxed", [False, True])
def test_one_bad_item_leaves_the_others_alone(relaxed):
    good = [laplacian_matrix(random_graph(10, seed=s)) for s in range(2)]
    L = torch.stack([good[0], laplacian_matrix(complete(10)), torch.zeros(10, 10, dtype=F64), good[1]])
    v = start(4, 10)
    options = dict(zip(("gamma1", "gamma2"), gammas(6), strict=True)) if relaxed else {}
    batch = lanczos(DenseOperator(L), v, 6, **options)
    assert batch.steps.tolist()[0] == batch.steps.tolist()[3] == 6
    assert batch.V.isfinite().all()
    for i in (0, 3):
        single = lanczos(DenseOperator(L[i]), v[i], 6, **options)
        torch.testing.assert_close(batch.V[i], single.V, rtol=0, atol=1e-11)


def test_padding_ends_a_graph_early():
    L = kl.laplacian([random_graph(4, seed=0), random_graph(9, seed=1)])
    v = start(2, 9) * L.mask[..., None]
    krylov = lanczos(L, v, 7)
    assert krylov.steps.tolist() == [4, 7]
    assert (krylov.V[0, 4:] == 0).all()


def test_threshold_is_below_legitimate_residuals():
    """A graph whose residuals are small but real is not broken down: eps, not its square root."""
    L = complete(20) + 1e-4 * random_graph(20, 1.0, seed=3)
    krylov = lanczos(kl.laplacian(L.float()), start(20, dtype=F32), 4, reorthogonalize=True)
    assert int(krylov.steps) == 4
    op = kl.laplacian(L.float())
    assert float(breakdown_threshold(op)) <= 4 * 20**0.5 * torch.finfo(F32).eps * 2 * 20 * 1.01


@pytest.mark.parametrize("dtype", [F32, F64], ids=["float32", "float64"])
@pytest.mark.parametrize("gamma2", [1.5, 30.0, 600.0])
def test_exploding_gammas_end_the_recurrence(gamma2, dtype):
    """Beta grows by gamma2 a step: once L v is rounding beside it, there is no new direction, and no overflow."""
    m = 200
    L = laplacian_matrix(random_graph(220, 0.05, seed=2)).to(dtype)
    krylov = lanczos(
        DenseOperator(L),
        start(220, dtype=dtype),
        m,
        gamma1=torch.full((m,), -500.0, dtype=dtype),
        gamma2=torch.full((m,), gamma2, dtype=dtype),
    )
    live = int(krylov.steps)
    assert 2 <= live < m
    for name in ("V", "alpha", "beta", "residual"):
        assert getattr(krylov, name).isfinite().all()
    norms = krylov.V.norm(dim=-2)
    torch.testing.assert_close(norms[:live], torch.ones(live, dtype=dtype), rtol=0, atol=rounding(dtype, 220))
    assert (norms[live:] == 0).all()


def test_reorthogonalisation_is_refused_with_gammas():
    with pytest.raises(InputError, match="classical recurrence, got gammas"):
        lanczos(kl.laplacian(path(5)), start(5), 3, gamma1=torch.ones(3, dtype=F64), reorthogonalize=True)


# Gradients ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("reorthogonalize", [False, True])
def test_gradcheck(reorthogonalize):
    L = laplacian_matrix(random_graph(7, seed=1)).requires_grad_()
    v = start(7).requires_grad_()

    def coefficients(L, v):
        krylov = lanczos(DenseOperator((L + L.mT) / 2), v, 4, reorthogonalize=reorthogonalize)
        return krylov.alpha, krylov.beta, krylov.V

    assert gradcheck(coefficients, (L, v))


def test_gradcheck_of_gammas():
    L = DenseOperator(laplacian_matrix(random_graph(7, seed=1)))
    inputs = tuple(g.requires_grad_() for g in gammas(4))
    assert gradcheck(lambda g1, g2: lanczos(L, start(7), 4, gamma1=g1, gamma2=g2).V, inputs)


@pytest.mark.parametrize("W", [complete(6), torch.zeros(6, 6, dtype=F64), star(6)])
def test_gradient_through_a_breakdown_is_finite(W):
    L = laplacian_matrix(W).requires_grad_()
    v = start(6).requires_grad_()
    krylov = lanczos(DenseOperator(L), v, 6)
    (krylov.alpha.sum() + krylov.beta.sum() + krylov.V.square().sum(-1)[0]).backward()
    assert L.grad.isfinite().all()
    assert v.grad.isfinite().all()


def test_zero_start_has_a_finite_gradient():
    v = torch.zeros(5, 1, dtype=F64, requires_grad=True)
    lanczos(kl.laplacian(path(5)), v, 3).V.sum().backward()
    assert v.grad.isfinite().all()


# Bounds ---------------------------------------------------------------------------------------------------------


def test_function_operator_estimates_its_bounds_once():
    L = laplacian_matrix(grid(8, 8))
    operator = FunctionOperator(L.matmul, 64)
    low, high = operator.gershgorin()
    spent = operator.products
    operator.gershgorin()
    assert operator.products == spent == 16
    lam = torch.linalg.eigvalsh(L)
    assert float(low) <= float(lam[0])
    assert float(high) >= float(lam[-1])
