"""From the public call to the compiled product the way is short, and goes one way through the house."""

import itertools
import sys

import numpy as np
import pytest
import scipy.sparse as sp

import krylow as kl
from krylow.operators.sparse import SparseOperator

#: Frames of krylow between ``kl.subspace`` and a product, both included, and modules that they are in.
MOST_FRAMES, MOST_MODULES = 12, 18
FOLDERS = ("operators", "linalg", "krylov", "solvers")


def grid(n):
    line = sp.diags_array([np.ones(n - 1)] * 2, offsets=[-1, 1])
    return sp.csr_array(sp.kron(line, sp.eye_array(n)) + sp.kron(sp.eye_array(n), line))


def power_law(n):
    rng = np.random.default_rng(0)
    ends = np.minimum((rng.pareto(1.5, (2, 4 * n)) * n / 50).astype(int), n - 1)
    ends = np.concatenate([ends, [np.arange(n - 1), np.arange(1, n)]], axis=1)
    W = sp.coo_array((np.ones(ends.shape[1]), (ends[0], ends[1])), shape=(n, n)).tocsr()
    W = W + W.T
    W.setdiag(0)
    W.eliminate_zeros()
    return W


def traced(monkeypatch, W, method):
    """Return the stacks of krylow's frames, as (module, function), at every product of a solve."""
    stacks = set()
    product = SparseOperator._three_term

    def watched(self, *arguments):
        frame, stack = sys._getframe(1), []
        while frame is not None:
            module = frame.f_globals.get("__name__", "")
            if module.startswith("krylow."):
                stack.append((module, frame.f_code.co_name))
            if module == "krylow.api" and frame.f_code.co_name == "subspace":
                break
            frame = frame.f_back
        stacks.add(tuple(reversed(stack)))
        return product(self, *arguments)

    monkeypatch.setattr(SparseOperator, "_three_term", watched)
    kl.subspace(kl.laplacian(W), 6, method=method)
    return stacks


@pytest.mark.parametrize(
    ("W", "method"), [(grid(80), "chebyshev"), (grid(80), "multilevel"), (power_law(5000), "davidson")]
)
def test_a_product_is_a_dozen_frames_below_the_call_and_no_folder_is_entered_twice(monkeypatch, W, method):
    stacks = traced(monkeypatch, W, method)
    assert stacks
    deepest = max(stacks, key=len)
    assert len(deepest) <= MOST_FRAMES, deepest
    for stack in stacks:
        assert len({module for module, _ in stack}) <= MOST_MODULES
        folders = [module.split(".")[1] for module, _ in stack]
        entered = [b for a, b in itertools.pairwise(folders) if a != b]
        for folder in FOLDERS:
            assert entered.count(folder) <= 1, stack
