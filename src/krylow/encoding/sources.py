"""Data sets as tasks, each of which reads its own graphs batch by batch.

A task has a ``name``, which its file in the output gets, and a ``fingerprint`` of what it reads.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import torch
from torch import Tensor

from krylow._checks import InputError
from krylow.integrations._union import Graphs
from krylow.io.graphs import GRAPHS, read_graph


@dataclass(frozen=True)
class Settings:
    """How much is read at once."""

    rows: int = 16_384  # graphs a batch of a Parquet file
    graphs: int = 16_384  # graphs a task of a data set in memory
    files: int = 256  # graphs a task of a folder of graph files
    most_nodes: int = 10_000_000  # of one graph


SETTINGS = Settings()


@dataclass(frozen=True)
class Batch:
    """Graphs with their names, and the names and faults of those that cannot be read."""

    ids: Any  # pyarrow array
    graphs: Graphs
    rejected: list[tuple[Any, str]]


class Task(Protocol):
    """What one output file is made of."""

    @property
    def name(self) -> str:
        """Of its output file."""

    @property
    def fingerprint(self) -> str:
        """Of what it reads."""

    def batches(self, edges: str) -> Iterator[Batch]:
        """Read its graphs; ``edges`` says whether tables list an edge once or in both directions."""


def tasks_of(dataset: Any) -> tuple[int, Iterable[Task]]:
    """Return how many tasks a data set makes, and the tasks."""
    if not isinstance(dataset, (str, Path)):
        return _of_memory(dataset)
    path = Path(dataset)
    if path.is_file() and path.suffix != ".parquet":
        raise InputError(f"a data set must be Parquet files, a folder of graphs or a PyG data set, got {path.name!r}.")
    if not path.exists():
        raise InputError(f"no file or folder of this name: {str(path)!r}.")
    parquet = [path] if path.is_file() else sorted(path.rglob("*.parquet"))
    if parquet:
        root = path.parent if path.is_file() else path
        tasks = [task for file in parquet for task in _of_parquet(file, root)]
        return len(tasks), tasks
    files = sorted(file for file in path.iterdir() if "".join(file.suffixes[:1]) in GRAPHS)
    if not files:
        raise InputError(
            f"a data set must hold .parquet files or graphs ({', '.join(GRAPHS)}), got none in {str(path)!r}."
        )
    parts = [tuple(files[i : i + SETTINGS.files]) for i in range(0, len(files), SETTINGS.files)]
    return len(parts), [FilesTask(part, f"files-{i:05d}") for i, part in enumerate(parts)]


def _stamp(path: Path) -> str:
    state = path.stat()
    return f"{path.name} {state.st_size} {state.st_mtime_ns}"


def _of_parquet(file: Path, root: Path) -> list[ParquetTask]:
    stem = "--".join(file.relative_to(root).with_suffix("").parts)
    try:
        groups = pq.read_metadata(file).num_row_groups
    except (pa.ArrowException, OSError):
        return [ParquetTask(file, None, stem)]  # says so itself
    return [ParquetTask(file, group, f"{stem}-{group:05d}") for group in range(groups)]


@dataclass(frozen=True)
class ParquetTask:
    """One row group: ``id``, ``num_nodes``, ``src``, ``dst`` and perhaps ``weight``, the last three lists."""

    path: Path
    row_group: int | None
    name: str

    @property
    def fingerprint(self) -> str:
        """Name, size and time of the file."""
        return f"{_stamp(self.path)} {self.row_group}"

    def batches(self, edges: str) -> Iterator[Batch]:
        """Read the graphs from Arrow's offsets, without an object for each."""
        try:
            file = pq.ParquetFile(self.path)
            columns = _columns(file.schema_arrow)
            groups = [] if self.row_group is None else [self.row_group]
            for rows in file.iter_batches(SETTINGS.rows, row_groups=groups, columns=columns):
                yield _of_rows(rows, edges)
        except (pa.ArrowException, OSError) as error:
            raise InputError(f"{self.path.name!r} cannot be read as Parquet: {error}") from None


def _columns(schema: pa.Schema) -> list[str]:
    wanted = ["id", "num_nodes", "src", "dst"]
    missing = [name for name in wanted if name not in schema.names]
    if missing:
        raise InputError(f"a table of graphs must have the columns id, num_nodes, src, dst, got none named {missing}.")
    number = schema.field("num_nodes").type
    if not pa.types.is_integer(number):
        raise InputError(f"num_nodes must be whole numbers, got {number}.")
    wanted += ["weight"] if "weight" in schema.names else []
    for name in wanted[2:]:
        kind = schema.field(name).type
        listed = pa.types.is_list(kind) or pa.types.is_large_list(kind)
        good = pa.types.is_integer if name != "weight" else lambda t: pa.types.is_floating(t) or pa.types.is_integer(t)
        if not listed or not good(kind.value_type):
            raise InputError(f"{name} must be a list of numbers for each graph, got {kind}.")
    return wanted


def _of_rows(rows: pa.RecordBatch, edges: str) -> Batch:
    lists = {name: rows.column(name) for name in rows.schema.names[2:]}
    lengths = {name: pc.fill_null(pc.list_value_length(part), -1).to_numpy() for name, part in lists.items()}
    sizes = pc.fill_null(rows.column("num_nodes").cast(pa.int64()), -1).to_numpy()
    faults = np.full(len(sizes), "", dtype=object)
    for name, count in lengths.items():
        faults[count != lengths["src"]] = f"src and {name} must have as many entries"
        faults[count < 0] = f"{name} is missing"
    faults[sizes < 0] = "num_nodes must be at least 0, and must be there"
    faults[sizes > SETTINGS.most_nodes] = f"a graph of more than {SETTINGS.most_nodes} nodes is one for kl.subspace"
    faults[_with_nulls(lists)] = "an edge must have its nodes and its weight, got null"
    good = faults == ""
    ids = rows.column("id")
    rejected = [(ids[int(i)].as_py(), str(faults[i])) for i in np.flatnonzero(~good)]
    keep = pa.array(good)
    index = torch.from_numpy(np.stack([_flat(lists[name].filter(keep), np.int64) for name in ("src", "dst")]))
    weight = None
    if "weight" in lists:
        kind = np.float64 if lists["weight"].type.value_type == pa.float64() else np.float32
        weight = torch.from_numpy(_flat(lists["weight"].filter(keep), kind))
    counts = torch.from_numpy(lengths["src"][good].astype(np.int64))
    graphs = Graphs(index, weight, torch.from_numpy(sizes[good].astype(np.int64)), counts)
    return Batch(ids.filter(keep), _both_directions(graphs) if edges == "once" else graphs, rejected)


def _with_nulls(lists: dict[str, Any]) -> np.ndarray:
    """Return which graphs have an entry that is null."""
    found = np.zeros(len(next(iter(lists.values()))), dtype=bool)
    for part in lists.values():
        if part.flatten().null_count:
            parents, null = pc.list_parent_indices(part).to_numpy(), pc.is_null(part.flatten())
            found[parents[null.to_numpy(zero_copy_only=False)]] = True
    return found


def _flat(part: Any, dtype: Any) -> np.ndarray:
    return part.flatten().to_numpy(zero_copy_only=False).astype(dtype)


def _both_directions(graphs: Graphs) -> Graphs:
    """Return graphs whose edges were listed once with both directions of each."""
    row, col = graphs.index
    other = row != col
    graph = torch.repeat_interleave(graphs.counts)
    graph, order = torch.cat([graph, graph[other]]).sort(stable=True)
    index = torch.cat([graphs.index, graphs.index.flip(0)[:, other]], dim=1)[:, order]
    weight = None if graphs.weight is None else torch.cat([graphs.weight, graphs.weight[other]])[order]
    return Graphs(index, weight, graphs.sizes, torch.bincount(graph, minlength=graphs.sizes.numel()))


@dataclass(frozen=True)
class FilesTask:
    """Files of one graph each, named by their file."""

    paths: tuple[Path, ...]
    name: str

    @property
    def fingerprint(self) -> str:
        """Names, sizes and times of the files."""
        return hashlib.sha256("\n".join(map(_stamp, self.paths)).encode()).hexdigest()

    def batches(self, edges: str) -> Iterator[Batch]:
        """Read the graphs; both directions of an edge are in what a reader returns."""
        found, rejected = [], []
        for path in self.paths:
            try:
                found.append((path.name, read_graph(path).adjacency.tocoo()))
            except (InputError, OSError) as error:
                rejected.append((path.name, str(error)))
        parts = [W for _, W in found]
        index = np.concatenate([np.zeros((2, 0), np.int64), *(np.stack(W.coords) for W in parts)], axis=1)
        weight = np.concatenate([np.zeros(0), *(W.data for W in parts)])
        numbers = torch.tensor([[W.shape[0] for W in parts], [W.nnz for W in parts]], dtype=torch.int64)
        graphs = Graphs(torch.from_numpy(index.astype(np.int64)), torch.from_numpy(weight), *numbers)
        yield Batch(pa.array([name for name, _ in found], pa.string()), graphs, rejected)


@dataclass(frozen=True)
class MemoryTask:
    """Graphs of a PyG data set, named by their number."""

    first: int
    graphs: Graphs

    @property
    def name(self) -> str:
        """The number of the first graph."""
        return f"graphs-{self.first:09d}"

    @property
    def fingerprint(self) -> str:
        """A hash of all numbers."""
        parts = (self.graphs.index, self.graphs.sizes, self.graphs.counts, self.graphs.weight)
        numbers = [part.contiguous().numpy().tobytes() for part in parts if part is not None]
        return hashlib.sha256(b"".join(numbers)).hexdigest()

    def batches(self, edges: str) -> Iterator[Batch]:
        """Return them all."""
        count = self.graphs.sizes.numel()
        yield Batch(pa.array(np.arange(self.first, self.first + count)), self.graphs, [])


def _of_memory(dataset: Any) -> tuple[int, Iterable[Task]]:
    """Return the tasks of a PyG data set, or of any sequence of its ``Data``."""
    try:
        count = len(dataset)
    except TypeError:
        raise InputError(f"a data set must be a path or a PyG data set, got {type(dataset).__name__}.") from None
    starts = range(0, count, SETTINGS.graphs)
    return len(starts), (_part(dataset, start, min(start + SETTINGS.graphs, count)) for start in starts)


def _part(dataset: Any, start: int, stop: int) -> MemoryTask:
    items = [dataset[i] for i in range(start, stop)]
    weights = [_field(item, "edge_weight") for item in items]
    weight: Tensor | None = None
    if any(each is not None for each in weights):
        if any(each is None for each in weights):
            raise InputError("either all graphs of a data set have an edge_weight or none, got both.")
        weight = torch.cat([each for each in weights if each is not None])
    index = torch.cat([torch.zeros(2, 0, dtype=torch.int64), *(item.edge_index for item in items)], dim=1)
    numbers = [[item.num_nodes for item in items], [item.edge_index.shape[1] for item in items]]
    return MemoryTask(start, Graphs(index, weight, *torch.tensor(numbers, dtype=torch.int64)))


def _field(item: Any, name: str) -> Tensor | None:
    found = getattr(item, name, None)
    return None if found is None else found.detach().reshape(-1)
