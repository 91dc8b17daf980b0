r"""A basis of each token graph and the graph's product with it, without ever holding all graphs.

The graphs are made from their points a few at a time, as many as fit the processor's cache; there the recurrence runs,
m passes over a matrix that stays in cache; and only the basis Q and the product L Q are kept, both ``(batch, n, m)``.
The backward pass makes the graphs anew, again a few at a time. So memory is that of the tokens, as in fused attention.

The basis is held constant for the gradient and the product carries it: for $Y = L Q$ and $\bar Y$ its gradient,

$$\bar L = \bar Y Q^\top, \qquad \bar d_{ij} = - w_{ij} \, \bar w_{ij}, \qquad
\bar g_i = 2 \sum_j (\bar d_{ij} + \bar d_{ji}) (g_i - g_j) .$$
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from krylow import _checks
from krylow.krylov.lanczos import closed_below
from krylow.nn.graph_learning import EqualTokens, TokenGraph, inverse_root, kernel
from krylow.operators import DenseOperator

#: Bytes of graphs made at once: what stays in one core's cache.
CHUNK_BYTES = 2**20

#: Makes a basis ``(batch, n, m)`` of some graphs from the block it starts with, a bound of their norms and the equal
#: tokens that the basis may not distinguish, if any.
BasisOf = Callable[[DenseOperator, Tensor, Tensor, EqualTokens | None], Tensor]


def basis_and_product(
    graph: TokenGraph, start: Tensor, basis: BasisOf, tokens: EqualTokens | None = None
) -> tuple[Tensor, Tensor, Tensor]:
    """Return Q, L Q and the trace of L for a batch of token graphs.

    Parameters
    ----------
    graph
        Points ``(batch, n, D)``.
    start
        ``(batch, n, b)``, zero on padding.
    basis
        Called with a few graphs and their part of ``start``, without a gradient.
    tokens
        Passed on to ``basis``, in parts.

    Returns
    -------
    Q
        ``(batch, n, m)``, without a gradient.
    LQ
        ``(batch, n, m)``, with the gradient of L at constant Q.
    trace
        ``(batch,)``, without a gradient.
    """
    return _BasisAndProduct.apply(graph.points, graph.mask, graph.kind, start, basis, tokens)


def krylov_basis(L: DenseOperator, start: Tensor, norm: Tensor, tokens: EqualTokens | None = None, *, m: int) -> Tensor:
    r"""Return an orthonormal basis of $\mathcal{K}_m(L, v)$, ``(batch, n, m)``, zero columns where it closes earlier.

    The vectors of :func:`krylow.krylov.lanczos.lanczos` with reorthogonalisation, up to rounding, and nothing else.
    Vectors are rows here: a row times a matrix is several times faster than a matrix times a column, for L and for the
    basis itself. ``norm`` ``(batch,)`` bounds that of L. With ``tokens`` the start must be the same for equal tokens,
    and every vector is kept so: rounding would enter their differences, and grow there.
    """
    matrix, sizes = L.matrix, L.sizes[:, None, None]
    tiny = closed_below(norm, L.n)[:, None, None]
    rows = matrix.new_zeros(matrix.shape[0], m, L.n)
    v = start.mT  # (batch, 1, n)
    size = torch.linalg.vector_norm(v, dim=-1, keepdim=True)
    alive = size > 0
    for j in range(m):
        v = torch.where(alive, v / size, 0)
        rows[:, j : j + 1] = v
        if j + 1 == m:
            break
        basis = rows[:, : j + 1]
        columns = basis.mT
        v = torch.bmm(v, matrix)
        for _ in range(2):  # twice is enough
            v = torch.baddbmm(v, torch.bmm(v, columns), basis, alpha=-1)
        if tokens is not None:
            v = tokens.mean(v.mT).mT
        size = torch.linalg.vector_norm(v, dim=-1, keepdim=True)
        alive = alive & (size > tiny) & (j + 1 < sizes)
    return rows.mT


class _BasisAndProduct(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        points: Tensor,
        mask: Tensor | None,
        kind: str,
        start: Tensor,
        basis: BasisOf,
        tokens: EqualTokens | None,
    ) -> tuple[Tensor, Tensor, Tensor]:
        parts = []
        for some, buffer in _chunks(points):
            real = None if mask is None else mask[some]
            W, scale, degree = _graph(points[some], real, kind, buffer)
            if kind == "combinatorial" and mask is None:
                L = W.neg_()
            else:
                L = W.mul_(-scale[:, :, None]).mul_(scale[:, None, :])
            diagonal = L.diagonal(dim1=-2, dim2=-1)
            diagonal += degree if kind == "combinatorial" else (degree > 0).to(L.dtype)
            norm = 2 * diagonal.amax(-1)  # a Laplacian's, by Gershgorin; the normalized one's diagonal is below 1
            Q = basis(DenseOperator(L, mask=real, psd=True), start[some], norm, tokens and tokens[some])
            parts.append((Q, L @ Q, diagonal.sum(-1)))
        Q, LQ, trace = (torch.cat(part) for part in zip(*parts, strict=True))
        ctx.save_for_backward(points, mask, Q)
        ctx.kind = kind
        ctx.mark_non_differentiable(Q, trace)
        return Q, LQ, trace

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, _: Tensor, grad: Tensor, __: Tensor) -> tuple[Tensor | None, ...]:
        points, mask, Q = ctx.saved_tensors
        parts = []
        for some, buffer in _chunks(points):
            real = None if mask is None else mask[some]
            W, scale, degree = _graph(points[some], real, ctx.kind, buffer)
            E = _weight_gradient(W, scale, degree, grad[some], Q[some], ctx.kind)
            g = points[some]
            parts.append(2 * (E @ g - E.sum(-1, keepdim=True) * g))
        return torch.cat(parts), None, None, None, None, None


def _chunks(points: Tensor) -> Iterator[tuple[slice, Tensor | None]]:
    """Yield parts of the batch whose graphs fit the cache, each with a buffer ``(part, n, n)`` to make them in.

    The batch is one part where there is no cache to fit, and where torch records operations for batches of any size.
    """
    batch, n, _ = points.shape
    if points.device.type != "cpu" or _checks.traced():
        yield slice(None), None
        return
    size = max(1, min(batch, CHUNK_BYTES // (n * n * points.element_size())))
    buffer = points.new_empty(size, n, n)
    for begin in range(0, batch, size):
        yield slice(begin, begin + size), buffer[: batch - begin]


def _graph(points: Tensor, mask: Tensor | None, kind: str, out: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
    r"""Return weights (in ``out``, if given), the s of $L = \mathrm{diag} - s W s$, degrees; both 0 at padding."""
    W = kernel(points, out)
    if mask is None:
        degree = W.sum(-1)
        return W, torch.ones_like(degree) if kind == "combinatorial" else degree.rsqrt(), degree
    real = mask.to(W.dtype)
    degree = (real[:, None, :] @ W)[:, 0, :] * real
    return W, real if kind == "combinatorial" else inverse_root(degree), degree


def _weight_gradient(W: Tensor, scale: Tensor, degree: Tensor, grad: Tensor, Q: Tensor, kind: str) -> Tensor:
    r"""Return $w_{ij} (\bar w_{ij} + \bar w_{ji})$, ``(batch, n, n)``, overwriting W, for the gradient of L Q.

    $\bar W = -s \bar Y Q^\top s + \bar\delta 1^\top$ with $\bar\delta$ the degrees' own gradient: directly from the
    diagonal of L (combinatorial), or through $s = \delta^{-1/2}$ (normalized).
    """
    P, S = scale[..., None] * grad, scale[..., None] * Q
    left, right = [-P, -S], [S, P]
    real = (degree > 0).to(W.dtype)[..., None]
    if kind == "combinatorial":
        delta = (grad * Q).sum(-1, keepdim=True)
        left, right = [*left, delta, real], [*right, real, delta]
    E = W * (torch.cat(left, -1) @ torch.cat(right, -1).mT)
    if kind == "normalized":
        delta = -E.sum(-1, keepdim=True) / (2 * torch.where(degree > 0, degree, torch.ones_like(degree))[..., None])
        E += W.mul_(delta * real.mT + real * delta.mT)
    return E
