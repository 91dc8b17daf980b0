"""A matrix as its user has spread it over ranks, and as it is partitioned for the products.

Rows that are neighbours should lie on one rank: every other neighbour's row crosses the network in every product.
PT-Scotch or ParMETIS, through PETSc, find such a partition; rows move there, and answers move back.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from krylow._checks import InputError
from krylow._reduce import reducing
from krylow.operators._ranks import Ranks, Star, owners, petsc
from krylow.operators.base import Operator
from krylow.operators.distributed import LocalRows, Rows, local_rows
from krylow.operators.sparse import SparseOperator

#: Partitioners in the order in which they are looked for in PETSc.
PARTITIONERS = ("ptscotch", "parmetis")


@dataclass(frozen=True)
class PartitionSettings:
    """When and how rows move."""

    few_far: float = 0.02  #: share of entries in columns of other ranks up to which rows stay where they are
    crowded: float = 2.0  #: entries of a rank over its share from which it is said


class DistributedOperator(Operator):
    """A sparse symmetric matrix shared by the ranks of an MPI communicator, as its user has spread it.

    Made by :mod:`krylow.distributed`. A rank holds rows ``start`` to ``start + rows``: blocks are ``(rows, s)``, and
    all that is done with it is done by all ranks together.

    Attributes
    ----------
    start
        The first node of this rank.
    inner
        The same matrix in the order that products are made in.
    notes
        What there is to say of how the ranks share it.
    """

    def __init__(self, inner: LocalRows, start: int, layout: Star, notes: str = "") -> None:
        super().__init__((), inner.n, inner.dtype, inner.device, psd=inner.psd)
        self.inner, self.start, self.layout, self.notes = inner, start, layout, notes

    @property
    def rows(self) -> int:
        """Rows of this rank."""
        return self.layout.rows

    @property
    def ranks(self) -> Ranks:
        """The ranks that share it."""
        return self.inner.ranks

    def together(self) -> AbstractContextManager[None]:
        """Return a context in which sums over nodes are those over all ranks."""
        return reducing(self.ranks)

    def there(self, X: Tensor) -> Tensor:
        """Return rows of a block in the order of ``inner``."""
        return torch.from_numpy(self.layout.copy(X.detach().numpy()))

    def back(self, X: Tensor) -> Tensor:
        """Return rows of a block in the user's order from those in the order of ``inner``."""
        return torch.from_numpy(self.layout.put(X.detach().numpy()))

    def _multiply(self, X: Tensor) -> Tensor:
        return self.back(self.inner._multiply(self.there(X)))

    def diagonal(self) -> Tensor:
        """Return this rank's part of the diagonal, ``(rows,)``."""
        return self.back(self.inner.diagonal())

    def gershgorin(self) -> tuple[Tensor, Tensor]:
        """Return Gershgorin's bounds of the whole matrix."""
        return self.inner.gershgorin()

    def detach(self) -> DistributedOperator:
        """Return the same operator; counters start at zero."""
        return DistributedOperator(self.inner.detach(), self.start, self.layout, self.notes)

    def to_dense(self) -> Tensor:
        """Refuse: no rank holds the matrix."""
        raise InputError(f"no rank holds all {self.n} rows: gathered() returns a small one as an operator on each.")

    def gathered(self) -> SparseOperator:
        """Return the whole matrix on every rank."""
        W = self.inner.local_matrix.tocoo()
        nodes = self.there(torch.arange(self.start, self.start + self.rows)).numpy()
        names = np.concatenate([nodes, self.inner.halo.copy(nodes)])
        parts = [self.ranks.gather(part) for part in (names[W.row], names[W.col], W.data)]
        row, col, values = (torch.from_numpy(np.ascontiguousarray(part)) for part in parts)
        return SparseOperator.from_coo(row, col, values, self.n, psd=self.psd)

    def __repr__(self) -> str:
        return f"DistributedOperator(n={self.n}, rows={self.rows}, rank={self.ranks.rank} of {self.ranks.size})"


def distributed(
    ranks: Ranks,
    given: Rows,
    n: int,
    *,
    psd: bool,
    null_vector: np.ndarray | None = None,
    partition: bool | None = None,
) -> DistributedOperator:
    """Return the operator of given rows; ``partition`` as for :func:`krylow.distributed.load`."""
    settings = PartitionSettings()
    start = int(given.starts[ranks.rank])
    far = float(_total(ranks, np.sum((given.col < start) | (given.col >= start + given.rows))))
    entries = _total(ranks, given.col.size)
    notes, moved, nodes = [], given, np.arange(start, start + given.rows)
    if partition is None:
        partition = ranks.size > 1 and far > settings.few_far * entries
    if partition and ranks.size > 1 and n >= 4 * ranks.size:
        moved, nodes, name = _partitioned(ranks, given, n)
        if null_vector is not None:
            null_vector = Star(ranks, given.rows, *owners(given.starts, nodes)).copy(null_vector)
        notes.append(f"partitioned by {name}" if name else "not partitioned, since PETSc has no partitioner")
    inner, order = local_rows(ranks, moved, n, psd=psd, null_vector=null_vector)
    layout = Star(ranks, given.rows, *owners(given.starts, nodes[order]))
    share = inner.entries * ranks.size / max(1.0, entries)
    most = ranks.largest([share])[0]
    if most > settings.crowded:
        notes.append(f"a rank holds {most:.1f} times its share of the entries, as where a node has very many")
    return DistributedOperator(inner, start, layout, "; ".join(notes))


def _total(ranks: Ranks, count: Any) -> float:
    return float(ranks.sum([torch.tensor([float(count)], dtype=torch.float64)])[0])


def _partitioned(ranks: Ranks, given: Rows, n: int) -> tuple[Rows, np.ndarray, str]:
    """Return the rows after they have moved to their parts, their former numbers, and the partitioner's name."""
    PETSc = petsc()
    sizes = ((given.rows, n), (given.rows, n))
    csr = tuple(part.astype(PETSc.IntType) for part in (given.crow, given.col))
    matrix = PETSc.Mat().createAIJ(size=sizes, csr=(*csr, given.values), comm=ranks.comm)
    name = ""
    for candidate in PARTITIONERS:
        parts, target = PETSc.MatPartitioning().create(comm=ranks.comm), PETSc.IS()
        try:
            parts.setType(candidate)
        except PETSc.Error:
            continue
        parts.setAdjacency(matrix)
        parts.apply(target)
        name = candidate
        break
    if not name:
        matrix.destroy()
        return given, np.arange(given.starts[ranks.rank], given.starts[ranks.rank] + given.rows), ""
    rows = target.buildTwoSided()
    rows.sort()
    nodes = rows.getIndices().astype(np.int64)
    moved = matrix.createSubMatrix(rows, rows)
    matrix.destroy()
    crow, col, values = moved.getValuesCSR()
    starts = np.asarray(moved.getOwnershipRanges()[:-1], dtype=np.int64)
    moved.destroy()
    return Rows(crow.astype(np.int64), col.astype(np.int64), values, starts), nodes, name
