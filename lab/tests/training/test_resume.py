import pytest
import torch
from safetensors.torch import save_file

from krylow._checks import InputError
from krylow.nn import InversePolynomialProbe, RootProbe, UnrolledLanczos
from krylow.training import Recipe
from krylow_lab.training.fit import STATE_FILE, fit
from krylow_lab.training.loop import Training
from krylow_lab.training.population import Population
from krylow_lab.training.spectra import Task


class Interrupted(Exception):
    pass


def nets(reorthogonalize=False):
    probes = [RootProbe(3, 0.5, high) for high in (2.0, 2.5)]
    return [
        UnrolledLanczos(2, 4, probe, init=0.05, reorthogonalize=reorthogonalize, literal=True).double()
        for probe in probes
    ]


def run(task, folder=None, **options):
    return fit(nets(), task, Recipe(epochs=6, **options), origin=[0, 1], lr=[1e-2, 3e-2], folder=folder)


@pytest.mark.parametrize("epoch", [0, 3])
def test_an_interrupted_run_ends_where_the_uninterrupted_does(task, tmp_path, monkeypatch, epoch):
    expected = run(task)
    loss = Training._loss
    batches = []

    def failing(self, *inputs):
        batches.append(self.epoch)
        if batches.count(epoch) == 2:  # in the middle of the epoch
            raise Interrupted
        return loss(self, *inputs)

    monkeypatch.setattr(Training, "_loss", failing)
    with pytest.raises(Interrupted):
        run(task, tmp_path)
    assert (tmp_path / STATE_FILE).is_file() == (epoch > 0)
    epochs = []

    def watched(self, *inputs):
        epochs.append(self.epoch)
        return loss(self, *inputs)

    monkeypatch.setattr(Training, "_loss", watched)
    resumed = run(task, tmp_path)
    assert min(epochs) == epoch  # nothing was done twice
    assert torch.equal(resumed.validation_curve, expected.validation_curve)
    assert torch.equal(resumed.train_curve, expected.train_curve)
    assert torch.equal(resumed.best_epoch, expected.best_epoch)
    for a, b in zip(resumed.population.stacked, expected.population.stacked, strict=True):
        assert torch.equal(a, b)


def test_a_finished_run_is_not_run_again(task, tmp_path, monkeypatch):
    first = run(task, tmp_path)
    monkeypatch.setattr(Training, "run_epoch", None)
    again = run(task, tmp_path)
    assert torch.equal(first.validation_error, again.validation_error)


def test_parameters_without_gradient_are_resumed_too(task, tmp_path):
    def run(epochs, folder=None):
        return fit(nets(True), task, Recipe(epochs=epochs), origin=[0, 1], lr=[1e-2, 3e-2], folder=folder)

    first, again = run(3, tmp_path), run(3, tmp_path)  # the gammas are held at 1
    assert torch.equal(first.validation_curve, again.validation_curve)


def test_a_state_of_other_settings_is_refused(task, tmp_path):
    run(task, tmp_path)
    with pytest.raises(InputError, match="other settings"):
        run(task, tmp_path, clip=0.5)


@pytest.mark.parametrize("damage", ["cut", "foreign"])
def test_a_damaged_state_is_refused(task, tmp_path, damage):
    path = tmp_path / STATE_FILE
    if damage == "foreign":
        save_file({"x": torch.zeros(1)}, path)
    else:
        path.write_bytes(b"\x80\x04pickle, perhaps")
    with pytest.raises(InputError, match=r"state"):
        run(task, tmp_path)


def test_the_best_epoch_is_kept_and_patience_ends_the_run(task):
    fitted = fit(nets(), task, Recipe(epochs=40, patience=3), origin=[0, 1], lr=[0.3, 0.3])  # far too fast
    assert len(fitted.train_curve) < 40
    curve = fitted.validation_curve
    for c in range(2):
        best = int(fitted.best_epoch[c])
        assert fitted.validation_error[c] == curve[best, c] == curve[: best + 4, c].min()
    measured = fitted.population.errors(task.validation, task.draw("validation", 2)[0]).mean(
        -1
    ) + fitted.population.errors(task.validation, task.draw("validation", 2)[1]).mean(-1)
    torch.testing.assert_close(measured / 2, fitted.validation_error)


def test_a_member_that_lost_its_patience_is_left_out(task):
    recipe = Recipe(epochs=12, patience=3)
    both = fit(nets(), task, recipe, origin=[0, 1], lr=[3.0, 1e-3])  # the first one cannot get better
    alone = fit(nets()[1:], task, recipe, origin=[1], lr=[1e-3])
    stop = int(both.best_epoch[0]) + 3
    assert stop < 12
    assert both.train_curve[:, 0].isnan().tolist() == [epoch >= stop for epoch in range(len(both.train_curve))]
    assert both.validation_curve[:, 0].isnan().sum() == len(both.validation_curve) - 1 - stop
    torch.testing.assert_close(both.validation_curve[: len(alone.validation_curve), 1], alone.validation_curve[:, 0])
    assert not both.validation_curve[:, 1].isnan().any()


def test_training_lowers_the_error(task):
    net = UnrolledLanczos(2, 4, RootProbe(3, 1.5, 3.0), init=0.0, literal=True).double()  # roots too far up
    fitted = fit([net], task, Recipe(epochs=10), origin=[0], lr=[5e-2])
    assert fitted.validation_error[0] < 0.95 * fitted.validation_curve[0, 0]


def test_a_fresh_vector_in_every_epoch(task):
    training = Training(Population(nets()), task, Recipe(), origin=[0, 1], lr=[1e-2, 1e-2], weight=[1.0, 1.0])
    drawn = []
    for curve in ([], [torch.zeros(2)], []):  # epochs 0, 1 and 0 again
        training.train_curve = curve
        drawn.append(training.draw()[1])
    assert not torch.equal(drawn[0], drawn[1])
    assert torch.equal(drawn[0], drawn[2])


def test_theory_drives_beta_up(families):
    task = Task.of(families[:1], [0])
    net = UnrolledLanczos(2, 4, InversePolynomialProbe(3, 2, 4, "cg"), init=0.3, literal=True).double()
    fitted = fit([net], task, Recipe(loss="theory", epochs=10, patience=99), origin=[0], lr=[3e-2], weight=[1.0])
    assert fitted.train_curve[-1, 0] < fitted.train_curve[0, 0]
