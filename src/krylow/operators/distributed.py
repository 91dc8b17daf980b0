r"""One sparse symmetric matrix whose rows lie on several ranks.

PETSc partitions the graph and exchanges rows; the product of the local rows is krylow's own kernel. On each rank the
rows without a neighbour elsewhere come first, in an order that is near in memory, and those at the boundary last, so
that $L X$ is the product with the diagonal block, which needs no other rank and runs while copies of the neighbours'
rows (the halo) are on their way, plus that of the boundary rows with these.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass

import numpy as np
import torch
from scipy.sparse import coo_array, csr_array, hstack
from scipy.sparse.csgraph import connected_components
from torch import Tensor

from krylow._memory import empty
from krylow._reduce import reducing, summed
from krylow.operators._ranks import Ranks, Star, owners
from krylow.operators.base import Operator, Scalar
from krylow.operators.ordering import breadth_first_search, components_of, permuted, reordered_if_it_pays
from krylow.operators.sparse import SparseOperator

#: Rows that are looked at together.
PIECE = 1 << 16


class LocalRows(Operator):
    """The rows of a matrix on this rank: blocks ``(rows, s)`` in, blocks out, on every rank at once.

    Parameters
    ----------
    ranks
        The ranks that share the rows.
    halo
        What this rank reads of the others' rows.
    diagonal_block
        The rows' entries in the rows' own columns, a square matrix; rows at the boundary last.
    outer
        The boundary rows' entries in the columns of the halo: square, the boundary's rows and columns first, of which
        no column has an entry, then the halo's, of which no row has one.
    n
        Rows of all ranks.
    null_vector
        ``(rows,)``, as for :class:`~krylow.operators.SparseOperator`.
    bounds
        Gershgorin's bounds of the whole matrix.
    """

    def __init__(
        self,
        ranks: Ranks,
        halo: Star,
        diagonal_block: SparseOperator,
        outer: SparseOperator,
        n: int,
        *,
        bounds: tuple[float, float],
        psd: bool = False,
        null_vector: Tensor | None = None,
    ) -> None:
        super().__init__((), n, diagonal_block.dtype, diagonal_block.device, psd=psd)
        self.ranks, self.halo, self.diagonal_block, self.outer = ranks, halo, diagonal_block, outer
        self.null_vector, self.bounds = null_vector, bounds
        self.boundary = outer.n - halo.count  # rows
        self._work: dict[tuple[int, torch.dtype], tuple[Tensor, Tensor]] = {}

    @property
    def rows(self) -> int:
        """Rows of this rank."""
        return self.diagonal_block.n

    def together(self) -> AbstractContextManager[None]:
        """Return a context in which sums over nodes are those over all ranks."""
        return reducing(self.ranks)

    def _multiply(self, X: Tensor) -> Tensor:
        return self._three_term(X, None, 1.0, 0.0, 0.0, None)

    def _three_term(self, X: Tensor, Y: Tensor | None, a: Scalar, b: Scalar, c: Scalar, out: Tensor | None) -> Tensor:
        X = X.detach().contiguous()
        work = self._work_of(X)
        rows, copied = X.numpy(), work[0][self.boundary :].numpy()  # PETSc knows an exchange by its buffers
        self.halo.begin(rows, copied)
        into = out if out is not None and out.is_contiguous() else empty(*X.shape, dtype=X.dtype)
        self.diagonal_block._three_term(X, Y, a, b, c, into)
        self.halo.end(rows, copied)
        if self.boundary:
            copies, sums = work
            tail = into[self.rows - self.boundary :]
            sums[: self.boundary] = tail
            self.outer._three_term(copies, sums, float(a), 0.0, 1.0, sums)
            tail.copy_(sums[: self.boundary])
        return into if out is None or into is out else out.copy_(into)

    def _work_of(self, X: Tensor) -> tuple[Tensor, Tensor]:
        """Return blocks for copies and sums of the boundary's rows and the halo's, of X's width and dtype."""
        name = X.shape[1], X.dtype
        if name not in self._work:
            if len(self._work) > 3:
                self._work.clear()
            one, other = (torch.zeros(self.outer.n, X.shape[1], dtype=X.dtype) for _ in range(2))
            self._work[name] = one, other
        return self._work[name]

    def exact_rows(self, X: Tensor) -> Callable[[int, int, np.ndarray], None] | None:
        """Return what writes rows i to j of L X to an array in float64; the halo is exchanged at once."""
        if not X.is_contiguous():
            return None
        self._count(X, mixed=True)
        copies, _ = self._work_of(X)
        rows, copied = X.numpy(), copies[self.boundary :].numpy()
        self.halo.begin(rows, copied)
        self.halo.end(rows, copied)
        inner, outer = self.diagonal_block.exact_rows(X), self.outer.exact_rows(copies)
        first = self.rows - self.boundary

        def write(i: int, j: int, out: np.ndarray) -> None:
            assert inner is not None
            assert outer is not None
            inner(i, j, out)
            low = max(i, first)
            if low < j:
                part = np.empty((j - low, out.shape[1]))
                outer(low - first, j - first, part)
                out[low - i :] += part

        return write

    def _quotients(self, X: Tensor, near: Tensor) -> tuple[Tensor, Tensor]:
        if self.ranks.size == 1:
            return self.diagonal_block._quotients(X, near)
        products, squares = summed(*super()._quotients(X, near))
        return products, squares

    def diagonal(self) -> Tensor:
        """Return this rank's part of the diagonal, ``(rows,)``."""
        return self.diagonal_block.diagonal()

    def gershgorin(self) -> tuple[Tensor, Tensor]:
        """Return Gershgorin's bounds of the whole matrix."""
        low, high = self.bounds
        return torch.tensor(low, dtype=self.dtype), torch.tensor(high, dtype=self.dtype)

    def detach(self) -> LocalRows:
        """Return the same rows; counters start at zero."""
        return self._to(self.dtype, self.device)

    def _to(self, dtype: torch.dtype, device: torch.device) -> LocalRows:
        inner, outer = (part._to(dtype, device) for part in (self.diagonal_block, self.outer))
        vector = self.null_vector
        return LocalRows(
            self.ranks, self.halo, inner, outer, self.n, bounds=self.bounds, psd=self.psd, null_vector=vector
        )

    def host_indices(self) -> tuple[np.ndarray, np.ndarray]:
        """Return row pointers and columns of the local rows, those of the halo after those of the rows."""
        rows = self.local_matrix
        return rows.indptr, rows.indices

    @property
    def local_matrix(self) -> csr_array:
        """The local rows ``(rows, rows + halo)`` as a scipy matrix; a copy where there is a boundary."""
        crow, col = self.diagonal_block.host_indices()
        values, width = self.diagonal_block.values.numpy(), self.rows + self.halo.count
        if not self.boundary:
            return csr_array((values, col, crow), shape=(self.rows, width))
        first = self.rows - self.boundary
        cut = int(crow[first])
        inner = csr_array((values[cut:], col[cut:], crow[first:] - crow[first]), shape=(self.boundary, self.rows))
        rows, columns = self.outer.host_indices()
        far = self.outer.values.numpy(), columns - self.boundary, rows[: self.boundary + 1]
        last = hstack([inner, csr_array(far, shape=(self.boundary, self.halo.count))], format="csr")
        pairs = (values[:cut], last.data), (col[:cut], last.indices), (crow[:first], last.indptr + crow[first])
        return csr_array(tuple(np.concatenate(pair) for pair in pairs), shape=(self.rows, width))

    def null_rows(self, x: np.ndarray | None = None) -> tuple[np.ndarray, bool]:
        """Return where L x is zero up to rounding, x > 0 (None: ones), and if an entry off the diagonal is positive."""
        there = self.halo.copy(np.ones(self.rows) if x is None else x)  # by all ranks, also those that need none
        if not self.rows:
            return np.zeros(0, dtype=bool), False
        if not self.boundary:
            return self.diagonal_block.null_rows(x)
        W, x = self.local_matrix, np.ones(self.rows) if x is None else x
        ends = np.full(self.halo.count, W.indptr[-1], dtype=W.indptr.dtype)  # the halo's rows are empty here
        parts = np.concatenate([W.indptr, ends]), W.indices, W.data
        square = SparseOperator(*(torch.from_numpy(part) for part in parts))
        within, positive = square.null_rows(np.concatenate([x, there]))
        return within[: self.rows], positive

    def components(self) -> tuple[np.ndarray, int]:
        """Return the component ``(rows,)`` of each row, numbered over all ranks, and their number.

        Each rank's own components are found first; how those hang together is known after one exchange of the halo, and
        small enough to be known to all.
        """
        labels, count = components_of(self.diagonal_block) if self.rows else (np.zeros(0, dtype=np.int64), 0)
        counts = self.ranks.gather(np.array([count]))
        labels = labels + (counts[: self.ranks.rank].sum() if self.ranks.size > 1 else 0)
        there = self.halo.copy(np.asarray(labels, dtype=np.int64))
        crow, col = self.outer.host_indices()
        row = np.repeat(np.arange(self.outer.n), np.diff(crow)) + self.rows - self.boundary
        linked = self.outer.values.numpy() != 0
        pairs = np.stack([labels[row[linked]], there[col[linked] - self.boundary]], axis=1)
        pairs = self.ranks.gather(np.unique(pairs, axis=0))
        total = int(counts.sum())
        graph = coo_array((np.ones(len(pairs), dtype=np.int8), (pairs[:, 0], pairs[:, 1])), shape=(total, total))
        found, names = connected_components(graph, directed=False)
        return names[labels].astype(np.int64), int(found)

    def width(self) -> float:
        """Return the largest level set of a breadth-first search on each rank, together, as a share of all nodes."""
        own = breadth_first_search(self.diagonal_block).width * self.rows if self.rows else 0.0
        return float(self.ranks.sum([torch.tensor([own], dtype=torch.float64)])[0]) / self.n

    @property
    def entries(self) -> int:
        """Entries of this rank's rows."""
        return self.diagonal_block.col.numel() + self.outer.col.numel()


@dataclass(frozen=True)
class Rows:
    """Rows ``start`` to ``start + rows`` of a symmetric matrix on this rank, their columns numbered over all ranks.

    They may fill most of the memory: what looks at all entries does so by :meth:`pieces`.
    """

    crow: np.ndarray
    col: np.ndarray
    values: np.ndarray
    starts: np.ndarray  #: ``(ranks,)`` the first row of each rank

    @property
    def rows(self) -> int:
        """Rows of this rank."""
        return self.crow.size - 1

    def pieces(self) -> Iterator[tuple[int, int, np.ndarray, slice]]:
        """Yield the first row of a piece, its end, the row of each entry, counted from the first, and the entries."""
        for first in range(0, self.rows, PIECE):
            end = min(first + PIECE, self.rows)
            crow = self.crow[first : end + 1]
            yield first, end, np.repeat(np.arange(end - first), np.diff(crow)), slice(int(crow[0]), int(crow[-1]))

    def neighbours(self, ranks: Ranks) -> Neighbours:
        """Return the columns that are rows of other ranks."""
        start, there = int(self.starts[ranks.rank]), [np.zeros(0, dtype=self.col.dtype)]
        for *_, part in self.pieces():
            col = self.col[part]
            there.append(np.unique(col[(col < start) | (col >= start + self.rows)]))
        return Neighbours(np.unique(np.concatenate(there)), start, self.rows)


@dataclass(frozen=True)
class Neighbours:
    """The columns of a rank's rows that are rows of other ranks."""

    nodes: np.ndarray  #: ascending, numbered over all ranks
    start: int
    rows: int

    def place(self, col: np.ndarray) -> np.ndarray:
        """Return columns as they are numbered on this rank, those of other ranks after its own."""
        if not self.start and not self.nodes.size:
            return col
        place = col - self.start
        far = (place < 0) | (place >= self.rows)
        if self.nodes.size:
            place[far] = self.rows + np.searchsorted(self.nodes, col[far])
        return place


def local_rows(
    ranks: Ranks, given: Rows, n: int, *, psd: bool, null_vector: np.ndarray | None = None
) -> tuple[LocalRows, np.ndarray]:
    """Return the operator of given rows, put in an order of its own, and that order, ``order[new] = old``."""
    bounds, there = _gershgorin(ranks, given, psd), given.neighbours(ranks)
    inner, far = _split(given, there)
    near = reordered_if_it_pays(inner, lambda: breadth_first_search(inner)) if given.rows else None
    order = np.arange(given.rows) if near is None else near.order.numpy().astype(np.int64)
    at_boundary = np.zeros(given.rows, dtype=bool)
    at_boundary[far.row] = True
    if far.nnz:
        del near  # as large as the rows
        order = np.concatenate([order[~at_boundary[order]], order[at_boundary[order]]])
        kind = inner.host_indices()[0].dtype
        inner = permuted(inner, torch.from_numpy(order.astype(kind))).operator
    elif near is not None:
        inner = near.operator
    place = np.empty(given.rows, dtype=np.int64)
    place[order] = np.arange(given.rows)

    owner, index = owners(given.starts, there.nodes)
    index = Star(ranks, given.rows, owner, index).copy(place) if ranks.size > 1 else index
    halo = Star(ranks, given.rows, owner, index)
    boundary = int(at_boundary.sum())
    size = boundary + halo.count
    rows, columns = place[far.row] - (given.rows - boundary), far.col - given.rows + boundary
    outer = csr_array((far.data, (rows, columns)), shape=(size, size))
    outer.sort_indices()
    other = SparseOperator(*(torch.from_numpy(part) for part in (outer.indptr, outer.indices, outer.data)))
    vector = None if null_vector is None else torch.from_numpy(null_vector[order])
    return LocalRows(ranks, halo, inner, other, n, bounds=bounds, psd=psd, null_vector=vector), order


def _split(given: Rows, there: Neighbours) -> tuple[SparseOperator, coo_array]:
    """Return the entries in the rows' own columns, and the others; without a copy where there are no others."""
    shape = given.rows, given.rows + there.nodes.size
    whole = csr_array((given.values, there.place(given.col), given.crow), shape=shape)
    far = coo_array(shape)
    if there.nodes.size:
        own = whole.indices < given.rows
        row = np.repeat(np.arange(given.rows, dtype=np.int32), np.diff(given.crow))
        far = coo_array((whole.data[~own], (row[~own], whole.indices[~own])), shape=shape)
        ends = np.cumsum(np.bincount(row[own], minlength=given.rows))
        crow = np.concatenate([[0], ends]).astype(whole.indptr.dtype)
        whole = csr_array((whole.data[own], whole.indices[own], crow), shape=shape)
    if not whole.has_canonical_format:
        whole = whole.copy()
        whole.sum_duplicates()
    return SparseOperator(*(torch.from_numpy(part) for part in (whole.indptr, whole.indices, whole.data))), far


def row_sums(row: np.ndarray, values: np.ndarray, rows: int) -> np.ndarray:
    """Return the sums ``(rows,)`` of the values of each row."""
    return np.bincount(row, weights=values, minlength=rows).astype(np.float64)  # of no rows numpy makes integers


def _gershgorin(ranks: Ranks, given: Rows, psd: bool) -> tuple[float, float]:
    start, low, high = int(given.starts[ranks.rank]), -np.inf, -np.inf
    for first, end, row, part in given.pieces():
        values = given.values[part]
        own = given.col[part] == row + (start + first)
        diagonal = row_sums(row[own], values[own], end - first)
        radius = row_sums(row, np.abs(values), end - first) - np.abs(diagonal)
        low, high = max(low, float((radius - diagonal).max())), max(high, float((diagonal + radius).max()))
    low, high = ranks.largest([low, high])
    return (max(0.0, -low) if psd else -low), high
