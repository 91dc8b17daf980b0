"""Families of graphs of one size, split for training: what a learned filter is trained and tested on."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from krylow import _checks
from krylow._checks import InputError
from krylow.data.local import DataNotFoundError, data_folder, find_folder
from krylow.data.sbm import sbm
from krylow.data.subgraphs import connected_subgraphs
from krylow.data.tudataset import tudataset
from krylow.io.files import Limit, kind_of, size_of
from krylow.io.graphs import GRAPHS, GraphFile, read_graph

#: Families that a folder without graphs does not hide.
KNOWN = ("sbm", "PROTEINS", "ENZYMES", "NCI1", "DD", "MUTAG")
#: The suffixes that make a file of a folder a graph.
IN_FOLDERS = tuple(kind for kind in GRAPHS if kind != ".txt")


@dataclass(frozen=True)
class GraphFamily:
    """Dense adjacencies of one size, split into three disjoint sets.

    Attributes
    ----------
    name
        What the family is called in records and tables.
    train, validation, test
        Adjacencies ``(count, n, n)``.
    """

    name: str
    train: Tensor
    validation: Tensor
    test: Tensor

    @property
    def n(self) -> int:
        """Number of nodes of every graph."""
        return self.train.shape[-1]

    @property
    def counts(self) -> tuple[int, int, int]:
        """Number of graphs for training, validation and test."""
        return len(self.train), len(self.validation), len(self.test)


def load_family(
    source: str | os.PathLike[str],
    *,
    seed: int = 0,
    n: int | None = None,
    num_graphs: int | None = None,
    communities: int | None = None,
    dtype: torch.dtype | None = None,
    download: bool = True,
    max_size: int | str | None = None,
) -> GraphFamily:
    """Load a family of graphs and split it 60/20/20.

    ==================  ============================================================================  =============
    source              graphs                                                                        split
    ==================  ============================================================================  =============
    "sbm"               the paper's stochastic block model: 50 graphs, 100 nodes, 4 communities       30/10/10
    "PROTEINS"          a TUDataset by name, cut to 50 connected nodes each                           142/48/48
    a folder            all its graphs, in any form of :func:`read_graph` but ``.txt``, of one size    60/20/20
    ==================  ============================================================================  =============

    Parameters
    ----------
    source
        "sbm", the name of any TUDataset, or a folder: a ``Path``, text with a path separator in it, or the name of a
        folder here that holds graphs.
    seed
        Decides the split, and for "sbm" the graphs too.
    n
        Number of nodes of every graph. None: 100 for "sbm", 50 for a TUDataset; a folder's graphs stay as they are.
    num_graphs, communities
        Number of graphs, and of communities in each: for "sbm" only. None: 50 and 4.
    dtype
        float32 or float64. None: torch's default.
    download
        Whether a TUDataset that is not local may be fetched.
    max_size
        The most bytes of memory that reading a file of a folder may take; see :func:`read_graph`.

    Returns
    -------
    GraphFamily
        Equal arguments give equal families.

    Examples
    --------
    >>> load_family("sbm").counts
    (30, 10, 10)
    """
    generator = torch.Generator().manual_seed(seed)
    name = os.fspath(source)
    folder = isinstance(source, os.PathLike) or "/" in name or os.sep in name or _is_own_folder(name)
    if name != "sbm" or folder:
        for option, value in (("num_graphs", num_graphs), ("communities", communities)):
            if value is not None:
                raise InputError(f"{option} must be None for {name!r}, got {value}: it is an option of 'sbm' alone.")
    if folder:
        if n is not None:
            raise InputError(f"n must be None for a folder, whose graphs stay as they are, got {n}.")
        return split_family(Path(name).name, read_folder(name, dtype=dtype, max_size=max_size), generator=generator)
    if name == "sbm":
        graphs = sbm(
            50 if num_graphs is None else num_graphs,
            100 if n is None else n,
            4 if communities is None else communities,
            generator=generator,
            dtype=dtype,
        )
        return split_family(name, graphs, generator=generator)
    _near_miss(name)
    try:
        graphs = connected_subgraphs(tudataset(name, download=download), 50 if n is None else n, dtype=dtype)
    except DataNotFoundError as error:
        raise DataNotFoundError(f"{error} Known families: {_known()}.") from error
    return split_family(name, graphs, generator=generator)


def split_family(name: str, graphs: Tensor, *, generator: torch.Generator | None = None) -> GraphFamily:
    """Shuffle graphs ``(count, n, n)`` and split them 60/20/20: 50 into 30/10/10, 238 into 142/48/48.

    Training takes the floor of 60 %, validation and test halve the rest, and test takes what is odd. ``generator``
    shuffles; None: a fresh one with seed 0.
    """
    graphs = _checks.square(graphs, "graphs")
    if graphs.ndim != 3 or len(graphs) < 3:
        raise InputError(f"graphs must be (count, n, n) with at least 3 to split, got shape {tuple(graphs.shape)}.")
    if generator is None:
        generator = torch.Generator().manual_seed(0)
    order = torch.randperm(len(graphs), generator=generator, device=generator.device).to(graphs.device)
    train = len(graphs) * 6 // 10
    validation = (len(graphs) - train) // 2
    parts = order.split([train, validation, len(graphs) - train - validation])
    return GraphFamily(name, *(graphs[part] for part in parts))


def read_folder(
    folder: str | os.PathLike[str], *, dtype: torch.dtype | None = None, max_size: int | str | None = None
) -> Tensor:
    """Read every graph of a folder as an adjacency, ``(count, n, n)``, in the order of names.

    Graphs are the files that :func:`read_graph` knows by their suffix, but for ``.txt``: those are notes here.
    """
    path = Path(folder)
    if not path.is_dir():
        raise DataNotFoundError(f"the folder {path} does not exist. Known families: {_known()}.")
    files = sorted(file for file in path.iterdir() if kind_of(file) in IN_FOLDERS)
    if not files:
        raise DataNotFoundError(f"the folder {path} must hold graphs as {', '.join(IN_FOLDERS)} files, got none.")
    graphs = [
        torch.from_numpy(_small(read_graph(file, max_size=max_size), file, max_size).toarray()).to(torch.float64)
        for file in files
    ]
    for file, graph in zip(files, graphs, strict=True):
        if graph.shape != graphs[0].shape:
            raise InputError(
                f"the graphs of a folder must have one size, got {graphs[0].shape[0]} nodes in {files[0].name} and "
                f"{graph.shape[0]} in {file.name}: cut them with krylow.data.connected_subgraphs()."
            )
    return torch.stack(graphs).to(torch.get_default_dtype() if dtype is None else dtype)


def _small(graph: GraphFile, file: Path, max_size: int | str | None) -> Any:
    """Return the adjacency of a graph that is small enough to be held as a dense matrix."""
    most = size_of(max_size)
    limit = Limit(file.name, 1 << 30 if most is None else most)
    limit.check(8 * graph.n**2, f"a graph of {graph.n} nodes, each pair of which has an entry here")
    return graph.adjacency


def _known() -> str:
    root = data_folder()
    local = sorted(path.name for path in root.iterdir() if (path / f"{path.name}_A.txt").is_file()) if root else []
    here = f" (local: {', '.join(local)})" if local else ""
    return f"'sbm', any TUDataset by name such as 'PROTEINS' or 'ENZYMES'{here}, or a folder of graphs"


def _is_own_folder(name: str) -> bool:
    """Tell a folder in the working folder from the name of a family: nothing is fetched for one that is there."""
    path = Path(name)
    if name == "sbm" or not name or not path.is_dir():
        return False
    if any(kind_of(file) in IN_FOLDERS for file in path.iterdir()):
        return True
    return name not in KNOWN and not any(path.rglob(f"{name}_A.txt")) and find_folder(name, (f"{name}_A.txt",)) is None


def _near_miss(name: str) -> None:
    """Refuse a wrong spelling of a name we know, before the network is asked for it."""
    for right in KNOWN:
        if name.lower() == right.lower() and name != right:
            raise InputError(f"unknown family {name!r}: did you mean {right!r}? Known families: {_known()}.")
