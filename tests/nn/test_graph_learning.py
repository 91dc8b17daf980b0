"""The token graph is the paper's: distances, metric, weights, Laplacians, and nothing of the padding."""

import pytest
import torch

from krylow import InputError
from krylow.nn import GraphLearning, TokenGraph
from krylow.nn.graph_learning import KINDS, kernel
from krylow.testing import laplacian_matrix, rounding

F64 = torch.float64


def draw(*shape, seed=0, dtype=F64):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def learner(embed_dim=6, **options):
    torch.manual_seed(0)
    return GraphLearning(embed_dim, 3, **options).double()


def padding_mask(*sizes, n):
    return torch.arange(n) < torch.tensor(sizes)[:, None]


class TestDistances:
    def test_weights_are_the_exponential_of_the_mahalanobis_distance(self):
        learn, x = learner(), draw(2, 5, 6)
        with torch.no_grad():
            learn.R.copy_(draw(1, 3, 3, seed=1))
        W = learn(x).weights()
        f = learn.features(x) * learn.scale[0]
        difference = f[:, :, None] - f[:, None, :]
        d = torch.einsum("bijd,de,bije->bij", difference, learn.metric[0], difference)
        torch.testing.assert_close(W, torch.exp(-d), rtol=0, atol=rounding(F64, 6))

    def test_the_metric_is_positive_semidefinite_whatever_R(self):
        learn = learner()
        with torch.no_grad():
            learn.R.copy_(draw(1, 3, 3, seed=2) - 2 * torch.eye(3))
        assert torch.linalg.eigvalsh(learn.metric.detach()).min() >= -rounding(F64, 3, 10)

    def test_far_from_the_origin_identical_tokens_stay_identical(self):
        x = draw(1, 6, dtype=torch.float32).expand(1, 4, 6) + 1e3
        x = torch.cat([x, x + 1], 1)
        torch.manual_seed(0)
        W = GraphLearning(6, 3)(x).weights()[0]
        assert (W[:4, :4] > 0.99).all()
        assert (W[:4, 4:] < 0.5).all()

    def test_points_of_any_size_give_finite_weights(self):
        W = TokenGraph(1e18 * draw(2, 5, 3, dtype=torch.float32), None, "normalized").weights()
        assert torch.isfinite(W).all()
        assert (W <= 1).all()

    @pytest.mark.parametrize("size", [0.1, 1e5])
    def test_in_a_buffer_they_are_the_same(self, size):
        points = size * draw(2, 40, 16, dtype=torch.float32)
        W = kernel(points, torch.empty(2, 40, 40))
        torch.testing.assert_close(W, kernel(points))
        assert W.max() == 1

    @pytest.mark.parametrize("dtype", [torch.float32, F64])
    def test_a_weight_that_is_rounding_beside_1_is_zero(self, dtype):
        points = torch.tensor([[0.0], [3.0], [7.0]], dtype=dtype)
        W = TokenGraph(points, None, "normalized").weights()
        assert W[0, 1] == pytest.approx(1.234098e-4, rel=1e-4)
        assert W[0, 2] == 0


class TestLaplacian:
    def test_combinatorial(self):
        graph = TokenGraph(draw(2, 5, 3), None, "combinatorial")
        W = graph.weights() * (1 - torch.eye(5))
        torch.testing.assert_close(graph.laplacian().to_dense(), laplacian_matrix(W))

    def test_normalized_has_a_spectrum_in_the_unit_interval_and_sees_the_components(self):
        points = torch.tensor([[0.0], [0.1], [50.0], [50.1], [99.0]], dtype=F64)
        lam = torch.linalg.eigvalsh(TokenGraph(points, None, "normalized").laplacian().to_dense())
        assert lam.min() > -rounding(F64, 5)
        assert lam.max() < 1
        assert (lam.abs() < rounding(F64, 5)).sum() == 3  # two pairs and an isolated token

    @pytest.mark.parametrize("kind", KINDS)
    def test_padding_has_no_edges(self, kind):
        points, mask = draw(2, 6, 3), padding_mask(6, 4, n=6)
        padded = TokenGraph(points, mask, kind).laplacian().to_dense()[1]
        alone = TokenGraph(points[1, :4], None, kind).laplacian().to_dense()
        torch.testing.assert_close(padded[:4, :4], alone)
        assert padded[4:].abs().max() == 0
        assert padded[:, 4:].abs().max() == 0

    def test_an_unknown_kind_is_refused(self):
        with pytest.raises(InputError, match="'combinatorial', 'normalized'"):
            GraphLearning(6, kind="random walk")


class TestScale:
    def test_the_first_batch_sets_the_mean_distance_and_later_ones_do_not(self):
        learn, x = learner(distance=4.0), 100 * draw(3, 7, 6)
        g = learn(x).points.detach()
        d = (g[:, :, None] - g[:, None, :]).square().sum(-1)
        assert d.sum() / (3 * 7 * 6) == pytest.approx(4.0)
        kept = learn.scale.clone()
        learn(x / 100)
        assert torch.equal(learn.scale, kept)

    def test_each_graph_has_its_own(self):
        learn = learner(num_graphs=2)
        with torch.no_grad():
            learn.features.weight[3:] *= 10
        g = learn(draw(3, 7, 6)).points.detach()
        assert g.shape == (3, 2, 7, 3)
        spread = g.square().sum((0, 2, 3))
        assert spread[0] == pytest.approx(float(spread[1]))

    def test_padding_does_not_count(self):
        x, mask = draw(1, 6, 6), padding_mask(4, n=6)
        padded, alone = learner(), learner()
        padded(torch.where(mask[..., None], x, 1e6), mask)
        alone(x[:, :4])
        torch.testing.assert_close(padded.scale, alone.scale)

    def test_identical_tokens_leave_it_to_the_next_batch(self):
        learn = learner()
        assert torch.isfinite(learn(torch.ones(2, 4, 6, dtype=F64)).points).all()
        assert learn.scale.isnan().all()
        learn(draw(2, 4, 6))
        assert learn.scale.isfinite().all()

    def test_it_is_saved_with_the_parameters(self):
        learn, other = learner(), learner()
        learn(draw(2, 4, 6))
        other.load_state_dict(learn.state_dict())
        other(10 * draw(2, 4, 6))
        assert torch.equal(other.scale, learn.scale)
        other.load_state_dict(learner().state_dict())  # of one that has seen nothing
        assert torch.isfinite(other(draw(2, 4, 6)).points).all()

    @pytest.mark.parametrize("size", [2.0**-100, 2.0**66])
    def test_it_is_set_for_tokens_of_any_size(self, size):
        x = draw(2, 9, 6, dtype=torch.float32)
        graphs = []
        for factor in (1.0, size):
            torch.manual_seed(0)
            graphs.append(GraphLearning(6, 3, num_graphs=2, distance=4.0)(factor * x))
        torch.testing.assert_close(graphs[1].points, graphs[0].points)

    def test_what_is_at_padding_does_not_count(self):
        x, mask = draw(2, 9, 6), torch.arange(9) < torch.tensor([9, 5])[:, None]
        found = []
        for fill in (0.0, torch.nan):
            torch.manual_seed(0)
            learn = GraphLearning(6, 3).double()
            W = learn(x.masked_fill(~mask[..., None], fill), mask).weights()
            W.sum().backward()
            found.append((W, learn.features.weight.grad, learn.R.grad))
        torch.testing.assert_close(found[1], found[0], rtol=0, atol=0)

    def test_autocast_does_not_reach_it(self):
        x = draw(2, 9, 6, dtype=torch.float32)
        learn = GraphLearning(6, 3)
        W = learn(x).weights()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            torch.testing.assert_close(learn(x).weights(), W)
            assert learn(x.bfloat16()).points.dtype == torch.float32
