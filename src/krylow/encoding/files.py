"""From a data set of graphs to files of encodings."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from concurrent.futures import Executor
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from torch import Tensor

from krylow import _checks
from krylow._checks import InputError
from krylow.encoding.engines import completed, executor_of
from krylow.encoding.sources import Batch, Task, tasks_of
from krylow.integrations._frequencies import fixed_signs
from krylow.integrations._union import Graphs, low_frequencies
from krylow.io.atomic import whole_file

_OWN = b"krylow.encoding"


@dataclass(frozen=True)
class Encoded:
    """What :func:`encode` has done.

    Attributes
    ----------
    out
        The folder.
    graphs, rejected
        Encoded graphs, and those that could not be, finished earlier or now.
    files, kept
        Output files, and those among them that an earlier call had finished.
    """

    out: Path
    graphs: int
    rejected: int
    files: int
    kept: int


@dataclass(frozen=True)
class Settings:
    """What an encoding depends on, beside the graphs."""

    k: int
    edges: str
    tol: float


class _Done(NamedTuple):
    graphs: int
    rejected: int
    kept: bool


def encode(
    dataset: Any,
    out: str | os.PathLike[str],
    k: int = 8,
    *,
    engine: str | Executor = "local",
    workers: int = 1,
    address: str | None = None,
    edges: str = "both",
    tol: float = 1e-6,
    callback: Callable[[int, int], None] | None = None,
) -> Encoded:
    r"""Write the k lowest non-trivial frequencies of every graph of a data set to Parquet files.

    As :class:`krylow.integrations.pyg.AddLowFrequencyPE`: of $I - D^{-1/2} W D^{-1/2}$, without the trivial frequency,
    the first of the largest entries of each vector positive, columns that a small graph does not have zero.

    The same call goes on after whatever has stopped it: a file is there whole or not at all, and those that are there
    are kept. A graph that cannot be encoded does not stop the others; it is in ``out/rejects`` with the reason.

    Parameters
    ----------
    dataset
        A Parquet file, or a folder of them, with the columns ``id``, ``num_nodes``, ``src``, ``dst`` and, if edges have
        weights, ``weight``; a folder of files of one graph each, as :func:`krylow.io.read_graph` reads them; or a PyG
        data set.
    out
        The folder of the results, one file for each row group: ``id``, ``eigenvalues`` (ascending; fewer than k for
        graphs of at most k nodes) and ``encoding``, n rows of k numbers. A graph's number, or its file's name, is its
        id where the data set has none.
    k
        Number of frequencies.
    engine
        "local": in this process, or in ``workers`` processes. "ray": tasks of Ray (extra ``cluster``), whose workers
        may die. Or any ``concurrent.futures.Executor``, such as those of Dask and ``mpi4py.futures``, whose workers see
        the files.
    workers
        How many tasks run at a time.
    address
        Of a running Ray. None: one of its own on this machine.
    edges
        "both": tables list both directions of each edge, as PyG does. "once": they list one.
    tol
        Of graphs beyond 700 nodes, as in :func:`krylow.subspace`. Smaller ones are decomposed.
    callback
        Called with the number of tasks that are done, and of all.

    Returns
    -------
    Encoded
        How many graphs were encoded and rejected.

    Examples
    --------
    >>> import tempfile, pyarrow as pa, pyarrow.parquet as pq
    >>> folder = tempfile.mkdtemp()
    >>> path = {"id": ["p"], "num_nodes": [3], "src": [[0, 1, 1, 2]], "dst": [[1, 0, 2, 1]]}
    >>> pq.write_table(pa.table(path), f"{folder}/graphs.parquet")
    >>> encode(f"{folder}/graphs.parquet", f"{folder}/out", k=2).graphs
    1
    >>> pq.read_table(f"{folder}/out")["eigenvalues"][0].as_py()
    [1.0, 2.0]
    """
    settings = Settings(_checks.count(k, "k"), _checks.choice(edges, ("both", "once"), "edges"), float(tol))
    _checks.positive(tol, "tol")
    workers = _checks.count(workers, "workers")
    count, tasks = tasks_of(dataset)
    folder = Path(out)
    (folder / "rejects").mkdir(parents=True, exist_ok=True)
    total = _Done(0, 0, False)
    kept = 0
    with executor_of(engine, workers, address) as executor:
        work = partial(run, folder=str(folder.absolute()), settings=settings)
        for number, done in enumerate(completed(work, tasks, executor, workers), 1):
            total = _Done(total.graphs + done.graphs, total.rejected + done.rejected, False)
            kept += done.kept
            if callback is not None:
                callback(number, count)
    with suppress(OSError):
        (folder / "rejects").rmdir()  # there are none
    return Encoded(folder, total.graphs, total.rejected, count, kept)


def run(task: Task, folder: str, settings: Settings) -> _Done:
    """Write the file of one task, unless it is there."""
    torch.set_num_threads(1)  # tasks are the parallelism
    target, rejects = Path(folder, f"{task.name}.parquet"), Path(folder, "rejects", f"{task.name}.parquet")
    try:
        own = {"of": task.fingerprint, **asdict(settings)}
    except OSError as error:
        raise InputError(f"the data set has changed while it was read: {error}") from None
    found = _finished(target, own)
    if found is not None:
        return found
    rejected: list[tuple[Any, str]] = []
    graphs = 0
    with whole_file(target) as file:
        writer = None
        try:
            for batch in task.batches(settings.edges):
                table, bad = _encoded(batch, settings)
                writer = writer or pq.ParquetWriter(file, table.schema)
                writer.write_table(table)
                graphs, rejected = graphs + len(table), [*rejected, *bad]
        except InputError as error:  # of the whole file
            rejected.append((None, str(error)))
        writer = writer or pq.ParquetWriter(file, _schema(pa.string(), settings.k))
        own |= {"graphs": graphs, "rejected": len(rejected)}
        writer.add_key_value_metadata({_OWN.decode(): json.dumps(own)})
        writer.close()
        _write_rejects(rejects, rejected)
    return _Done(graphs, len(rejected), False)


def _finished(target: Path, own: dict[str, Any]) -> _Done | None:
    """Return what a file that is there says of itself, None where it is not there or is one of other graphs."""
    try:
        metadata = pq.read_metadata(target).metadata or {}
    except FileNotFoundError:
        return None
    except (pa.ArrowException, OSError) as error:
        raise InputError(f"{target} is in the way, and cannot be read: {error} Remove it.") from None
    if _OWN not in metadata:
        raise InputError(f"{target} is in the way, and not by krylow: choose another folder for the results.")
    found = json.loads(metadata[_OWN])
    for name in ("k", "edges", "tol"):
        if found[name] != own[name]:
            raise InputError(
                f"the folder holds encodings of {name} = {found[name]}, asked for was {own[name]}: choose another."
            )
    return _Done(found["graphs"], found["rejected"], True) if found["of"] == own["of"] else None


def _write_rejects(path: Path, rejected: list[tuple[Any, str]]) -> None:
    if not rejected:
        path.unlink(missing_ok=True)
        return
    names = [None if name is None else str(name) for name, _ in rejected]
    table = pa.table({"id": pa.array(names, pa.string()), "reason": [reason for _, reason in rejected]})
    with whole_file(path) as file:
        pq.write_table(table, file)


def _schema(ids: pa.DataType, k: int) -> pa.Schema:
    row = pa.list_(pa.float32(), k)
    return pa.schema([("id", ids), ("eigenvalues", pa.list_(pa.float32())), ("encoding", pa.list_(row))])


def _encoded(batch: Batch, settings: Settings) -> tuple[pa.Table, list[tuple[Any, str]]]:
    """Return the table of a batch, and the names and faults of graphs that are not in it."""
    graphs, k = batch.graphs, settings.k
    first = graphs.sizes.cumsum(0) - graphs.sizes
    encoding = torch.zeros(int(graphs.sizes.sum()), k)
    values = torch.full((graphs.sizes.numel(), k), torch.nan)
    faults: dict[int, str] = {}
    for members, basis, theta, advice in _tolerant(graphs, torch.arange(graphs.sizes.numel()), settings, faults):
        if advice:
            faults |= dict.fromkeys(members.tolist(), advice)
            continue
        shown = fixed_signs(basis)
        place = torch.arange(basis.shape[1])
        real = place < graphs.sizes[members, None]
        encoding[(first[members, None] + place)[real], : shown.shape[2]] = shown[real].float()
        values[members, : theta.shape[1]] = theta.float()
    rejected = [*batch.rejected, *((batch.ids[i].as_py(), text) for i, text in sorted(faults.items()))]
    good = np.ones(len(values), dtype=bool)
    good[list(faults)] = False
    there = ~values.isnan().numpy()
    schema = _schema(batch.ids.type, k)
    kind = schema.field("encoding").type
    rows = pa.FixedSizeListArray.from_arrays(pa.array(encoding.numpy().ravel()), type=kind.value_type)
    lists = [
        pa.ListArray.from_arrays(_offsets(there.sum(1)), pa.array(values.numpy()[there])),
        pa.ListArray.from_arrays(_offsets(graphs.sizes.numpy()), rows, type=kind),
    ]
    table = pa.Table.from_arrays([batch.ids, *lists], schema=schema)
    return (table if good.all() else table.filter(pa.array(good))), rejected


def _offsets(counts: np.ndarray) -> pa.Array:
    return pa.array(np.concatenate([[0], counts.cumsum()]).astype(np.int32))


def _tolerant(
    graphs: Graphs, which: Tensor, settings: Settings, faults: dict[int, str]
) -> Iterator[tuple[Tensor, Tensor, Tensor, str | None]]:
    """Yield the frequencies of graphs; where one is refused, those of each half, so that the others are there."""
    if which.numel() == 0:
        return
    try:
        found = list(low_frequencies(graphs.take(which), settings.k, tol=settings.tol))
    except (InputError, MemoryError, RuntimeError) as error:
        if which.numel() == 1:
            faults[int(which)] = " ".join(str(error).split()) or type(error).__name__
            return
        for half in which.tensor_split(2):
            yield from _tolerant(graphs, half, settings, faults)
        return
    for group in found:
        yield which[group.members], group.basis, group.values, group.advice
