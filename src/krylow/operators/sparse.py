"""One sparse symmetric matrix in compressed rows (CSR)."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from typing import Any, NamedTuple, TypeVar

import numpy as np
import torch
from scipy.sparse import coo_array, csr_array
from torch import Tensor
from torch.autograd.function import once_differentiable

from krylow import _checks, _native
from krylow._memory import empty
from krylow._threads import thread_count
from krylow.operators.base import Operator, Scalar

Made = TypeVar("Made")


class _Rows(NamedTuple):
    """What one pass over the rows finds for one version of the values; the last two on the host only."""

    version: int
    low: Tensor
    high: Tensor
    zero_sums: np.ndarray | None = None
    positive: bool = False


class SparseOperator(Operator):
    """One sparse symmetric matrix in compressed row (CSR) form, differentiable with respect to its values.

    One product costs 2 nnz operations and reads the matrix once, as a block of columns does. On the host compiled
    kernels multiply, and the answer does not depend on the number of threads; torch does on other devices, and where a
    gradient is recorded.

    Parameters
    ----------
    crow, col
        ``(n + 1,)`` and ``(nnz,)`` row pointers and column indices, both int32 or both int64.
    values
        ``(nnz,)`` entries, of the dtype of all blocks.
    null_vector
        ``(n,)`` positive vector that L is expected to map to zero, such as the roots of the degrees for a normalised
        Laplacian; it is checked before use (:mod:`krylow.linalg.components`). None: perhaps that of ones.

    Attributes
    ----------
    closed
        Whether L maps that vector, or that of ones, to zero by construction, up to rounding.
    """

    least = 0  # a rank may have no rows

    def __init__(
        self, crow: Tensor, col: Tensor, values: Tensor, *, psd: bool = False, null_vector: Tensor | None = None
    ) -> None:
        super().__init__((), crow.numel() - 1, values.dtype, values.device, psd=psd)
        self.crow, self.col, self.values = crow, col, values
        self.null_vector = null_vector
        self.closed = False
        self._indices: tuple[np.ndarray, np.ndarray] | None = None
        self._checked: _native.Pattern | None = None
        self._rows: _Rows | None = None
        self._kept: dict[str, tuple[int, Any]] = {}

    def __getstate__(self) -> dict[str, Any]:
        """Return what a copy or a pickle needs; the rest is made again."""
        return {**self.__dict__, "_indices": None, "_checked": None, "_kept": {}}

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
        if isinstance(matrix, Tensor):
            matrix = matrix.to_sparse_coo().coalesce()
            (row, col), values = matrix.indices(), matrix.values()
        else:
            matrix = coo_array(matrix)
            row, col = (torch.from_numpy(part.astype(np.int64)) for part in (matrix.row, matrix.col))
            values = _checks.numbers(matrix.data, "a matrix")
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
        if X.device.type != "cpu":
            return _csr_product(self.crow, self.col, self.values, X)
        return self._fused(X, None, 1.0, 0.0, 0.0, empty(*X.shape, dtype=X.dtype))

    def _three_term(self, X: Tensor, Y: Tensor | None, a: Scalar, b: Scalar, c: Scalar, out: Tensor | None) -> Tensor:
        scalars = all(v.numel() == 1 and not v.requires_grad for v in (a, b, c) if isinstance(v, Tensor))
        tracked = self.requires_grad or X.requires_grad or (Y is not None and Y.requires_grad)
        taped = torch.is_grad_enabled() and tracked
        if taped or not scalars or X.ndim > 2 or X.device.type != "cpu":
            return super()._three_term(X, Y, a, b, c, out)
        target = out if out is not None and out.is_contiguous() else torch.empty(X.shape, dtype=X.dtype)
        self._fused(X, Y, float(a), float(b), float(c), target)
        return target if out is None or out is target else out.copy_(target)

    def _fused(self, X: Tensor, Y: Tensor | None, a: float, b: float, c: float, out: Tensor) -> Tensor:
        """Write a L X + b X + c Y to a contiguous ``out`` on the host, which may be Y, and return it."""
        first = X.detach().contiguous().numpy()
        second = None if Y is None else Y.detach().contiguous().numpy()
        _native.three_term(self._pattern(), self._host_values(), first, second, out.numpy(), a, b, c, thread_count())
        return out

    def _quotients(self, X: Tensor, near: Tensor) -> tuple[Tensor, Tensor]:
        if X.ndim != 2 or X.dtype != torch.float64 or X.device.type != "cpu":
            return super()._quotients(X, near)
        block, shifts = X.detach().contiguous().numpy(), near.contiguous().numpy()
        parts = _native.quotients(self._pattern(), self._host_values(), block, shifts, thread_count())
        return torch.from_numpy(parts[0]), torch.from_numpy(parts[1])

    def exact_rows(self, X: Tensor) -> Callable[[int, int, np.ndarray], None] | None:
        """Return what writes rows i to j of L X to an array in float64, given i, j and the array; counts as L X does.

        None where X is no contiguous block on the host.
        """
        if X.ndim != 2 or not X.is_contiguous() or X.device.type != "cpu":
            return None
        self._count(X, mixed=True)
        pattern, values, block = self._pattern(), self._host_values(), X.detach().numpy()
        return lambda i, j, out: _native.exact_rows(pattern, values, block, i, j, out)

    def _pattern(self) -> _native.Pattern:
        """Return where the entries are, for compiled kernels; checked once."""
        if self._checked is None:
            self._checked = _native.Pattern(*self.host_indices())
        return self._checked

    def host_indices(self) -> tuple[np.ndarray, np.ndarray]:
        """Return row pointers and columns as int32 where they fit, which is less to read; made once."""
        if self._indices is None:
            kind = torch.int32 if max(self.n, self.col.numel()) < 2**31 else torch.int64
            crow, col = (part.cpu().to(kind).contiguous().numpy() for part in (self.crow, self.col))
            self._indices = crow, col
        return self._indices

    def _host_values(self) -> np.ndarray:
        return self.values.detach().cpu().contiguous().numpy()

    def sampled(self, W: Tensor, U: Tensor) -> Tensor:
        r"""Return the entries of $W U^\top$ at the matrix's places ``(nnz,)``: the gradient of $\langle W, LU \rangle$.

        Blocks are ``(*batch, n, s)``; those of a batch add up.
        """
        W, U = (X.movedim(-2, 0).reshape(self.n, -1) for X in (W, U))
        return _sampled_product(self.crow, self.col, lambda: self.row, W, U)

    def mirror(self) -> Tensor | None:
        """Return for each entry the place of its mirror image ``(nnz,)``; None where one is not stored."""
        crow, col = self.host_indices()
        found = csr_array((np.arange(col.size), col, crow), shape=(self.n, self.n)).T.tocsr()
        if not (np.array_equal(found.indptr, crow) and np.array_equal(found.indices, col)):
            return None
        return torch.from_numpy(found.data).to(self.device)

    def like(self, values: Tensor) -> SparseOperator:
        """Return an operator with these values at the same places; its counters start at zero."""
        other = SparseOperator(self.crow, self.col, values, psd=self.psd, null_vector=self.null_vector)
        other._indices, other._checked, other.closed = self._indices, self._checked, self.closed
        return other

    def diagonal(self) -> Tensor:
        """Return the diagonal, ``(n,)``."""
        if self._on_host:
            crow, col = self.host_indices()
            view = csr_array((self._host_values(), col, crow), shape=(self.n, self.n), copy=False)
            return torch.from_numpy(view.diagonal())
        on = self.row == self.col
        return self.values.new_zeros(self.n).index_add(0, self.col[on], self.values[on])

    def gershgorin(self) -> tuple[Tensor, Tensor]:
        """Return Gershgorin's lower and upper bound; computed once where no gradient passes."""
        rows = self._pass()
        return rows.low, rows.high

    def _pass(self) -> _Rows:
        """Return what a pass over the rows finds, that of the last one where torch has not changed the values since."""
        if self._rows is not None and self._rows.version == self.values._version:
            return self._rows
        found: tuple[Any, ...] = ()
        if self._on_host:
            bounds = _native.look(*self.host_indices(), self._host_values(), *self._rounding)
            low, high = (torch.tensor(bound, dtype=self.dtype) for bound in bounds[:2])
            found = bounds[2:]
        else:
            diagonal = self.diagonal()
            radius = self.values.new_zeros(self.n).index_add(0, self.row, self.values.abs()) - diagonal.abs()
            low, high = (diagonal - radius).amin(), (diagonal + radius).amax()
        rows = _Rows(self.values._version, low.clamp(min=0) if self.psd else low, high, *found)
        if not self.requires_grad:
            self._rows = rows
        return rows

    def kept(self, name: str, make: Callable[[], Made]) -> Made:
        """Return what ``make`` makes of the values: what it made last, where torch has not changed them since.

        ``name`` says what that is. Nothing is kept where a gradient passes.
        """
        found = self._kept.get(name)
        if found is None or found[0] != self.values._version or self.requires_grad:
            found = self.values._version, make()
            if not self.requires_grad:
                self._kept[name] = found
        made: Made = found[1]
        return made

    def null_rows(self, x: np.ndarray | None = None) -> tuple[np.ndarray, bool]:
        """Return where L x is zero up to rounding, x being positive (None: ones), on the host.

        And whether an entry off the diagonal is positive.
        """
        if x is None and (rows := self._pass()).zero_sums is not None:
            return rows.zero_sums, rows.positive
        values, x = self._host_values().astype(np.float64, copy=False), np.ones(self.n) if x is None else x
        within, positive = _native.null_rows(*self.host_indices(), values, x, *self._rounding)
        return within, positive

    @property
    def _rounding(self) -> tuple[float, float]:
        """What a row's sum may be off from zero: its entries plus the first number, times the second, times |L| |x|."""
        return 8.0, float(torch.finfo(self.dtype).eps)

    def narrow(self, low: Tensor, high: Tensor) -> None:
        """Keep tighter bounds of the spectrum, which are known from elsewhere, in place of Gershgorin's."""
        rows = self._pass()
        low, high = torch.maximum(rows.low, low.to(rows.low)), torch.minimum(rows.high, high.to(rows.high))
        self._rows = rows._replace(low=low, high=high)

    @property
    def _on_host(self) -> bool:
        """Whether kernels may read the entries: no gradient, no other device."""
        return self.device.type == "cpu" and not (torch.is_grad_enabled() and self.requires_grad)

    def detach(self) -> SparseOperator:
        """Return the same operator without a gradient."""
        return self._same(self.values.detach())

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
        rows = other._rows
        if rows is not None and rows.version == other.values._version:
            low, high = (bound.detach().to(self.dtype) for bound in (rows.low, rows.high))
            self._rows = _Rows(self.values._version, low, high)

    def to_dense(self) -> Tensor:
        """Return the matrix, ``(n, n)``."""
        places = self.row, self.col
        return self.values.new_zeros(self.n, self.n).index_put(places, self.values, accumulate=True)

    def to_scipy(self) -> Any:
        """Return a ``scipy.sparse.csr_array`` over copies of the entries."""
        parts = (t.detach().cpu().numpy().copy() for t in (self.values, self.col, self.crow))
        return csr_array(tuple(parts), shape=(self.n, self.n))


# torch warns once a process that CSR is in beta: here, where nobody sees it. Inside torch.func it raises.
with warnings.catch_warnings(), suppress(RuntimeError):
    warnings.simplefilter("ignore")
    torch.sparse_csr_tensor(torch.tensor([0, 0]), torch.tensor([], dtype=torch.long), torch.tensor([]), size=(1, 1))


def _csr_product(crow: Tensor, col: Tensor, values: Tensor, X: Tensor) -> Tensor:
    n = crow.numel() - 1
    return torch.sparse_csr_tensor(crow, col, values, size=(n, n), check_invariants=False) @ X


@cache
def _samples(device: str) -> bool:
    """Return whether this build of torch has a sampled product of dense matrices for a device."""
    one = torch.ones(1, 1, device=device)
    try:
        torch.sparse.sampled_addmm(one.to_sparse_csr(), one, one, beta=0.0)
    except (RuntimeError, NotImplementedError):
        return False
    return True


def _sampled_product(crow: Tensor, col: Tensor, row: Callable[[], Tensor], X: Tensor, Y: Tensor) -> Tensor:
    """Return the entries of X Y^T at the places of a sparse matrix, ``(nnz,)``."""
    if not _samples(X.device.type):
        return (X[row()] * Y[col.long()]).sum(-1)
    n, ones = X.shape[0], X.new_zeros(col.numel())
    places = torch.sparse_csr_tensor(crow, col, ones, size=(n, n), check_invariants=False)
    return torch.sparse.sampled_addmm(places, X.contiguous(), Y.contiguous().mT, beta=0.0).values()


class _SparseProduct(torch.autograd.Function):
    """L X with the gradient of the values gathered at the matrix's own places, never a dense n x n one."""

    @staticmethod
    def forward(ctx: Any, values: Tensor, X: Tensor, L: SparseOperator) -> Tensor:
        ctx.save_for_backward(values, X)
        ctx.places = (L.crow, L.col, lambda: L.row)
        return _csr_product(L.crow, L.col, values, X)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, Tensor | None, None]:
        values, X = ctx.saved_tensors
        crow, col, row = ctx.places
        grad_values = _sampled_product(crow, col, row, grad, X) if ctx.needs_input_grad[0] else None
        grad_X = _csr_product(crow, col, values, grad) if ctx.needs_input_grad[1] else None  # L is symmetric
        return grad_values, grad_X, None
