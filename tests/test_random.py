import torch

import krylow as kl
from krylow._random import gaussian
from krylow.testing import random_graph


def test_shape_dtype_and_mask():
    L = kl.laplacian([random_graph(3, seed=0).float(), random_graph(5, seed=1).float()])
    z = gaussian(L, 4)
    assert z.shape == (2, 5, 4)
    assert z.dtype == torch.float32
    assert (z[0, 3:] == 0).all()
    assert (z[0, :3] != 0).all()


def test_randomness_comes_from_the_generator_alone():
    L = kl.laplacian(random_graph(6, seed=0))
    state = torch.get_rng_state()
    assert torch.equal(gaussian(L, 2), gaussian(L, 2))
    generator = torch.Generator().manual_seed(3)
    first, second = gaussian(L, 2, generator=generator), gaussian(L, 2, generator=generator)
    assert not torch.equal(first, second)
    assert torch.equal(first, gaussian(L, 2, generator=torch.Generator().manual_seed(3)))
    assert torch.equal(torch.get_rng_state(), state)


def test_it_is_standard_normal():
    z = gaussian(kl.laplacian(torch.zeros(5000, 5000).to_sparse_coo()), 20)
    assert abs(float(z.mean())) < 0.02
    assert abs(float(z.std()) - 1) < 0.02


def test_it_is_the_same_in_a_room_of_the_callers():
    L = kl.laplacian(torch.ones(6, 6).fill_diagonal_(0))
    room = torch.empty(6, 4)
    block = gaussian(L, 4, out=room)
    assert block.data_ptr() == room.data_ptr()
    torch.testing.assert_close(block, gaussian(L, 4, dtype=torch.float32))
