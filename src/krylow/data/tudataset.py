"""The TUDataset collection: small real graphs (proteins, molecules, social networks), by name.

Data sets are looked for in the user's own folder, then in a cache of downloads.

=====================  ==========================================================================================
``$KRYLOW_DATA``       a folder of data sets, one sub-folder each; read first, never written to
``$XDG_CACHE_HOME``    downloads go to its sub-folder ``krylow`` (``~/.cache/krylow`` where it is not set)
=====================  ==========================================================================================

The raw text files are read here, wherever they come from: that needs no extra package and no pickle, as which PyG's
loader keeps its processed form.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import tempfile
import warnings
from pathlib import Path

import numpy as np
import scipy.sparse

from krylow._checks import InputError
from krylow._machine import install_line

#: The environment variable that names the folder of local data.
VARIABLE = "KRYLOW_DATA"


class DataNotFoundError(FileNotFoundError):
    """Raised where data is neither local nor can be fetched, with the files expected, the folder and what to do."""


def data_folder() -> Path | None:
    """Return the folder that ``KRYLOW_DATA`` names, or None where it is not set."""
    value = os.environ.get(VARIABLE, "")
    if not value:
        return None
    folder = Path(value).expanduser()
    if not folder.is_dir():
        raise InputError(
            f"{VARIABLE} must name a folder of data sets, got {value!r}, which is none: correct or unset it."
        )
    return folder


def cache_folder() -> Path:
    """Return the folder that downloads are kept in; it need not exist yet."""
    base = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(base) if base else Path.home() / ".cache") / "krylow"


def find_folder(name: str, files: tuple[str, ...]) -> Path | None:
    """Return the folder that holds all ``files`` of the data set ``name``, the user's before the cache's, or None."""
    roots = [root for root in (data_folder(), cache_folder()) if root is not None]
    folders = [folder for root in roots for folder in (root / name, root / name / "raw")]  # flat, or PyG's layout
    return next((folder for folder in folders if all((folder / file).is_file() for file in files)), None)


#: What a whole copy holds, for the data sets we have results on: graphs, nodes, lines of the edge list.
COUNTS = {"PROTEINS": (1113, 43471, 162088)}
#: The sha256 of the files of a download, for the same; those of other data sets are kept beside them in ``SUMS``.
SHA256 = {
    "PROTEINS_A.txt": "4c4b33e272fc95cac6d27ed6d5d12b9a852c8610e91fff59f8f0dbdd5a20df67",
    "PROTEINS_graph_indicator.txt": "8d4ff1e852a5c28561e9bffb44cf9490bc552b13a3b6156dd12dc7f44e9afc4a",
}
SUMS = "SHA256SUMS"


def tudataset(name: str, *, download: bool = True) -> list[scipy.sparse.csr_array]:
    """Return the graphs of a TUDataset as sparse adjacencies.

    Looked for in ``$KRYLOW_DATA/NAME/``, then in the cache ``$XDG_CACHE_HOME/krylow``, then downloaded into the
    cache by PyG's ``TUDataset``. Graphs are undirected and unweighted: an edge listed in either direction counts once,
    self-loops are dropped, and labels and attributes are not read. No checksums are published for the collection: a
    download of PROTEINS must have the sha256 that is known here, that of another data set is written down beside it
    (``SHA256SUMS``) and must stay as it is. The files must agree with each other.

    Parameters
    ----------
    name
        The data set's name in the collection, such as "PROTEINS", "ENZYMES" or "NCI1".
    download
        Whether it may be fetched where it is not local.

    Returns
    -------
    list of scipy.sparse.csr_array
        One ``(n_i, n_i)`` float64 matrix of zeros and ones a graph, in the data set's order.
    """
    if not re.fullmatch(r"[A-Za-z0-9_-]+", name):
        raise InputError(f"a TUDataset's name is made of letters, digits, '-' and '_', got {name!r}.")
    files = (f"{name}_A.txt", f"{name}_graph_indicator.txt")
    folder = find_folder(name, files)
    if folder is None and download:
        folder = _download(name, files)
    if folder is None:
        raise _missing(name, files, "downloading was not allowed")
    if folder.is_relative_to(cache_folder()):
        _check_sums(folder, files)
    return read_tudataset(folder, name)


def read_tudataset(folder: str | os.PathLike[str], name: str) -> list[scipy.sparse.csr_array]:
    """Return the graphs in the raw files ``NAME_A.txt`` and ``NAME_graph_indicator.txt`` of ``folder``.

    Line i of the second file is the graph that node i belongs to; a line ``i, j`` of the first is an edge. Nodes and
    graphs are counted from 1, and the nodes of a graph are consecutive.
    """
    path = Path(folder)
    edges = _integers(path / f"{name}_A.txt", 2) - 1  # (lines, 2)
    graph = _integers(path / f"{name}_graph_indicator.txt", 1)[:, 0] - 1  # (nodes,)
    n = len(graph)
    if n == 0 or graph[0] != 0 or not np.isin(np.diff(graph), (0, 1)).all():
        raise InputError(
            f"{name}_graph_indicator.txt must count the graphs up from 1, without gaps: the copy is damaged."
        )
    if len(edges) and not (edges.min() >= 0 and edges.max() < n):
        raise InputError(f"{name}_A.txt must name nodes 1 to {n}, got {edges.min() + 1} to {edges.max() + 1}.")
    if not (graph[edges[:, 0]] == graph[edges[:, 1]]).all():
        raise InputError(
            f"{name}_A.txt has an edge between two graphs of {name}_graph_indicator.txt: the copy is damaged."
        )
    found = (int(graph[-1]) + 1, n, len(edges))
    if found != COUNTS.get(name, found):
        raise InputError(
            f"{name} must have {COUNTS[name]} graphs, nodes and lines of edges, got {found}: fetch a whole copy."
        )
    return _split(edges[edges[:, 0] != edges[:, 1]], np.bincount(graph))


def _split(edges: np.ndarray, sizes: np.ndarray) -> list[scipy.sparse.csr_array]:
    """Cut the disjoint union of all graphs, edges ``(e, 2)``, into blocks of the given sizes."""
    n = int(sizes.sum())
    row, col = np.concatenate([edges, edges[:, ::-1]]).T
    union = scipy.sparse.csr_array((np.ones(len(row)), (row, col)), shape=(n, n))  # duplicates are summed
    union.data[:] = 1
    union.sort_indices()
    graphs = []
    for start, size in zip(np.cumsum(sizes) - sizes, sizes, strict=True):
        first, last = union.indptr[start], union.indptr[start + size]
        block = (
            union.data[first:last],
            union.indices[first:last] - start,
            union.indptr[start : start + size + 1] - first,
        )
        graphs.append(scipy.sparse.csr_array(block, shape=(int(size), int(size))))
    return graphs


def _integers(path: Path, columns: int) -> np.ndarray:
    """Read a text file of comma-separated integers, ``(lines, columns)``."""
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "loadtxt: input contained no data")  # a collection without an edge
            table = np.loadtxt(path, delimiter=",", dtype=np.int64, ndmin=2, comments=None, encoding="utf-8")
    except ValueError as error:
        raise InputError(f"{path.name} must hold {columns} integers a line: {error}") from error
    if table.size and table.shape[1] != columns:
        raise InputError(f"{path.name} must hold {columns} integers a line, got {table.shape[1]}.")
    return table.reshape(-1, columns)


def _download(name: str, files: tuple[str, ...]) -> Path:
    """Fetch the raw files with PyG into a scratch folder, and move them into the cache in one step."""
    try:
        from torch_geometric.datasets import TUDataset
    except ImportError as error:
        raise _missing(name, files, f"fetching it needs torch_geometric: {install_line('pyg')}") from error
    target = cache_folder() / name
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=".download-") as scratch:
        try:
            raw = Path(TUDataset(scratch, name).raw_dir)
        except Exception as error:  # whatever the network, the server or the archive did, the way out is the same
            raise _missing(name, files, f"the download failed ({type(error).__name__}: {error})") from error
        _check_sums(raw, files)
        sums = "".join(f"{_sha256(raw / file)}  {file}\n" for file in files if (raw / file).is_file())
        (raw / SUMS).write_text(sums, encoding="utf-8")
        with contextlib.suppress(OSError):  # another process may have been faster; its copy is as good
            os.replace(raw, target)
    folder = find_folder(name, files)
    if folder is None:
        raise _missing(name, files, f"what was downloaded to {target} is not whole: remove it")
    return folder


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _check_sums(folder: Path, files: tuple[str, ...]) -> None:
    """Refuse downloaded files whose sha256 is not the one that is known, or that was written down beside them."""
    listed = folder / SUMS
    lines = listed.read_text(encoding="utf-8", errors="replace").splitlines() if listed.is_file() else []
    known = {name: digest for digest, _, name in (line.partition("  ") for line in lines)} | SHA256
    for file in files:
        if (folder / file).is_file() and _sha256(folder / file) != known.get(file, _sha256(folder / file)):
            raise InputError(f"{folder / file} must have the sha256 {known[file]}: remove the folder, fetch it again.")


def _missing(name: str, files: tuple[str, ...], why: str) -> DataNotFoundError:
    root = data_folder()
    place = f"${VARIABLE}/{name}" if root is None else str(root / name)
    now = "not set" if root is None else "set"
    return DataNotFoundError(
        f"the data set {name!r} was not found, and {why}. Expected the files {' and '.join(files)} in {place} "
        f"({VARIABLE} is {now}) or in {cache_folder() / name}. On a machine with a network it is downloaded; elsewhere "
        f"unpack {name}.zip of the TUDataset collection into a folder and set {VARIABLE} to the folder above it. "
        "Is the name spelled as the collection spells it, such as 'PROTEINS'?"
    )
