"""LOBPCG, by the library that does it best on CPU: scipy's."""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import torch
from scipy.sparse.linalg import LinearOperator
from scipy.sparse.linalg import lobpcg as scipy_lobpcg
from torch import Tensor

from krylow._checks import InputError
from krylow._random import gaussian
from krylow.krylov.pairs import Ritz, rotate, settled
from krylow.operators import DenseOperator, FunctionOperator, Operator
from krylow.solvers._problem import SAFETY, Problem, Solver, Watch

#: Sweeps between two looks at the error estimate.
SWEEPS = 20
#: Binary exponent of the norm of what it is given. It changes its arithmetic at residuals of 1e-8, whatever the norm,
#: and then stalls: far below the residuals that are asked for here.
NORM = 16


@dataclass(frozen=True)
class LOBPCG(Solver):
    """LOBPCG (Knyazev, 2001), preconditioned by the diagonal.

    Parameters
    ----------
    block
        Columns of the block, at least k. None: k and a fifth of it.
    """

    name: ClassVar[str] = "lobpcg"
    block: int | None = None

    def _width(self, problem: Problem) -> int:
        k = problem.k
        width = min(int(problem.operator.sizes.min()), self.block or k + max(2, k // 5))
        if width < k:
            raise InputError(f"the block's width m must be at least k = {k}, got {width}.")
        return width

    def describe(self, problem: Problem) -> str:
        """Return the width of the block."""
        return f"LOBPCG on a block of {self._width(problem)} vectors"

    def solve(self, problem: Problem) -> Ritz:
        """Return the lowest Ritz pairs."""
        L, width = problem.operator, self._width(problem)
        X = gaussian(L, width, generator=problem.generator)
        limit, tol, watch = problem.max_products or 2000 * width, SAFETY * problem.tol, problem.watch(SAFETY)
        return lobpcg(L, X, problem.k, tol=tol, max_products=limit, watch=watch)


def lobpcg(L: Operator, X: Tensor, k: int, *, tol: float, max_products: int, watch: Watch | None = None) -> Ritz:
    """Return Ritz pairs from scipy's LOBPCG, preconditioned by the diagonal, one graph of a batch after the other.

    It runs a few sweeps at a time and is stopped by the same estimate as the other methods. A sweep costs as many
    products as the block has columns; a batch costs what its dearest graph does. Of one graph, ``watch`` is told after
    every few sweeps, and Ctrl-C ends the iteration with what was found by then.
    """
    if not L.batch_shape:
        return _solve(L, X, k, tol, max_products, watch)
    dense, sizes, shape = L.to_dense().detach(), L.sizes, L.batch_shape
    items, pairs = [], []
    for i in np.ndindex(*shape):
        n = int(sizes[i])  # without its padding, whose null space is not the graph's
        items.append(DenseOperator(dense[i][:n, :n], psd=L.psd))
        pairs.append(_solve(items[-1], X[i][:n], k, tol, max_products))
    L.products += max(A.products for A in items)
    L.passes += max(A.passes for A in items)
    vectors = torch.zeros_like(X)
    for i, found in zip(np.ndindex(*shape), pairs, strict=True):
        vectors[i][: found.X.shape[0]] = found.X
    theta, residuals = (torch.stack(c) for c in zip(*((p.theta, p.residuals) for p in pairs), strict=True))
    return Ritz(theta.reshape(*shape, -1), vectors, residuals.reshape(*shape, -1))


def _solve(L: Operator, X: Tensor, k: int, tol: float, max_products: int, watch: Watch | None = None) -> Ritz:
    # Its thresholds are not relative to L: it gets a multiple of L whose norm they suit.
    scale = _scale(L)

    def multiply(block: Any) -> Any:
        tensor = torch.as_tensor(np.asarray(block).reshape(L.n, -1), dtype=L.dtype, device=L.device)
        return (L @ tensor).detach().double().cpu().numpy() / scale

    def precondition(block: Any) -> Any:
        return inverse * np.asarray(block).reshape(L.n, -1)

    # Its own small problems are solved in float64, whatever L is: in float32 they stall far above rounding.
    inverse = _inverse_diagonal(L, scale)
    A = LinearOperator((L.n, L.n), matvec=multiply, matmat=multiply, dtype=inverse.dtype)
    M = LinearOperator((L.n, L.n), matvec=precondition, matmat=precondition, dtype=inverse.dtype)
    budget = L.products + max_products
    pairs = rotate(L, X)
    while not bool((pairs.estimate(k) <= tol) | settled(L.norm_bound(), pairs.residuals[..., : k + 1])):
        if L.products + (SWEEPS + 1) * X.shape[-1] > budget:
            break
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # whether it has converged is ours to judge
            try:
                _, block = scipy_lobpcg(A, pairs.X.double().cpu().numpy(), M=M, largest=False, tol=0.0, maxiter=SWEEPS)
            except KeyboardInterrupt:
                return replace(pairs, interrupted=True)
            except Exception as error:
                if type(error) not in (np.linalg.LinAlgError, ValueError, Exception):  # scipy raises a bare one, too
                    raise
                break  # its Gram matrix lost definiteness: the pairs so far are the best it has
        if not np.isfinite(block).all():
            break
        pairs = rotate(L, torch.as_tensor(block, dtype=L.dtype, device=L.device))
        if watch is not None:
            watch.report(float(pairs.estimate(k)))
    return pairs


def _scale(L: Operator) -> float:
    """Return the power of two that brings the norm of L to about 2^NORM: dividing by it rounds nothing."""
    norm = float(L.norm_bound())
    return math.ldexp(1.0, max(-1022, math.frexp(norm)[1] - NORM)) if norm > 0 else 1.0


def _inverse_diagonal(L: Operator, scale: float) -> Any:
    """Return the Jacobi preconditioner ``(n, 1)`` of L / scale: the inverse diagonal where known and positive, or 1."""
    ones = torch.ones(L.n, dtype=torch.float64)
    if isinstance(L, FunctionOperator):
        return ones[:, None].numpy()
    diagonal = L.diagonal().detach().cpu().double() / scale
    return torch.where(diagonal > 0, 1 / torch.where(diagonal > 0, diagonal, ones), ones)[:, None].numpy()
