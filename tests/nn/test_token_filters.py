"""The filters are projections on frequencies, and their gradients what is claimed of them."""

import pytest
import torch
from torch.autograd import gradcheck

from krylow.krylov.lanczos import lanczos
from krylow.krylov.ritz import ritz
from krylow.nn import RootProbe, TokenGraph
from krylow.nn.graph_learning import KINDS
from krylow.nn.token_filters import Band, KrylovSettings, Relaxation, exact_filter, krylov_filter, start_block
from krylow.testing import lowest, projector

F64 = torch.float64


def draw(*shape, seed=0, dtype=F64):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def matching_graph(n, pairs, seed=0, noise=0.01):
    """Tokens far apart, except for some that are nearly doubled: few frequencies are far from zero."""
    points = 4 * draw(1, n, 5, seed=seed)
    points[:, n - pairs :] = points[:, :pairs] + noise * draw(1, pairs, 5, seed=seed + 1)
    return points


def _projected(graph, z, m):
    L = graph.laplacian()
    Q = lanczos(L, z, m, reorthogonalize=True).V
    return Q.mT @ (L @ Q)


class TestExact:
    @pytest.mark.parametrize("kind", KINDS)
    def test_it_projects_on_the_lowest_frequencies(self, kind):
        graph, x = TokenGraph(0.6 * draw(2, 9, 3), None, kind), draw(2, 9, 4, seed=1)
        P = projector(lowest(graph.laplacian().to_dense(), 3)[1])
        torch.testing.assert_close(exact_filter(graph, x, Band(k=3)), P @ x)

    @pytest.mark.parametrize("kind", KINDS)
    def test_a_cutoff_keeps_what_is_not_above(self, kind):
        graph, x = TokenGraph(draw(2, 9, 3), None, kind), draw(2, 9, 4, seed=1)
        lam, U = torch.linalg.eigh(graph.laplacian().to_dense())
        kept = (lam <= 0.5).to(F64)
        assert 0 < kept.sum() < kept.numel()
        torch.testing.assert_close(exact_filter(graph, x, Band(cutoff=0.5)), U @ (kept[..., None] * (U.mT @ x)))


class TestKrylov:
    def test_through_the_recurrence_it_is_the_derivative_of_what_is_computed(self):
        x, points = draw(1, 7, 2), 0.7 * draw(1, 7, 2, seed=1)
        relaxation = Relaxation(torch.full((4,), 0.9, dtype=F64), torch.full((4,), 1.1, dtype=F64))

        def run(points, x):
            graph = TokenGraph(points, None, "normalized")
            return krylov_filter(graph, x, Band(k=2), KrylovSettings(4, relaxation=relaxation, through_recurrence=True))

        assert gradcheck(run, (points.requires_grad_(), x.requires_grad_()), rtol=1e-2)

    @pytest.mark.parametrize("band", [Band(k=2), Band(cutoff=0.4)])
    def test_the_gradient_of_gammas_and_signal_is_the_derivative_of_what_is_computed(self, band):
        graph, x = TokenGraph(0.7 * draw(1, 9, 2), None, "normalized"), draw(1, 9, 2, seed=1)

        def run(gamma1, gamma2, x):
            return krylov_filter(graph, x, band, KrylovSettings(4, relaxation=Relaxation(gamma1, gamma2)))

        gamma1, gamma2 = (1 + 0.2 * draw(4, seed=s).abs() * sign for s, sign in ((2, -1), (3, 1)))
        inputs = (gamma1.requires_grad_(), gamma2.requires_grad_(), x.requires_grad_())
        assert gradcheck(run, inputs)
        run(*inputs).square().sum().backward()
        assert gamma1.grad.abs().min() > 0

    def test_the_relaxed_recurrence_on_H_is_the_one_on_L(self):
        graph, x = TokenGraph(0.7 * draw(1, 11, 3), None, "normalized"), draw(1, 11, 4, seed=1)
        gammas = Relaxation(torch.full((5,), 0.9, dtype=F64), torch.full((5,), 1.1, dtype=F64))
        literal = lanczos(graph.laplacian(), start_block(graph, 1), 5, gamma1=gammas.gamma1, gamma2=gammas.gamma2)
        U = ritz(literal, 2)[1]
        ours = krylov_filter(graph, x, Band(k=2), KrylovSettings(5, relaxation=gammas))
        torch.testing.assert_close(ours, U @ (U.mT @ x), rtol=0, atol=1e-8)
        assert (ours - krylov_filter(graph, x, Band(k=2), KrylovSettings(5))).abs().max() > 1e-3

    def test_the_probe_on_H_is_the_one_on_L(self):
        graph, x = TokenGraph(0.5 * draw(1, 40, 3), None, "normalized"), draw(1, 40, 4, seed=1)
        gammas = Relaxation(torch.full((5,), 0.95, dtype=F64), torch.full((5,), 1.05, dtype=F64))
        roots = RootProbe(3).double()
        with torch.no_grad():  # in units of tr(L) / n, which is not that of H: the same roots in numbers
            mean = graph.laplacian().diagonal().mean()
            z = start_block(graph, 1)
            H = _projected(graph, z, 8)
            roots_on_H = RootProbe(3).double()
            roots_on_H.log_rho.copy_(roots.log_rho + (mean / H.diagonal(dim1=-2, dim2=-1).mean()).log())
        L = graph.laplacian()
        U = ritz(lanczos(L, roots(L, z), 5, gamma1=gammas.gamma1, gamma2=gammas.gamma2), 2)[1]
        ours = krylov_filter(graph, x, Band(k=2), KrylovSettings(5, relaxation=gammas, probe=roots_on_H, probe_steps=3))
        torch.testing.assert_close(ours, U @ (U.mT @ x), rtol=0, atol=1e-8)
        assert (ours - krylov_filter(graph, x, Band(k=2), KrylovSettings(5, relaxation=gammas))).abs().max() > 1e-2

    def test_the_gradient_is_close_to_the_exact_one_long_before_the_basis_is_complete(self):
        x, c = draw(2, 40, 3, seed=1), draw(2, 40, 3, seed=2)
        points = 0.15 * draw(2, 40, 8)
        grads = []
        for run in (
            lambda graph: exact_filter(graph, x, Band(k=4)),
            lambda graph: krylov_filter(graph, x, Band(k=4), KrylovSettings(24)),
        ):
            g = points.clone().requires_grad_()
            (c * run(TokenGraph(g, None, "normalized"))).sum().backward()
            grads.append(g.grad)
        assert torch.cosine_similarity(grads[0].flatten(), grads[1].flatten(), dim=0) > 0.98

    def test_in_float32_too_a_complete_basis_has_the_exact_gradient(self):
        x, c, points = draw(2, 32, 3, seed=1), draw(2, 32, 3, seed=2), 0.5 * draw(2, 32, 8)
        grads = []
        for dtype, run in (
            (F64, lambda graph, x: exact_filter(graph, x, Band(k=6))),
            (torch.float32, lambda graph, x: krylov_filter(graph, x, Band(k=6), KrylovSettings(32))),
        ):
            g = points.detach().to(dtype, copy=True).requires_grad_()
            (c.to(dtype) * run(TokenGraph(g, None, "normalized"), x.to(dtype))).sum().backward()
            grads.append(g.grad.double())
        torch.testing.assert_close(grads[1], grads[0], rtol=0, atol=2e-5 * float(grads[0].abs().max()))

    @pytest.mark.parametrize("band", [Band(cutoff=0.5), Band(k=6)])
    def test_with_neutral_gammas_it_is_that_of_lanczos_even_where_the_space_nearly_closes(self, band):
        x, c = draw(1, 64, 3, seed=1).float(), draw(1, 64, 3, seed=2).float()
        points = matching_graph(64, 20, noise=0.05).float()
        one = torch.ones(20)
        grads = []
        for relaxation in (None, Relaxation(one, one)):
            g = points.clone().requires_grad_()
            graph = TokenGraph(g, None, "normalized")
            (c * krylov_filter(graph, x, band, KrylovSettings(20, relaxation=relaxation))).sum().backward()
            grads.append(g.grad)
        assert grads[0].norm() > 0
        torch.testing.assert_close(grads[1], grads[0])

    def test_it_stays_bounded_where_the_recurrence_s_explodes(self):
        x, c = draw(1, 64, 3, seed=1), draw(1, 64, 3, seed=2)
        points = matching_graph(64, 20, noise=0.05)
        sizes = []
        for run in (
            lambda graph: exact_filter(graph, x, Band(cutoff=0.5)),
            lambda graph: krylov_filter(graph, x, Band(cutoff=0.5), KrylovSettings(20)),
            lambda graph: krylov_filter(graph, x, Band(cutoff=0.5), KrylovSettings(20, through_recurrence=True)),
        ):
            g = points.clone().requires_grad_()
            (c * run(TokenGraph(g, None, "normalized"))).sum().backward()
            sizes.append(float(g.grad.norm()))
        exact, ours, recurrence = sizes
        assert recurrence > 1000 * exact
        assert recurrence > 100 * ours

    @pytest.mark.parametrize("block_size", [1, 3])
    def test_few_frequencies_above_a_cutoff_are_removed(self, block_size):
        graph = TokenGraph(matching_graph(60, 4), None, "combinatorial")
        x = draw(1, 60, 3, seed=5)
        lam = torch.linalg.eigvalsh(graph.laplacian().to_dense())
        assert int((lam > 0.5).sum()) == 4
        y = krylov_filter(graph, x, Band(cutoff=0.5), KrylovSettings(12, block_size=block_size))
        kept = krylov_filter(graph, x, Band(k=12), KrylovSettings(12, block_size=block_size))
        error, lost = ((a - exact_filter(graph, x, Band(cutoff=0.5))).norm() / x.norm() for a in (y, kept))
        assert error < 0.1
        assert lost > 0.5

    @pytest.mark.parametrize("relaxed", [False, True])
    def test_what_is_just_below_the_cutoff_stays(self, relaxed):
        points = 20 * torch.arange(30, dtype=F64)[None, :, None]  # isolated, but for two pairs
        for i, weight in ((3, 0.26), (9, 0.24)):  # of frequency twice their weight
            points[0, i + 1] = points[0, i] + (-torch.tensor(weight, dtype=F64).log()).sqrt()
        graph, x = TokenGraph(points, None, "combinatorial"), draw(1, 30, 2)
        one = torch.ones(5, dtype=F64)
        y = krylov_filter(
            graph, x, Band(cutoff=0.5), KrylovSettings(5, relaxation=Relaxation(one, one) if relaxed else None)
        )
        torch.testing.assert_close(y, exact_filter(graph, x, Band(cutoff=0.5)))
        assert (y[0, 9:11] - x[0, 9:11]).abs().max() < 1e-8
        assert (y[0, 3] - y[0, 4]).abs().max() < 1e-8

    def test_a_block_sees_what_one_vector_cannot(self):
        points = torch.tensor([[0.0], [30.0], [60.0]], dtype=F64).repeat_interleave(4, 0)[None]  # three K4
        graph, x = TokenGraph(points, None, "combinatorial"), draw(1, 12, 2)
        exact = exact_filter(graph, x, Band(k=3))
        torch.testing.assert_close(krylov_filter(graph, x, Band(k=3), KrylovSettings(8, block_size=4)), exact)
        assert (krylov_filter(graph, x, Band(k=3), KrylovSettings(8)) - exact).abs().max() > 0.1

    @pytest.mark.parametrize("repeated", [[1, 3, 5], [1, 1, 3, 3]])
    @pytest.mark.parametrize("kind", KINDS)
    def test_factors_do_nothing_where_repeated_tokens_fill_the_space(self, kind, repeated):
        relaxation = Relaxation(torch.full((12,), 0.9, dtype=F64), torch.full((12,), 1.1, dtype=F64))
        n = 8 + len(repeated)
        for seed in range(20):
            points = 0.5 * draw(1, 8, 4, seed=seed)[:, [*range(8), *repeated]]
            x = draw(1, n, 2, seed=seed)
            graph = TokenGraph(points, None, kind)
            ours = krylov_filter(graph, x, Band(k=4), KrylovSettings(12, relaxation=relaxation))
            if kind == "normalized":  # the repeated frequency is the highest, so that none of the kept ones is missed
                torch.testing.assert_close(ours, exact_filter(graph, x, Band(k=4)), rtol=0, atol=1e-6)
            torch.testing.assert_close(ours, krylov_filter(graph, x, Band(k=4), KrylovSettings(12)))
            # Padding changes the order of sums, and so the rounding by which a full space seems to go on.
            padded = TokenGraph(torch.cat([points, draw(1, 6, 4)], 1), (torch.arange(n + 6) < n)[None], kind)
            y = krylov_filter(
                padded, torch.cat([x, torch.zeros(1, 6, 2)], 1), Band(k=4), KrylovSettings(12, relaxation=relaxation)
            )
            torch.testing.assert_close(y[:, :n], ours, rtol=0, atol=1e-6)

    def test_factors_act_where_the_space_is_not_full(self):
        graph, x = TokenGraph(draw(1, 20, 4), None, "normalized"), draw(1, 20, 2)
        relaxation = Relaxation(torch.full((12,), 0.9, dtype=F64), torch.full((12,), 1.1, dtype=F64))
        ours, plain = (krylov_filter(graph, x, Band(k=4), KrylovSettings(12, relaxation=r)) for r in (relaxation, None))
        assert (ours - plain).norm() > 0.01 * plain.norm()


class TestStart:
    def test_a_token_s_row_depends_on_its_position_alone(self):
        long, short = (start_block(TokenGraph(draw(2, n, 1), None, "normalized"), 3) for n in (150, 70))
        assert torch.equal(long[:, :70], short)
        assert torch.equal(long[0], long[1])

    def test_it_is_gaussian_and_zero_on_padding(self):
        mask = torch.arange(4096) < 4000
        z = start_block(TokenGraph(draw(1, 4096, 1), mask[None], "normalized"), 1)[0, :, 0]
        assert z[4000:].abs().max() == 0
        assert abs(float(z[:4000].mean())) < 5 / 4000**0.5
        assert float(z[:4000].std()) == pytest.approx(1, abs=5 / 8000**0.5)
        assert len(z[:4000].unique()) > 3990
