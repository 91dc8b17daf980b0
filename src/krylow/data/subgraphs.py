"""Graphs of many sizes, cut to connected graphs of one size."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import scipy.sparse
import torch
from scipy.sparse.csgraph import breadth_first_order, connected_components
from torch import Tensor

from krylow import _checks
from krylow._checks import InputError

ROOTS = ("first", "random")


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
    root = _checks.choice(root, ROOTS, "root")
    if generator is None:
        generator = torch.Generator().manual_seed(0)
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
    return torch.stack(kept).to(torch.get_default_dtype() if dtype is None else dtype)


def _to_csr(graph: Any, index: int) -> scipy.sparse.csr_array:
    """Return an adjacency as float64 CSR with sorted indices and no stored zeros, which the search would walk along."""
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
