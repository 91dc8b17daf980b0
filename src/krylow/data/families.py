"""Families of graphs of one size, split for training: drawn from a block model, cut from real graphs, or read."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse
import torch
from scipy.sparse.csgraph import breadth_first_order, connected_components
from torch import Tensor

from krylow import _checks
from krylow._checks import InputError
from krylow.data.tudataset import DataNotFoundError, data_folder, find_folder, tudataset
from krylow.io.files import Limit, kind_of, size_of
from krylow.io.graphs import GRAPHS, read_graph

#: Families that take precedence over a folder of their name without graphs.
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
    generator = torch.Generator().manual_seed(_checks.count(seed, "seed", -(2**63), 2**64 - 1))
    name = os.fspath(source)
    folder = isinstance(source, os.PathLike) or "/" in name or os.sep in name or _is_own_folder(name)
    if name == "sbm" and not folder:
        paper = ((num_graphs, 50), (n, 100), (communities, 4))
        sizes = [default if given is None else given for given, default in paper]
        return split_family(name, sbm(*sizes, generator=generator, dtype=dtype), generator=generator)
    for option, value in (("num_graphs", num_graphs), ("communities", communities)):
        if value is not None:
            raise InputError(f"{option} must be None for {name!r}, got {value}: it is an option of 'sbm' alone.")
    if folder:
        if n is not None:
            raise InputError(f"n must be None for a folder, whose graphs stay as they are, got {n}.")
        return split_family(Path(name).name, read_folder(name, dtype=dtype, max_size=max_size), generator=generator)
    for known in KNOWN:  # a wrong spelling is refused before it is looked for on the network
        if name.lower() == known.lower() and name != known:
            raise InputError(f"unknown family {name!r}: did you mean {known!r}? Known families: {_known()}.")
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
    graphs = _checks.square(_checks.tensor(graphs, "graphs", floating=False), "graphs")
    if graphs.ndim != 3 or len(graphs) < 3:
        raise InputError(f"graphs must be (count, n, n) with at least 3 to split, got shape {tuple(graphs.shape)}.")
    generator = _seeded(generator)
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
    graphs = [_read_dense(file, max_size) for file in files]
    for file, graph in zip(files, graphs, strict=True):
        if graph.shape != graphs[0].shape:
            raise InputError(
                f"the graphs of a folder must have one size, got {graphs[0].shape[0]} nodes in {files[0].name} and "
                f"{graph.shape[0]} in {file.name}: cut them with krylow.data.connected_subgraphs()."
            )
    return torch.stack(graphs).to(_checks.dtype(dtype))


def _read_dense(file: Path, max_size: int | str | None) -> Tensor:
    """Return the adjacency of a graph that is small enough to be held as a dense matrix."""
    graph, most = read_graph(file, max_size=max_size), size_of(max_size)
    limit = Limit(file.name, 1 << 30 if most is None else most)
    limit.check(8 * graph.n**2, f"a graph of {graph.n} nodes, each pair of which has an entry here")
    return torch.from_numpy(graph.adjacency.toarray()).double()


def _seeded(generator: torch.Generator | None) -> torch.Generator:
    return _checks.generator(generator) or torch.Generator().manual_seed(0)


def _known() -> str:
    root = data_folder()
    local = sorted(path.name for path in root.iterdir() if (path / f"{path.name}_A.txt").is_file()) if root else []
    here = f" (local: {', '.join(local)})" if local else ""
    return f"'sbm', any TUDataset by name such as 'PROTEINS' or 'ENZYMES'{here}, or a folder of graphs"


def _is_own_folder(name: str) -> bool:
    """Whether the name is that of a folder in the working folder, not of a family."""
    path = Path(name)
    if name == "sbm" or not name or not path.is_dir():
        return False
    if any(kind_of(file) in IN_FOLDERS for file in path.iterdir()):
        return True
    return name not in KNOWN and not any(path.rglob(f"{name}_A.txt")) and find_folder(name, (f"{name}_A.txt",)) is None


def sbm(
    num_graphs: int = 50,
    n: int = 100,
    communities: int = 4,
    p_in: float = 0.3,
    p_out: float = 0.02,
    *,
    generator: torch.Generator | None = None,
    dtype: torch.dtype | None = None,
) -> Tensor:
    r"""Draw adjacencies of the stochastic block model.

    $$W_{ij} = W_{ji} \sim \mathrm{Bernoulli}(p_{in} \text{ if } c_i = c_j \text{ else } p_{out}), \quad i < j,
    \qquad W_{ii} = 0$$

    with the communities $c$ of :func:`sbm_labels`. Every pair of nodes is drawn once, so that time and memory are
    $O(\text{num\_graphs} \cdot n^2)$: it is meant for graphs that are kept dense. The defaults are the paper's
    synthetic data; it does not say how many communities, and 4 fits its numbers.

    Parameters
    ----------
    num_graphs, n, communities
        Number of graphs, of nodes in each and of communities in each.
    p_in, p_out
        Probability of an edge inside a community and between two.
    generator
        Source of randomness, whose device the graphs are made on. None: a fresh one with seed 0, so that equal calls
        give equal graphs.
    dtype
        float32 or float64. None: torch's default. The graphs do not depend on it.

    Returns
    -------
    Tensor
        ``(num_graphs, n, n)``, symmetric, of zeros and ones.

    Examples
    --------
    Two communities, certain inside and impossible between:

    >>> sbm(1, 5, 2, p_in=1, p_out=0, dtype=torch.float32)
    tensor([[[0., 1., 1., 0., 0.],
             [1., 0., 1., 0., 0.],
             [1., 1., 0., 0., 0.],
             [0., 0., 0., 0., 1.],
             [0., 0., 0., 1., 0.]]])
    """
    num_graphs = _checks.count(num_graphs, "num_graphs")
    labels = sbm_labels(n, communities)
    for what, p in (("p_in", p_in), ("p_out", p_out)):
        if not 0 <= _checks.number(p, what, "a probability, between 0 and 1") <= 1:
            raise InputError(f"{what} must be a probability, between 0 and 1, got {p!r}.")
    dtype = _checks.dtype(dtype)
    generator = _seeded(generator)
    device = generator.device
    i, j = torch.triu_indices(n, n, offset=1)
    # Drawn and compared in float64, so that the graphs are the same in every dtype.
    probability = torch.where(labels[i] == labels[j], float(p_in), float(p_out)).double().to(device)  # (pairs,)
    u = torch.rand(num_graphs, len(i), generator=generator, dtype=torch.float64, device=device)
    upper = torch.zeros(num_graphs, n, n, dtype=dtype, device=device)
    upper[:, i, j] = (u < probability).to(dtype)
    return upper + upper.mT


def sbm_labels(n: int, communities: int) -> Tensor:
    """Return the community of every node, ``(n,)``: ascending, with sizes that differ by at most one.

    Examples
    --------
    >>> sbm_labels(7, 3)
    tensor([0, 0, 0, 1, 1, 2, 2])
    """
    n = _checks.count(n, "n", 1, 2**31)
    communities = _checks.count(communities, "communities", 1, n, hint=" (the number of nodes)")
    return torch.arange(n) * communities // n


def connected_subgraphs(
    graphs: Sequence[Any],
    size: int = 50,
    *,
    root: str = "first",
    generator: torch.Generator | None = None,
    dtype: torch.dtype | None = None,
) -> Tensor:
    """Cut a connected subgraph of ``size`` nodes out of every graph that has one.

    A graph is kept where its largest connected component has at least ``size`` nodes. Inside that component a
    breadth-first search runs from a root, neighbours in ascending order, until it has seen ``size`` nodes; the
    subgraph they induce is returned with its nodes in the order they were seen. This is how the paper comes from the
    1113 graphs of PROTEINS to 238 of 50 nodes each. It does not name the root: "first" keeps the data the same
    whatever the seed, so that seeds differ in split and training only.

    Parameters
    ----------
    graphs
        Symmetric adjacencies of any sizes: scipy sparse matrices, numpy arrays or dense torch tensors ``(n_i, n_i)``.
    size
        Number of nodes to cut to.
    root
        "first": the component's node of lowest index. "random": one of its nodes, uniformly.
    generator
        Source of randomness for "random". None: a fresh one with seed 0.
    dtype
        float32 or float64. None: torch's default.

    Returns
    -------
    Tensor
        Adjacencies ``(kept, size, size)``, in the order of ``graphs``.

    Examples
    --------
    A path of four nodes and an edge; only the path has three connected nodes:

    >>> path, edge = np.diag([1.0, 1, 1], 1), np.diag([1.0], 1)
    >>> connected_subgraphs([path + path.T, edge + edge.T], 3, dtype=torch.float32)
    tensor([[[0., 1., 0.],
             [1., 0., 1.],
             [0., 1., 0.]]])
    """
    size = _checks.count(size, "size")
    root = _checks.choice(root, ("first", "random"), "root")
    generator = _seeded(generator)
    kept, largest = [], 0
    for index, graph in enumerate(graphs):
        W = _to_csr(graph, index)
        component = _largest_component(W)
        largest = max(largest, len(component))
        if len(component) < size:
            continue
        start = 0 if root == "first" else int(torch.randint(len(component), (), generator=generator))
        nodes = breadth_first_order(W, component[start], directed=True, return_predecessors=False)[:size]
        kept.append(torch.from_numpy(W[nodes][:, nodes].toarray()))
    if not kept:
        raise InputError(
            f"size must be at most the number of connected nodes of some graph, got {size}, while the largest "
            f"connected component of {len(graphs)} graphs has {largest} nodes."
        )
    return torch.stack(kept).to(_checks.dtype(dtype))


def _to_csr(graph: Any, index: int) -> scipy.sparse.csr_array:
    """Return an adjacency as float64 CSR with sorted indices and no stored zeros, which the search would follow."""
    if isinstance(graph, Tensor):
        graph = graph.detach().cpu().numpy()
    W = scipy.sparse.csr_array(graph, dtype=np.float64, copy=True)  # the caller's own stays as it is
    if W.ndim != 2 or W.shape[0] != W.shape[1]:
        raise InputError(f"every graph must be a square adjacency, got shape {W.shape} for graph {index}.")
    if (W != W.T).nnz:
        raise InputError(f"every graph must be symmetric (undirected), got an asymmetric adjacency for graph {index}.")
    W.sum_duplicates()
    W.eliminate_zeros()
    return W


def _largest_component(W: scipy.sparse.csr_array) -> np.ndarray:
    """Return the nodes of the largest connected component, ascending; of equals, the one with the lowest node."""
    if W.shape[0] == 0:
        return np.empty(0, dtype=int)
    label = connected_components(W, directed=False)[1]
    return np.flatnonzero(label == np.bincount(label).argmax())
