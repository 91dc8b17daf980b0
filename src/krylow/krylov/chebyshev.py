"""Chebyshev polynomials of an operator: the filter, the iteration that inverts, and sums with any coefficients."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import wraps
from typing import Any, TypeVar, cast

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from krylow import _checks
from krylow._memory import empty
from krylow.linalg.row_blocks import lengths
from krylow.operators import Operator, SparseOperator
from krylow.operators.base import Scalar

Backward = TypeVar("Backward", bound=Callable[..., Any])


def chebyshev_filter(L: Operator, X: Tensor, degree: int, low: Tensor, high: Tensor, first: Tensor) -> Tensor:
    r"""Return $p_d(L) X$, the Chebyshev polynomial of the interval [low, high] scaled to $p_d(\text{first}) = 1$.

    Costs ``degree`` products a column. ``low``, ``high``, ``first`` are ``(*batch,)``; first < low.
    """
    Y = X
    low, high, first = (end[..., None, None] for end in (low, high, first))
    for Y in chebyshev_steps(L, X, degree, low, high, first):  # noqa: B007
        pass
    return Y


def chebyshev_steps(
    L: Operator,
    X: Tensor,
    degree: int,
    low: Scalar,
    high: Scalar,
    first: Scalar,
    work: tuple[Tensor, Tensor] | None = None,
    LX: Tensor | None = None,
) -> Iterator[Tensor]:
    r"""Yield $p_1(L) X, \ldots, p_d(L) X$, each of which the next but one overwrites in the two ``work`` blocks.

    The scaling $\sigma_j = T_j / T_{j+1}$ at ``first`` is folded into the recurrence, so that nothing overflows
    whatever the degree. X is kept, and so is ``LX``, the first product where it is known.
    """
    e, c = (high - low) / 2, (high + low) / 2
    start = e / (first - c)
    sigma, free = start, work and work[1]
    if LX is None:
        previous, current = X, L.three_term(X, None, start / e, -c * start / e, out=work and work[0])
    else:
        previous, current = X, (LX - c * X) * (start / e)
    yield current
    for _ in range(degree - 1):
        following = 1 / (2 / start - sigma)
        a, b = 2 * following / e, -2 * c * following / e
        Y = L.three_term(current, previous, a, b, -sigma * following, out=free)
        previous, current, sigma = current, Y, following
        free = work and previous
        yield current


def chebyshev_solve(
    L: Operator,
    R: Tensor,
    degree: int,
    low: float,
    high: float,
    clean_: Callable[[Tensor], Tensor] | None = None,
    work: tuple[Tensor, Tensor] | None = None,
) -> Tensor:
    r"""Return $q(L) R$, about $L^{-1} R$ for what R has on [low, high]: the Chebyshev iteration from 0.

    $1 - x q(x)$ is the Chebyshev residual polynomial of the interval, 1 at 0. Costs ``degree`` - 1 products a column.
    ``clean_`` takes out of a block, in place, what rounding brings back; R is kept. The answer is one of the ``work``
    blocks where these are given.
    """
    center, half = (high + low) / 2, (high - low) / 2
    ratio = center / half
    rho = 1 / ratio
    y, previous = work or (empty(*R.shape, dtype=R.dtype, device=R.device) for _ in range(2))
    torch.div(R, center, out=y)
    for step in range(1, degree):
        following = 1 / (2 * ratio - rho)
        a, before = 2 * following / half, previous if step > 1 else None  # zero
        new = L.three_term(y, before, -a, 1 + following * rho, -following * rho, out=previous)
        previous, y, rho = y, new.add_(R, alpha=a), following
        if clean_ is not None and step % 6 == 0:
            previous, y = clean_(previous), clean_(y)
    return y


def chebyshev_series(L: Operator, X: Tensor, C: Tensor, low: Tensor, high: Tensor) -> Tensor:
    r"""Return $\sum_j c_{jf} T_j(t(L)) X$ for every column f of the coefficients, ``(*batch, n, c, filters)``.

    t maps [low, high] to [-1, 1]. Costs a product a degree and column, whatever the number of filters. Differentiable
    in X, C and the operator, without a tape: backward runs the recurrence in reverse, beside Clenshaw's for the
    adjoint, for about as many products again (twice as many where the coefficients or L have a gradient), and keeps two
    blocks.

    Parameters
    ----------
    L
        The operator.
    X
        ``(*batch, n, c)``.
    C
        ``(*batch, degree + 1, filters)`` of L's batch shape, or without one.
    low, high
        ``(*batch,)``, which take no gradient: the sum does not depend on them as long as C is the same function's.
    """
    return _plain_sum(L, X, C.to(X.dtype), low, high) if _checks.traced() else _run(_Series, L, X, C, low, high)


@torch.no_grad()
def chebyshev_watched(L: Operator, X: Tensor, C: Tensor, low: Tensor, high: Tensor) -> tuple[Tensor, Tensor]:
    r"""Return :func:`chebyshev_series` of one matrix's block ``(n, c)``, and $\|T_d(t(L)) x\|$ of its columns ``(c,)``.

    No norm exceeds that of x where the interval holds the spectrum. Without a gradient.
    """
    Y, last = _forward_sum(L, X, C.to(X.dtype), *_affine(low, high))
    return Y, lengths(last[0])


def chebyshev_adjoint(L: Operator, X: Tensor, C: Tensor, low: Tensor, high: Tensor) -> Tensor:
    r"""Return $\sum_f \sum_j c_{jf} T_j(t(L)) X_f$, ``(*batch, n, c)``, of X ``(*batch, n, c, filters)``, by Clenshaw.

    The adjoint of :func:`chebyshev_series`, and as differentiable. Costs a product a degree and column of the sum.
    """
    return _run(_Adjoint, L, X, C, low, high)


def _run(function: Any, L: Operator, X: Tensor, C: Tensor, low: Tensor, high: Tensor) -> Tensor:
    """Apply one of the two, the columns of all blocks side by side where they share one matrix."""
    filters = X.shape[-1:] if function is _Adjoint else X.shape[-1:][:0]
    end = X.ndim - 1 - len(filters)
    a, b = _affine(low, high)
    C = C.to(X.dtype)
    if L.batch_shape:
        batch = torch.broadcast_shapes(X.shape[: end - 1], L.batch_shape)
        Y: Tensor = function.apply(X.expand(*batch, *X.shape[end - 1 :]), C, L, a, b, *L.tensors)
        return Y
    batch, (n, c) = X.shape[: end - 1], X.shape[end - 1 : end + 1]
    Y = function.apply(X.movedim(end - 1, 0).reshape(n, -1, *filters), C, L, a, b, *L.tensors)
    return Y.reshape(n, *batch, c, *Y.shape[2:]).movedim(0, len(batch))


def _full_precision(backward: Backward) -> Backward:
    """Let a backward pass compute in the dtypes it is given, under autocast, too."""

    @wraps(backward)
    def run(ctx: Any, grad: Tensor) -> Any:
        with torch.autocast(grad.device.type, enabled=False):
            return backward(ctx, grad)

    return cast("Backward", run)


def _affine(low: Tensor, high: Tensor) -> tuple[Tensor, Tensor]:
    """Return a and b of $t(L) = a L + b$, each ``(*batch, 1, 1)``."""
    span = (high - low).detach()[..., None, None]
    return 2 / span, -(high + low).detach()[..., None, None] / span


class _Series(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, X: Tensor, C: Tensor, L: Operator, a: Tensor, b: Tensor, *tensors: Tensor) -> Tensor:
        Y, last = _forward_sum(L, X, C, a, b)
        ctx.L, ctx.affine = L, (a, b)
        if any(ctx.needs_input_grad[i] for i in range(len(ctx.needs_input_grad)) if i):
            last = tuple(block.clone() for block in last)  # without the room they are in
        else:
            last = ()
        ctx.save_for_backward(C, *last)
        return Y

    @staticmethod
    @once_differentiable
    @_full_precision
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        C, *last = ctx.saved_tensors
        needs = ctx.needs_input_grad
        sums = Pairs(ctx.L, ctx.affine[0]) if any(needs[5:]) else None
        grad_C = C.new_zeros(*grad.shape[:-3], *C.shape[-2:]) if needs[1] else None
        grad_X = _clenshaw(
            ctx.L, grad, C, ctx.affine, _Reverse(ctx.L, ctx.affine, last, grad_C, sums) if last else None
        )
        if grad_C is not None:
            grad_C = grad_C.sum_to_size(C.shape)
        return grad_X, grad_C, None, None, None, *(sums.gradients() if sums else [None] * len(needs[5:]))


class _Adjoint(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, X: Tensor, C: Tensor, L: Operator, a: Tensor, b: Tensor, *tensors: Tensor) -> Tensor:
        ctx.L, ctx.affine = L, (a, b)
        ctx.save_for_backward(X, C)
        return _clenshaw(L, X, C, (a, b))

    @staticmethod
    @once_differentiable
    @_full_precision
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        X, C = ctx.saved_tensors
        needs = ctx.needs_input_grad
        # <grad, sum_f p_f(L) X_f> = <sum p_f(L) grad, X_f>: the same form with both sides exchanged.
        grad_X, last = _forward_sum(ctx.L, grad, C, *ctx.affine)
        sums = Pairs(ctx.L, ctx.affine[0]) if any(needs[5:]) else None
        grad_C = C.new_zeros(*grad.shape[:-2], *C.shape[-2:]) if needs[1] else None
        if sums is not None or grad_C is not None:
            _clenshaw(ctx.L, X, C, ctx.affine, _Reverse(ctx.L, ctx.affine, last, grad_C, sums))
        if grad_C is not None:
            grad_C = grad_C.sum_to_size(C.shape)
        return grad_X, grad_C, None, None, None, *(sums.gradients() if sums else [None] * len(needs[5:]))


#: Chebyshev blocks that are kept until they are added up together, as one product with the coefficients.
BLOCKS = 8


def _forward_sum(L: Operator, X: Tensor, C: Tensor, a: Tensor, b: Tensor) -> tuple[Tensor, tuple[Tensor, ...]]:
    """Return the sums ``(*batch, n, c, filters)`` and the last block with the one before it."""
    degree, filters = C.shape[-2] - 1, C.shape[-1]
    *batch, n, c = X.shape
    width = min(degree + 1, BLOCKS if filters > 1 else 2)  # one sum is cheap to pass over
    room = empty(*batch, width, n, c, dtype=X.dtype, device=X.device)
    Y = empty(*batch, filters, n * c, dtype=X.dtype, device=X.device)
    first = 0
    for j in range(degree + 1):
        slot = room[..., j % width, :, :]
        if j == 0:
            slot.copy_(X)
        else:
            before = room[..., (j - 2) % width, :, :] if j > 1 else None
            _step(L, room[..., (j - 1) % width, :, :], before, a, b, slot)
        if j % width == width - 1 or j == degree:
            part = room[..., : j - first + 1, :, :].flatten(-2)  # (*batch, blocks, n c)
            weights = C[..., first : j + 1, :].mT
            if not first:
                torch.matmul(weights, part, out=Y)
            elif Y.ndim == 2:
                torch.addmm(Y, weights, part, out=Y)
            else:
                Y.add_(weights @ part)
            first = j + 1
    last = tuple(room[..., (degree - i) % width, :, :] for i in range(min(degree, 1) + 1))
    return Y.unflatten(-1, (n, c)).movedim(-3, -1), last


def _plain_sum(L: Operator, X: Tensor, C: Tensor, low: Tensor, high: Tensor) -> Tensor:
    """Return the same sums by operations that write to no room: what torch can record."""
    a, b = _affine(low, high)
    before, t = None, X
    Y = t[..., None] * C[..., 0, None, None, :]
    for j in range(1, C.shape[-2]):
        scale = 1.0 if before is None else 2.0
        before, t = t, L.three_term(t, before, scale * a, scale * b, -1.0)
        Y = Y + t[..., None] * C[..., j, None, None, :]
    return Y


def _step(L: Operator, X: Tensor, Y: Tensor | None, a: Tensor, b: Tensor, out: Tensor) -> None:
    """Write $t(L) X$, or $2 t(L) X - Y$, to ``out``."""
    scale = 1.0 if Y is None else 2.0
    target = out if out.is_contiguous() else None
    found = L.three_term(X, Y, scale * a, scale * b, -1.0, out=target)
    if target is None:
        out.copy_(found)


class _Reverse:
    """The recurrence from its last two blocks back to the first, and what the gradients take of it."""

    def __init__(
        self, L: Operator, affine: tuple[Tensor, Tensor], last: Any, grad_C: Tensor | None, sums: Pairs | None
    ) -> None:
        self.L, self.affine, self.grad_C, self.sums = L, affine, grad_C, sums
        self.blocks = list(last)  # t_j and t_{j-1}

    def visit(self, j: int, following: Tensor | None, flat: Tensor) -> None:
        """Take the adjoint's block j + 1 beside t_j; ``flat`` ``(*batch, filters, n c)`` is what the sums are with."""
        t = self.blocks[0]
        if self.grad_C is not None:
            self.grad_C[..., j, :] = (flat @ t.flatten(-2)[..., None])[..., 0]
        if self.sums is not None and following is not None:
            self.sums.add(following if j == 0 else 2 * following, t)
        if j == 0:
            return
        if len(self.blocks) > 1:
            self.blocks.pop(0)
            self.after = t
        else:
            previous = self.L.three_term(t, self.after, 2 * self.affine[0], 2 * self.affine[1], -1.0)
            self.blocks, self.after = [previous], t


def _clenshaw(
    L: Operator, G: Tensor, C: Tensor, affine: tuple[Tensor, Tensor], reverse: _Reverse | None = None
) -> Tensor:
    r"""Return $\sum_f \sum_j c_{jf} T_j G_f$ by $b_j = g_j + 2 t(L) b_{j+1} - b_{j+2}$, $g_j = \sum_f c_{jf} G_f$."""
    (a, b), degree = affine, C.shape[-2] - 1
    *batch, n, c, filters = G.shape
    flat = G.movedim(-1, -3).reshape(*batch, filters, n * c)
    following: Tensor | None = None
    after: Tensor | None = None
    for top in range(degree, -1, -BLOCKS):
        bottom = max(top - BLOCKS + 1, 0)
        weighted = C[..., bottom : top + 1, :] @ flat  # (*batch, blocks, n c)
        for j in range(top, bottom - 1, -1):
            g = weighted[..., j - bottom, :].unflatten(-1, (n, c))
            if reverse is not None:
                reverse.visit(j, following, flat)
            if following is None:
                current = g.clone()
            else:
                scale = 2.0 if j else 1.0
                current = L.three_term(following, after, scale * a, scale * b, -1.0).add_(g)
            following, after = current, following
    assert following is not None
    return following


class Pairs:
    r"""The gradient of $\sum a \, \langle w, L u \rangle$ with respect to what L is made of, collected from pairs.

    Symmetrised, as the operator is symmetric: half of it is that of $\langle u, L w \rangle$.
    """

    #: Numbers in the blocks that are multiplied together.
    numbers = 2**18

    def __init__(self, L: Operator, scale: Tensor | float = 1.0) -> None:
        self.L, self.scale = L, scale
        self.found: list[Tensor | None] = [None] * len(L.tensors)
        self.pairs: list[tuple[Tensor, Tensor]] = []
        self.mirror = L.mirror() if isinstance(L, SparseOperator) else None

    def add(self, W: Tensor, U: Tensor) -> None:
        """Take a pair of blocks ``(*batch, n, s)``."""
        self.pairs.append((self.scale * W, U))
        if sum(u.numel() for _, u in self.pairs) >= self.numbers:
            self._flush()

    def _flush(self) -> None:
        pairs = self.pairs if self.mirror is not None else [q for w, u in self.pairs for q in ((w / 2, u), (u, w / 2))]
        W, U = pairs[0] if len(pairs) == 1 else (torch.cat(parts, dim=-1) for parts in zip(*pairs, strict=True))
        self.pairs = []
        wanted, found = [0], tuple[Tensor | None, ...]()
        if isinstance(self.L, SparseOperator):  # without the product L U, whose value nobody needs
            found = (self.L.sampled(W, U),)
        else:
            wanted = [i for i, t in enumerate(self.L.tensors) if t.requires_grad]
            with torch.enable_grad():
                value = (W * (self.L @ U)).sum()
            found = torch.autograd.grad(value, [self.L.tensors[i] for i in wanted], allow_unused=True)
        for i, part in zip(wanted, found, strict=True):
            before = self.found[i]
            self.found[i] = part if before is None or part is None else before + part

    def gradients(self) -> list[Tensor | None]:
        """Return the gradients, one a tensor of the operator."""
        if self.pairs:
            self._flush()
        if self.mirror is not None and self.found[0] is not None:
            # Faster than an index in brackets, whatever its order.
            self.found[0] = self.found[0].index_select(0, self.mirror).add_(self.found[0]).div_(2)
        return self.found
