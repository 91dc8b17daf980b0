"""What ranks do together over MPI: sums, decisions, and the exchange of the rows that neighbours need."""

from __future__ import annotations

import io
import pickle
import sys
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from krylow._checks import InputError

MISSING = (
    "graphs shared by ranks need petsc4py and mpi4py, which pip does not install with krylow: "
    "conda install -c conda-forge petsc4py slepc4py mpi4py, or see docs/scale.md for Debian and a container."
)


def mpi() -> Any:
    """Return mpi4py's MPI, or say how it is installed."""
    return _imported("mpi4py", "MPI")


def petsc() -> Any:
    """Return petsc4py's PETSc, or say how it is installed."""
    mpi()  # which has to begin first, so that its communicators are PETSc's
    return _imported("petsc4py", "PETSc")


def _imported(package: str, module: str) -> Any:
    try:
        return getattr(__import__(package, fromlist=[module]), module)
    except ImportError as error:
        raise InputError(f"{MISSING} (importing {package}: {error})") from None


class Ranks:
    """The reducer of a solve over the ranks of a communicator (:class:`krylow._reduce.Reducer`).

    Attributes
    ----------
    reductions
        Sums and decisions so far: what every rank waits for.
    sent
        Bytes of halo rows that this rank has received so far.
    """

    def __init__(self, comm: Any) -> None:
        self.comm, self.rank, self.size = comm, comm.rank, comm.size
        if self.size > 1:
            _abort_on_errors(comm)
        self.reductions, self.sent = 0, 0

    def sum(self, parts: list[Tensor]) -> list[Tensor]:
        """Return the sums over all ranks, made in float64 in one message."""
        if self.size == 1:
            return parts
        self.reductions += 1
        flat = torch.cat([part.reshape(-1).double() for part in parts]).numpy()
        self.comm.Allreduce(mpi().IN_PLACE, flat)
        pieces = torch.from_numpy(flat).split([part.numel() for part in parts])
        return [piece.reshape(part.shape).to(part.dtype) for piece, part in zip(pieces, parts, strict=True)]

    def largest(self, values: list[float]) -> list[float]:
        """Return the largest of each value over all ranks."""
        if self.size == 1:
            return values
        self.reductions += 1
        found = np.array(values, dtype=np.float64)
        self.comm.Allreduce(mpi().IN_PLACE, found, mpi().MAX)
        return [float(value) for value in found]

    def agree(self, value: Any) -> Any:
        """Return the first rank's value."""
        if self.size == 1:
            return value
        self.reductions += 1
        return pickle.loads(self.comm.bcast(_packed(value) if self.rank == 0 else None))  # noqa: S301 (of a rank of the same program)

    def stack(self, part: Tensor) -> tuple[Tensor, int]:
        """Return all ranks' rows of a small matrix, and where this rank's begin."""
        parts = self.comm.allgather(part.numpy())
        return torch.from_numpy(np.concatenate(parts)), sum(len(rows) for rows in parts[: self.rank])

    def gather(self, part: np.ndarray) -> np.ndarray:
        """Return the rows of all ranks, one rank's after the other's, on every rank."""
        if self.size == 1:
            return part
        part = np.ascontiguousarray(part)
        width = int(np.prod(part.shape[1:], dtype=np.int64))
        counts = np.array(self.comm.allgather(part.shape[0]))
        out = np.empty((counts.sum(), *part.shape[1:]), part.dtype)
        row = _unit(part.dtype, width)
        self.comm.Allgatherv([part, part.shape[0], row], [out, counts, np.cumsum(counts) - counts, row])
        return out

    def fail_together(self, problem: str | None) -> None:
        """Raise the first rank's problem that there is on all ranks, so that none waits for one that has left."""
        found = [text for text in self.comm.allgather(problem) if text]
        if found:
            raise InputError(found[0])


def _abort_on_errors(comm: Any) -> None:
    """Let an exception that nobody catches on one rank end the whole job, which would wait for that rank for ever."""
    if getattr(sys.excepthook, "ends_job", False):
        return
    former = sys.excepthook

    def report(*raised: Any) -> None:
        former(*raised)
        sys.stdout.flush()
        sys.stderr.flush()
        comm.Abort(1)

    report.ends_job = True  # type: ignore[attr-defined]
    sys.excepthook = report


class _Packer(pickle.Pickler):
    """Packs small tensors as numpy arrays, a tenth of the time of torch's own way."""

    def reducer_override(self, value: Any) -> Any:
        if isinstance(value, Tensor):
            return torch.from_numpy, (value.detach().cpu().numpy(),)
        return NotImplemented


def _packed(value: Any) -> bytes:
    buffer = io.BytesIO()
    _Packer(buffer, protocol=pickle.HIGHEST_PROTOCOL).dump(value)
    return buffer.getvalue()


_units: dict[tuple[str, int], Any] = {}


def _unit(dtype: Any, width: int) -> Any:
    """Return MPI's type of a row."""
    name = np.dtype(dtype).str, width
    if name not in _units:
        base = mpi()._typedict[np.dtype(dtype).char]
        _units[name] = base.Create_contiguous(width).Commit()
    return _units[name]


class Star:
    """Rows that this rank reads and others own: a PetscSF from the owners' rows to copies of them.

    Parameters
    ----------
    ranks
        The ranks.
    rows
        Rows that this rank owns.
    owner, index
        ``(copies,)`` who owns each copied row, and where it is there.
    """

    def __init__(self, ranks: Ranks, rows: int, owner: np.ndarray, index: np.ndarray) -> None:
        self.ranks, self.rows, self.count = ranks, rows, owner.size
        self._remote = np.stack([owner, index], axis=1).astype(np.int32)

    @cached_property
    def _sf(self) -> Any:
        sf = petsc().SF().create(comm=self.ranks.comm)
        sf.setGraph(self.rows, None, np.ascontiguousarray(self._remote.reshape(-1)))
        return sf

    def begin(self, X: np.ndarray, copies: np.ndarray) -> None:
        """Begin to copy rows of X, which must stay as it is until :meth:`end`."""
        if self.ranks.size > 1:
            self._sf.bcastBegin(self._unit(X), X, copies, mpi().REPLACE)

    def end(self, X: np.ndarray, copies: np.ndarray) -> None:
        """Wait until all copies have arrived."""
        if self.ranks.size > 1:
            self._sf.bcastEnd(self._unit(X), X, copies, mpi().REPLACE)
            self.ranks.sent += copies.nbytes

    def copy(self, X: np.ndarray) -> np.ndarray:
        """Return the copies ``(count, ...)`` of the rows of X."""
        X = np.ascontiguousarray(X)
        copies = np.empty((self.count, *X.shape[1:]), X.dtype)
        if self.ranks.size == 1:
            return X[self._remote[:, 1]]
        self.begin(X, copies)
        self.end(X, copies)
        return copies

    def put(self, copies: np.ndarray) -> np.ndarray:
        """Return owned rows ``(rows, ...)`` from copies, of which each has exactly one."""
        copies = np.ascontiguousarray(copies)
        X = np.empty((self.rows, *copies.shape[1:]), copies.dtype)
        if self.ranks.size == 1:
            X[self._remote[:, 1]] = copies
            return X
        unit = self._unit(X)
        self._sf.reduceBegin(unit, copies, X, mpi().REPLACE)
        self._sf.reduceEnd(unit, copies, X, mpi().REPLACE)
        return X

    @staticmethod
    def _unit(X: np.ndarray) -> Any:
        return _unit(X.dtype, int(np.prod(X.shape[1:], dtype=np.int64)))


def owners(starts: np.ndarray, nodes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return who owns nodes, and where they are there, if each rank owns those from its start to the next one's."""
    owner = np.searchsorted(starts, nodes, side="right") - 1
    return owner, nodes - starts[owner]
