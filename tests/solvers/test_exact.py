"""Decompositions of many graphs at once, by those of each."""

import numpy as np
import pytest
import torch

import krylow as kl
from krylow.testing import random_graph


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_many_graphs_of_different_sizes_are_each_their_own(dtype):
    sizes = np.random.default_rng(0).integers(5, 60, 150)
    graphs = [random_graph(int(n), 0.3, seed=i).to(dtype) for i, n in enumerate(sizes)]
    sub = kl.subspace(kl.laplacian(graphs), 4, method="exact")
    tol = 1e-3 if dtype == torch.float32 else 1e-8
    for i, W in enumerate(graphs):
        n = len(W)
        lam, U = torch.linalg.eigh((torch.diag(W.sum(1)) - W).double())
        assert torch.allclose(sub.ritz_values[i].double(), lam[:4], atol=tol)
        assert (sub.basis[i, n:].abs() < torch.finfo(dtype).eps).all()
        assert torch.allclose(sub.following[i].double(), lam[4], atol=tol)
        if lam[4] - lam[3] > 1e-2:
            P = sub.basis[i, :n].double()
            assert torch.allclose(P @ P.mT, U[:, :4] @ U[:, :4].mT, atol=100 * tol)


def test_the_smallest_graph_may_have_as_many_nodes_as_frequencies_are_kept():
    graphs = [random_graph(4 + i % 3, 0.9, seed=i) for i in range(140)]
    sub = kl.subspace(kl.laplacian(graphs), 4)
    for i, W in enumerate(graphs):
        own = kl.subspace(kl.laplacian(W), 4)
        assert torch.allclose(sub.ritz_values[i], own.ritz_values, atol=1e-10)
        if len(W) == 4:
            assert torch.allclose(sub.project(torch.ones(140, 6, 1, dtype=W.dtype))[i, :4], torch.ones(4, 1).to(W))
