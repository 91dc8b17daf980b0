"""What all charts share: colours, axes, and the step from a plotly figure to plain JSON."""

from __future__ import annotations

import json
import math
import zlib
from collections.abc import Iterable, Sequence
from typing import Any

import plotly.graph_objects as go

#: Smallest error drawn: below it every method is exact for all purposes.
FLOOR = 1e-6

INK, QUIET, LINE = "#1f2933", "#66727f", "#e4e8ec"
#: Colours by what a method is.
PAPER, WRITTEN, SOLVED, SCALED = "#111111", "#c8452f", "#e08e1b", "#8d6b4f"
RESTART, BLOCK, LIMIT, PLAIN, OURS = "#2c6fb3", "#7b4fb0", "#9aa5b1", "#5b6770", "#12906a"
STEPS = "#d6558b"
#: For curves without a role of their own.
CYCLE = ("#2c6fb3", "#12906a", "#c8452f", "#7b4fb0", "#e08e1b", "#5b6770", "#d6558b", "#1aa3b8", "#8d6b4f", "#97a51d")


def figure(
    traces: Sequence[Any],
    *,
    x: str,
    y: str,
    log: str = "",
    height: int = 480,
    y_range: tuple[float, float] | None = None,
    **layout: Any,
) -> dict[str, Any]:
    """Return a chart in the page's style as plain JSON values.

    ``x`` and ``y`` are the axes' titles, ``log`` names those that are logarithmic, ``layout`` is anything else of
    plotly's.
    """
    axis: dict[str, Any] = {"gridcolor": LINE, "zeroline": False, "linecolor": QUIET, "ticks": "outside"}
    axis |= {"tickcolor": LINE, "automargin": True, "tickfont": {"size": 12}}
    exponents = {"exponentformat": "power", "dtick": 1}
    xaxis = axis | {"title": {"text": x, "standoff": 8}} | ({"type": "log"} if "x" in log else {})
    yaxis = axis | {"title": {"text": y, "standoff": 8}} | ({"type": "log"} | exponents if "y" in log else {})
    if y_range is not None:
        yaxis["range"] = list(y_range)
    style = {
        "template": go.layout.Template(),
        "font": {"family": "system-ui, -apple-system, Segoe UI, Roboto, sans-serif", "size": 13, "color": INK},
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "#ffffff",
        "height": height,
        "margin": {"l": 60, "r": 16, "t": 34, "b": 52},
        "modebar": {"bgcolor": "rgba(0,0,0,0)", "color": "#b6bfc8", "activecolor": QUIET},
        "hovermode": "closest",
        "hoverlabel": {"bgcolor": "#ffffff", "bordercolor": LINE, "font": {"color": INK, "size": 13}, "align": "left"},
        "legend": {"groupclick": "toggleitem", "font": {"size": 12}, "tracegroupgap": 6},
        "xaxis": xaxis,
        "yaxis": yaxis,
    }
    return plain(go.Figure(list(traces), layout=_merged(style, layout)))


def curve(name: str, x: Sequence[Any], y: Sequence[Any], color: str, hover: str, **more: Any) -> go.Scatter:
    """Return a line with markers, known by its name; ``hover`` is what a point says, ``more`` is plotly's."""
    style: dict[str, Any] = {"uid": name, "mode": "lines+markers", "hovertemplate": f"{hover}<extra></extra>"}
    style |= {"line": {"color": color, "width": 2}, "marker": {"size": 7, "color": color}}
    return go.Scatter(name=name, x=list(x), y=list(y), **_merged(style, more))


def ticks(values: Iterable[float], unit: str = "") -> dict[str, Any]:
    """Return marks at 1, 2 and 5 times powers of ten around some values, for a logarithmic axis.

    >>> ticks([15, 90])["ticktext"]
    ['10', '20', '50', '100']
    """
    values = list(values)
    low, high = math.floor(math.log10(min(values))), math.ceil(math.log10(max(values)))
    digits = (1, 2, 5) if high - low < 4 else (1,)
    marks = [digit * 10.0**power for power in range(low, high + 1) for digit in digits]
    below = max(mark for mark in marks if mark <= min(values))
    marks = [mark for mark in marks if mark >= below and mark <= max(*values, 1.0001 * 10.0**high)]
    return {"tickvals": marks, "ticktext": [_quantity(mark, unit) for mark in marks]}


def _quantity(value: float, unit: str) -> str:
    for factor, prefix in ((1.0, ""), (1e-3, "m"), (1e-6, "µ")):
        if not unit or value >= 0.999 * factor:
            return f"{value / factor:g}{' ' if unit else ''}{prefix if unit else ''}{unit}"
    return f"{value:g} {unit}"


def plain(chart: go.Figure) -> dict[str, Any]:
    """Return a figure as plain JSON values.

    By the uid of a trace a reader's clicks are kept when the chart changes. Plotly takes it for a word of CSS too, so
    that here it becomes one; what it was goes to ``meta``.
    """
    content: dict[str, Any] = json.loads(chart.to_json(remove_uids=False))
    content["layout"].pop("template", None)
    for trace in content["data"]:
        if "uid" in trace:
            trace["meta"] = trace["uid"]
            trace["uid"] = f"t{zlib.crc32(trace['uid'].encode()):08x}"
    return {"data": content["data"], "layout": content["layout"]}


def group(title: str) -> dict[str, Any]:
    """Return what puts a trace under a heading of the legend."""
    return {"legendgroup": title, "legendgrouptitle": {"text": title, "font": {"size": 12, "color": QUIET}}}


def shown(yes: bool) -> bool | str:
    """Return plotly's word for a curve that is there from the start, or only on request."""
    return True if yes else "legendonly"


def _merged(style: dict[str, Any], more: dict[str, Any]) -> dict[str, Any]:
    out = dict(style)
    for key, value in more.items():
        out[key] = _merged(out[key], value) if isinstance(value, dict) and isinstance(out.get(key), dict) else value
    return out
