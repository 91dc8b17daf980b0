from itertools import pairwise

import numpy as np
import pytest
import scipy.sparse
import torch
from torch.autograd import gradcheck

import krylow as kl
from krylow import InputError
from krylow.certificate import Status
from krylow.krylov.lanczos import lanczos
from krylow.krylov.ritz import relaxed_matrix, ritz
from krylow.nn import GaussianProbe, InversePolynomialProbe, RootProbe, UnrolledLanczos
from krylow.operators import DenseOperator, FunctionOperator
from krylow.testing import (
    HARD_GRAPHS,
    block_diagonal,
    complete,
    laplacian_matrix,
    lowest,
    path,
    projector,
    random_graph,
    rounding,
)

F32, F64 = torch.float32, torch.float64


def randn(*shape, seed=0, dtype=F64):
    return torch.randn(*shape, dtype=F64, generator=torch.Generator().manual_seed(seed)).to(dtype)


def test_defaults_are_the_papers():
    net = UnrolledLanczos(6)
    assert (net.k, net.m) == (6, 12)
    assert isinstance(net.probe, InversePolynomialProbe)
    assert UnrolledLanczos(6, 9).m == 9
    assert "k=6, m=12" in repr(net)


def test_gammas_keep_their_constraints_whatever_is_learned():
    net = UnrolledLanczos(3, 5)
    with torch.no_grad():
        net.upsilon1.copy_(torch.tensor([-3.0, -0.5, 0.0, 0.5, 3.0]))
        net.upsilon2.copy_(torch.tensor([-2.0, -0.1, 0.0, 0.1, 2.0]))
    assert net.gamma1.tolist() == pytest.approx([-8, 0.75, 1, 0.75, -8])
    assert net.gamma2.tolist() == pytest.approx([5, 1.01, 1, 1.01, 5])


def test_gammas_by_sigmoid_and_softplus_start_near_one_and_keep_their_constraints():
    net = UnrolledLanczos(3, 5, gammas="sigmoid").double()
    sigmoid, softplus = (1 / (1 + np.exp(-7.0)), np.log1p(np.exp(-7.0)))
    assert net.gamma1.tolist() == pytest.approx([sigmoid] * 5, abs=1e-12)
    assert net.gamma2.tolist() == pytest.approx([1 + softplus] * 5, abs=1e-12)
    with torch.no_grad():
        net.upsilon1.copy_(torch.linspace(-20, 20, 5))
        net.upsilon2.copy_(torch.linspace(-20, 20, 5))
    assert ((net.gamma1 > 0) & (net.gamma1 < 1)).all()
    assert (net.gamma2 > 1).all()
    with pytest.raises(InputError, match="gammas must be one of 'square', 'sigmoid', got 'tanh'"):
        UnrolledLanczos(3, gammas="tanh")


@pytest.mark.parametrize("init", [2.55e302, -1e40, "7", float("nan")])
def test_a_first_gamma_that_the_parameters_cannot_hold_is_refused(init):
    with pytest.raises(InputError, match="init must be a"):
        UnrolledLanczos(2, init=init)


@pytest.mark.parametrize("k", [6, 8, 10])
def test_untrained_learned_steps_are_lanczos_from_the_random_vector(k):
    """So that the author's "initialization" has the error of standard Lanczos."""
    W = kl.data.sbm(8, generator=torch.Generator().manual_seed(0), dtype=F64)
    L, z = kl.laplacian(W), randn(8, 100, 1)
    U = torch.linalg.eigh(L.to_dense())[1][..., :k]
    learned = UnrolledLanczos(k, 2 * k, InversePolynomialProbe(7, 6, 10, "learned_cg"), gammas="sigmoid").double()
    standard = UnrolledLanczos(k, 2 * k, GaussianProbe(), init=0.0).double()
    with torch.no_grad():
        errors = [float(kl.metrics.subspace_error(net(L, z=z).basis, U).mean()) for net in (learned, standard)]
    assert errors[0] == pytest.approx(errors[1], abs=0.01)
    assert errors[1] > 0.4


def test_gradient_at_zero_is_zero_and_off_it_is_not():
    """1 -+ v^2 is flat at v = 0: a network started there never learns its gammas."""
    L = laplacian_matrix(random_graph(20, seed=0))
    U = lowest(L, 2)[1]
    for init, learns in ((0.0, False), (0.05, True)):
        net = UnrolledLanczos(2, 6, GaussianProbe(), init=init).double()
        kl.losses.subspace_loss(net(L).basis, U).backward()
        assert (net.upsilon1.grad.abs().max() > 0) == learns
        assert (net.upsilon2.grad.abs().max() > 0) == learns


@pytest.mark.parametrize("dtype", [F32, F64], ids=["float32", "float64"])
def test_neutral_parameters_are_classical_lanczos(dtype):
    L = DenseOperator(laplacian_matrix(random_graph(30, 0.3, seed=1)).to(dtype))
    z = randn(30, 1, dtype=dtype)
    net = UnrolledLanczos(3, 8, GaussianProbe(), init=0.0)
    classical = lanczos(L, z, 8)
    ours = net.krylov(L, z=z)
    torch.testing.assert_close(ours.V, classical.V, rtol=0, atol=rounding(dtype, 30))
    torch.testing.assert_close(ours.alpha, classical.alpha)
    torch.testing.assert_close(projector(net(L, z=z).basis), projector(ritz(classical, 3)[1]))


def test_forward_is_probe_recurrence_and_extraction():
    """Against the same steps written out in numpy, with eig on the nonsymmetric T."""
    L = laplacian_matrix(random_graph(20, seed=2))
    net = UnrolledLanczos(2, 5, GaussianProbe(), init=0.4).double()
    z = randn(20, 1)
    g1, g2 = net.gamma1.detach().numpy(), net.gamma2.detach().numpy()
    A, v = L.numpy(), z.numpy()[:, 0] / np.linalg.norm(z)
    v_prev, beta, V, T = np.zeros(20), 0.0, [], np.zeros((5, 5))
    for j in range(5):
        V.append(v)
        w = A @ v
        alpha = v @ w
        r = w - g1[j] * alpha * v - g2[j] * beta * v_prev
        T[j, j] = g1[j] * alpha
        if j:
            T[j - 1, j], T[j, j - 1] = g2[j] * beta, beta
        beta = np.linalg.norm(r)
        v_prev, v = v, r / beta
    values, Y = np.linalg.eig(T)
    order = np.argsort(values.real)[:2]
    Q = np.linalg.qr(np.stack(V, -1) @ Y[:, order].real)[0]
    found = net(L, z=z)
    np.testing.assert_allclose(projector(found.basis).detach(), Q @ Q.T, atol=1e-9)
    np.testing.assert_allclose(found.ritz_values.detach(), values.real[order], atol=1e-9)


@pytest.mark.parametrize("init", [0.0, 0.01, 0.1, 0.5])
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_the_error_falls_with_m_to_that_of_classical_lanczos(init, seed):
    """Whatever the gammas: the recurrence on the nodes, as it is written, ends near .6."""
    L, z = kl.laplacian(random_graph(60, seed=seed)), randn(60, 1)
    U = lowest(L.to_dense(), 5)[1]
    errors = []
    for m in (5, 10, 15, 20, 25, 30, 40, 50, 60):
        net = UnrolledLanczos(5, m, init=init).double()
        classical = UnrolledLanczos(5, m, net.probe, reorthogonalize=True).double()
        with torch.no_grad():
            error, least = (float(kl.metrics.subspace_error(n(L, z=z).basis, U)) for n in (net, classical))
        assert error <= 1.1 * least + 0.02 * (least > 1e-3) + 1e-12
        errors.append(error)
    assert all(after <= before + 0.02 for before, after in pairwise(errors))
    assert errors[-1] < 1e-12
    if init == 0.01:
        literal = UnrolledLanczos(5, 50, init=init, literal=True).double()
        assert kl.metrics.subspace_error(literal(L, z=z).basis, U) > 0.3


@pytest.mark.parametrize("literal", [False, True])
def test_it_is_the_recurrence_where_the_gammas_act(literal):
    """L V = V T + r e_m^T for the relaxed T, and V the vectors of the recurrence as it is written."""
    L, z = kl.laplacian(random_graph(40, seed=1)), randn(40, 1)
    net = UnrolledLanczos(3, 8, init=0.05, literal=literal).double()
    found = net.krylov(L, z=z)
    V, T = found.V, relaxed_matrix(found)
    torch.testing.assert_close(L @ V, V @ T + found.residual * torch.eye(8, dtype=F64)[-1:], rtol=0, atol=1e-10)
    torch.testing.assert_close(found.gamma1.expand(8), net.gamma1)
    written = lanczos(L, net.probe(L, z), 8, gamma1=net.gamma1, gamma2=net.gamma2)
    torch.testing.assert_close((V, found.alpha, found.beta), (written.V, written.alpha, written.beta))


@pytest.mark.parametrize("m", [12, 30])
def test_many_neutral_layers_stay_orthonormal(m):
    V = UnrolledLanczos(3, m, init=0.0).double().krylov(laplacian_matrix(random_graph(30, seed=1))).V
    torch.testing.assert_close(V.mT @ V, torch.eye(m, dtype=F64), rtol=0, atol=1e-12)


@pytest.mark.parametrize("m", [3, 7, 9])
def test_gradcheck_of_the_matrix(m):
    """Where the gammas act, where they do not, and where the space is closed."""
    net = UnrolledLanczos(2, m, InversePolynomialProbe(3, 2, 3), init=0.2).double()
    x, z = randn(9, 1), randn(9, 1, seed=1)

    def filtered(weights):
        W = torch.zeros(9, 9, dtype=F64).index_put(tuple(torch.triu_indices(9, 9, 1)), weights)
        return net(kl.laplacian(W + W.mT), z=z).project(x)

    assert gradcheck(filtered, ((0.5 + randn(36, seed=2).abs()).requires_grad_(),))


def test_all_layers_neutral_is_exact():
    L = laplacian_matrix(random_graph(12, seed=3))
    found = UnrolledLanczos(3, 12, init=0.0).double()(L)
    torch.testing.assert_close(projector(found.basis).detach(), projector(lowest(L, 3)[1]), rtol=0, atol=1e-5)


def test_the_untrained_probe_helps():
    """On block models, K = 6: .55 from a random start, .48 through ten steps of the literal probe, untrained."""
    L = laplacian_matrix(kl.data.sbm(8, 100, 4, dtype=F64))
    U = lowest(L, 6)[1]
    probes = {
        "gaussian": GaussianProbe(),
        "scaled": InversePolynomialProbe(11, 6, 10, "cg"),
        "literal": InversePolynomialProbe(7, 3, 10, "cg", scaled=False),
    }
    with torch.no_grad():
        found = {name: UnrolledLanczos(6, 12, probe, init=0.0).double()(L).basis for name, probe in probes.items()}
    errors = {name: float(kl.metrics.subspace_error(basis, U).mean()) for name, basis in found.items()}
    assert errors["gaussian"] == pytest.approx(0.547, abs=0.03)
    assert errors["literal"] == pytest.approx(0.478, abs=0.03)
    assert errors["scaled"] < errors["gaussian"] - 0.01


@pytest.mark.parametrize("solver", ["krylov", "cg"])
def test_forms_of_a_graph_agree(solver):
    W = random_graph(15, seed=0)
    L = laplacian_matrix(W)
    net = UnrolledLanczos(2, 5, InversePolynomialProbe(3, 2, 8, solver), init=0.2).double()
    low, high = (float(x) for x in kl.laplacian(W).gershgorin())
    z = randn(15, 1)
    expected = projector(net(kl.laplacian(W), z=z).basis)
    for form in (
        L,
        kl.laplacian(scipy.sparse.csr_array(W.numpy())),
        FunctionOperator(L.matmul, 15, bounds=(low, high), psd=True),
    ):
        torch.testing.assert_close(projector(net(form, z=z).basis), expected, rtol=0, atol=1e-9)


def test_batch_is_the_loop_and_nodes_may_be_permuted():
    L = torch.stack([laplacian_matrix(random_graph(12, seed=s)) for s in range(4)]).reshape(2, 2, 12, 12)
    z = randn(2, 2, 12, 1)
    net = UnrolledLanczos(2, 5, init=0.2).double()
    batch = projector(net(L, z=z).basis)
    order = torch.randperm(12, generator=torch.Generator().manual_seed(0))
    for i in np.ndindex(2, 2):
        torch.testing.assert_close(projector(net(L[i], z=z[i]).basis), batch[i], rtol=0, atol=1e-9)
        permuted = projector(net(L[i][order][:, order], z=z[i][order]).basis)
        torch.testing.assert_close(permuted, batch[i][order][:, order], rtol=0, atol=1e-9)


def test_ragged_batch_is_the_singles_whatever_z_holds_on_padding():
    graphs = [random_graph(6, seed=0), random_graph(11, seed=1)]
    L = kl.laplacian(graphs)
    z = randn(2, 11, 1)
    net = UnrolledLanczos(2, 5, init=0.2).double()
    found = net(L, z=z)
    for i, W in enumerate(graphs):
        n = W.shape[0]
        single = net(kl.laplacian(W), z=z[i, :n])
        torch.testing.assert_close(projector(found.basis[i, :n]), projector(single.basis), rtol=0, atol=1e-9)
        assert (found.basis[i, n:] == 0).all()


def test_float32_follows_float64():
    L = laplacian_matrix(random_graph(40, 0.2, seed=1))
    z = randn(40, 1)
    net = UnrolledLanczos(3, 8, init=0.1)
    single, double = net(L.float(), z=z.float()), net(L, z=z)
    assert single.basis.dtype == F32
    assert double.basis.dtype == F64
    torch.testing.assert_close(projector(single.basis).double(), projector(double.basis), rtol=0, atol=1e-2)


@pytest.mark.parametrize("solver", ["krylov", "cg", "learned_cg"])
def test_gradcheck_of_every_parameter(solver):
    L = DenseOperator(laplacian_matrix(random_graph(9, 0.6, seed=1)), psd=True)
    net = UnrolledLanczos(2, 4, InversePolynomialProbe(3, 2, 3, solver), init=0.3).double()
    x, z = randn(9, 1), randn(9, 1, seed=1)
    if solver == "learned_cg":  # from near 0 its derivatives are too small to be seen in differences
        with torch.no_grad():
            net.probe.step.fill_(0.1)
            net.probe.momentum.fill_(-0.5)
    names, values = zip(*net.named_parameters(), strict=True)

    class Filter(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.net = net

        def forward(self):
            return self.net(L, z=z).project(x)

    model = Filter()

    def filtered(*parameters):
        named = {f"net.{name}": p for name, p in zip(names, parameters, strict=True)}
        return torch.func.functional_call(model, named, ())

    assert gradcheck(filtered, tuple(v.detach().clone().requires_grad_() for v in values))


def test_training_lowers_the_error():
    L = laplacian_matrix(torch.stack([random_graph(30, 0.2, seed=s) for s in range(8)]))
    U = lowest(L, 2)[1]
    net = UnrolledLanczos(2, 4, InversePolynomialProbe(3, 2, 6)).double()
    optimiser = torch.optim.Adam(net.parameters(), 0.05)
    losses = []
    for _ in range(30):
        optimiser.zero_grad()
        loss = kl.losses.subspace_loss(net(L).basis, U).mean()
        loss.backward()
        optimiser.step()
        losses.append(float(loss))
    assert losses[-1] < 0.9 * losses[0]


@pytest.mark.parametrize("name", list(HARD_GRAPHS))
@pytest.mark.parametrize("dtype", [F32, F64], ids=["float32", "float64"])
def test_hard_graphs_give_finite_answers_and_gradients(name, dtype):
    W = HARD_GRAPHS[name]().to(dtype).requires_grad_()
    net = UnrolledLanczos(2, 6, init=0.1)
    found = net(kl.laplacian(W))
    assert found.basis.isfinite().all()
    assert not found.ritz_values.isnan().any()
    found.project(randn(W.shape[0], 1, dtype=dtype)).square().sum().backward()
    for p in (W, *net.parameters()):
        assert p.grad.isfinite().all()


def test_a_missed_component_is_said():
    L = block_diagonal(complete(4), complete(4))
    found = UnrolledLanczos(2, 6)(kl.laplacian(L))
    assert found.status != Status.CONVERGED
    assert float(found.error_bound) >= float(kl.metrics.subspace_error(found.basis, lowest(laplacian_matrix(L), 2)[1]))


def test_same_z_at_every_call_unless_a_generator_comes():
    L = kl.laplacian(random_graph(20, 0.3, seed=0))
    net = UnrolledLanczos(2, 4)
    torch.testing.assert_close(net(L).basis, net(L).basis, rtol=0, atol=0)
    generator = torch.Generator().manual_seed(0)
    assert not torch.equal(net(L, generator=generator).basis, net(L, generator=generator).basis)


@pytest.mark.parametrize(
    ("probe", "cost"),
    [
        (GaussianProbe(), 0),
        (InversePolynomialProbe(7, 3, 10), 10),
        (InversePolynomialProbe(7, 3, 10, "cg"), 3 * 10 * 7),
        (InversePolynomialProbe(7, 3, 10, "learned_cg"), 3 * 9 * 7),
    ],
)
def test_products(probe, cost):
    L = kl.laplacian(random_graph(40, 0.2, seed=0))
    found = UnrolledLanczos(2, 5, probe)(L)
    assert found.products == L.products == 5 + cost
    assert found.method == "unrolled"


@pytest.mark.parametrize(("k", "m"), [(0, None), (2, 0), (2.5, None), (2, "many")])
def test_bad_sizes(k, m):
    with pytest.raises(InputError, match=r"must be (at least 1|an integer), got"):
        UnrolledLanczos(k, m)


def test_bad_graph():
    with pytest.raises(InputError, match="that is an adjacency"):
        UnrolledLanczos(2)(path(5))


def test_fewer_nodes_than_k():
    found = UnrolledLanczos(4, 8)(kl.laplacian(path(3)))
    assert found.basis.shape == (3, 4)
    assert found.status == Status.BREAKDOWN


@pytest.mark.slow
def test_compiled_network_is_the_eager_one():
    net = UnrolledLanczos(2, 5, init=0.2).double()
    z = randn(12, 1)
    L = laplacian_matrix(random_graph(12, seed=0))
    torch._dynamo.reset()
    compiled = torch.compile(lambda matrix: net(DenseOperator(matrix), z=z).basis, backend="aot_eager", fullgraph=True)
    torch.testing.assert_close(projector(compiled(L)), projector(net(L, z=z).basis), rtol=0, atol=1e-9)


SCALED = {
    "inverse polynomial": InversePolynomialProbe,
    "gaussian": GaussianProbe,
    "conjugate gradients": lambda: InversePolynomialProbe(solver="cg"),
    "roots": lambda: RootProbe(3),
}


def answer_and_gradients(W, probe, kind="combinatorial", **options):
    """Return the projector, the Ritz values, and the gradients of a function of the first for parameters and W."""
    torch.manual_seed(0)
    net = UnrolledLanczos(3, 8, probe=probe(), **options).to(W.dtype)
    W = W.clone().requires_grad_()
    sub = net(kl.laplacian(W, kind))
    P = projector(sub.basis)
    (randn(*P.shape, seed=5).to(P) * P).sum().backward()
    parameters = [p.grad for p in net.parameters() if p.grad is not None]
    return P.detach(), sub.ritz_values.detach(), W.grad, parameters


@pytest.mark.parametrize("exponent", [-100, 100])
@pytest.mark.parametrize("reorthogonalize", [False, True])
@pytest.mark.parametrize("name", SCALED)
def test_the_unit_of_the_weights_does_not_matter(name, reorthogonalize, exponent):
    W = randn(2, 12, 12).float().abs() * (randn(2, 12, 12, seed=1) > 0)
    W = W.triu(1) + W.triu(1).mT
    unit = 2.0**exponent
    P, theta, grad, parameters = answer_and_gradients(W, SCALED[name], reorthogonalize=reorthogonalize)
    found = answer_and_gradients(unit * W, SCALED[name], reorthogonalize=reorthogonalize)
    truth = (P, theta, grad, parameters)
    torch.testing.assert_close((found[0], found[1] / unit, found[2] * unit, found[3]), truth, rtol=1e-3, atol=1e-4)


def test_graphs_of_a_batch_may_have_units_of_their_own():
    W = randn(3, 12, 12).float().abs().triu(1)
    W = W + W.mT
    units = torch.tensor([1.0, 2.0**-100, 2.0**90])[:, None, None]
    truth, found = (answer_and_gradients(unit * W, InversePolynomialProbe) for unit in (torch.ones_like(units), units))
    scaled = (found[0], found[1] / units[..., 0], found[2] * units, found[3])
    torch.testing.assert_close(scaled, truth, rtol=1e-3, atol=1e-4)


def test_the_unit_of_the_weights_of_a_normalized_laplacian_does_not_matter():
    W = randn(12, 12).float().abs().triu(1)
    W = W + W.mT
    unit = 2.0**-100
    truth, found = (answer_and_gradients(w, InversePolynomialProbe, kind="normalized") for w in (W, unit * W))
    torch.testing.assert_close((*found[:2], found[2] * unit, found[3]), truth, rtol=1e-3, atol=1e-4)
