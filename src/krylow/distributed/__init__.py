r"""One graph that ranks share over MPI, on PETSc: the same calls as on one machine.

Every rank runs the same program, ``mpiexec -n 4 python solve.py``, and holds some of the nodes:

.. code-block:: python

    import krylow as kl

    G = kl.distributed.load("graph.petsc")  # which krylow shard, or kl.distributed.shard, writes
    sub = kl.subspace(G, k=10)  # sub.basis holds this rank's rows, G.start the first of them
    y = kl.lowpass(G, x_of_my_rows, k=10)

PETSc partitions the graph and exchanges rows; the solvers are krylow's own (:mod:`krylow.operators.distributed`).
petsc4py and mpi4py have to be there; pip does not install them with krylow (docs/scale.md).
"""

from __future__ import annotations

import os
from typing import Any

import numpy as np

from krylow._checks import InputError
from krylow.distributed._laplacian import laplacian_of_rows
from krylow.distributed._slepc import Slepc
from krylow.distributed._solve import ShardedSubspace
from krylow.io.petsc import header, read_rows
from krylow.io.shards import shard
from krylow.operators._ranks import Ranks, mpi, petsc
from krylow.operators.distributed import Rows
from krylow.operators.partition import DistributedOperator

__all__ = ["DistributedOperator", "ShardedSubspace", "Slepc", "from_local_rows", "from_petsc", "load", "shard"]


def load(
    path: str | os.PathLike[str], *, comm: Any = None, kind: str | None = None, partition: bool | None = None
) -> DistributedOperator:
    """Return the Laplacian of a graph in a file, of which each rank reads rows with about as many entries.

    Parameters
    ----------
    path
        The adjacency in PETSc's binary form, as ``krylow shard`` writes it.
    comm, kind, partition
        As for :func:`from_local_rows`.

    Raises
    ------
    InputError
        Where the file is none, or a part of one; where ranks see different files; where PETSc is missing.
    """
    petsc()
    ranks = Ranks(mpi().COMM_WORLD if comm is None else comm)
    seen: Any = None
    try:
        seen = header(path)
    except (OSError, InputError) as error:
        seen = f"rank {ranks.rank} cannot read {os.fspath(path)!r}: {getattr(error, 'strerror', None) or error}"
    every = ranks.comm.allgather(seen)
    ranks.fail_together(seen if isinstance(seen, str) else None)
    other = next((rank for rank, one in enumerate(every) if one != every[0]), None)
    if other is not None:
        raise InputError(
            f"ranks see different files at {os.fspath(path)!r}: {every[0].rows} nodes and {every[0].entries} entries "
            f"on rank 0, {every[other].rows} and {every[other].entries} on rank {other}, or other content. Put "
            "the same file where all of them see it."
        )
    return laplacian_of_rows(ranks, _read(ranks, path), every[0].rows, kind, partition)


def _read(ranks: Ranks, path: str | os.PathLike[str]) -> Rows:
    """Return this rank's rows of a file; nothing else holds them."""
    problem, parts = None, (np.zeros(1), np.zeros(0), np.zeros(0))
    try:
        parts = read_rows(path, ranks.rank, ranks.size)
    except (OSError, InputError) as error:
        problem = str(error)
    ranks.fail_together(problem)
    return _rows(ranks, *parts)


def from_local_rows(
    crow: Any,
    col: Any,
    values: Any = None,
    *,
    comm: Any = None,
    kind: str | None = None,
    partition: bool | None = None,
) -> DistributedOperator:
    """Return the Laplacian of a graph of which each rank holds some rows of the adjacency, in the order of the ranks.

    Parameters
    ----------
    crow
        ``(rows + 1,)`` row pointers of this rank's rows; a rank may have none.
    col
        ``(entries,)`` columns, nodes numbered over all ranks.
    values
        ``(entries,)`` weights, both directions of every edge. None: ones.
    comm
        The communicator of mpi4py. None: all ranks.
    kind
        As for :func:`krylow.laplacian`; "given" says that the rows are those of a Laplacian, or of another symmetric
        matrix, already.
    partition
        Whether rows move to other ranks for the time of the solve, so that neighbours lie together. None: where more
        than a few entries connect ranks. Answers are those of the rows as they were given, in any case.

    Raises
    ------
    InputError
        Where a rank's rows are no rows of a symmetric matrix, or PETSc is missing.
    """
    petsc()
    ranks = Ranks(mpi().COMM_WORLD if comm is None else comm)
    given = _rows(ranks, crow, col, values)
    return laplacian_of_rows(ranks, given, int(_total(ranks, given.rows)), kind, partition)


def from_petsc(mat: Any, *, kind: str | None = None, partition: bool | None = None) -> DistributedOperator:
    """Return the Laplacian of a graph whose adjacency is a PETSc matrix (petsc4py, AIJ), with its ownership of rows.

    Parameters
    ----------
    mat
        The matrix; it is copied.
    kind, partition
        As for :func:`from_local_rows`.
    """
    petsc()
    n, columns = mat.getSize()
    if n != columns:
        raise InputError(f"the matrix must be square, got {n} rows and {columns} columns.")
    ranks = Ranks(mat.getComm().tompi4py())
    given = _rows(ranks, *mat.getValuesCSR())
    return laplacian_of_rows(ranks, given, n, kind, partition)


def _rows(ranks: Ranks, crow: Any, col: Any, values: Any) -> Rows:
    crow, col = np.ascontiguousarray(crow, dtype=np.int64), np.ascontiguousarray(col)
    wrong = crow.ndim != 1 or crow.size == 0 or col.ndim != 1
    ranks.fail_together("crow and col must be vectors, crow with one entry more than rows." if wrong else None)
    values = np.ones(col.size) if values is None else np.ascontiguousarray(values, dtype=np.float64)
    counts = np.array(ranks.comm.allgather(crow.size - 1), dtype=np.int64)
    short = col.dtype == np.int32 and counts.sum() < 2**31
    return Rows(crow, col if short else col.astype(np.int64), values, np.cumsum(counts) - counts)


def _total(ranks: Ranks, count: int) -> int:
    return int(sum(ranks.comm.allgather(count)))
