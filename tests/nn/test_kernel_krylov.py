"""The product with a basis, made a few graphs at a time, is that of the whole batch; its gradient that of a tape."""

from functools import partial

import pytest
import torch
from torch.autograd import gradcheck

from krylow.krylov.lanczos import lanczos
from krylow.nn import TokenGraph
from krylow.nn.graph_learning import KINDS
from krylow.nn.kernel_krylov import basis_and_product, krylov_basis
from krylow.operators import DenseOperator
from krylow.testing import complete, from_spectrum, laplacian_matrix, path, random_graph, rounding

F64 = torch.float64


def draw(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=F64)


def padding_mask(*sizes, n):
    return torch.arange(n) < torch.tensor(sizes)[:, None]


class TestBasisAndProduct:
    @pytest.mark.parametrize("kind", KINDS)
    @pytest.mark.parametrize("sizes", [None, (7, 4, 1)])
    def test_its_gradient_is_that_of_the_product(self, kind, sizes):
        points = (0.5 * draw(3, 7, 2)).requires_grad_()
        mask = None if sizes is None else padding_mask(*sizes, n=7)
        graph = TokenGraph(points, mask, kind)
        z = draw(3, 7, 1, seed=1) * (1 if mask is None else mask[..., None])
        Q, LQ, trace = basis_and_product(graph, z, partial(krylov_basis, m=3))
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
            Q, LQ, _ = basis_and_product(graph, draw(5, 6, 1), partial(krylov_basis, m=3))
            return Q, LQ, torch.autograd.grad(LQ.square().sum(), points)[0]

        whole = run()
        monkeypatch.setattr("krylow.nn.kernel_krylov.CHUNK_BYTES", 2 * 6 * 6 * 8)
        torch.testing.assert_close(run(), whole)

    def test_gradcheck(self):
        z = draw(2, 5, 5, seed=1)

        def product(points):
            return basis_and_product(TokenGraph(points, None, "normalized"), z, lambda L, v, norm, tokens: v)[1]

        assert gradcheck(product, (draw(2, 5, 2).requires_grad_(),))


class TestKrylovBasis:
    def test_it_is_lanczos_with_reorthogonalisation(self):
        L = DenseOperator(torch.stack([laplacian_matrix(random_graph(12, 0.5, seed=s)) for s in range(3)]), psd=True)
        z = draw(3, 12, 1)
        ours = krylov_basis(L, z, L.norm_bound(), m=8)
        torch.testing.assert_close(ours, lanczos(L, z, 8, reorthogonalize=True).V, rtol=0, atol=1e-9)

    def test_it_is_orthonormal_in_float32_after_frequencies_have_converged(self):
        spectrum = torch.cat([torch.linspace(0, 1, 76), torch.tensor([10.0, 30.0, 100.0, 300.0])]).to(F64)
        L = DenseOperator(from_spectrum(spectrum)[None].float(), psd=True)
        V = krylov_basis(L, draw(1, 80, 1).float(), L.norm_bound(), m=40)[0]
        assert (V.mT @ V - torch.eye(40)).abs().max() < rounding(torch.float32)

    def test_it_closes_where_the_space_does(self):
        L = DenseOperator(torch.stack([laplacian_matrix(W) for W in (complete(6), path(6), torch.zeros(6, 6))]).to(F64))
        V = krylov_basis(L, draw(3, 6, 1), torch.tensor([12.0, 4.0, 0.0]), m=6)
        assert (torch.linalg.vector_norm(V, dim=-2) > 0.5).sum(-1).tolist() == [2, 6, 1]
        torch.testing.assert_close(V[1].mT @ V[1], torch.eye(6, dtype=F64))
