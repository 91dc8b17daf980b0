r"""Laplacians that are similar to a real symmetric matrix: of a random walk, and magnetic.

.. math:: I - D^{-1} W, \qquad L_q = D_s - W_s \odot e^{i \Theta}, \quad W_s = (W + W^\top) / 2, \quad
    \Theta = 2 \pi q (W - W^\top)
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse
import torch
from torch import Tensor

from krylow import _checks
from krylow._checks import InputError
from krylow._recognition import Edges
from krylow.operators import DenseOperator, MagneticOperator, Operator, RandomWalkOperator, SparseOperator

#: A quarter of a turn for an edge that is there in one direction with weight 1.
CHARGE = 0.25


def random_walk(core: Operator, degree: Tensor) -> RandomWalkOperator:
    """Return the random-walk Laplacian of the normalized one and the degrees of moduli of weights."""
    return RandomWalkOperator(core, torch.where(degree > 0, degree, 1.0).sqrt().to(core.dtype))


def degrees(adjacency: Tensor | Edges | scipy.sparse.csr_array) -> Tensor:
    """Return the sums of the moduli of the weights, ``(*batch, n)``, parallel edges added up before."""
    if isinstance(adjacency, Tensor):
        return adjacency.abs().sum(-1)
    if isinstance(adjacency, Edges):
        W = SparseOperator.from_coo(adjacency.row, adjacency.col, adjacency.values, adjacency.n)
        return W.values.new_zeros(W.n).index_add(0, W.row, W.values.abs())
    return torch.from_numpy(np.asarray(abs(adjacency).sum(axis=1, dtype=np.float64)))


def magnetic(adjacency: Any, charge: float) -> MagneticOperator:
    """Return the magnetic Laplacian of arcs from rows to columns; those that are named twice add up; differentiable."""
    charge = _checks.number(charge, "charge")
    if not 0 <= charge <= 0.5:
        raise InputError(f"charge must be between 0 and 0.5, got {charge:g}.")
    core: Operator
    if isinstance(adjacency, Tensor):
        size, phase = (adjacency + adjacency.mT) / 2, 2 * torch.pi * charge * (adjacency - adjacency.mT)
        A, B = torch.diag_embed(size.abs().sum(-1)) - size * torch.cos(phase), -size * torch.sin(phase)
        core = DenseOperator(torch.cat([torch.cat([A, -B], dim=-1), torch.cat([B, A], dim=-1)], dim=-2), psd=True)
    elif isinstance(adjacency, Edges):
        core = _sparse_core(adjacency.row, adjacency.col, adjacency.values, adjacency.n, charge)
    else:
        coo = adjacency.tocoo()
        row, col = (torch.from_numpy(part.astype(np.int64)) for part in (coo.row, coo.col))
        core = _sparse_core(row, col, torch.from_numpy(coo.data), coo.shape[0], charge)
    _checks.in_range(float(core.norm_bound().max()), core.dtype, "W")
    return MagneticOperator(core)


def _sparse_core(row: Tensor, col: Tensor, weight: Tensor, n: int, charge: float) -> SparseOperator:
    rows, cols = torch.cat([row, col]), torch.cat([col, row])
    half = SparseOperator.from_coo(rows, cols, torch.cat([weight, weight]) / 2, n)
    skew = SparseOperator.from_coo(rows, cols, torch.cat([weight, -weight]), n)  # at the same places
    phase = 2 * torch.pi * charge * skew.values
    i, j, size = half.row, half.col, half.values
    degree = size.new_zeros(n).index_add(0, i, size.abs())
    a, b, nodes = -size * torch.cos(phase), -size * torch.sin(phase), torch.arange(n, device=size.device)
    places = [(i, j, a), (i + n, j + n, a), (i + n, j, b), (i, j + n, -b)]
    places += [(nodes, nodes, degree), (nodes + n, nodes + n, degree)]
    rows, cols, values = (torch.cat(part) for part in zip(*places, strict=True))
    return SparseOperator.from_coo(rows, cols, values, 2 * n, psd=True)
