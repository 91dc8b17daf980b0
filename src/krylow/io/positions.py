"""Coordinates of the nodes, where a graph's own file has them."""

from __future__ import annotations

import io
import os
from pathlib import Path
from typing import Any

import numpy as np

from krylow._checks import InputError
from krylow.io import networks
from krylow.io.files import Limit, archive_size, kind_of, limit_of, load, read_bytes, size_of
from krylow.io.graphs import GraphFile

#: Arrays of an .npz, and attributes of a node, that are coordinates.
ARRAYS = ("pos", "positions", "coords", "coordinates", "xy")
ATTRIBUTES = (("x", "y"), ("lon", "lat"), ("longitude", "latitude"), ("Longitude", "Latitude"))


def read_positions(
    path: str | os.PathLike[str], graph: GraphFile, *, max_size: int | str | None = None
) -> np.ndarray | None:
    """Return the coordinates ``(n, 2)`` of the nodes of a graph that was read from this file, None if it has none.

    An .npz may have them as an array (``pos``, ``coords``, ...), GraphML, GEXF, GML and Pajek as attributes of the
    nodes (``x`` and ``y``, ``lon`` and ``lat``), as Gephi and yEd write them; these are read if networkx is installed.
    """
    path, most = Path(path), size_of(max_size)
    kind = kind_of(path)
    if path.is_dir() or kind not in (".npz", ".graphml", ".gexf", ".gml", ".net", ".pajek"):
        return None
    content = read_bytes(path, most)
    size = archive_size(content, path.name, most) if kind == ".npz" else len(content)
    limit = limit_of(path.name, size, most, 40)
    try:
        found = _of_arrays(content, graph.n) if kind == ".npz" else _of_network(content, kind, limit, graph)
    except InputError:
        raise
    except (ImportError, ArithmeticError, LookupError, TypeError, ValueError):  # the graph itself was read all the same
        return None
    return found if found is not None and np.isfinite(found).all() else None


def _of_arrays(content: bytes, n: int) -> np.ndarray | None:
    with load(content) as arrays:
        for name in ARRAYS:
            if name in arrays and arrays[name].ndim == 2 and arrays[name].shape[0] == n and arrays[name].shape[1] >= 2:
                return np.asarray(arrays[name][:, :2], dtype=np.float64)
    return None


def _of_network(content: bytes, kind: str, limit: Limit, graph: GraphFile) -> np.ndarray | None:
    import networkx

    part = {".gml": b"[", ".net": b"\n", ".pajek": b"\n"}.get(kind, b"<")
    limit.check(400 * content.count(part), "so many nodes and attributes")
    if kind == ".graphml":
        networks.check_doctype(content, limit.what)
        G = networkx.read_graphml(io.BytesIO(content))
    else:
        G = networks.NETWORKX[kind](networkx, content, limit)
    places = {str(node): place for node, data in G.nodes(data=True) if (place := _place(data)) is not None}
    names = [] if graph.nodes is None else [str(node) for node in graph.nodes]
    return np.array([places[name] for name in names], dtype=np.float64) if names and len(places) == len(names) else None


def _place(data: dict[str, Any]) -> tuple[float, float] | None:
    """Return the coordinates among a node's attributes."""
    inner = (data, data.get("viz", {}).get("position", {}), data.get("graphics", {}))
    for attributes in inner:
        for x, y in ATTRIBUTES:
            if x in attributes and y in attributes:
                return float(attributes[x]), float(attributes[y])
    return None
