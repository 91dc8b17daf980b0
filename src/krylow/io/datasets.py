"""Graphs as machine learning keeps them: PyG's .pt, named arrays of an .npz, and folders of OGB."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse

from krylow._checks import InputError
from krylow.io.columns import Columns
from krylow.io.files import Limit, archive_size, attempt, decode, limit_of, load, read_bytes
from krylow.io.matrices import ROW_BYTES, edge_index, read_sparse, whole_rows
from krylow.io.networks import library
from krylow.io.text import Edges, parse_edge_list

#: How a zip archive begins; torch, too, tells its formats apart by these bytes.
ZIP = b"PK\3\4"


def read_npz(content: bytes, limit: Limit, columns: Columns) -> Any:
    """Read an .npz: a sparse matrix of scipy, the adj_data, adj_indices, ... of Planetoid, or an edge_index."""
    what = limit.what

    def named() -> Any:
        with load(content) as arrays:
            if "adj_indptr" in arrays:
                shape = tuple(arrays["adj_shape"].tolist())
                limit.check(ROW_BYTES * max(shape), f"a matrix of shape {shape}")
                parts = [arrays[f"adj_{name}"] for name in ("data", "indices", "indptr")]
                return whole_rows(scipy.sparse.csr_array(tuple(parts), shape=shape))
            if "edge_index" in arrays:
                key = next((name for name in (columns.attribute, "edge_weight") if name in arrays), None)
                n = int(arrays["num_nodes"]) if "num_nodes" in arrays else None
                return edge_index(arrays["edge_index"], None if key is None else arrays[key], limit, n)
            return None

    found = attempt(named, content, what, "a sparse matrix as scipy.sparse.save_npz makes it, or named arrays")
    return read_sparse(content, limit, columns) if found is None else found


def _pyg(content: bytes, limit: Limit, columns: Columns) -> Any:
    """Read a graph that torch.save wrote; of all classes only PyG's containers are made, and no function runs."""
    import torch

    what = limit.what
    if not content.startswith(ZIP):
        raise InputError(f"{what} must be a file as torch.save of torch 1.6 and later makes it, got another.")
    if not hasattr(torch.serialization, "safe_globals"):
        raise InputError(f"{what} needs torch 2.5 or later, got {torch.__version__}.")
    wanted = "a PyG Data, a dictionary with an edge_index, or a tensor of torch.save; other classes are never loaded"

    def read() -> Any:
        named = [name for name in _classes(torch, content) if name.startswith("torch_geometric.")]
        allowed = _containers(library("torch_geometric.data", what)) if named else []
        with torch.serialization.safe_globals(allowed):
            return torch.load(io.BytesIO(content), map_location="cpu", weights_only=True)

    found = attempt(read, content, what, wanted)
    return attempt(lambda: _tensors(found, limit, columns), content, what, wanted)


def _classes(torch: Any, content: bytes) -> list[str]:
    return list(torch.serialization.get_unsafe_globals_in_checkpoint(io.BytesIO(content)))


def _containers(data: Any) -> list[Any]:
    """Return the classes that a saved PyG graph is made of: containers of attributes, without a method that runs."""
    from torch_geometric.data import storage

    kinds = [data.Data, storage.GlobalStorage, storage.BaseStorage]
    for name in ("DataTensorAttr", "DataEdgeAttr"):
        kinds += [getattr(data.data, name)] if hasattr(data.data, name) else []
    return kinds


def _tensors(found: Any, limit: Limit, columns: Columns) -> Any:
    """Return the edges, or the matrix, of what a .pt held."""
    import torch

    what = limit.what
    if isinstance(found, (tuple, list)) and found and (len(found) == 1 or not isinstance(found[0], torch.Tensor)):
        slices = found[1] if len(found) > 1 else None  # an InMemoryDataset: the graphs in one, and where each begins
        sizes = [len(part) - 1 for part in slices.values()] if isinstance(slices, dict) and slices else [1]
        if max(sizes) > 1 or isinstance(slices, (list, torch.Tensor)):
            raise InputError(f"{what} must hold one graph, got a dataset of {max(sizes)}: save dataset[i].")
        found = found[0]
    if isinstance(found, torch.Tensor):
        return _of_tensor(found, limit)
    get = found.get if isinstance(found, dict) else lambda name: getattr(found, name, None)
    index = get("edge_index")
    if not isinstance(index, torch.Tensor):
        raise InputError(f"{what} must hold a graph with an edge_index, got a {type(found).__name__} without.")
    limit.check(64 * index.shape[-1], f"{index.shape[-1]} edges")
    weights = get("edge_weight" if columns.weight is None else columns.attribute)
    if weights is None and columns.weight is not None:
        raise InputError(f"{what} must hold the weights {columns.weight!r}, which it does not.")
    if weights is not None:
        limit.check(64 * weights.numel(), f"{weights.numel()} weights")
        weights = weights.detach().to(torch.float64).numpy()
    x, n = get("x"), get("num_nodes")
    n = int(n) if n is not None else len(x) if isinstance(x, torch.Tensor) else None
    return edge_index(index.numpy(), weights, limit, n)


def _of_tensor(found: Any, limit: Limit) -> Any:
    import torch

    if found.layout == torch.strided:
        if found.ndim == 2 and found.shape[0] == 2 and not found.is_floating_point() and found.shape[1] != 2:
            return edge_index(found.numpy(), None, limit)
        limit.check(8 * found.numel(), f"a matrix of shape {tuple(found.shape)}")
        return found.detach().numpy()
    limit.check(ROW_BYTES * max(found.shape) + 64 * found._nnz(), f"a matrix of shape {tuple(found.shape)}")
    coo = found.to_sparse_coo().coalesce()
    return scipy.sparse.coo_array((coo.values().numpy(), coo.indices().numpy()), shape=tuple(found.shape))


def read_ogb(folder: Path, max_size: int | None) -> tuple[Edges, Limit]:
    """Read the one graph of a folder of OGB: raw/edge.csv.gz and num-node-list.csv.gz, or raw/data.npz.

    An edge that is there in one direction is undirected, as where OGB adds the inverse edges when it loads them.
    """
    raw = folder / "raw" if (folder / "raw").is_dir() else folder
    if (raw / "data.npz").is_file():
        content = read_bytes(raw / "data.npz", max_size)
        limit = limit_of(f"{folder.name}/data.npz", archive_size(content, "data.npz", max_size), max_size)
        return attempt(lambda: _ogb_arrays(content, limit), content, limit.what, "a graph of OGB"), limit
    if not (raw / "edge.csv.gz").is_file():
        raise InputError(
            f"a graph must be a file or a folder of OGB, with edge.csv.gz or data.npz in raw, got {str(folder)!r}."
        )
    content, counts = (read_bytes(raw / name, max_size) for name in ("edge.csv.gz", "num-node-list.csv.gz"))
    limit = limit_of(f"{folder.name}/edge.csv.gz", len(content), max_size)
    n = _one([line for line in decode(counts, "num-node-list.csv.gz").split() if line], limit.what)
    edges = parse_edge_list(content, limit)
    return _of_ogb(edges.ends, n, limit) if edges.names is None else _refuse_names(limit), limit


def _ogb_arrays(content: bytes, limit: Limit) -> Edges:
    with load(content) as arrays:
        return _of_ogb(arrays["edge_index"], _one(arrays["num_nodes_list"].reshape(-1).tolist(), limit.what), limit)


def _one(counts: list[Any], what: str) -> int:
    if len(counts) != 1:
        raise InputError(f"{what} must hold one graph, got {len(counts)}: they are for krylow.integrations.pyg.")
    try:
        return int(counts[0])
    except (ValueError, OverflowError):
        raise InputError(f"{what} must have a whole number of nodes, got {counts[0]!r}.") from None


def _of_ogb(index: np.ndarray, n: int, limit: Limit) -> Edges:
    found = edge_index(index, None, limit, n)
    if found.n != n:
        raise InputError(f"{limit.what} must have nodes from 0 to {n - 1}, got {(found.n or 0) - 1}.")
    return Edges(found.ends, found.weights, n=n)


def _refuse_names(limit: Limit) -> Edges:
    raise InputError(f"{limit.what} must hold whole numbers, as OGB's files do, got names.")


#: The reader of each kind of file but .npz.
READERS: dict[str, Callable[[bytes, Limit, Columns], Any]] = dict.fromkeys((".pt", ".pth"), _pyg)
