import pytest
import torch

from krylow._checks import InputError
from krylow.metrics import subspace_error
from krylow.nn import GaussianProbe, InversePolynomialProbe, RootProbe, UnrolledLanczos
from krylow.training import Recipe
from krylow_lab.training.fit import evaluate, fit
from krylow_lab.training.loop import Training, clip_members
from krylow_lab.training.population import Population
from krylow_lab.training.probe import to_eigenbasis


def make(init, probe=None):
    return UnrolledLanczos(2, 4, probe or InversePolynomialProbe(3, 2, 4, "cg"), init=init, literal=True).double()


@pytest.mark.parametrize("loss", ["subspace", "theory"])
def test_a_member_trains_as_it_would_alone(task, loss):
    settings = [(0.0, 0, 1e-2, 0.1), (0.1, 1, 1e-2, 1.0), (0.1, 0, 3e-3, 0.1), (0.3, 1, 3e-2, 0.01)]
    recipe = Recipe(loss=loss, epochs=4, patience=2, clip=0.05)
    init, origin, lr, weight = zip(*settings, strict=True)
    together = fit([make(i) for i in init], task, recipe, origin=origin, lr=lr, weight=weight)
    errors, _ = evaluate(together.population, task, together.origin)
    for c, (i, o, rate, w) in enumerate(settings):
        alone = fit([make(i)], task, recipe, origin=[o], lr=[rate], weight=[w])
        assert alone.best_epoch[0] == together.best_epoch[c]
        torch.testing.assert_close(alone.validation_error[0], together.validation_error[c], rtol=1e-9, atol=1e-12)
        for a, b in zip(alone.population.stacked, together.population.stacked, strict=True):
            torch.testing.assert_close(a[0], b[c], rtol=1e-7, atol=1e-9)
        alone_errors, _ = evaluate(alone.population, task, alone.origin)
        torch.testing.assert_close(alone_errors[0], errors[c], rtol=1e-7, atol=1e-9)


PROBES = {
    "gaussian": GaussianProbe,
    "cg": lambda: InversePolynomialProbe(3, 2, 4, "cg"),
    "learned_cg": lambda: InversePolynomialProbe(3, 2, 4, "learned_cg"),
    "roots": lambda: RootProbe(3),
}


def with_learned_steps():
    return UnrolledLanczos(2, 4, InversePolynomialProbe(3, 2, 4, "learned_cg"), gammas="sigmoid", literal=True).double()


def test_the_loss_of_means_is_the_loss_of_sums_with_another_weight(task):
    """Where nothing moves: mean(alpha^2) - mean(beta^2) = (sum(alpha^2) - m / (m - 1) sum(beta^2)) / m, and scaled."""
    m = 4
    settings = [("theory_mean", 1.0, 1.0), ("theory_mean", 0.01, 1.0), ("theory", 1.0, m / (m - 1))]
    curves = []
    for loss, scale, weight in settings:
        recipe = Recipe(loss=loss, scale=scale, epochs=1)
        curves.append(fit([with_learned_steps()], task, recipe, origin=[0], lr=[1e-100], weight=[weight]).train_curve)
    assert curves[0].shape == (1, 1)
    torch.testing.assert_close(curves[1], 0.01 * curves[0], rtol=1e-10, atol=0)
    torch.testing.assert_close(curves[2], m * curves[0], rtol=1e-10, atol=0)


def test_learned_steps_train_on_means_as_they_would_alone(task):
    recipe = Recipe(loss="theory_mean", scale=0.01, epochs=3, clip=1e9)
    together = fit([with_learned_steps(), with_learned_steps()], task, recipe, origin=[0, 1], lr=[0.1, 0.03])
    alone = fit([with_learned_steps()], task, recipe, origin=[1], lr=[0.03])
    for name, a, b in zip(
        together.population.names, together.population.stacked, alone.population.stacked, strict=True
    ):
        torch.testing.assert_close(a[1], b[0], rtol=1e-7, atol=1e-9, msg=name)


@pytest.mark.parametrize("probe", PROBES.values(), ids=list(PROBES))
def test_members_are_the_networks_they_were_made_of(task, probe):
    nets = [to_eigenbasis(make(init, probe())) for init in (0.1, 0.5)]
    population = Population(nets)
    spectra, z = task.train, task.draw("train", 1)[0]
    krylov = population.krylov(spectra.operator(), z)
    for c, net in enumerate(nets):
        single = net.krylov(spectra[c].operator(), z=z[c])
        torch.testing.assert_close(krylov.alpha[c], single.alpha)
        torch.testing.assert_close(krylov.V[c], single.V)
        assert population.member(c).config() == net.config()
        assert all(torch.equal(a, b) for a, b in zip(population.member(c).parameters(), net.parameters(), strict=True))


def test_one_shape_only():
    with pytest.raises(InputError, match="one shape"):
        Population([make(0.1), make(0.1, InversePolynomialProbe(4, 2, 4, "cg"))])


def test_the_ceiling_is_below_the_error(task):
    population = Population([to_eigenbasis(make(0.2)), to_eigenbasis(make(0.4))])
    errors, ceilings = evaluate(population, task, torch.tensor([0, 1]))
    assert (ceilings <= errors + 1e-9).all()
    assert (ceilings < errors - 1e-4).any()


def test_every_member_takes_the_steps_of_adam_at_its_own_learning_rate(task):
    rates = [1e-3, 1e-1]
    recipe = Recipe(epochs=3, batch_size=99, clip=1e9)
    training = Training(Population([make(0.2), make(0.2)]), task, recipe, origin=[0, 1], lr=rates, weight=[1.0, 1.0])
    alone = [make(0.2), make(0.2)]
    optimizers = [torch.optim.Adam(net.parameters(), lr=lr) for net, lr in zip(alone, rates, strict=True)]
    for _ in range(recipe.epochs):
        order, z = training.draw()
        for seed, (net, optimizer) in enumerate(zip(alone, optimizers, strict=True)):
            optimizer.zero_grad()
            L = task.train[seed][order[seed]].operator()
            basis = net(L, z=z[seed]).basis
            subspace_error(basis, task.train.target(2).expand(*basis.shape)).mean().backward()
            optimizer.step()
        training.run_epoch()
    for c, net in enumerate(alone):
        for ours, theirs in zip(training.population.member(c).parameters(), net.parameters(), strict=True):
            torch.testing.assert_close(ours, theirs, rtol=1e-7, atol=1e-9)


def test_members_are_clipped_apart_and_a_broken_one_stands_still():
    a, b = torch.zeros(3, 1, 2, requires_grad=True), torch.zeros(3, 1, 1, requires_grad=True)
    a.grad = torch.tensor([[[3.0, 0.0]], [[0.3, 0.0]], [[torch.nan, 1.0]]])
    b.grad = torch.tensor([[[4.0]], [[0.4]], [[1.0]]])
    clip_members([a, b], 1.0)
    assert a.grad[:, 0, 0].tolist() == pytest.approx([0.6, 0.3, 0.0])
    assert b.grad.flatten().tolist() == pytest.approx([0.8, 0.4, 0.0])


def test_gammas_that_start_at_zero_stay_there(task):
    fitted = fit([make(0.0)], task, Recipe(epochs=2), origin=[0], lr=[1e-2])
    net = fitted.population.member(0)
    assert net.upsilon1.abs().max() == net.upsilon2.abs().max() == 0
    assert net.probe.b.abs().max() > 0
