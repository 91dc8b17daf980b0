"""Error against what it costs: products with L, from Table 1, and seconds, from the benchmark of the methods."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import plotly.graph_objects as go

from krylow_lab.report import figures as f
from krylow_lab.report.blocks import Chart, Missing, Section, Text, Variant
from krylow_lab.report.sections.columns import choice, columns, missing
from krylow_lab.report.sources import Source, of_kind
from krylow_lab.table1.plan import PAPER
from krylow_lab.table1.render import span

ROOTS = "learned roots (ours)"
#: Row of Table 1 -> heading in the legend, colour, marker, and whether it is shown from the start.
CLASSICAL = {
    "2": ("classical", f.PLAIN, "cross", True),
    "9": ("classical", f.RESTART, "square", True),
    "10": ("classical", f.BLOCK, "triangle-down", True),
    "11": ("classical", f.LIMIT, "line-ew-open", True),
    "12": (ROOTS, f.OURS, "circle", True),
    "13": ("learned steps (the author's solver)", f.STEPS, "hexagon", True),
}
FORMS = {
    "literal": ("the paper's network, as written", f.WRITTEN),
    "converged": ("the same, its filter solved", f.SOLVED),
    "scaled": ("the same, of L / Gershgorin bound", f.SCALED),
}
#: Least and most products of the paper's probe over its grid.
PAPER_PRODUCTS = (210, 1980)
#: Ends of the axis of errors, as powers of ten.
_ERROR_RANGE = (-6.2, 0.1)
LOSSES = {"theory": "triangle-up", "subspace": "star"}
MARKS = {"3": "x", "4": "diamond", "5": "diamond-open", "6": "triangle-up", "7": "star"}


def against_products(sources: Sequence[Source]) -> Section | Missing:
    """Return the error of every row of Table 1 against its products."""
    title = "Error against products"
    found = columns(sources)
    if not found:
        return missing(title)
    variants = [Variant(choice(*column), _products(*column, source)) for column, source in found.items()]
    caption = (
        "Bars are standard deviations over the seeds. Click an entry of the legend to hide or show it, double-click to "
        f"see it alone; some start hidden. Errors below {f.FLOOR:g} are drawn there, the true value is in the hover."
    )
    return Section("error-products", title, [Chart("error-products", variants, caption)], list(found.values()))


def _products(data: str, k: int, source: Source) -> dict[str, Any]:
    curves: dict[str, list[dict[str, Any]]] = {}
    for row in source.results["rows"]:
        curves.setdefault(row["name"], []).append(row)
    traces = sorted((_curve(name, points) for name, points in curves.items()), key=_place)
    if (data, k) in PAPER:
        standard, unrolled = PAPER[data, k]
        traces.insert(0, _paper("unrolled Lanczos", [low + 2 * k for low in PAPER_PRODUCTS], unrolled))
        traces.insert(0, _paper("standard Lanczos", [2 * k], standard))
    return f.figure(
        traces,
        x="products with L, one graph",
        y="subspace error",
        log="xy",
        height=760,
        y_range=_ERROR_RANGE,
        xaxis=f.ticks(x for trace in traces for x in trace.x),
    )


def _place(trace: go.Scatter) -> int:
    """Return where a curve stands in the legend: curves that are not shown at first come last."""
    return (
        0 if trace.legendgroup == ROOTS else 1 if trace.legendgroup == "classical" else 2 + (trace.visible is not True)
    )


def _curve(name: str, points: list[dict[str, Any]]) -> go.Scatter:
    first = points[0]
    points = sorted(points, key=lambda row: sum(row["products"]))
    if first["row"] in CLASSICAL:
        title, color, symbol, show = CLASSICAL[first["row"]]
    elif "form" in first:
        (title, color), symbol = FORMS[first["form"]], MARKS[first["row"]]
        show = first["form"] == "literal" and first["row"] in ("3", "6", "7")
    else:
        title, color, symbol, show = "learned gammas", f.PLAIN, MARKS[first["row"]], "theory" in name
    untrained = first["row"] in ("12", "13") and "parameters" not in first
    y = [max(row["mean"], f.FLOOR) for row in points]
    down = [min(row["std"], value - 0.99 * f.FLOOR) for row, value in zip(points, y, strict=True)]
    return f.curve(
        name,
        [sum(row["products"]) / len(row["products"]) for row in points],
        y,
        color,
        "<b>%{fullData.name}</b><br>error %{customdata[0]}<br>%{customdata[1]} products"
        "<br>%{customdata[2]} basis vectors",
        error_y={"array": [row["std"] for row in points], "arrayminus": down, "thickness": 1, "width": 3},
        mode="lines+markers" if len(points) > 1 else "markers",
        line={"dash": "dot" if first["row"] == "11" or untrained else "solid"},
        marker={"symbol": symbol, "size": 9, "line": {"color": color, "width": 1.5}},
        customdata=[[f"{row['mean']:.4g} ± {row['std']:.2g}", span(row["products"]), row["vectors"]] for row in points],
        visible=f.shown(show and not untrained),
        **f.group(title),
    )


def _paper(name: str, x: list[int], error: float) -> go.Scatter:
    cost = "its grid spans %{x} products here" if len(x) > 1 else "%{x} products"
    hover = f"<b>the paper: {name}</b><br>error {error:.4f}<br>{cost}"
    more = {"uid": f"paper {name}", "marker": {"symbol": "line-ns-open", "size": 12}, **f.group("the paper")}
    return f.curve(name, x, [error] * len(x), f.PAPER, hover, **more)


def against_time(sources: Sequence[Source]) -> Section | Missing:
    """Return the error of every method against the seconds it takes a graph."""
    title = "Error against time"
    newest: dict[tuple[str, int], Source] = {}
    for source in sorted(of_kind(sources, "methods"), key=lambda source: source.record.started):
        newest[source.config["data"], source.config["k"]] = source
    if not newest:
        return Missing(title, "python benchmarks/methods.py --out results/methods")
    newest = dict(sorted(newest.items(), key=lambda item: (item[0][0] != "sbm", *item[0])))
    variants = [Variant(choice(*column), _seconds(source)) for column, source in newest.items()]
    sizes = {(source.results["graphs"], source.results["nodes"]) for source in newest.values()}
    batches = " or ".join(f"{graphs} test graphs of {nodes} nodes" for graphs, nodes in sorted(sizes, reverse=True))
    intro = (
        f"Seconds a graph in one batch of {batches}, float64, one thread: medians of repeats in which the methods take "
        "turns. Ratios within one chart mean something, absolute times are this machine's. At this size a "
        "decomposition is hard to beat: what products buy shows on larger graphs, below."
    )
    caption = (
        "Filled markers are trained networks, open ones classical methods. chebyshev, lobpcg, thick_restart and "
        "shift_invert run at their defaults until the slowest graph of the batch meets 1e-3 by their own estimate."
    )
    chart = Chart("error-time", variants, caption)
    return Section("error-time", title, [Text(intro), chart], list(newest.values()))


def _seconds(source: Source) -> dict[str, Any]:
    curves: dict[str, list[dict[str, Any]]] = {}
    for point in source.results["points"]:
        curves.setdefault(point["method"], []).append(point)
    traces = []
    hover = "<b>%{fullData.name}</b>, %{customdata[0]}<br>error %{customdata[2]}"
    hover += "<br>%{x:.3s}s a graph, %{customdata[1]} products"
    for i, (name, points) in enumerate(curves.items()):
        color, symbol = _style(name, i)
        trained = points[0]["trained"]
        points = sorted(points, key=lambda point: point["seconds"])
        x, y = [point["seconds"] for point in points], [max(point["error"], f.FLOOR) for point in points]
        symbol = symbol if trained else f"{symbol}-open"
        more = {
            "mode": "lines+markers" if len(points) > 1 else "markers",
            "marker": {"symbol": symbol, "size": 9, "line": {"color": color, "width": 2}},
            "customdata": [[point["setting"], point["products"], f"{point['error']:.3g}"] for point in points],
        }
        traces.append(f.curve(name, x, y, color, hover, **more, **f.group("trained" if trained else "classical")))
    return f.figure(
        traces,
        x="seconds a graph",
        y="subspace error",
        log="xy",
        height=560,
        y_range=_ERROR_RANGE,
        xaxis=f.ticks((point["seconds"] for point in source.results["points"]), "s"),
    )


def _style(name: str, i: int) -> tuple[str, str]:
    """Return a method's colour and marker: those it has against products, or the next of the cycle."""
    known = {
        "Lanczos, a vector a product": (f.LIMIT, "circle"),
        "thick restart, 2K vectors": (f.RESTART, "square"),
        "Chebyshev-filtered block": (f.BLOCK, "triangle-down"),
        "root probe": (f.OURS, "circle"),
    }
    for form, (_, color) in FORMS.items():
        known |= {f"full network ({loss}), {form}": (color, mark) for loss, mark in LOSSES.items()}
    return known.get(name, (f.CYCLE[-1 - i % len(f.CYCLE)], "diamond"))
