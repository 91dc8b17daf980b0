"""Graph objects of other libraries as matrices: networkx, igraph, rustworkx, and graphs that were read from files.

No library is imported: an object of one can only come where it is imported already.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from numbers import Real
from typing import Any

import numpy as np
import scipy.sparse

from krylow._checks import InputError


def library_of(graph: Any) -> str | None:
    """Return the name of the library that a graph object is from, or None for another object."""
    for module, kinds in _KINDS.items():
        loaded = sys.modules.get(module)
        if loaded is not None and isinstance(graph, tuple(getattr(loaded, kind) for kind in kinds)):
            return module
    return None


def rows_of(graph: Any, library: str, weight: str | None, *, directed: bool = False) -> Any:
    """Return the adjacency of a graph object, whose edges without the attribute weigh 1; parallel edges add up.

    Unless ``directed`` ones are wanted they are refused.
    """
    if library == "krylow.io.graphs":
        return graph.adjacency
    is_directed = _is_directed(graph)
    if is_directed and not directed:
        raise InputError(
            f"W must be undirected, got a directed {library} graph: pass W.{_UNDIRECTED[library]}(), or take its "
            'magnetic Laplacian (kind="magnetic").'
        )
    try:
        return _READERS[library](graph, weight)
    except (TypeError, ValueError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"the weights of a {library} graph must be numbers, got others ({error}).") from None


def _is_directed(graph: Any) -> bool:
    kind = type(graph).__name__
    return bool(graph.is_directed()) if hasattr(graph, "is_directed") else kind == "PyDiGraph"


def _no_nodes(library: str) -> InputError:
    return InputError(f"W must be square with at least one node, got a {library} graph without nodes.")


def _not_there(weight: str) -> InputError:
    return InputError(f"weight must name an attribute of the edges, got {weight!r}, which no edge has.")


def _networkx(G: Any, weight: str | None) -> Any:
    if len(G) == 0:
        raise _no_nodes("networkx")
    if weight is not None and not any(weight in data for _, _, data in G.edges(data=True)):
        raise _not_there(weight)
    networkx = sys.modules["networkx"]
    return networkx.to_scipy_sparse_array(G, weight=weight or "weight", format="coo", dtype=float)


def _igraph(g: Any, weight: str | None) -> Any:
    if g.vcount() == 0:
        raise _no_nodes("igraph")
    if weight is not None and weight not in g.es.attributes():
        raise _not_there(weight)
    known = (weight or "weight") in g.es.attributes()
    values = g.es[weight or "weight"] if known else [1.0] * g.ecount()
    return _matrix(np.array(g.get_edgelist(), dtype=np.int64), values, g.vcount(), bool(g.is_directed()))


def _rustworkx(g: Any, weight: str | None) -> Any:
    nodes = list(g.node_indices())  # with holes where nodes were removed
    if not nodes:
        raise _no_nodes("rustworkx")
    place = np.zeros(max(nodes) + 1, dtype=np.int64)
    place[nodes] = np.arange(len(nodes))
    edges = list(g.weighted_edge_list())
    ends = place[np.array([edge[:2] for edge in edges], dtype=np.int64).reshape(-1, 2)]
    if weight is not None and not any(isinstance(data, dict) and weight in data for _, _, data in edges):
        raise _not_there(weight)
    values = [_payload(data, weight or "weight") for _, _, data in edges]
    return _matrix(ends, values, len(nodes), type(g).__name__ == "PyDiGraph")


def _payload(data: Any, weight: str) -> float:
    """Return the weight of an edge of rustworkx, whose data may be a number, a dictionary or None."""
    value = data.get(weight, 1) if isinstance(data, dict) else 1 if data is None else data
    if not isinstance(value, Real):
        raise TypeError(f"an edge has {value!r}")
    return float(value)


def _matrix(ends: np.ndarray, values: list[Any], n: int, directed: bool) -> Any:
    u, v = ends.reshape(-1, 2).T
    weights = np.array(values, dtype=np.float64)
    if not directed:
        off = u != v
        u, v, weights = (
            np.concatenate([u, v[off]]),
            np.concatenate([v, u[off]]),
            np.concatenate([weights, weights[off]]),
        )
    return scipy.sparse.coo_array((weights, (u, v)), shape=(n, n))


_KINDS = {
    "networkx": ("Graph",),
    "igraph": ("Graph",),
    "rustworkx": ("PyGraph", "PyDiGraph"),
    "krylow.io.graphs": ("GraphFile",),
}
_UNDIRECTED = {"networkx": "to_undirected", "igraph": "as_undirected", "rustworkx": "to_undirected"}
_READERS: dict[str, Callable[[Any, str | None], Any]] = {
    "networkx": _networkx,
    "igraph": _igraph,
    "rustworkx": _rustworkx,
}
