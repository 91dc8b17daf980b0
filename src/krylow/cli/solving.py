"""From a request to a graph, its Laplacian and the subspace that is asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from krylow.cli.options import GIVEN, Request, device_of
from krylow.cli.progress import Shown, Stages

if TYPE_CHECKING:
    from krylow.io.graphs import GraphFile
    from krylow.operators import Operator
    from krylow.result import Subspace

#: Up to this many nodes a graph with more than a quarter of all edges is held as a dense matrix.
DENSE_LIMIT = 4096


def read(request: Request, num_nodes: int | None) -> GraphFile:
    """Read the graph; ``num_nodes`` counts the nodes of an edge list where ``--nodes`` does not."""
    from krylow.io.graphs import read_graph

    return read_graph(
        request.graph,
        num_nodes=num_nodes if request.nodes is None else request.nodes,
        add_up=request.add_up,
        max_size=request.max_size,
    )


def build(request: Request, graph: GraphFile, dtype: Any) -> Operator:
    """Return the Laplacian that ``--kind`` names, on the device."""
    import torch

    from krylow import _checks
    from krylow._checks import InputError
    from krylow.graph import as_operator, laplacian

    W = graph.adjacency.astype(dtype)
    matrix: Any = W
    device = device_of(request.device)
    if graph.n <= DENSE_LIMIT and 4 * W.nnz > graph.n**2:
        matrix = torch.from_numpy(W.toarray()).to(device)
    elif device.type != "cpu":
        coo = W.tocoo()
        places = torch.stack([torch.from_numpy(i.astype("int64")) for i in (coo.row, coo.col)])
        matrix = torch.sparse_coo_tensor(places, torch.from_numpy(coo.data), W.shape).to(device)
    if request.kind == GIVEN:
        return as_operator(matrix)
    off = W.copy()
    off.setdiag(0)
    try:
        _checks.not_a_laplacian(*(torch.from_numpy(part) for part in (W.diagonal(), off.data, W.sum(1))))
    except InputError:
        raise InputError(f"{request.graph.name} holds a Laplacian already: say so by --kind {GIVEN}.") from None
    return laplacian(matrix, request.kind)


def solve(request: Request, L: Operator, stages: Stages) -> Subspace:
    """Return the subspace that is asked for, with its certificate computed."""
    import krylow as kl

    k, network = request.k, None
    if request.weights is not None:
        network = kl.load(request.weights).to(L.dtype).to(L.device)
        k = network.k if k is None and request.cutoff is None else k
    with stages("solve", "iterating") as move:
        sub = kl.subspace(
            L,
            k,
            cutoff=request.cutoff,
            method=request.method,
            tol=request.tol,
            m=request.m,
            seed=request.seed,
            weights=network,
            max_products=request.max_products,
            callback=Shown(move, request.tol),
        )
    again = " of the best so far; Ctrl-C again leaves without it" if sub.interrupted else ""
    with stages("bound", f"bounding the error{again}"):
        sub.certificate  # noqa: B018 (computed when it is first asked for, and kept)
    return sub
