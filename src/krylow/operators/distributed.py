r"""One sparse symmetric matrix whose rows lie on several ranks.

PETSc partitions the graph and exchanges rows; the product of the local rows is krylow's own kernel. On each rank the
rows without a neighbour elsewhere come first, in an order that is near in memory, and those at the boundary last, so
that $L X$ is the product with the diagonal block, which needs no other rank and runs while copies of the neighbours'
rows (the halo) are on their way, plus that of the boundary rows with these.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from scipy.sparse import coo_array, csr_array
from scipy.sparse.csgraph import connected_components
from torch import Tensor

from krylow._memory import empty
from krylow._reduce import reducing, summed
from krylow.operators._ranks import Ranks, Star, owners
from krylow.operators.base import Operator, Scalar
from krylow.operators.ordering import breadth_first_search, components_of, permuted, reordered_if_it_pays
from krylow.operators.sparse import SparseOperator


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

    @cached_property
    def local_matrix(self) -> csr_array:
        """The local rows ``(rows, rows + halo)`` as a scipy matrix, made when asked for."""
        crow, col = self.diagonal_block.host_indices()
        inner = csr_array((self.diagonal_block.values.numpy(), col, crow), shape=(self.rows, self.rows)).tocoo()
        crow, col = self.outer.host_indices()
        outer = csr_array((self.outer.values.numpy(), col, crow), shape=(self.outer.n, self.outer.n)).tocoo()
        shift = self.rows - self.boundary
        places = [np.concatenate(pair) for pair in ((inner.row, outer.row + shift), (inner.col, outer.col + shift))]
        values = np.concatenate([inner.data, outer.data])
        return csr_array(coo_array((values, tuple(places)), shape=(self.rows, self.rows + self.halo.count)))

    def null_rows(self, x: np.ndarray | None = None) -> tuple[np.ndarray, bool]:
        """Return where L x is zero up to rounding, x > 0 (None: ones), and if an entry off the diagonal is positive."""
        W, x = self.local_matrix, np.ones(self.rows) if x is None else x
        x = np.concatenate([x, self.halo.copy(x)])
        slack = (np.diff(W.indptr) + 8) * torch.finfo(self.dtype).eps
        within = np.abs(W @ x) <= slack * (abs(W) @ x)
        positive = self.outer.values.numel() and float(self.outer.values.max()) > 0
        if not positive:
            crow, col = self.diagonal_block.host_indices()
            own = np.repeat(np.arange(self.rows), np.diff(crow)) == col
            positive = bool((self.diagonal_block.values.numpy()[~own] > 0).any())
        return within, bool(positive)

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
    """Rows ``start`` to ``start + rows`` of a symmetric matrix on this rank, their columns numbered over all ranks."""

    crow: np.ndarray
    col: np.ndarray
    values: np.ndarray
    starts: np.ndarray  #: ``(ranks,)`` the first row of each rank

    @property
    def rows(self) -> int:
        """Rows of this rank."""
        return self.crow.size - 1


def local_rows(
    ranks: Ranks, given: Rows, n: int, *, psd: bool, null_vector: np.ndarray | None = None
) -> tuple[LocalRows, np.ndarray]:
    """Return the operator of given rows, put in an order of its own, and that order, ``order[new] = old``."""
    start = int(given.starts[ranks.rank])
    row = np.repeat(np.arange(given.rows, dtype=np.int32), np.diff(given.crow))
    own = (given.col >= start) & (given.col < start + given.rows)
    bounds = _gershgorin(ranks, given, row, start, psd)
    block = csr_array((given.values[own], (row[own], given.col[own] - start)), shape=(given.rows, given.rows))
    inner = SparseOperator(*(torch.from_numpy(part) for part in (block.indptr, block.indices, block.data)))
    near = reordered_if_it_pays(inner, lambda: breadth_first_search(inner)) if given.rows else None
    order = np.arange(given.rows) if near is None else near.order.numpy().astype(np.int64)
    at_boundary = np.zeros(given.rows, dtype=bool)
    at_boundary[row[~own]] = True
    order = np.concatenate([order[~at_boundary[order]], order[at_boundary[order]]])
    if given.rows:
        kind = inner.host_indices()[0].dtype
        inner = permuted(inner, torch.from_numpy(order.astype(kind))).operator
    place = np.empty(given.rows, dtype=np.int64)
    place[order] = np.arange(given.rows)

    ghosts, copies = np.unique(given.col[~own], return_inverse=True)
    owner, index = owners(given.starts, ghosts)
    index = Star(ranks, given.rows, owner, index).copy(place) if ranks.size > 1 else index
    halo = Star(ranks, given.rows, owner, index)
    boundary = int(at_boundary.sum())
    size = boundary + ghosts.size
    rows = place[row[~own]] - (given.rows - boundary)
    outer = csr_array((given.values[~own], (rows, copies + boundary)), shape=(size, size))
    outer.sort_indices()
    other = SparseOperator(*(torch.from_numpy(part) for part in (outer.indptr, outer.indices, outer.data)))
    vector = None if null_vector is None else torch.from_numpy(null_vector[order])
    return LocalRows(ranks, halo, inner, other, n, bounds=bounds, psd=psd, null_vector=vector), order


def row_sums(row: np.ndarray, values: np.ndarray, rows: int) -> np.ndarray:
    """Return the sums ``(rows,)`` of the values of each row."""
    return np.bincount(row, weights=values, minlength=rows).astype(np.float64)  # of no rows numpy makes integers


def _gershgorin(ranks: Ranks, given: Rows, row: np.ndarray, start: int, psd: bool) -> tuple[float, float]:
    own = given.col == row + start
    sizes = row_sums(row, np.abs(given.values), given.rows)
    diagonal = row_sums(row[own], given.values[own], given.rows)
    radius = sizes - np.abs(diagonal)
    low, high = (np.max(part, initial=-np.inf) for part in (radius - diagonal, diagonal + radius))
    low, high = ranks.largest([float(low), float(high)])
    return (max(0.0, -low) if psd else -low), high
