"""The operator: a real symmetric matrix, or a batch of them, known by its products with blocks."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import torch
from torch import Tensor

from krylow._checks import InputError

#: Columns whose products are held at once.
COLUMNS = 16


class Operator(ABC):
    r"""A real symmetric matrix $L$, or a batch of them, that multiplies blocks and counts how often.

    A subclass holds its data and implements ``_multiply``, :meth:`diagonal` and :meth:`gershgorin`; everything
    else follows.

    Parameters
    ----------
    batch_shape
        Leading dimensions, ``()`` for one matrix.
    n
        Number of nodes.
    dtype, device
        Those of every block it multiplies.
    mask
        ``(*batch, n)`` booleans, False where a row only pads a smaller graph to the batch's size. None: no padding.
    psd
        Whether $L \succeq 0$ is known by construction.

    Attributes
    ----------
    products
        Products with one vector so far: a block of s columns counts s, whatever the batch.
    passes
        Sweeps over the matrix so far: a block counts 1.
    """

    def __init__(
        self,
        batch_shape: tuple[int, ...],
        n: int,
        dtype: torch.dtype,
        device: torch.device,
        *,
        mask: Tensor | None = None,
        psd: bool = False,
    ) -> None:
        self.batch_shape = torch.Size(batch_shape)
        self.n = n
        self.dtype = dtype
        self.device = device
        self.mask = mask
        self.psd = psd
        self.products = 0
        self.passes = 0

    @property
    def shape(self) -> torch.Size:
        """``(*batch, n, n)``."""
        return torch.Size((*self.batch_shape, self.n, self.n))

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """The tensors a gradient with respect to this operator flows to."""
        return ()

    @property
    def requires_grad(self) -> bool:
        """Whether a gradient flows to this operator's entries."""
        return any(t.requires_grad for t in self.tensors)

    @property
    def sizes(self) -> Tensor:
        """``(*batch,)``: the number of real nodes of each graph."""
        if self.mask is None:
            return torch.full(self.batch_shape, self.n, device=self.device)
        return self.mask.sum(-1)

    def __matmul__(self, X: Tensor) -> Tensor:
        """Multiply a block ``(*batch, n, s)``, or one vector ``(n,)`` where there is no batch."""
        if X.ndim == 1 and not self.batch_shape:
            return (self @ X[:, None])[:, 0]
        self._count(X)
        return self._multiply(X)

    def quotients(self, X: Tensor, near: Tensor) -> tuple[Tensor, Tensor]:
        r"""Return Rayleigh quotients ``(*batch, s)`` and residual norms of a block's columns of unit length.

        Counts as ``L @ X`` does. ``near`` are estimates of the quotients: the better they are, the less rounding is in
        the norms. A block in float64 is multiplied in that, whatever L is in. No gradient.
        """
        self._count(X, mixed=X.dtype == torch.float64)
        rest, squares = self._quotients(X, near)
        return near + rest, (squares - rest.square()).clamp(min=0).sqrt()

    def three_term(
        self,
        X: Tensor,
        Y: Tensor | None,
        a: float | Tensor,
        b: float | Tensor,
        c: float | Tensor = 0.0,
        *,
        out: Tensor | None = None,
    ) -> Tensor:
        r"""Return $a L X + b X + c Y$, one step of a three-term recurrence (Chebyshev's, Lanczos'), as one sweep.

        Counts as ``L @ X`` does. Differentiable where no ``out`` is given.

        Parameters
        ----------
        X
            A block ``(*batch, n, s)``.
        Y
            A block of X's shape, or None for none.
        a, b, c
            Numbers, or tensors that broadcast to ``(*batch, 1, 1)``.
        out
            A block of X's shape that the result is written to and that is returned. It may be Y itself, which takes the
            least memory and time, but it must not overlap X.

        >>> import torch
        >>> from krylow.operators import DenseOperator
        >>> L = DenseOperator(torch.tensor([[1.0, -1.0], [-1.0, 1.0]]))
        >>> L.three_term(torch.tensor([[1.0], [0.0]]), torch.tensor([[0.0], [1.0]]), 2.0, 3.0, 4.0)
        tensor([[5.],
                [2.]])
        """
        self._count(X)
        for name, block in (("Y", Y), ("out", out)):
            if block is not None and (block.shape != X.shape or block.dtype != X.dtype):
                raise InputError(
                    f"{name} must be of X's shape {tuple(X.shape)} and dtype {X.dtype}, "
                    f"got {tuple(block.shape)} and {block.dtype}."
                )
        if out is not None:
            if _overlap(X, out):
                raise InputError("out must not share memory with X, which is read until the end: pass another block.")
            if torch.is_grad_enabled() and (self.requires_grad or any(_tracked(v) for v in (X, Y, a, b, c, out))):
                raise InputError("out has no gradient: leave it out, or call under torch.no_grad().")
        return self._three_term(X, Y, a, b, c, out)

    def _count(self, X: Tensor, *, mixed: bool = False) -> None:
        """Check a block, whose dtype may be another one if that is ``mixed``, and count its product."""
        if X.ndim < 2 or X.shape[-2] != self.n:
            raise InputError(f"a block must be (*batch, {self.n}, s), got shape {tuple(X.shape)}.")
        if X.dtype != self.dtype and not mixed:
            raise InputError(
                f"a block must be of the operator's dtype {self.dtype}, got {X.dtype}: convert one of them."
            )
        self.products += X.shape[-1]
        self.passes += 1

    @abstractmethod
    def _multiply(self, X: Tensor) -> Tensor:
        """Return L X for a block ``(*batch, n, s)``."""

    def _quotients(self, X: Tensor, near: Tensor) -> tuple[Tensor, Tensor]:
        """Return x^T (L - s) x and the squared length of (L - s) x for each column, with s its estimate."""
        products, squares = [], []
        same = self if self.dtype == X.dtype else self.double()
        for j in range(0, X.shape[-1], COLUMNS):
            columns = X[..., j : j + COLUMNS].detach()
            image = same._multiply(columns).detach() - near[..., None, j : j + COLUMNS] * columns
            products.append((columns * image).sum(-2))
            squares.append(image.square().sum(-2))
        return torch.cat(products, dim=-1), torch.cat(squares, dim=-1)

    def _three_term(
        self,
        X: Tensor,
        Y: Tensor | None,
        a: float | Tensor,
        b: float | Tensor,
        c: float | Tensor,
        out: Tensor | None,
    ) -> Tensor:
        """Return a L X + b X + c Y of checked blocks, by separate operations; a subclass may fuse them."""
        result = a * self._multiply(X) + b * X
        if Y is not None:
            result = result + c * Y
        return result if out is None else out.copy_(result)

    @abstractmethod
    def diagonal(self) -> Tensor:
        """Return the diagonal, ``(*batch, n)``."""

    @abstractmethod
    def gershgorin(self) -> tuple[Tensor, Tensor]:
        """Return a lower bound of the smallest and an upper bound of the largest eigenvalue, each ``(*batch,)``."""

    @abstractmethod
    def detach(self) -> Operator:
        """Return the same operator without a gradient; its counters start at zero."""

    @abstractmethod
    def double(self) -> Operator:
        """Return the same operator in float64, without a gradient; its counters start at zero."""

    def norm_bound(self) -> Tensor:
        """Return an upper bound of the spectral norm, ``(*batch,)``, without a gradient."""
        with torch.no_grad():
            low, high = self.gershgorin()
            return torch.maximum(low.abs(), high.abs())

    def to_dense(self) -> Tensor:
        """Return the matrix, ``(*batch, n, n)``. Does not count as products."""
        eye = torch.eye(self.n, dtype=self.dtype, device=self.device)
        return self._multiply(eye.expand(self.shape))

    def to_scipy(self) -> Any:
        """Return a ``scipy.sparse.csr_array`` of an unbatched operator, for peers and plots."""
        from scipy.sparse import csr_array

        self._no_batch("to_scipy()")
        return csr_array(self.to_dense().detach().cpu().numpy())

    def _no_batch(self, what: str) -> None:
        if self.batch_shape:
            raise InputError(
                f"{what} takes one graph, got a batch of {tuple(self.batch_shape)}: index the batch first."
            )

    def __repr__(self) -> str:
        return f"{type(self).__name__}(shape={tuple(self.shape)}, dtype={self.dtype}, products={self.products})"


def _tracked(value: Tensor | float | None) -> bool:
    return isinstance(value, Tensor) and value.requires_grad


def _overlap(X: Tensor, Y: Tensor) -> bool:
    """Return whether the ranges of memory of two blocks overlap."""

    def ends(block: Tensor) -> tuple[int, int]:
        last = sum((size - 1) * stride for size, stride in zip(block.shape, block.stride(), strict=True))
        return block.data_ptr(), block.data_ptr() + (last + 1) * block.element_size()

    if not X.numel() or X.device != Y.device:
        return False
    (start, end), (other_start, other_end) = ends(X), ends(Y)
    return start < other_end and other_start < end
