import pytest
import torch

from krylow._checks import InputError
from krylow.data import sbm, sbm_labels


def seeded(seed):
    return torch.Generator().manual_seed(seed)


@pytest.mark.parametrize(("n", "communities"), [(100, 4), (7, 3), (5, 5), (1, 1), (10, 1)])
def test_graphs_are_simple_and_undirected(n, communities):
    W = sbm(3, n, communities, 0.6, 0.3)
    assert W.shape == (3, n, n)
    assert torch.equal(W, W.mT)
    assert torch.all(W.diagonal(dim1=-2, dim2=-1) == 0)
    assert torch.all((W == 0) | (W == 1))


@pytest.mark.parametrize(("n", "communities"), [(100, 4), (7, 3), (10, 4), (11, 10)])
def test_communities_are_as_equal_as_possible(n, communities):
    labels = sbm_labels(n, communities)
    sizes = labels.bincount(minlength=communities)
    assert sizes.sum() == n
    assert len(sizes) == communities
    assert sizes.max() - sizes.min() <= 1
    assert torch.equal(labels, labels.sort().values)


@pytest.mark.parametrize(("communities", "p_in", "p_out"), [(4, 0.3, 0.02), (3, 0.1, 0.5)])
def test_edge_densities_are_the_probabilities(communities, p_in, p_out):
    n = 100
    W = sbm(50, n, communities, p_in, p_out, generator=seeded(1))
    labels = sbm_labels(n, communities)
    pairs = torch.ones(n, n).triu(1).bool()
    inside = labels[:, None] == labels[None, :]
    for where, p in ((pairs & inside, p_in), (pairs & ~inside, p_out)):
        draws = W[:, where]
        sigma = (p * (1 - p) / draws.numel()) ** 0.5
        assert abs(float(draws.double().mean()) - p) < 5 * sigma


def test_edges_are_independent_across_graphs_and_pairs():
    # Two edges, or one edge in two graphs, are as uncorrelated as 2000 independent draws are.
    W = sbm(2000, 4, 1, 0.5, 0.5, generator=seeded(2))
    i, j = torch.triu_indices(4, 4, offset=1)
    draws = W[:, i, j].double() - 0.5  # (2000, 6)
    correlation = 4 * draws.T @ draws / len(draws) - torch.eye(6)
    serial = 4 * (draws[1:] * draws[:-1]).mean(0)
    assert correlation.fill_diagonal_(0).abs().max() < 5 / 2000**0.5
    assert serial.abs().max() < 5 / 2000**0.5


def test_probabilities_zero_and_one_are_certain():
    labels = sbm_labels(9, 3)
    expected = (labels[:, None] == labels[None, :]).float() - torch.eye(9)
    assert torch.equal(sbm(2, 9, 3, 1.0, 0.0), expected.expand(2, 9, 9))


def test_a_seed_decides_the_graphs_and_the_dtype_does_not():
    first, again = sbm(generator=seeded(3)), sbm(generator=seeded(3))
    assert first.shape == (50, 100, 100)
    assert torch.equal(first, again)
    assert not torch.equal(first, sbm(generator=seeded(4)))
    assert torch.equal(first.double(), sbm(generator=seeded(3), dtype=torch.float64))


def test_no_generator_means_seed_zero_and_the_global_one_is_left_alone():
    before = torch.get_rng_state()
    assert torch.equal(sbm(2, 20), sbm(2, 20, generator=seeded(0)))
    assert torch.equal(before, torch.get_rng_state())


def test_the_generator_moves_on():
    generator = seeded(5)
    assert not torch.equal(sbm(1, 30, generator=generator), sbm(1, 30, generator=generator))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_graphs": 0}, "num_graphs must be at least 1, got 0"),
        ({"n": 3, "communities": 4}, r"communities must be between 1 and 3 .*got 4"),
        ({"p_in": 1.5}, "p_in must be a probability, between 0 and 1, got 1.5"),
        ({"p_out": float("nan")}, "p_out must be a probability"),
        ({"dtype": torch.int64}, "dtype must be torch.float32 or torch.float64, got torch.int64"),
    ],
)
def test_bad_input(options, message):
    with pytest.raises(InputError, match=message):
        sbm(**options)
