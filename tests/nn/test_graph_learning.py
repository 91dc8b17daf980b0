"""The token graph is the paper's: distances, metric, weights, Laplacians, and nothing of the padding."""

import pytest
import torch
from torch.autograd import gradcheck

from krylow import InputError
from krylow.nn import GraphLearning, TokenGraph
from krylow.nn.graph_learning import KINDS
from krylow.nn.kernel_krylov import basis_and_product, krylov_basis
from krylow.operators import DenseOperator
from krylow.refine.lanczos import lanczos
from krylow.testing import complete, laplacian_matrix, path, random_graph, rounding

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
        x, mask = draw(2, 6, 6), padding_mask(6, 4, n=6)
        padded, alone = learner(), learner()
        padded(torch.where(mask[..., None], x, 1e6), mask)
        alone(torch.where(mask[..., None], x, 0), mask)
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


class TestBasisAndProduct:
    @pytest.mark.parametrize("kind", KINDS)
    @pytest.mark.parametrize("sizes", [None, (7, 4, 1)])
    def test_its_gradient_is_that_of_the_product(self, kind, sizes):
        points = (0.5 * draw(3, 7, 2)).requires_grad_()
        mask = None if sizes is None else padding_mask(*sizes, n=7)
        graph = TokenGraph(points, mask, kind)
        z = draw(3, 7, 1, seed=1) * (1 if mask is None else mask[..., None])
        Q, LQ, trace = basis_and_product(graph, z, lambda L, v, norm: krylov_basis(L, v, norm, m=3))
        L = graph.laplacian().to_dense()
        torch.testing.assert_close(LQ, L @ Q)
        torch.testing.assert_close(trace, L.diagonal(dim1=-2, dim2=-1).sum(-1))
        c = draw(3, 7, 3, seed=2)
        ours, tape = (torch.autograd.grad((c * y).sum(), points)[0] for y in (LQ, L @ Q))
        torch.testing.assert_close(ours, tape)

    def test_parts_of_a_batch_are_made_like_the_whole(self, monkeypatch):
        points = draw(5, 6, 2).requires_grad_()

        def run():
            graph = TokenGraph(points, None, "normalized")
            Q, LQ, _ = basis_and_product(graph, draw(5, 6, 1), lambda L, v, norm: krylov_basis(L, v, norm, m=3))
            return Q, LQ, torch.autograd.grad(LQ.square().sum(), points)[0]

        whole = run()
        monkeypatch.setattr("krylow.nn.kernel_krylov.CHUNK_BYTES", 2 * 6 * 6 * 8)
        torch.testing.assert_close(run(), whole)

    def test_gradcheck(self):
        z = draw(2, 5, 5, seed=1)

        def product(points):
            return basis_and_product(TokenGraph(points, None, "normalized"), z, lambda L, v, norm: v)[1]

        assert gradcheck(product, (draw(2, 5, 2).requires_grad_(),))


class TestKrylovBasis:
    def test_it_is_lanczos_with_reorthogonalisation(self):
        L = DenseOperator(torch.stack([laplacian_matrix(random_graph(12, 0.5, seed=s)) for s in range(3)]), psd=True)
        z = draw(3, 12, 1)
        ours = krylov_basis(L, z, L.norm_bound(), m=8)
        torch.testing.assert_close(ours, lanczos(L, z, 8, reorthogonalize=True).V, rtol=0, atol=1e-9)

    def test_it_closes_where_the_space_does(self):
        L = DenseOperator(torch.stack([laplacian_matrix(W) for W in (complete(6), path(6), torch.zeros(6, 6))]).to(F64))
        V = krylov_basis(L, draw(3, 6, 1), torch.tensor([12.0, 4.0, 0.0]), m=6)
        assert (torch.linalg.vector_norm(V, dim=-2) > 0.5).sum(-1).tolist() == [2, 6, 1]
        torch.testing.assert_close(V[1].mT @ V[1], torch.eye(6, dtype=F64))
