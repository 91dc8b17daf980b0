"""One large sparse graph: krylow's seconds beside those of the other libraries, against the number of nodes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from krylow_lab.report import figures as f
from krylow_lab.report.blocks import Block, Cell, Chart, Missing, Section, Table, Text, Variant
from krylow_lab.report.sources import Source, of_kind

TITLE = "One large graph, beside other libraries"
COMMAND = "krylow bench large"
#: Numbers of kept frequencies below and from this on are drawn separately.
MANY = 30


def section(sources: Sequence[Source]) -> Section | Missing:
    """Return the races: a chart of all solvers and a table of ours and the best peer."""
    found = of_kind(sources, "large")
    if not found:
        return Missing(TITLE, COMMAND)
    source = max(found, key=lambda source: source.record.started)
    races: dict[tuple[str, ...], list[dict[str, Any]]] = {}
    for row in source.results["rows"]:
        kept = "about 10" if row["k"] < MANY else "about 50"
        races.setdefault((row["family"], kept, f"{row['tol']:g}", str(row["threads"])), []).append(row)
    names = ("graph", "kept frequencies", "error", "threads")
    variants = [Variant(dict(zip(names, key, strict=True)), _chart(rows)) for key, rows in races.items()]
    intro = (
        "Seconds to the asked error, medians of a race in which the solvers take turns, each peer at its cheapest "
        "setting that is right. A ratio above 1 means that krylow is faster than the best peer; below 1 it is slower."
    )
    caption = "Hollow markers: an answer that missed the asked error. Solvers that did not finish are not drawn."
    blocks: list[Block] = [Text(intro), Chart("large", variants, caption), _table(source.results["rows"])]
    return Section("large", TITLE, blocks, [source])


def _chart(rows: list[dict[str, Any]]) -> dict[str, Any]:
    rows = sorted(rows, key=lambda row: row["n"])
    solvers = list(dict.fromkeys(name for row in rows for name in row["solvers"]))
    solvers.sort(key=lambda name: not name.startswith("krylow"))
    traces = []
    hover = "<b>%{fullData.name}</b><br>%{x} nodes, K = %{customdata[0]}<br>%{y:.3s}s, error %{customdata[1]}"
    for i, name in enumerate(solvers):
        runs = [(row, row["solvers"][name]) for row in rows if "seconds" in row["solvers"].get(name, {})]
        color = f.OURS if name == "krylow" else f.CYCLE[(i + 1) % len(f.CYCLE)]
        more = {
            "customdata": [[row["k"], f"{run['error']:.1g}"] for row, run in runs],
            "line": {"width": 3 if name == "krylow" else 1.8},
            "marker": {"size": 8, "symbol": ["circle" if run["right"] else "circle-open" for _, run in runs]},
        }
        x, y = [row["n"] for row, _ in runs], [run["seconds"] for _, run in runs]
        traces.append(f.curve(name, x, y, color, hover, **more))
    nodes = sorted({row["n"] for row in rows})
    marks = {"tickvals": nodes, "ticktext": [f"{n:,}".replace(",", " ") for n in nodes]}
    return f.figure(traces, x="nodes", y="seconds", log="xy", xaxis=marks)


def _table(rows: Sequence[dict[str, Any]]) -> Table:
    body: list[list[str | Cell]] = []
    for row in rows:
        ours, ratio = row["solvers"].get("krylow", {}).get("seconds"), row["ratio"]
        mark = "" if ratio is None else "good" if ratio > 1 else "bad"
        peer = row["best_peer"]
        body.append(
            [
                row["family"],
                f"{row['n']:,}".replace(",", " "),
                str(row["k"]),
                f"{row['tol']:g}",
                str(row["threads"]),
                "" if ours is None else f"{ours:.3g} s",
                "" if peer is None else Cell(f"{row['solvers'][peer]['seconds']:.3g} s", peer),
                Cell("" if ratio is None else f"{ratio:.2g}", mark=mark),
            ]
        )
    return Table(("graph", "nodes", "K", "error", "threads", "krylow", "best peer", "peer / krylow"), body)
