"""``krylow view``: a graph, its low frequencies and a filtered signal as one page for a browser."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from krylow.cli import solving as options
from krylow.cli.app import app, staged
from krylow.cli.filter import read_with_signals
from krylow.cli.solving import Request, build, describe, finish, kind_of, read, solve

if TYPE_CHECKING:
    from krylow.io.graphs import GraphFile
    from krylow.io.signals import Table

#: Names of two columns of signals that are coordinates.
COORDINATES = (("x", "y"), ("lon", "lat"), ("longitude", "latitude"))

VIEW_HELP = (
    "Show a graph as one page: its lowest frequencies, a signal before and after the filter, and the certificate.\n\n"
    "krylow view graph.mtx -o graph.html\n\n"
    "krylow view edges.csv signals.csv --coordinates places.csv -o graph.html\n\n"
    "The page is one file that opens in any browser, without a network. Without SIGNALS it makes one up. Nodes are "
    "drawn at their coordinates (--coordinates, columns x and y of SIGNALS, or those of GRAPH), else by a spectral "
    f"layout; of a large graph a random part.\n\n{options.EXIT_CODES}"
)


@app.command(help=VIEW_HELP)
def view(
    graph: options.GraphArgument,
    out: Annotated[str, typer.Option("-o", "--out", help="Where the page goes: .html.", show_default=False)],
    signals: Annotated[
        Path | None,
        typer.Argument(
            metavar="[SIGNALS]",
            help="Signals, a row for each node, as in krylow filter.",
            show_default=False,
        ),
    ] = None,
    k: Annotated[int, typer.Option("-k", "--k", help="How many of the lowest frequencies are found.", min=1)] = 24,
    coordinates: Annotated[
        Path | None,
        typer.Option(help="Where the nodes are: a table or array of two columns, a row for each node, as signals are."),
    ] = None,
    kind: options.KindOption = None,
    method: Annotated[str, typer.Option(help="As in krylow subspace.")] = "auto",
    tol: options.TolOption = 1e-3,
    seed: options.SeedOption = None,
    nodes: options.NodesOption = None,
    add_up: options.AddUpOption = False,
    source: options.SourceOption = None,
    target: options.TargetOption = None,
    weight: options.WeightOption = None,
    directed: options.DirectedOption = "error",
    drawn: Annotated[int, typer.Option(help="How many nodes are drawn at most.", min=1, max=50000)] = 4000,
    max_size: options.MaxSizeOption = None,
) -> None:
    """Write the page; the help text is ``VIEW_HELP``."""
    request = Request(
        graph, out, k, None, method, tol, kind, None, None, None, seed, "cpu", nodes, add_up, False, max_size,
        source, target, weight, directed,
    )  # fmt: skip
    inputs = tuple(path for path in (graph, signals, coordinates) if path is not None)
    with staged() as stages:
        with stages.starting():
            from krylow.api import METHODS
            from krylow.io.atomic import write_whole
            from krylow.io.positions import read_positions
            from krylow.view import Picture, page

        request.check(METHODS, inputs, outputs=(".html", ".htm"))
        tables, network = [], None
        for path in (signals, coordinates):
            table = None
            if path is not None:
                table, network = read_with_signals(request, path, stages)
            tables.append(None if table is None or network is None else _in_order(network, table, path))
        if network is None:
            with stages("read", f"reading {graph.name}"):
                network = read(request, None)
        shown, places = _apart(*tables)
        where = read_positions(graph, network, max_size=max_size) if places is None else places.values
        with stages("laplacian", "building the Laplacian"):
            L = build(request, network, "float64")
        sub = solve(replace(request, k=min(k, L.n)), L, stages)
        with stages("write", f"drawing {out}"):
            picture = Picture(
                title=graph.name,
                kind=kind_of(request, network),
                positions=where,
                signals=None if shown is None else shown.values,
                columns=None if shown is None else shown.columns,
                nodes=network.nodes,
                most_nodes=drawn,
                most_edges=3 * drawn,
                seed=seed or 0,
            )
            text = page(sub, picture)
            write_whole(out, text)
        output = {"file": out, "holds": f"page, {len(text.encode()) / 1e3:.0f} kB"}
        found = describe(request, network, stages, sub, output=output)
    finish(request, found)


def _in_order(network: GraphFile, table: Table, path: Path | None) -> Table:
    """Return a table with its rows in the order of the graph's nodes, which they may name."""
    import numpy as np

    from krylow.io.graphs import rows_by_name

    values = table.values[:, None] if table.values.ndim == 1 else table.values
    if table.nodes is None or path is None:
        return replace(table, values=values)
    at_rows = np.empty_like(values)
    at_rows[rows_by_name(network, table.nodes, path.name)] = values
    return replace(table, values=at_rows, nodes=None)


def _apart(signals: Table | None, coordinates: Table | None) -> tuple[Table | None, Table | None]:
    """Return signals and coordinates; without a file of their own, these may be columns x and y of the signals."""
    names = [] if signals is None or signals.columns is None else [name.strip().lower() for name in signals.columns]
    if coordinates is not None or signals is None:
        return signals, coordinates
    for pair in COORDINATES:
        if set(pair) <= set(names):
            at = [names.index(name) for name in pair]
            rest = [i for i in range(len(names)) if i not in at]
            columns = [(signals.columns or names)[i] for i in rest]
            places = replace(signals, values=signals.values[:, at])
            return (replace(signals, values=signals.values[:, rest], columns=columns) if rest else None), places
    return signals, None
