"""Signals on networkx graphs: from node attributes to arrays in the order of the nodes, and back.

The graph itself needs nothing: :func:`krylow.laplacian` takes it as it is, its ``weight`` attribute included.

>>> import networkx as nx
>>> import krylow as kl
>>> G = nx.path_graph(["a", "b"])
>>> nx.set_node_attributes(G, {"a": 1.0, "b": 3.0}, "noisy")
>>> set_signal(G, "smooth", kl.lowpass(kl.laplacian(G), get_signal(G, "noisy"), k=1))
>>> {node: round(value, 6) for node, value in G.nodes(data="smooth")}
{'a': 2.0, 'b': 2.0}
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from krylow._checks import InputError


def get_signal(G: Any, name: str) -> np.ndarray:
    """Return the node attribute ``name`` as an array, ``(n,)`` of numbers or ``(n, c)`` of vectors, in node order.

    Parameters
    ----------
    G
        A networkx graph.
    name
        An attribute that every node has.
    """
    missing = [node for node, value in G.nodes(data=name) if value is None]
    if missing:
        raise InputError(f"every node must have the attribute {name!r}, got {len(missing)} without: {missing[:3]}.")
    rows = [np.asarray(value, dtype=np.float64) for _, value in G.nodes(data=name)]
    shapes = {row.shape for row in rows}
    if len(shapes) != 1 or max(map(len, shapes)) > 1:
        raise InputError(f"{name!r} must be numbers, or vectors of one length, got shapes {sorted(shapes)}.")
    return np.stack(rows)


def set_signal(G: Any, name: str, values: Any) -> None:
    """Write a signal, or the basis of a subspace, to the node attribute ``name``.

    Parameters
    ----------
    G
        A networkx graph.
    name
        The attribute: a number a node for ``(n,)``, a list of c numbers for ``(n, c)``, which graph files can keep.
    values
        ``(n,)`` or ``(n, c)``, numpy or torch, in node order.
    """
    array = values.detach().cpu().numpy() if isinstance(values, torch.Tensor) else np.asarray(values)
    if array.ndim not in (1, 2) or len(array) != len(G):
        raise InputError(f"values must be ({len(G)},) or ({len(G)}, c), one row a node, got shape {array.shape}.")
    for node, row in zip(G, array.tolist(), strict=True):
        G.nodes[node][name] = row
