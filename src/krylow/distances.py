"""Distances of nodes by all paths between them."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from krylow import _checks
from krylow._checks import InputError
from krylow._threads import sharing
from krylow.filtering import filter
from krylow.graph import as_operator
from krylow.krylov.cg import conjugate_gradients
from krylow.linalg.components import NullSpace
from krylow.linalg.elimination import Factor
from krylow.linalg.perturbation import restored
from krylow.operators import FunctionOperator, Operator, RandomWalkOperator, SparseOperator
from krylow.profile import GraphProfile
from krylow.responses import Heat
from krylow.solvers._problem import sparse_copy
from krylow.solvers._schur import grounded


@dataclass(frozen=True)
class SolveSettings:
    """How linear systems with L are solved."""

    light_fill: float = 200.0  #: estimated entries of a factor, a node, up to which L is factorised
    residual: float = 1e-10  #: relative residual of conjugate gradients
    steps: int = 50_000  #: and most steps of it
    block_entries: int = 2**25  #: most entries of a block of right-hand sides
    widest: int = 256  #: and most columns


SETTINGS = SolveSettings()
Solve = Callable[[Tensor], Tensor]


def effective_resistance(L: Any, pairs: Any, *, error: float | None = None, seed: int | None = None) -> Any:
    r"""Return the effective resistance between pairs of nodes.

    $$R_{ij} = (e_i - e_j)^\top L^+ (e_i - e_j) ,$$

    the resistance between i and j where every edge is a wire of conductance $W_{ij}$: 0 for i = j, infinite between
    components. A metric; $W_{ij} R_{ij}$ is the share of spanning trees that hold the edge.

    Exact (to about 1e-10) with one linear solve a pair, or a node where those are fewer, by one sparse factor if its
    fill is small and by conjugate gradients elsewhere; then differentiable in the weights. With ``error``, where that
    takes fewer solves, the Johnson-Lindenstrauss sketch of Spielman and Srivastava (2011): $2 / \text{error}^2$
    solves for all pairs together, no gradient, and the relative standard deviation of each value is ``error``.

    Parameters
    ----------
    L
        The combinatorial Laplacian of one graph with non-negative weights (:func:`krylow.laplacian`), or a graph.
        Self-loops of a generalized one are wires to the ground.
    pairs
        ``(p, 2)`` nodes.
    error
        Relative standard deviation that is accepted; None: none.
    seed
        Of the sketch.

    Returns
    -------
    Tensor or ndarray
        ``(p,)``, a tensor where ``pairs`` is one.

    Examples
    --------
    >>> triangle = [[2.0, -1.0, -1.0], [-1.0, 2.0, -1.0], [-1.0, -1.0, 2.0]]
    >>> effective_resistance(triangle, [[0, 1], [1, 1]]).round(6)  # a wire of 1 beside one of 2
    array([0.666667, 0.      ])
    """
    L = as_operator(L)
    index = _nodes(L, pairs)
    ground, sparse = _ground(L), L if isinstance(L, SparseOperator) else sparse_copy(L)
    null = GraphProfile(sparse).null_space
    assert null is not None
    part = null.labels[index]  # (p, 2); those of components with self-loops, which the ground joins, are one
    part = torch.where(part < null.count, part, null.count)
    apart = part[:, 0] != part[:, 1]
    live = (~apart & (index[:, 0] != index[:, 1])).nonzero()[:, 0]
    found = torch.zeros(len(index), dtype=torch.float64, device=L.device).masked_fill(apart, torch.inf)
    if live.numel():
        asked, solve = index[live], _solver(sparse.detach(), null)
        columns = math.inf if error is None else math.ceil(2 / _checks.positive(error, "error") ** 2)
        if columns < min(len(asked), asked.unique().numel()):
            values = _sketched(sparse.detach(), ground, asked, int(columns), solve, seed)
        else:
            values = _exact(L, asked, null, solve)
        found = found.index_put((live,), values.double())
    return _checks.as_given(found.to(L.dtype), pairs)


def diffusion_distance(L: Any, pairs: Any, t: float, *, tol: float = 1e-8) -> Any:
    r"""Return the diffusion distance between pairs of nodes at time t.

    $$D_t(i, j) = \lVert e^{-t L} (e_i - e_j) \rVert_2 , \qquad
    D_t(i, j)^2 = \sum_l e^{-2 t \lambda_l} (u_l(i) - u_l(j))^2 ,$$

    how differently heat that starts at i and at j is spread after the time t: small where many short paths join them.
    For t = 0 it is the root of 2, and it falls with t.

    Of a random-walk Laplacian it is that of Coifman and Lafon (2006): with $p_t(i, \cdot)$ the distribution at time t
    of a walk that begins at i, $D_t(i, j)^2 = \sum_z (p_t(i, z) - p_t(j, z))^2 / d_z$.

    By :func:`krylow.filter` of one signal a pair, or a node where those are fewer: about $\sqrt{t \lambda_n}$ products
    each; small graphs are decomposed. Differentiable in the weights.

    Parameters
    ----------
    L
        The Laplacian of one graph, of any kind but magnetic, or a graph.
    pairs
        ``(p, 2)`` nodes.
    t
        Time, positive.
    tol
        Absolute error that is accepted, in float32 no better than its rounding.

    Returns
    -------
    Tensor or ndarray
        ``(p,)``, a tensor where ``pairs`` is one.

    Examples
    --------
    >>> edge = [[1.0, -1.0], [-1.0, 1.0]]
    >>> diffusion_distance(edge, [[0, 1], [1, 1]], t=0.5).round(6)  # sqrt(2) exp(-2 t)
    array([0.52026, 0.     ])
    """
    walk = isinstance(L, RandomWalkOperator)
    t, core = _checks.positive(t, "t"), L.core if walk else as_operator(L)
    index = _nodes(core, pairs)
    scale = 1 / L.root if walk else torch.ones(core.n, dtype=core.dtype, device=core.device)
    nodes, place = index.unique(return_inverse=True)
    heat, found = (
        partial(filter, core, response=Heat(t), tol=tol),
        [torch.zeros(0, dtype=core.dtype, device=core.device)],
    )
    if nodes.numel() < len(index) and core.n * nodes.numel() <= SETTINGS.block_entries:
        blocks = [heat(_at(core, nodes[a:b], scale)) for a, b in _chunks(core.n, nodes.numel())]
        Y = torch.cat(blocks, dim=-1)  # (n, nodes)
        found += [torch.linalg.vector_norm(Y[:, i] - Y[:, j], dim=0) for i, j in _split(place)]
    else:
        differences = (_at(core, i, scale) - _at(core, j, scale) for i, j in _split(index))
        found += [torch.linalg.vector_norm(heat(x), dim=0) for x in differences]
    return _checks.as_given(torch.cat(found), pairs)


def _split(pairs: Tensor) -> list[tuple[Tensor, Tensor]]:
    """Return pairs ``(p, 2)`` as both their ends, some at a time."""
    return [(part[:, 0], part[:, 1]) for part in pairs.split(SETTINGS.widest)]


def _at(L: Operator, nodes: Tensor, scale: Tensor) -> Tensor:
    """Return a signal ``(n, m)`` for each of m nodes: its own scale there, zero elsewhere."""
    column = torch.arange(len(nodes), device=L.device)
    return torch.zeros(L.n, len(nodes), dtype=L.dtype, device=L.device).index_put((nodes, column), scale[nodes])


def _nodes(L: Operator, pairs: Any) -> Tensor:
    """Return pairs ``(p, 2)`` of nodes of one graph whose entries are known, on its device."""
    if L.batch_shape or isinstance(L, FunctionOperator):
        raise InputError(f"distances are between nodes of one graph whose entries are known, got {L!r}.")
    index = _checks.numbers(pairs, "pairs").to(L.device)
    if index.ndim != 2 or index.shape[1] != 2 or bool((index != index.long()).any()):
        raise InputError(f"pairs must be whole numbers (p, 2), got shape {tuple(index.shape)}: of (2, p) pass pairs.T.")
    index = index.long()
    if index.numel() and not 0 <= int(index.min()) <= int(index.max()) < L.n:
        raise InputError(f"pairs must hold nodes 0 to {L.n - 1}, got {int(index.min())} to {int(index.max())}.")
    return index


def _ground(L: Operator) -> Tensor:
    """Return the conductance of each node to the ground ``(n,)``, its row sum; other matrices are refused."""
    frozen = L.detach()
    sums = (frozen @ torch.ones(L.n, 1, dtype=L.dtype, device=L.device))[:, 0]
    rounding = 32 * torch.finfo(L.dtype).eps * float(L.norm_bound())
    signed = False
    if not L.psd:
        W = frozen.to_scipy().tocoo()
        signed = bool((W.data[W.row != W.col] > 0).any())
    if signed or getattr(L, "null_vector", None) is not None or bool((sums < -rounding).any()):
        raise InputError(
            "effective_resistance() takes the combinatorial Laplacian of a graph with non-negative weights, got "
            'another matrix: krylow.laplacian(W, "combinatorial").'
        )
    return torch.where(sums > rounding, sums, 0.0)


def _solver(L: SparseOperator, null: NullSpace) -> Solve:
    """Return what solves L x = b in float64 for b that sum to zero on each component, up to constants there."""
    profile = GraphProfile(L)
    if profile.fill.entries <= SETTINGS.light_fill * L.n:
        schur = profile.condensed
        S = grounded(schur, null)
        diagonal, norm = S.diagonal(), float(L.norm_bound())
        S.setdiag(np.where(diagonal > np.finfo(np.float64).eps * norm, diagonal, norm))  # all that remains of a tree
        factor = Factor(S, schur.order)
        return lambda b: torch.from_numpy(schur.solve(factor, b.cpu().numpy())).to(b.device)
    A = restored(L)
    diagonal = A.diagonal()[:, None]
    inverse = torch.where(diagonal > 0, diagonal, 1.0).reciprocal()

    def solve(b: Tensor) -> Tensor:
        x = conjugate_gradients(
            A.__matmul__, b, steps=SETTINGS.steps, tol=SETTINGS.residual, preconditioner=lambda r: inverse * r
        )
        rest = float((torch.linalg.vector_norm(b - A @ x, dim=0) / torch.linalg.vector_norm(b, dim=0)).max())
        if rest > 1e3 * SETTINGS.residual:
            warnings.warn(f"resistances are inaccurate: a relative residual of {rest:.1e} is left.", stacklevel=4)
        return x

    return solve


def _chunks(n: int, columns: int) -> list[tuple[int, int]]:
    """Return first and last + 1 of the columns of blocks that fit into memory."""
    width = max(1, min(SETTINGS.widest, SETTINGS.block_entries // n))
    return [(first, min(first + width, columns)) for first in range(0, columns, width)]


@sharing()
def _exact(L: Operator, pairs: Tensor, null: NullSpace, solve: Solve) -> Tensor:
    """Return the resistances by one solve a pair, or a node where those are fewer and no gradient is wanted."""
    graded = torch.is_grad_enabled() and L.requires_grad
    nodes, place = pairs.unique(return_inverse=True)
    if not graded and nodes.numel() < len(pairs):
        return _between(L, nodes, null, solve)[place[:, 0], place[:, 1]]
    found = []
    for first, last in _chunks(L.n, len(pairs)):
        (i, j), at = pairs[first:last].T, torch.arange(last - first, device=L.device)
        b = torch.zeros(L.n, last - first, dtype=torch.float64, device=L.device)
        b[i, at], b[j, at] = 1.0, -1.0
        x = solve(b)
        value = x[i, at] - x[j, at]
        if graded:  # dR = -x^T dL x
            work = (x.to(L.dtype) * (L @ x.to(L.dtype))).sum(0)
            value = value - work + work.detach()
        found.append(value)
    return torch.cat(found)


def _between(L: Operator, nodes: Tensor, null: NullSpace, solve: Solve) -> Tensor:
    """Return the resistances between any two of some nodes ``(m, m)``, where they are finite."""
    inverse = torch.empty(len(nodes), len(nodes), dtype=torch.float64, device=L.device)
    for first, last in _chunks(L.n, len(nodes)):
        b = torch.zeros(L.n, last - first, dtype=torch.float64, device=L.device)
        b[nodes[first:last], torch.arange(last - first, device=L.device)] = 1.0
        inverse[:, first:last] = solve(null.remove(b))[nodes]
    own = inverse.diagonal()
    return own[:, None] + own - inverse - inverse.mT


@sharing()
def _sketched(L: SparseOperator, ground: Tensor, pairs: Tensor, columns: int, solve: Solve, seed: int | None) -> Tensor:
    r"""Return the squared lengths of $Q W^{1/2} B L^+ (e_i - e_j)$ for a Gaussian Q of so many rows.

    B has a row an edge, and one for each wire to the ground.
    """
    upper = (L.row < L.col).nonzero()[:, 0]
    row, col, root = L.row[upper], L.col[upper], (-L.values[upper].double()).clamp(min=0).sqrt()[:, None]
    generator = torch.Generator(device=L.device).manual_seed(0 if seed is None else seed)

    def gaussian(rows: int, width: int) -> Tensor:
        return torch.randn(rows, width, dtype=torch.float64, device=L.device, generator=generator)

    found = torch.zeros(len(pairs), dtype=torch.float64, device=L.device)
    for first, last in _chunks(max(L.n, len(upper)), columns):
        flow = root * gaussian(len(upper), last - first)
        b = ground.double().sqrt()[:, None] * gaussian(L.n, last - first)
        b.index_add_(0, row, flow).index_add_(0, col, flow, alpha=-1)
        x = solve(b)
        found += (x[pairs[:, 0]] - x[pairs[:, 1]]).square().sum(-1)
    return found / columns
