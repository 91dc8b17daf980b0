"""Equal tokens are found, whatever the padding, and on normalized Laplacians their differences need no search."""

import pytest
import torch
from torch import nn

from krylow.nn import TokenGraph
from krylow.nn.graph_learning import KINDS, equal_tokens
from krylow.nn.token_filters import Band, KrylovSettings, exact_filter, krylov_filter

F64 = torch.float64
REPEATED = ([1], [1, 3, 5], [1, 1, 3, 3], [0, 1, 2, 3, 4, 5, 6, 7] * 2)


def draw(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=F64)


def points(repeated, *, scale=1.0, seed=0):
    """Return 8 tokens and some of them again."""
    return scale * draw(1, 8, 4, seed=seed)[:, [*range(8), *repeated]]


class TestCounts:
    @pytest.mark.parametrize("repeated", [[], *REPEATED])
    @pytest.mark.parametrize("kind", KINDS)
    def test_they_bound_the_number_of_different_frequencies(self, kind, repeated):
        g = points(repeated)
        n = g.shape[1]
        lam = torch.linalg.eigvalsh(TokenGraph(g, None, kind).laplacian().matrix[0])
        frequencies = 1 + int((lam.diff() > 1e-9).sum())
        padded = TokenGraph(nn.functional.pad(g, (0, 0, 0, 5)), (torch.arange(n + 5) < n)[None], kind)
        for graph in (TokenGraph(g, None, kind), padded):
            tokens = equal_tokens(graph)
            assert tokens.different.tolist() == [8]
            assert tokens.repeated.tolist() == [len(set(repeated))]
            more = min(len(set(repeated)), 1) if kind == "normalized" else len(set(repeated))
            assert frequencies == 8 + more

    def test_a_coordinate_in_common_is_not_enough(self):
        g = torch.tensor([[[1.0, 2.0], [1.0, 3.0], [1.0, 2.0]]])
        tokens = equal_tokens(TokenGraph(g, None, "normalized"))
        assert tokens.different.tolist() == [2]
        assert tokens.mean(torch.tensor([[[0.0], [7.0], [2.0]]]))[0, :, 0].tolist() == [1, 7, 1]

    def test_rounding_does_not_part_them(self):
        g = points([2]).float()
        g[0, 8] *= 1 + 2e-7
        assert equal_tokens(TokenGraph(g, None, "normalized")).different.tolist() == [8]

    def test_a_part_of_a_batch(self):
        g = torch.cat([points([1]), points([2])])
        tokens, X = equal_tokens(TokenGraph(g, None, "normalized")), draw(2, 9, 3)
        torch.testing.assert_close(tokens[1:].mean(X[1:]), tokens.mean(X)[1:])


class TestFilter:
    @pytest.mark.parametrize("band", [Band(k=3), Band(cutoff=0.5), Band(cutoff=2.0)])
    @pytest.mark.parametrize("repeated", REPEATED)
    @pytest.mark.parametrize("scale", [0.5, 1.5])
    def test_it_is_exact_with_as_many_vectors_as_different_tokens(self, scale, repeated, band):
        for seed in range(5):
            graph = TokenGraph(points(repeated, scale=scale, seed=seed), None, "normalized")
            x = draw(1, 8 + len(repeated), 2, seed=seed)
            torch.testing.assert_close(
                krylov_filter(graph, x, band, KrylovSettings(8)), exact_filter(graph, x, band), rtol=0, atol=1e-6
            )

    def test_all_frequencies_are_all(self):
        graph, x = TokenGraph(points([1, 1]), None, "normalized"), draw(1, 10, 2)
        torch.testing.assert_close(krylov_filter(graph, x, Band(k=10), KrylovSettings(10)), x)

    def test_a_matching_graph_needs_few_vectors(self):
        # Words of two sentences far from each other but where they are the same: all differences have frequency 1, and
        # a Krylov space finds one of them.
        words = 4 * draw(1, 16, 8)
        graph, x = TokenGraph(words[:, [*range(16), *range(12)]], None, "normalized"), draw(1, 28, 3)
        exact = exact_filter(graph, x, Band(cutoff=0.5))
        torch.testing.assert_close(
            krylov_filter(graph, x, Band(cutoff=0.5), KrylovSettings(4)), exact, rtol=0, atol=1e-6
        )
        found_one = krylov_filter(graph, x, Band(cutoff=0.5), KrylovSettings(4, merge_equal=False))
        assert (found_one - exact).norm() > 0.3 * exact.norm()

    @pytest.mark.parametrize("band", [Band(k=3), Band(cutoff=0.5)])
    def test_the_gradient_of_moving_equal_tokens_together_is_the_exact_one(self, band):
        where = [*range(8), 1, 1, 5]
        x, c = draw(1, 11, 2, seed=1), draw(1, 11, 2, seed=2)
        grads = []
        for run in (exact_filter, lambda *given: krylov_filter(*given, KrylovSettings(8))):
            words = (0.6 * draw(1, 8, 4)).requires_grad_()
            signal = x.clone().requires_grad_()
            (c * run(TokenGraph(words[:, where], None, "normalized"), signal, band)).sum().backward()
            grads.append((words.grad, signal.grad))
        torch.testing.assert_close(*grads, rtol=0, atol=1e-7)
        assert grads[0][0].abs().max() > 1e-3
