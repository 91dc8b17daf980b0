import pytest
import torch

import krylow as kl
from krylow._checks import InputError
from krylow.nn import InversePolynomialProbe, UnrolledLanczos
from krylow.training.loop import Recipe
from krylow.training.single import train_network


def test_a_trained_network_is_saved_with_its_card_and_does_what_the_card_says(families, tmp_path):
    net = UnrolledLanczos(2, 4, InversePolynomialProbe(3, 2, 4, "cg"), init=0.05).double()
    trained = train_network(net, families[0], Recipe(epochs=3), lr=1e-2, folder=tmp_path)
    loaded = kl.load(tmp_path / "network.safetensors")
    assert loaded.card == trained.card
    assert trained.card["products"] == 2 * 4 * 3 + 4
    assert type(loaded.probe) is InversePolynomialProbe
    L = kl.laplacian(families[0].test)
    U = torch.linalg.eigh(L.to_dense())[1][..., :2]
    source = torch.Generator().manual_seed(5)
    errors = [kl.metrics.subspace_error(loaded(L, generator=source).basis, U).mean().item() for _ in range(20)]
    assert sum(errors) / 20 == pytest.approx(trained.card["test_error"], abs=0.05)  # other random vectors
    assert (tmp_path / "curves.csv").read_text().startswith("epoch,member")


def test_too_large_k_is_refused(families):
    with pytest.raises(InputError, match="at most n / 2 = 12"):
        train_network(UnrolledLanczos(13, 20), families[0], Recipe())


@pytest.mark.parametrize(("options", "match"), [({"loss": "mse"}, "loss"), ({"epochs": 0}, "epochs")])
def test_recipes_are_checked(options, match):
    with pytest.raises(InputError, match=match):
        Recipe(**options)
