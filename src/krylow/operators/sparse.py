"""One sparse symmetric matrix in compressed row form."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from krylow import _checks
from krylow._memory import empty
from krylow.operators import csr_kernels
from krylow.operators.base import Operator
from krylow.operators.row_passes import look, null_rows

#: An entry this many rows from the diagonal is near: 4096 rows of 32 float32 are half a megabyte.
NEAR = 4096
#: Entries that are looked at.
SAMPLE = 5000
#: A share of far entries that is small: hardly a product misses the cache.
FEW_FAR = 0.05


class _Seen(NamedTuple):
    """What a pass over the rows finds: bounds of the spectrum, zero row sums, entries > 0 off the diagonal."""

    version: int
    low: Tensor
    high: Tensor
    flat: tuple[np.ndarray, bool] | None = None


class SparseOperator(Operator):
    """One sparse symmetric matrix in compressed row (CSR) form, differentiable with respect to its values.

    One product costs 2 nnz operations and reads the matrix once, as a block of columns does. Large blocks on the host
    that need no gradient are multiplied by :mod:`krylow.operators.csr_kernels`, one column by scipy, the rest by torch.

    Parameters
    ----------
    crow, col
        ``(n + 1,)`` and ``(nnz,)`` row pointers and column indices, both int32 or both int64.
    values
        ``(nnz,)`` entries, of the dtype of all blocks.
    null_vector
        ``(n,)`` positive vector that L is believed to map to zero, such as the roots of the degrees for a normalised
        Laplacian; it is checked before use (:mod:`krylow.linalg.components`). None: perhaps that of ones.

    Attributes
    ----------
    closed
        Whether L maps that vector, or that of ones, to zero by construction: what is left of it is rounding.
    kept
        What a walk over the graph told (:mod:`krylow.operators.walks`), shared with copies in other precisions.
    """

    def __init__(
        self, crow: Tensor, col: Tensor, values: Tensor, *, psd: bool = False, null_vector: Tensor | None = None
    ) -> None:
        super().__init__((), crow.numel() - 1, values.dtype, values.device, psd=psd)
        self.crow, self.col, self.values = crow, col, values
        self.null_vector = null_vector
        self.closed = False
        self._indices: tuple[np.ndarray, np.ndarray] | None = None
        self._seen: _Seen | None = None

    @classmethod
    def from_coo(cls, row: Tensor, col: Tensor, values: Tensor, n: int, *, psd: bool = False) -> SparseOperator:
        """Build from entries in any order, adding up those at the same place; differentiable in ``values``."""
        place, where = torch.unique(row.long() * n + col.long(), return_inverse=True)
        summed = values.new_zeros(place.numel()).index_add(0, where, values)
        crow = torch.zeros(n + 1, dtype=torch.long, device=values.device)
        crow[1:] = torch.bincount(place // n, minlength=n).cumsum(0)
        return cls(crow, place % n, summed, psd=psd)

    @classmethod
    def from_matrix(cls, matrix: Any, *, psd: bool = False) -> SparseOperator:
        """Build from a scipy or torch sparse matrix as it is, taken as symmetric without a check.

        A matrix that is no Laplacian, but whose lowest eigenvectors are wanted all the same, is given to
        :func:`~krylow.subspace` as this operator.

        >>> from scipy.sparse import diags_array
        >>> SparseOperator.from_matrix(diags_array([1.0, 2.0])) @ torch.ones(2, dtype=torch.float64)
        tensor([1., 2.], dtype=torch.float64)
        """
        if not isinstance(matrix, Tensor):
            from scipy.sparse import coo_array

            matrix = coo_array(matrix)
            row, col = (torch.from_numpy(part.astype(np.int64)) for part in (matrix.row, matrix.col))
            values = _checks.numbers(matrix.data, "a matrix")
        else:
            matrix = matrix.to_sparse_coo().coalesce()
            row, col = matrix.indices()
            values = matrix.values()
        return cls.from_coo(row, col, _checks.floating(values, "a matrix"), matrix.shape[0], psd=psd)

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """The values."""
        return (self.values,)

    @property
    def row(self) -> Tensor:
        """``(nnz,)``: the row of each entry."""
        return torch.repeat_interleave(torch.arange(self.n, device=self.device), self.crow.diff())

    def _multiply(self, X: Tensor) -> Tensor:
        if X.ndim > 2:  # a batch of blocks shares the matrix: put its columns side by side
            flat = X.movedim(-2, 0).reshape(self.n, -1)
            return self._multiply(flat).reshape(self.n, *X.shape[:-2], X.shape[-1]).movedim(0, -2)
        if torch.is_grad_enabled() and (self.requires_grad or X.requires_grad):
            return _SparseProduct.apply(self.values, X, self)
        kernel = self._kernel(X)
        if kernel == "numba":
            return self._fused(X, None, 1.0, 0.0, 0.0, empty(*X.shape, dtype=X.dtype))
        if kernel == "scipy":
            return torch.from_numpy(self._scipy_view() @ X.detach().numpy())
        return _csr_product(self.crow, self.col, self.values, X)

    def _three_term(
        self,
        X: Tensor,
        Y: Tensor | None,
        a: float | Tensor,
        b: float | Tensor,
        c: float | Tensor,
        out: Tensor | None,
    ) -> Tensor:
        numbers = [value.numel() == 1 and not value.requires_grad for value in (a, b, c) if isinstance(value, Tensor)]
        tracked = self.requires_grad or X.requires_grad or (Y is not None and Y.requires_grad)
        fused = X.ndim == 2 and all(numbers) and not (torch.is_grad_enabled() and tracked)
        if not fused or self._kernel(X) != "numba":
            return super()._three_term(X, Y, a, b, c, out)
        target = out if out is not None and out.is_contiguous() else torch.empty(X.shape, dtype=X.dtype)
        self._fused(X, Y, float(a), float(b), float(c), target)
        return target if out is None or out is target else out.copy_(target)

    def _quotients(self, X: Tensor, near: Tensor) -> tuple[Tensor, Tensor]:
        if X.ndim != 2 or X.dtype != torch.float64 or self._kernel(X) != "numba":
            return super()._quotients(X, near)
        block = X.detach().contiguous().numpy()
        products, squares = csr_kernels.quotients(*self.host_indices(), self._host_values(), block, near.numpy())
        return torch.from_numpy(products), torch.from_numpy(squares)

    def exact_rows(self, X: Tensor) -> Callable[[int, int, np.ndarray], None] | None:
        """Return what writes rows i to j of L X to an array in float64, given i, j and the array; counts as L X does.

        None where no compiled kernel multiplies X: a contiguous block on the host.
        """
        if X.ndim != 2 or not X.is_contiguous() or self._kernel(X) != "numba":
            return None
        self._count(X, mixed=True)
        matrix, block = (*self.host_indices(), self._host_values()), X.detach().numpy()
        return lambda i, j, out: csr_kernels.exact_rows(*matrix, block, i, j, out)

    def _kernel(self, X: Tensor) -> str:
        """Return what multiplies this block where no gradient is recorded: "numba", "scipy" or "torch"."""
        if self.values.numel() * X.shape[-1] < csr_kernels.LEAST_WORK:
            return "torch"
        return csr_kernels.kernel_in_use(X.dtype, X.shape[-1], X.device.type)

    def _fused(self, X: Tensor, Y: Tensor | None, a: float, b: float, c: float, out: Tensor) -> Tensor:
        """Write a L X + b X + c Y to a contiguous ``out`` by the compiled kernel, and return it."""
        first, second = (None if block is None else block.detach().contiguous().numpy() for block in (X, Y))
        assert first is not None
        csr_kernels.three_term(*self.host_indices(), self._host_values(), first, second, a, b, c, out.numpy())
        return out

    def host_indices(self) -> tuple[np.ndarray, np.ndarray]:
        """Return row pointers and columns as int32 where they fit, which is less to read; made once."""
        if self._indices is None:
            fits = max(self.n, self.col.numel()) < 2**31
            kind = torch.int32 if fits else torch.int64
            self._indices = tuple(part.cpu().to(kind).contiguous().numpy() for part in (self.crow, self.col))  # type: ignore[assignment]
        assert self._indices is not None
        return self._indices

    def _host_values(self) -> np.ndarray:
        return self.values.detach().contiguous().numpy()

    def _scipy_view(self) -> Any:
        """Return a ``scipy.sparse.csr_array`` over the entries themselves."""
        from scipy.sparse import csr_array

        crow, col = self.host_indices()
        return csr_array((self._host_values(), col, crow), shape=(self.n, self.n), copy=False)

    def like(self, values: Tensor) -> SparseOperator:
        """Return an operator with these values at the same places; its counters start at zero."""
        other = SparseOperator(self.crow, self.col, values, psd=self.psd, null_vector=self.null_vector)
        other._indices, other.closed = self._indices, self.closed
        return other

    def diagonal(self) -> Tensor:
        """Return the diagonal, ``(n,)``."""
        if self._on_host:
            return torch.from_numpy(self._scipy_view().diagonal())
        on = self.row == self.col
        return self.values.new_zeros(self.n).index_add(0, self.col[on], self.values[on])

    def gershgorin(self) -> tuple[Tensor, Tensor]:
        """Return Gershgorin's lower and upper bound; computed once where no gradient passes."""
        seen = self._look()
        return seen.low, seen.high

    def _look(self) -> _Seen:
        if self._seen is not None and self._seen.version == self.version:
            return self._seen
        flat = None
        if self._on_host:
            found = look(*self.host_indices(), self._host_values(), float(torch.finfo(self.dtype).eps))
            flat = found.flat, found.positive
            low, high = (torch.tensor(bound, dtype=self.dtype) for bound in (found.low, found.high))
        else:
            diagonal = self.diagonal()
            radius = self.values.new_zeros(self.n).index_add(0, self.row, self.values.abs()) - diagonal.abs()
            low, high = (diagonal - radius).amin(), (diagonal + radius).amax()
        seen = _Seen(self.version, low.clamp(min=0) if self.psd else low, high, flat)
        if not self.requires_grad:
            self._seen = seen
        return seen

    def null_rows(self, x: np.ndarray | None = None) -> tuple[np.ndarray, bool]:
        """Return where L x is zero but for rounding, x being positive (None: ones), on the host.

        And whether an entry off the diagonal is positive.
        """
        if x is None and (flat := self._look().flat) is not None:
            return flat
        values = self.values.detach().cpu().double().numpy()
        x = np.ones(self.n) if x is None else x
        return null_rows(*self.host_indices(), values, x, float(torch.finfo(self.dtype).eps))

    @property
    def version(self) -> int:
        """How often torch has changed the values in place: what was told from them before holds no longer."""
        return self.values._version

    def narrow(self, low: Tensor, high: Tensor) -> None:
        """Keep tighter bounds of the spectrum, which are known from elsewhere, in place of Gershgorin's."""
        own = self._look()
        self._seen = own._replace(
            low=torch.maximum(own.low, low.to(own.low)), high=torch.minimum(own.high, high.to(own.high))
        )

    @property
    def _on_host(self) -> bool:
        """Whether scipy may read the entries: no gradient, no other device."""
        return self.device.type == "cpu" and not (torch.is_grad_enabled() and self.requires_grad)

    def detach(self) -> SparseOperator:
        """Return the same operator without a gradient."""
        return self._same(self.values.detach())

    def double(self) -> SparseOperator:
        """Return the same operator in float64, without a gradient."""
        return self._same(self.values.detach().to(torch.float64))

    def _to(self, dtype: torch.dtype, device: torch.device) -> SparseOperator:
        values = self.values.to(device, dtype)
        if device == self.device:
            return self._same(values)
        null = None if self.null_vector is None else self.null_vector.to(device)
        return SparseOperator(self.crow.to(device), self.col.to(device), values, psd=self.psd, null_vector=null)

    def _same(self, values: Tensor) -> SparseOperator:
        other = self.like(values)
        other.inherit(self)
        return other

    def inherit(self, other: SparseOperator) -> None:
        """Take over the bounds of another operator of the same spectrum."""
        seen = other._seen
        if seen is not None and seen.version == other.version:
            low, high = (bound.detach().to(self.dtype) for bound in (seen.low, seen.high))
            self._seen = _Seen(self.version, low, high)

    def to_dense(self) -> Tensor:
        """Return the matrix, ``(n, n)``."""
        places = self.row, self.col
        return self.values.new_zeros(self.n, self.n).index_put(places, self.values, accumulate=True)

    def to_scipy(self) -> Any:
        """Return a ``scipy.sparse.csr_array`` over copies of the entries."""
        from scipy.sparse import csr_array

        parts = (t.detach().cpu().numpy().copy() for t in (self.values, self.col, self.crow))
        return csr_array(tuple(parts), shape=(self.n, self.n))


with warnings.catch_warnings():  # torch says once a process that CSR is in beta: let it say so here, to nobody
    warnings.simplefilter("ignore")
    torch.sparse_csr_tensor(torch.tensor([0, 0]), torch.tensor([], dtype=torch.long), torch.tensor([]), size=(1, 1))


def _csr_product(crow: Tensor, col: Tensor, values: Tensor, X: Tensor) -> Tensor:
    n = crow.numel() - 1
    return torch.sparse_csr_tensor(crow, col, values, size=(n, n), check_invariants=False) @ X


class _SparseProduct(torch.autograd.Function):
    """L X with the gradient of the values gathered at the matrix's own places, never a dense n x n one."""

    @staticmethod
    def forward(ctx: Any, values: Tensor, X: Tensor, L: SparseOperator) -> Tensor:
        ctx.save_for_backward(values, X)
        ctx.places = (L.crow, L.col, L.row)
        return _csr_product(L.crow, L.col, values, X)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, Tensor | None, None]:
        values, X = ctx.saved_tensors
        crow, col, row = ctx.places
        grad_values = (grad[row] * X[col]).sum(-1) if ctx.needs_input_grad[0] else None
        grad_X = _csr_product(crow, col, values, grad) if ctx.needs_input_grad[1] else None  # L is symmetric
        return grad_values, grad_X, None


def far_share(L: SparseOperator, near: int = NEAR) -> float:
    """Return the share of entries that are more than ``near`` rows from the diagonal, from a sample of them."""
    if L.col.numel() == 0:
        return 0.0
    rows, columns = sample(L)
    return float(((rows - columns).abs() > near).double().mean())


def sample(L: SparseOperator) -> tuple[Tensor, Tensor]:
    """Return rows and columns of some of the entries."""
    count = L.col.numel()
    places = torch.arange(0, count, max(1, count // SAMPLE), device=L.device)
    return torch.searchsorted(L.crow, places.to(L.crow.dtype), right=True) - 1, L.col[places].long()
