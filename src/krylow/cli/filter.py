"""``krylow filter``: signals on a graph, low-pass filtered; ``krylow subspace``: the basis of its low frequencies."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from krylow.cli import solving as options
from krylow.cli.app import Stages, app, staged, write_stdout
from krylow.cli.shard import solve_on_ranks
from krylow.cli.solving import Request, build, describe, finish, kept, read, solve

if TYPE_CHECKING:
    import numpy as np

    from krylow.io.graphs import GraphFile
    from krylow.io.signals import Table
    from krylow.result import Subspace


FILTER_HELP = (
    "Filter signals on a graph: keep their k lowest frequencies, or all up to a cutoff, and drop the rest.\n\n"
    "krylow filter graph.mtx signals.npy -k 50 -o smooth.npy\n\n"
    "krylow filter edges.csv signals.csv --cutoff 0.1 --kind normalized -o smooth.csv\n\n"
    "krylow filter trips.csv signals.csv --source from --target to --weight minutes --directed mean -k 50 -o y.csv\n\n"
    "An edge list has two nodes and perhaps a weight a line. Its edges are undirected, and one that is listed twice "
    "counts once; --directed takes its lines as directed edges. "
    "Row i of the signals belongs to row i of a matrix, and to node i of an edge list of whole numbers, "
    "which count from 0, or from 1 where the largest is the number of rows. Where the signals are a table whose first "
    f"column names the nodes, rows are found by name.\n\n{options.EXIT_CODES}"
)
SUBSPACE_HELP = (
    "Compute a basis of the k lowest frequencies of a graph, or of all up to a cutoff.\n\n"
    "krylow subspace graph.mtx -k 50 -o basis.npz\n\n"
    "mpiexec -n 4 krylow subspace graph.petsc -k 50 -o FOLDER (a graph that ranks share, see krylow shard)\n\n"
    "Row i of the basis belongs to row i of a matrix. For an edge list or GraphML, nodes in the .npz says whose rows "
    "they are: whole numbers in ascending order, names in the order in which they first appear.\n\n"
    f"{options.EXIT_CODES}"
)


@app.command("filter", help=FILTER_HELP)
def filter_signals(
    graph: options.GraphArgument,
    signals: Annotated[
        Path,
        typer.Argument(
            metavar="SIGNALS",
            help="The signals, a row for each node: .npy, .npz, or a table .csv, .tsv, .txt; .gz too.",
            show_default=False,
        ),
    ],
    out: Annotated[
        str,
        typer.Option(
            "-o",
            "--out",
            help="Where the filtered signals go. Its suffix says in which form: .npy, .npz, .csv, .tsv, .txt. "
            "A - prints them as CSV.",
            show_default=False,
        ),
    ],
    k: options.KOption = None,
    cutoff: options.CutoffOption = None,
    method: Annotated[
        str,
        typer.Option(
            help="auto, exact, lanczos, unrolled, thick_restart, chebyshev, multilevel, davidson, lobpcg, "
            "shift_invert; without a basis: lanczos_signal, polynomial, polynomial_jackson."
        ),
    ] = "auto",
    tol: options.TolOption = 1e-3,
    kind: options.KindOption = None,
    m: options.StepsOption = None,
    max_products: options.MaxProductsOption = None,
    weights: options.WeightsOption = None,
    seed: options.SeedOption = None,
    device: options.DeviceOption = "cpu",
    nodes: options.NodesOption = None,
    add_up: options.AddUpOption = False,
    source: options.SourceOption = None,
    target: options.TargetOption = None,
    weight: options.WeightOption = None,
    directed: options.DirectedOption = "error",
    json: options.JsonOption = False,
    max_size: options.MaxSizeOption = None,
    prove: options.ProveOption = False,
) -> None:
    """Filter signals on a graph; the help text is ``FILTER_HELP``."""
    request = Request(
        graph,
        out,
        k,
        cutoff,
        method,
        tol,
        kind,
        m,
        max_products,
        weights,
        seed,
        device,
        nodes,
        add_up,
        json,
        max_size,
        source,
        target,
        weight,
        directed,
        prove,
    )
    with staged() as stages:
        with stages.starting():
            from krylow.api import METHODS, SIGNAL_METHODS
            from krylow.io.signals import format_table, write_signals

        request.check((*METHODS, *SIGNAL_METHODS), (graph, signals))
        table, network = read_with_signals(request, signals, stages)
        y, sub, cost = _filter(request, network, table, signals.name, stages)
        filtered = replace(table, values=y)
        with stages("write", f"writing {out}"):
            if not request.to_stdout:
                write_signals(out, filtered)
        found = describe(
            request,
            network,
            stages,
            sub,
            **cost,
            signals={"file": str(signals), "shape": list(y.shape), "dtype": str(y.dtype)},
            output={"file": out, "holds": f"filtered signals, {y.dtype} {y.shape}"},
        )
    if request.to_stdout:
        write_stdout(format_table(filtered, ","))
    finish(request, found)


@app.command(help=SUBSPACE_HELP)
def subspace(
    graph: options.GraphArgument,
    out: Annotated[
        str,
        typer.Option(
            "-o",
            "--out",
            help="Where the basis goes. Its suffix says in which form: .npz (basis, ritz_values, and nodes where they "
            "have names), .npy, .csv, .tsv, .txt (the basis). A - prints it as CSV.",
            show_default=False,
        ),
    ],
    k: options.KOption = None,
    cutoff: options.CutoffOption = None,
    method: Annotated[
        str,
        typer.Option(
            help="auto, exact, lanczos, unrolled, thick_restart, chebyshev, multilevel, davidson, lobpcg, shift_invert."
        ),
    ] = "auto",
    tol: options.TolOption = 1e-3,
    kind: options.KindOption = None,
    m: options.StepsOption = None,
    max_products: options.MaxProductsOption = None,
    weights: options.WeightsOption = None,
    seed: options.SeedOption = None,
    device: options.DeviceOption = "cpu",
    nodes: options.NodesOption = None,
    add_up: options.AddUpOption = False,
    source: options.SourceOption = None,
    target: options.TargetOption = None,
    weight: options.WeightOption = None,
    directed: options.DirectedOption = "error",
    json: options.JsonOption = False,
    max_size: options.MaxSizeOption = None,
    prove: options.ProveOption = False,
) -> None:
    """Compute a basis of the lowest frequencies; the help text is ``SUBSPACE_HELP``."""
    request = Request(
        graph,
        out,
        k,
        cutoff,
        method,
        tol,
        kind,
        m,
        max_products,
        weights,
        seed,
        device,
        nodes,
        add_up,
        json,
        max_size,
        source,
        target,
        weight,
        directed,
        prove,
    )
    if graph.suffix == ".petsc":
        return solve_on_ranks(request)
    with staged() as stages:
        with stages.starting():
            from krylow.api import METHODS
            from krylow.io.signals import basis_table, format_table, write_subspace

        request.check(METHODS, (graph,))
        with stages("read", f"reading {graph.name}"):
            network = read(request, None)
        with stages("laplacian", "building the Laplacian"):
            L = build(request, network, network.adjacency.dtype)
        sub = solve(request, L, stages)
        basis, values = (part[..., : kept(sub)].cpu().numpy() for part in (sub.basis, sub.ritz_values))
        with stages("write", f"writing {out}"):
            if not request.to_stdout:
                write_subspace(out, basis, values, network.nodes)
        output = {"file": out, "holds": f"basis, {basis.dtype} {basis.shape}"}
        found = describe(request, network, stages, sub, output=output)
    if request.to_stdout:
        write_stdout(format_table(basis_table(basis, network.nodes), ","))
    finish(request, found)


def read_with_signals(request: Request, path: Path, stages: Stages) -> tuple[Table, GraphFile]:
    """Read both files. The number of signals counts the nodes of an edge list, unless the signals have names."""
    from krylow.io.signals import read_signals

    with stages("read", f"reading {path.name}"):
        table = read_signals(path, max_size=request.max_size)
    count = None if table.nodes is not None or not table.values.ndim else table.values.shape[_node_axis(table.values)]
    with stages("read", f"reading {request.graph.name}"):
        network = read(request, count)
    _check_length(table, path.name, network, request.graph.name)
    return table, network


def _check_length(table: Table, signals: str, network: GraphFile, graph: str) -> None:
    from krylow._checks import InputError

    shape = table.values.shape
    if not shape or shape[_node_axis(table.values)] != network.n:
        numbers = network.nodes if network.nodes is not None and network.nodes.dtype.kind == "i" else None
        span = "" if numbers is None else f" ({numbers.min()} to {numbers.max()})"
        raise InputError(
            f"{signals} must have a row for each of the {network.n} nodes of {graph}{span}, got shape {shape}"
            f"{': transpose it' if shape[-1:] == (network.n,) else ''}."
        )


def _node_axis(values: np.ndarray) -> int:
    return 0 if values.ndim == 1 else -2


def _filter(
    request: Request, network: GraphFile, table: Table, name: str, stages: Stages
) -> tuple[np.ndarray, Subspace | None, dict[str, Any]]:
    """Return the filtered signals in the order of their file, the subspace, and the cost where there is none."""
    import numpy as np
    import torch

    import krylow as kl
    from krylow.api import SIGNAL_METHODS
    from krylow.io.graphs import rows_by_name

    x = table.values
    rows = None if table.nodes is None else rows_by_name(network, table.nodes, name)
    with stages("laplacian", "building the Laplacian"):
        L = build(request, network, x.dtype)
    at_rows = x if rows is None else np.empty_like(x)
    if rows is not None:
        at_rows[rows] = x
    signal = torch.from_numpy(at_rows).to(L.device)
    kl._checks.signal(signal, L.batch_shape, L.n, L.dtype)
    sub, cost = None, dict[str, Any]()
    if request.method in SIGNAL_METHODS:
        before = L.products, L.passes
        with stages("solve", f"filtering by {request.method}"):
            y = kl.lowpass(
                L,
                signal,
                request.k,
                cutoff=request.cutoff,
                method=request.method,
                m=request.m,
                seed=request.seed,
                prove=request.prove,
            )
        cost = {"method": request.method, "why": "asked for", "k": request.k}
        cost |= {"products": L.products - before[0], "passes": L.passes - before[1]}
    else:
        sub = solve(request, L, stages)
        y = sub.project(signal)
    filtered = y.detach().cpu().numpy()
    return (filtered if rows is None else filtered[rows]), sub, cost
