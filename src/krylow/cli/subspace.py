"""``krylow subspace``: a basis of the lowest frequencies of a graph."""

from __future__ import annotations

from typing import Annotated

import typer

from krylow.cli import options, progress, report, solving
from krylow.cli.app import app
from krylow.cli.options import Request

HELP = (
    "Compute a basis of the k lowest frequencies of a graph, or of all up to a cutoff.\n\n"
    "krylow subspace graph.mtx -k 50 -o basis.npz\n\n"
    "Row i of the basis belongs to row i of a matrix. For an edge list or GraphML, nodes in the .npz says whose rows "
    "they are: whole numbers in ascending order, names in the order in which they first appear.\n\n"
    f"{options.EXIT_CODES}"
)


@app.command(help=HELP)
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
    json: options.JsonOption = False,
    max_size: options.MaxSizeOption = None,
) -> None:
    """Compute a basis of the lowest frequencies; the help text is ``HELP``."""
    request = Request(
        graph, out, k, cutoff, method, tol, kind, m, max_products, weights, seed, device, nodes, add_up, json, max_size
    )
    with progress.staged() as stages:
        with stages.starting():
            from krylow.api import METHODS
            from krylow.io.signals import basis_table, format_table, write_subspace

        request.check(METHODS, (graph,))
        with stages("read", f"reading {graph.name}"):
            network = solving.read(request, None)
        with stages("laplacian", "building the Laplacian"):
            L = solving.build(request, network, network.adjacency.dtype)
        sub = solving.solve(request, L, stages)
        basis, values = (part[..., : report.kept(sub)].cpu().numpy() for part in (sub.basis, sub.ritz_values))
        with stages("write", f"writing {out}"):
            if not request.to_stdout:
                write_subspace(out, basis, values, network.nodes)
        output = {"file": out, "holds": f"basis, {basis.dtype} {basis.shape}"}
        found = report.describe(request, network, stages, sub, output=output)
    if request.to_stdout:
        report.write_stdout(format_table(basis_table(basis, network.nodes), ","))
    report.finish(request, found)
