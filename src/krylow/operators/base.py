"""The operator: a real symmetric matrix, or a batch of them, known by its products with blocks."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from contextvars import ContextVar
from threading import Lock
from typing import Any, ClassVar, Self, TypeAlias, cast

import numpy as np
import torch
from torch import Tensor

from krylow import _checks
from krylow._checks import InputError
from krylow._html import html_table
from krylow._memory import overlapping
from krylow._reduce import reducing

#: A number, or one a graph of a batch.
Scalar: TypeAlias = float | Tensor


class _Solve:
    """The counters of one solve, from those that its operator had before."""

    def __init__(self, operator: Operator) -> None:
        self.operator = operator

    def __enter__(self) -> None:
        self.before = self.products, self.passes = self.operator._counts()
        self.token = _running.set((*_running.get(), self))

    def __exit__(self, *raised: object) -> None:
        _running.reset(self.token)
        self.operator._add_own(self.products - self.before[0], self.passes - self.before[1])


#: The solves that run in this thread or task, the innermost last: threads that share an operator count separately.
_running: ContextVar[tuple[_Solve, ...]] = ContextVar("krylow_running", default=())
_lock = Lock()  # of every operator's totals; not an attribute, so that operators can be copied and pickled


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
        Products with one vector so far: a block of s columns counts s, whatever the batch. Threads that share an
        operator each see their own running solve; the others' are added when those end.
    passes
        Sweeps over the matrix so far: a block counts 1.
    """

    #: The least n.
    least: ClassVar[int] = 1

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
        self.n = _checks.count(n, "n", self.least, 2**62)
        if dtype not in (torch.float32, torch.float64):
            raise InputError(f"an operator must be torch.float32 or torch.float64, got {dtype}.")
        self.dtype = dtype
        self.device = device
        self.mask = mask
        self.psd = _checks.flag(psd, "psd")
        self._products = 0
        self._passes = 0
        self._parent: Operator | None = None

    @property
    def products(self) -> int:
        """Products with one vector so far."""
        return self._counts()[0]

    @products.setter
    def products(self, value: int) -> None:
        self._add(value - self.products, 0)

    @property
    def passes(self) -> int:
        """Sweeps over the matrix so far."""
        return self._counts()[1]

    @passes.setter
    def passes(self, value: int) -> None:
        self._add(0, value - self.passes)

    def counted_separately(self) -> AbstractContextManager[None]:
        """Count separately from other threads that use the same operator, and add to its totals at the end.

        >>> import torch
        >>> from krylow.operators import DenseOperator
        >>> L = DenseOperator(torch.eye(2))
        >>> with L.counted_separately():
        ...     before = L.products
        ...     _ = L @ torch.ones(2)
        ...     L.products - before
        1
        """
        return nullcontext() if _checks.traced() else _Solve(self)

    def _solve(self) -> _Solve | None:
        """Return the innermost solve on this operator in this thread; torch records no context variables."""
        solves = () if _checks.traced() else _running.get()
        return next((solve for solve in reversed(solves) if solve.operator is self), None)

    def _counts(self) -> tuple[int, int]:
        """Return the products and passes that the innermost solve on this operator in this thread sees."""
        solve = self._solve()
        return (self._products, self._passes) if solve is None else (solve.products, solve.passes)

    def counting_for(self, parent: Operator) -> Self:
        """Count every product with this operator as one with ``parent``, too, and return it.

        For the same matrix in another precision, order or scaling: its own counters start at zero.
        """
        self._parent = parent
        return self

    def _add(self, products: int, passes: int) -> None:
        self._add_own(products, passes)
        if self._parent is not None:
            self._parent._add(products, passes)

    def _add_own(self, products: int, passes: int) -> None:
        solve = self._solve()
        if solve is not None:
            solve.products += products
            solve.passes += passes
            return
        with nullcontext() if _checks.traced() else _lock:
            self._products += products
            self._passes += passes

    @property
    def rows(self) -> int:
        """Rows of every block it multiplies: n, or those of this rank where ranks share the nodes."""
        return self.n

    def together(self) -> AbstractContextManager[None]:
        """Return a context in which sums over nodes are those over all ranks that share them."""
        return reducing(None)

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

    def __matmul__(self, X: Any) -> Any:
        """Multiply a block ``(*batch, n, s)``, or one vector ``(n,)`` where there is no batch.

        Arrays, nested lists and tensors of another dtype are multiplied in the operator's own; the answer is of their
        kind and dtype, an array for a list.
        """
        if not isinstance(X, Tensor) or X.dtype != self.dtype:
            block = _checks.numbers(X, "a block")
            if block.is_complex():
                raise InputError(f"a block must be real, got {block.dtype}: multiply both parts separately.")
            return _checks.as_given(self @ block.to(self.device, self.dtype), X)
        if X.ndim == 1 and not self.batch_shape:
            return (self @ X[:, None])[:, 0]
        self._count(X, mixed=True)  # its dtype is known
        return self._multiply(X)

    def __getitem__(self, index: Any) -> Operator:
        """Return one graph of a batch, without padding nodes, or several (a slice) as a smaller batch."""
        if not self.batch_shape:
            raise InputError(f"only a batch of graphs can be indexed, got one graph of {self.n} nodes.")
        places = torch.arange(self.batch_shape.numel(), device=self.device).reshape(self.batch_shape)
        try:
            places = places[index]
        except TypeError:
            raise InputError(f"an index must be a number, a slice or a list of numbers, got {index!r}.") from None
        if places.numel() == 0:
            raise InputError(f"an index must name at least one graph of {tuple(self.batch_shape)}, got {index!r}.")
        return self._items(places)

    def _items(self, places: Tensor) -> Operator:
        """Return the graphs at these places of the flattened batch, one where that is a number."""
        raise InputError(f"{type(self).__name__} cannot be indexed: build one operator a graph.")

    def quotients(self, X: Tensor, near: Tensor) -> tuple[Tensor, Tensor]:
        r"""Return Rayleigh quotients ``(*batch, s)`` and residual norms of a block's columns of unit length.

        Counts as ``L @ X`` does. ``near`` are estimates of the quotients: the better they are, the less rounding is in
        the norms. A block in float64 is multiplied in that, whatever L is in. No gradient.
        """
        self._count(X, mixed=X.dtype == torch.float64)
        rest, squares = self._quotients(X, near)
        return near + rest, (squares - rest.square()).clamp(min=0).sqrt()

    def three_term(
        self, X: Tensor, Y: Tensor | None, a: Scalar, b: Scalar, c: Scalar = 0.0, *, out: Tensor | None = None
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
            if overlapping(X, out):
                raise InputError("out must not share memory with X, which is read until the end: pass another block.")
            if torch.is_grad_enabled() and (self.requires_grad or any(_tracked(v) for v in (X, Y, a, b, c, out))):
                raise InputError("out has no gradient: leave it out, or call under torch.no_grad().")
        return self._three_term(X, Y, a, b, c, out)

    def _count(self, X: Tensor, *, mixed: bool = False) -> None:
        """Check a block, whose dtype may be another one if that is ``mixed``, and count its product."""
        if X.ndim < 2 or X.shape[-2] != self.rows:
            raise InputError(f"a block must be (*batch, {self.rows}, s), got shape {tuple(X.shape)}.")
        if not mixed and X.dtype != self.dtype:
            raise InputError(
                f"a block must be of the operator's dtype {self.dtype}, got {X.dtype}: convert one of them."
            )
        self._add(X.shape[-1], 1)

    @abstractmethod
    def _multiply(self, X: Tensor) -> Tensor:
        """Return L X for a block ``(*batch, n, s)``."""

    def _quotients(self, X: Tensor, near: Tensor) -> tuple[Tensor, Tensor]:
        """Return x^T (L - s) x and the squared length of (L - s) x for each column, with s its estimate."""
        same, products, squares = self if self.dtype == X.dtype else self.double(), [], []
        for columns, s in zip(X.detach().split(16, -1), near[..., None, :].split(16, -1), strict=True):
            image = same._multiply(columns).detach() - s * columns
            products.append((columns * image).sum(-2))
            squares.append(image.square().sum(-2))
        return torch.cat(products, dim=-1), torch.cat(squares, dim=-1)

    def _three_term(self, X: Tensor, Y: Tensor | None, a: Scalar, b: Scalar, c: Scalar, out: Tensor | None) -> Tensor:
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

    def exact_rows(self, X: Tensor) -> Callable[[int, int, np.ndarray], None] | None:
        """Return what writes rows i to j of L X to an array in float64, given i, j and the array; None: it cannot."""
        return None

    def double(self) -> Self:
        """Return the same operator in float64, without a gradient; its counters start at zero."""
        return cast("Self", self.detach().to(torch.float64))

    def float(self) -> Self:
        """Return the same operator in float32, without a gradient; its counters start at zero."""
        return cast("Self", self.detach().to(torch.float32))

    def to(self, *target: Any, dtype: torch.dtype | None = None, device: Any = None) -> Operator:
        """Return the same operator in another dtype (float32, float64) or on another device; differentiable.

        Takes a dtype and a device in any order, or by name. The operator itself where nothing changes; else the
        counters start at zero.

        >>> import torch
        >>> from krylow.operators import DenseOperator
        >>> DenseOperator(torch.eye(2)).to("cpu", torch.float64)
        DenseOperator(shape=(2, 2), dtype=torch.float64, products=0)
        """
        for value in target:
            if isinstance(value, torch.dtype):
                dtype = value
            elif isinstance(value, (str, torch.device)):
                device = value
            else:
                raise InputError(f"to() takes a torch.dtype and a device, got {value!r}.")
        dtype = self.dtype if dtype is None else dtype
        try:
            device = self.device if device is None else torch.device(device)
        except (RuntimeError, TypeError) as error:
            raise InputError(f"to() takes a device that torch knows, got {device!r} ({error}).") from None
        if dtype not in (torch.float32, torch.float64):
            raise InputError(f"an operator must be torch.float32 or torch.float64, got {dtype}.")
        return self if (dtype, device) == (self.dtype, self.device) else self._to(dtype, device)

    def _to(self, dtype: torch.dtype, device: torch.device) -> Operator:
        raise InputError(f"{type(self).__name__} has one dtype and device, got {dtype} and {device}: build another.")

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

    def _repr_html_(self) -> str:
        """Return what a notebook shows."""
        nodes = f"{self.n:,}" if self.mask is None else f"{int(self.sizes.min()):,} to {int(self.sizes.max()):,}"
        rows = {"graphs": f"a batch of {tuple(self.batch_shape)}"} if self.batch_shape else {}
        rows |= {"nodes": nodes, "dtype": f"{self.dtype} on {self.device}", "products so far": f"{self.products:,}"}
        return html_table(type(self).__name__, rows)


def _tracked(value: Tensor | float | None) -> bool:
    return isinstance(value, Tensor) and value.requires_grad
