"""What L makes of a block of vectors of one large graph, with the inner products that are taken of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from krylow._memory import empty
from krylow.linalg.row_blocks import gram, grams, image_gram, lengths
from krylow.operators import Operator, SparseOperator

#: For errors below this one, inner products of L X are float64 even inside a block of rows.
EXACT_TOL = 1e-4
#: Rounding of the inner products of a block of rows, in units of eps.
ROUNDING = 2.0
#: Exact products that cannot be made by rows are made for so many columns at a time, or so many numbers.
NARROW, NUMBERS = 8, 1 << 18


class Image(NamedTuple):
    r"""What L makes of a block X.

    Attributes
    ----------
    LX
        ``(n, s)`` in the block's dtype.
    H
        $X^\top L X$ ``(s, s)`` float64.
    squares
        The inner products of L X ``(s, s)`` float64, from float32 sums; None where H is exact, and
        where they are not asked for.
    rounding
        ``(s,)`` how far H may be off in each row, on the host.
    restricted
        L X on a coarser graph, float64, if asked for.
    """

    LX: Tensor
    H: Tensor
    squares: Tensor | None
    rounding: Tensor
    restricted: Tensor | None


def needs_exact(tol: float) -> bool:
    """Return whether an error of ``tol`` is told by products in float64 alone."""
    return tol < EXACT_TOL


def image(
    L: Operator,
    X: Tensor,
    out: Tensor,
    high: float,
    tol: float,
    restrict: Callable[[Tensor], Tensor] | None = None,
    *,
    squared: bool = True,
) -> Image:
    """Return what L makes of a block, as exactly as an error of ``tol`` needs it.

    Parameters
    ----------
    L
        The operator, of X's dtype or, where the products must be exact, of any.
    X
        ``(n, s)`` columns of unit length.
    out
        Room for L X.
    high
        Upper bound of the spectrum.
    tol
        The error that is to be told.
    restrict
        Takes a block to a coarser graph.
    squared
        Whether the inner products of L X are wanted where they would be of use.
    """
    eps, squares = torch.finfo(X.dtype).eps, None
    if needs_exact(tol):
        H, restricted = _exact(L, X, out, restrict)
        inside, products = torch.finfo(torch.float64).eps, 0.0
    else:
        L.three_term(X, None, 1.0, 0.0, out=out)
        H, *others = grams((X, out), (out, out)) if squared else grams((X, out))
        squares = others[0] if others else None
        restricted = restrict and restrict(out)
        inside, products = eps, eps * high / L.n**0.5
    size = lengths(out) if squares is None else squares.diagonal().sqrt()
    H = (H + H.mT) / 2
    # The vectors are orthonormal to their own rounding, which scales H.
    rounding = ROUNDING * (inside * size + products + eps * H.diagonal().abs())
    return Image(out, H, squares, rounding.cpu(), restricted)


def _exact(
    L: Operator, X: Tensor, out: Tensor, restrict: Callable[[Tensor], Tensor] | None
) -> tuple[Tensor, Tensor | None]:
    """Write L X, made in float64, to ``out``; return X^T L X, and L X on a coarser graph if asked for."""
    by_rows = L.exact_rows(X) if isinstance(L, SparseOperator) else None
    if by_rows is not None:
        H = image_gram(by_rows, X, out)
    else:
        D, inner, step = L.double().counting_for(L), [], max(NARROW, NUMBERS // max(1, X.shape[0]))
        for j in range(0, X.shape[1], step):
            part = X[:, j : j + step]
            exact, columns = (empty(*part.shape, dtype=torch.float64, device=X.device) for _ in range(2))
            D.three_term(exact.copy_(part), None, 1.0, 0.0, out=columns)
            inner.append(gram(X, columns))
            out[:, j : j + step] = columns
        H = torch.cat(inner, dim=1)
    # What is rounded of an image that is exact is small against the image, however small that is.
    return H, restrict and restrict(out)
