import math

import pytest
import torch
from safetensors.torch import save_file

import krylow as kl
from krylow.data import sbm, split_family
from krylow.nn import InversePolynomialProbe, RootProbe, UnrolledLanczos
from krylow.training import Recipe, train_network


@pytest.fixture
def family():
    """Return twelve graphs of 24 nodes."""
    source = torch.Generator().manual_seed(0)
    return split_family("tiny", sbm(12, 24, 3, 0.6, 0.1, generator=source, dtype=torch.float64))


def rooted():
    return UnrolledLanczos(2, 4, RootProbe(3, 0.5, 2.0), init=0.05).double()


class Interrupted(Exception):
    pass


def stop_after(epochs):
    def callback(epoch, loss, error):
        if epoch == epochs:
            raise Interrupted

    return callback


def test_a_trained_network_is_saved_with_its_card_and_does_what_the_card_says(family, tmp_path):
    net = UnrolledLanczos(2, 4, InversePolynomialProbe(3, 2, 4, "cg"), init=0.05).double()
    trained = train_network(net, family, Recipe(epochs=3, lr=1e-2), folder=tmp_path)
    loaded = kl.load(tmp_path / "network.safetensors")
    assert loaded.card == trained.card
    assert trained.card["products"] == 2 * 4 * 3 + 4
    L = kl.laplacian(family.test)
    U = torch.linalg.eigh(L.to_dense())[1][..., :2]
    source = torch.Generator().manual_seed(5)
    errors = [kl.metrics.subspace_error(loaded(L, generator=source).basis, U).mean().item() for _ in range(20)]
    assert sum(errors) / 20 == pytest.approx(trained.card["test_error"], abs=0.05)  # other random vectors
    rows = [line.split(",") for line in (tmp_path / "curves.csv").read_text().splitlines()]
    assert rows[0] == ["epoch", "train_loss", "validation_error"]
    assert [float(row[2]) for row in rows[1:]] == trained.validation_curve


@pytest.mark.parametrize("epochs", [1, 4])
def test_an_interrupted_run_ends_where_the_uninterrupted_does(family, tmp_path, epochs):
    recipe = Recipe(epochs=6, lr=1e-2)
    expected = train_network(rooted(), family, recipe)
    with pytest.raises(Interrupted):
        train_network(rooted(), family, recipe, folder=tmp_path, callback=stop_after(epochs))
    seen = []
    resumed = train_network(rooted(), family, recipe, folder=tmp_path, callback=lambda epoch, *_: seen.append(epoch))
    assert seen == list(range(epochs + 1, 7))  # nothing was done twice
    assert resumed.train_curve == expected.train_curve
    assert resumed.validation_curve == expected.validation_curve
    for a, b in zip(resumed.net.parameters(), expected.net.parameters(), strict=True):
        assert torch.equal(a, b)


def test_a_finished_run_is_not_run_again(family, tmp_path):
    recipe = Recipe(epochs=2)
    first = train_network(rooted(), family, recipe, folder=tmp_path)
    again = train_network(rooted(), family, recipe, folder=tmp_path, callback=stop_after(0))
    assert again.card == first.card


def test_a_state_of_other_settings_is_refused(family, tmp_path):
    train_network(rooted(), family, Recipe(epochs=1), folder=tmp_path)
    with pytest.raises(kl.InputError, match="other settings"):
        train_network(rooted(), family, Recipe(epochs=1, clip=0.5), folder=tmp_path)


@pytest.mark.parametrize("damage", ["cut", "foreign"])
def test_a_damaged_state_is_refused(family, tmp_path, damage):
    path = tmp_path / "state.safetensors"
    if damage == "foreign":
        save_file({"x": torch.zeros(1)}, path)
    else:
        path.write_bytes(b"\x80\x04pickle, perhaps")
    with pytest.raises(kl.InputError, match="state"):
        train_network(rooted(), family, Recipe(epochs=1), folder=tmp_path)


def test_a_state_of_which_one_bit_is_another_is_refused(family, tmp_path):
    train_network(rooted(), family, Recipe(epochs=1), folder=tmp_path)
    path = tmp_path / "state.safetensors"
    content = bytearray(path.read_bytes())
    content[-3] ^= 1
    path.write_bytes(content)
    with pytest.raises(kl.InputError, match="sha256"):
        train_network(rooted(), family, Recipe(epochs=1), folder=tmp_path)


def test_the_best_epoch_is_kept_and_patience_ends_the_run(family):
    trained = train_network(rooted(), family, Recipe(epochs=40, patience=3, lr=0.3))  # far too fast
    best = trained.card["best_epoch"]
    assert len(trained.train_curve) == best + 3 < 40
    assert trained.validation_curve[best] == min(trained.validation_curve)
    assert round(trained.validation_curve[best], 6) == trained.card["validation_error"]


def test_training_lowers_the_error(family):
    net = UnrolledLanczos(2, 4, RootProbe(3, 1.5, 3.0), init=0.0).double()  # roots too far up
    trained = train_network(net, family, Recipe(epochs=10, lr=5e-2))
    assert trained.card["validation_error"] < 0.95 * trained.validation_curve[0]


def test_the_theory_loss_falls(family):
    net = UnrolledLanczos(2, 4, InversePolynomialProbe(3, 2, 4, "cg"), init=0.3).double()
    recipe = Recipe(loss="theory", epochs=10, patience=99, lr=3e-2, weight=1.0)
    trained = train_network(net, family, recipe)
    assert all(math.isfinite(loss) for loss in trained.train_curve)
    assert trained.train_curve[-1] < trained.train_curve[0]


def test_too_large_k_is_refused(family):
    with pytest.raises(kl.InputError, match="at most n / 2 = 12"):
        train_network(UnrolledLanczos(13, 20), family, Recipe())


@pytest.mark.parametrize(
    ("options", "match"), [({"loss": "mse"}, "loss"), ({"epochs": 0}, "epochs"), ({"lr": 0}, "lr")]
)
def test_recipes_are_checked(options, match):
    with pytest.raises(kl.InputError, match=match):
        Recipe(**options)
