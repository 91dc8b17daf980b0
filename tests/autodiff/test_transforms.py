"""Transforms of torch: what works with a graph inside, and what says that it does not."""

import pytest
import torch

import krylow as kl
from krylow.testing import random_graph

W = torch.stack([random_graph(12, 0.5, seed=seed) for seed in range(2)])
X = torch.randn(12, 1, dtype=W.dtype, generator=torch.Generator().manual_seed(0))


def loss(W, method="exact"):
    return kl.lowpass(kl.laplacian(W), X, k=3, method=method).square().sum()


@pytest.mark.parametrize("transform", [torch.func.grad, torch.func.vmap, torch.func.jacrev])
def test_a_graph_inside_a_transform_of_torch_func_is_refused_with_advice(transform):
    with pytest.raises(kl.InputError, match=r"torch\.func.*pass the whole batch.*torch\.autograd\.grad"):
        transform(loss)(W if transform is torch.func.vmap else W[0])


@pytest.mark.parametrize("transform", [torch.func.grad, torch.func.vmap, torch.func.jacrev])
def test_edge_weights_inside_one_are_refused_alike(transform):
    edges = W[0].nonzero().mT
    weights = W[0][*edges]
    with pytest.raises(kl.InputError, match=r"edge_weight.*torch\.func.*torch\.autograd\.grad"):
        transform(lambda w: kl.lowpass(kl.laplacian((edges, w), num_nodes=12), X, k=3).square().sum())(
            weights.expand(2, -1) if transform is torch.func.vmap else weights
        )


def test_the_batch_that_the_advice_names_is_the_loop():
    weights = W.clone().requires_grad_()
    (whole,) = torch.autograd.grad(loss(weights), weights)
    for i in range(2):
        one = W[i].clone().requires_grad_()
        torch.testing.assert_close(whole[i], torch.autograd.grad(loss(one), one)[0])


@pytest.mark.parametrize("method", ["exact", "chebyshev"])
def test_a_second_derivative_is_refused(method):
    weights = W[0].clone().requires_grad_()
    with pytest.raises(kl.InputError, match="of first order"):
        torch.autograd.grad(loss(weights, method), weights, create_graph=True)
