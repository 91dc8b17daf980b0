"""One operator in many threads, forks, spawned processes and loaders: the same bits, and each solve's own products."""

import multiprocessing
import os
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor

import numpy as np
import pytest
import scipy.sparse as sp
import torch

import krylow as kl


def graph(n=2500):
    """A ring with random chords: large enough for every solver of large graphs."""
    rng = np.random.default_rng(0)
    a = np.r_[np.arange(n), rng.integers(n, size=n)]
    b = np.r_[(np.arange(n) + 1) % n, rng.integers(n, size=n)]
    W = sp.coo_array((np.ones(2 * n), (a, b)), shape=(n, n)).tocsr()
    W = W + W.T
    W.setdiag(0)
    W.eliminate_zeros()
    return kl.laplacian(W)


def solve(L, method, seed=3):
    """Return what has to be the same everywhere."""
    sub = kl.subspace(L, 4, method=method, tol=1e-4, seed=seed)
    return sub.basis.numpy().tobytes(), sub.products, sub.passes


def elsewhere(method):
    return solve(graph(), method)


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("method", ["auto", "chebyshev", "davidson"])
def test_eight_threads_on_one_operator(method, threads):
    L, before = graph(), torch.get_num_threads()
    expected = solve(L, method)
    counted = L.products
    torch.set_num_threads(threads)
    try:
        with ThreadPoolExecutor(8) as pool:
            found = list(pool.map(lambda _: solve(L, method), range(8)))
    finally:
        torch.set_num_threads(before)
    assert set(found) == {expected}
    assert L.products - counted == 8 * expected[1]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
def test_a_fork_after_a_solve():
    L = graph()
    expected = solve(L, "auto")
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(write, bytes([solve(L, "auto") == expected]))
        os._exit(0)
    os.waitpid(child, 0)
    assert os.read(read, 1) == b"\1"
    os.close(read)
    os.close(write)


def test_spawned_processes():
    expected = {method: elsewhere(method) for method in ("auto", "davidson")}
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=context) as pool:
        assert dict(zip(expected, pool.map(elsewhere, expected), strict=True)) == expected


class Filtered(torch.utils.data.Dataset):
    """Signals that are filtered where they are loaded."""

    def __init__(self, L):
        self.L = L

    def __len__(self):
        return 4

    def __getitem__(self, i):
        return kl.lowpass(self.L, torch.full((self.L.n,), float(i)) + torch.arange(self.L.n) % 2, 3, seed=0)


def test_workers_of_a_loader():
    data = Filtered(graph(1200))
    alone = torch.stack([data[i] for i in range(4)])
    loader = torch.utils.data.DataLoader(data, batch_size=2, num_workers=2, multiprocessing_context="fork")
    assert torch.equal(torch.cat(list(loader)), alone)
