"""One graph before and after filtering, made by krylow when the page is written."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import plotly.graph_objects as go
import torch
from torch import Tensor

from krylow.api import subspace
from krylow.data import sbm, sbm_labels
from krylow.graph import laplacian
from krylow_lab.report import figures as f
from krylow_lab.report.blocks import Chart, Row, Section, Text, Variant
from krylow_lab.report.sources import Source

SEED, NODES, COMMUNITIES, NOISE = 9, 100, 4, 0.6


def section(sources: Sequence[Source]) -> Section:
    """Return a block model with a noisy signal, and its projection on the lowest frequencies."""
    generator = torch.Generator().manual_seed(SEED)
    W = sbm(1, NODES, COMMUNITIES, generator=generator, dtype=torch.float64)[0]
    labels = sbm_labels(NODES, COMMUNITIES)
    clean = torch.tensor([-1.0, 1.0, -0.33, 0.33], dtype=torch.float64)[labels]
    noisy = clean + NOISE * torch.randn(NODES, generator=generator, dtype=torch.float64)
    found = subspace(laplacian(W), COMMUNITIES)
    filtered = found.project(noisy)
    places = layout(W, found.basis)
    before, after = (float((x - clean).norm() / clean.norm()) for x in (noisy, filtered))
    error = float(found.error_bound)
    intro = (
        f"A block model of {NODES} nodes in {COMMUNITIES} communities, whose signal has one value a community and "
        f"noise of standard deviation {NOISE:g}. The ideal low-pass filter keeps the {COMMUNITIES} lowest frequencies "
        f"and is told nothing of the communities. The distance to the clean signal falls from {before:.0%} to "
        f"{after:.0%} of the latter's norm. Method {found.method}, error proved to be at most {error:.0e}; "
        f"seed {SEED}, computed with this page."
    )
    limit = float(noisy.abs().max())
    names = {"before": ("noisy", noisy), "after": ("low-pass filtered", filtered)}
    charts = [
        Chart(f"graph-{when}", [Variant({}, _drawing(W, places, x, labels, limit))], caption)
        for when, (caption, x) in names.items()
    ]
    return Section("graph", "One graph, before and after filtering", [Text(intro), Row(charts)])


def layout(W: Tensor, basis: Tensor, steps: int = 60) -> Tensor:
    """Return places in the plane ``(n, 2)``: forces between all nodes and along edges, from the low frequencies on."""
    places = basis[:, 1:3] / basis[:, 1:3].std(0)
    n = len(W)
    for step in range(steps):
        difference = places[:, None] - places[None]
        square = difference.square().sum(-1).clamp(min=1e-4)
        push = (difference / square[..., None]).sum(1) / n
        pull = (W[..., None] * difference).sum(1) / W.sum(1, keepdim=True).clamp(min=1)
        places = places + 0.3 * (1 - step / steps) * (2.0 * push - pull)
    return places - places.mean(0)


def _drawing(W: Tensor, places: Tensor, x: Tensor, labels: Tensor, limit: float) -> dict[str, Any]:
    i, j = torch.nonzero(torch.triu(W), as_tuple=True)
    across, up = ([round(v, 3) for v in places[:, c].tolist()] for c in (0, 1))
    lines: dict[str, list[float | None]] = {"x": [], "y": []}
    for a, b in zip(i.tolist(), j.tolist(), strict=True):
        lines["x"] += [across[a], across[b], None]
        lines["y"] += [up[a], up[b], None]
    edges = go.Scatter(
        **lines, mode="lines", line={"color": "#cfd6dd", "width": 0.6}, hoverinfo="skip", showlegend=False
    )
    bar = {"thickness": 10, "outlinewidth": 0, "len": 0.9, "title": {"text": "signal", "side": "right"}}
    nodes = go.Scatter(
        x=across,
        y=up,
        mode="markers",
        marker={
            "size": 11,
            "color": [round(v, 4) for v in x.tolist()],
            "colorscale": "RdBu",
            "cmin": -limit,
            "cmax": limit,
            "colorbar": bar,
            "line": {"color": "#4a5560", "width": 0.7},
        },
        customdata=[[node, community] for node, community in enumerate((labels + 1).tolist())],
        hovertemplate="node %{customdata[0]}, community %{customdata[1]}<br>signal %{marker.color:.3f}<extra></extra>",
        showlegend=False,
    )
    invisible = {"visible": False}
    square = {"scaleanchor": "x", **invisible}
    margin = {"l": 4, "r": 4, "t": 4, "b": 4}
    return f.figure([edges, nodes], x="", y="", height=420, xaxis=invisible, yaxis=square, margin=margin)
