"""What was learned: the gammas by layer, the probes' responses over the spectrum, and how training went."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import plotly.graph_objects as go
import torch

from krylow.nn.probes import InversePolynomialProbe, RootProbe
from krylow_lab.report import figures as f
from krylow_lab.report.blocks import Chart, Missing, Section, Text, Variant
from krylow_lab.report.sections.columns import choice, columns, missing, rows
from krylow_lab.report.sections.errors import FORMS
from krylow_lab.report.sources import Source

#: Points of a response's curve, and its smallest value drawn.
POINTS, SMALLEST = 220, 1e-9
#: A legend in which one entry stands for the curves of a group.
TOGETHER = {"groupclick": "togglegroup", "tracegroupgap": 0}


def gammas(sources: Sequence[Source]) -> Section | Missing:
    """Return the learned gammas by layer."""
    title = "Learned gammas by layer"
    found = columns(sources)
    if not found:
        return missing(title)
    intro = (
        "The recurrence is classical Lanczos where both gammas are 1. They do not change the space that the basis "
        "spans, only which of its directions are kept. γ¹ is at most 1, γ² at least 1, by construction."
    )
    variants = [Variant(choice(*column), _gammas(source)) for column, source in found.items()]
    chart = Chart("gammas", variants, "Mean over the seeds, with its standard deviation. Solid γ¹, dashed γ².")
    return Section("gammas", title, [Text(intro), chart], list(found.values()))


def _gammas(source: Source) -> dict[str, Any]:
    traces = []
    ordered = sorted(rows(source, "5", "6", "7"), key=lambda row: row.get("form") not in (None, "literal"))
    for i, row in enumerate(ordered):
        for name, sign, dash in (("upsilon1", -1, "solid"), ("upsilon2", 1, "dash")):
            values = 1 + sign * np.square([p[name] for p in row["parameters"]])  # (seeds, m)
            layers = np.arange(1, values.shape[1] + 1)
            symbol = "γ¹" if sign < 0 else "γ²"
            more = {
                "legendgroup": row["name"],
                "showlegend": sign < 0,
                "uid": f"{row['name']} {symbol}",
                "error_y": {"array": _short(values.std(0)), "thickness": 1, "width": 2},
                "line": {"dash": dash, "width": 1.8},
                "marker": {"size": 5},
                "visible": f.shown(row.get("form") in (None, "literal")),
            }
            hover = f"<b>{row['name']}</b><br>{symbol} of layer %{{x}}: %{{y:.4f}}"
            traces.append(f.curve(row["name"], layers.tolist(), _short(values.mean(0)), f.CYCLE[i], hover, **more))
    axis = {"dtick": 1 if source.config["k"] < 8 else 2}
    return f.figure(traces, x="layer j", y="γ", height=460, xaxis=axis, legend=TOGETHER)


def responses(sources: Sequence[Source]) -> Section | Missing:
    """Return the frequency responses of the probes before and after training, over the family's eigenvalues."""
    title = "Frequency response of the probes"
    found = columns(sources)
    if not found:
        return missing(title)
    intro = (
        "What the start's filter leaves of each frequency, 1 at frequency 0, before (dashed) and after training "
        "(solid), of the first seed. Grey bars count the eigenvalues of the test graphs; the green band is kept."
    )
    variants = [Variant(choice(*column), _responses(source)) for column, source in found.items()]
    caption = (
        "The inverse polynomials are drawn as they would be if solved; as written, truncated conjugate gradients "
        "follow them only in part. A dip of the root probe is a learned root."
    )
    return Section("responses", title, [Text(intro), Chart("responses", variants, caption)], list(found.values()))


def _responses(source: Source) -> dict[str, Any]:
    about, k = source.results["spectrum"], source.config["k"]
    lam = torch.linspace(0, about["edges"][-1], POINTS, dtype=torch.float64)
    edges = np.array(about["edges"])
    traces: list[Any] = [
        go.Bar(
            name="eigenvalues",
            x=_short((edges[1:] + edges[:-1]) / 2),
            y=about["counts"],
            width=_short(np.diff(edges)),
            yaxis="y2",
            marker={"color": "#dfe4e9", "line": {"width": 0}},
            hovertemplate="%{y} eigenvalues near %{x:.3g}<extra></extra>",
        )
    ]
    for row in rows(source, "6", "7"):
        settings, (_, color) = row["settings"][0], FORMS[row["form"]]
        color = color if row["row"] == "7" else f.QUIET
        x = lam / about["gershgorin"] if row["form"] == "scaled" else lam
        probe = InversePolynomialProbe(settings["degree"], settings["power"]).double()
        before = probe.response(x)
        probe.b.data = torch.tensor(row["parameters"][0]["probe.b"], dtype=torch.float64)
        show = row["row"] == "7" and row["form"] != "converged"
        traces += _before_and_after(row["name"], lam, before, probe.response(x), color, show)
    budgets = [row for row in rows(source, "12") if "parameters" in row]
    for row, color in zip(budgets, (f.RESTART, f.OURS, f.BLOCK, "#1aa3b8"), strict=False):
        log_rho = row["parameters"][0]["probe.log_rho"]
        probe_of_roots = RootProbe(len(log_rho), *row["settings"][0]["interval"]).double()
        x = lam / about["mean_degree"]
        before = probe_of_roots.response(x)
        probe_of_roots.log_rho.data = torch.tensor(log_rho, dtype=torch.float64)
        name = f"root probe, {row['budget']} products"
        show = row["budget"] == 4 * k
        traces += _before_and_after(name, lam, before, probe_of_roots.response(x), color, show)
    band = {"type": "rect", "xref": "x", "yref": "paper", "x0": 0, "x1": about["lam_k"], "y0": 0, "y1": 1}
    return f.figure(
        traces,
        x="eigenvalue of L",
        y="|h|",
        log="y",
        height=480,
        legend=TOGETHER,
        y_range=(-9, 0.3),
        bargap=0,
        shapes=[{**band, "fillcolor": f.OURS, "opacity": 0.13, "line": {"width": 0}, "layer": "between"}],
        xaxis={"range": [0, about["edges"][-1]]},
        yaxis={"overlaying": "y2", "side": "left"},
        yaxis2={"visible": False, "side": "right"},
        plot_bgcolor="rgba(0,0,0,0)",
    )


def _before_and_after(
    name: str, lam: torch.Tensor, before: torch.Tensor, after: torch.Tensor, color: str, show: bool
) -> list[go.Scatter]:
    return [
        f.curve(
            name,
            _short(lam),
            _short(h.detach().abs().clamp(min=SMALLEST)),
            color,
            f"<b>{name}</b>, {when} training<br>|h(%{{x:.3g}})| = %{{y:.3g}}",
            legendgroup=name,
            showlegend=when == "after",
            uid=f"{name} {when}",
            mode="lines",
            line={"dash": dash},
            visible=f.shown(show),
        )
        for when, h, dash in (("before", before, "dash"), ("after", after, "solid"))
    ]


def curves(sources: Sequence[Source]) -> Section | Missing:
    """Return the curves of training and validation."""
    title = "Training and validation"
    found = columns(sources)
    if not found:
        return missing(title)
    variants = []
    for column, source in found.items():
        variants.append(Variant({**choice(*column), "curve": "subspace error"}, _error_curves(source)))
        variants.append(Variant({**choice(*column), "curve": "theory loss"}, _theory_curves(source)))
    intro = (
        "The network that validation chose for the first seed. Solid: error on the validation graphs, whichever loss "
        "was trained, with a dot at the epoch that was kept. Dotted: the training loss, where that is the error itself."
    )
    return Section("curves", title, [Text(intro), Chart("curves", variants)], list(found.values()))


def _trained(source: Source) -> list[tuple[str, str, dict[str, Any]]]:
    """Return the trained rows with their names and colours, those that are not shown at first last."""
    found = [row for row in rows(source, "4", "5", "6", "7", "12", "13") if "curves" in row]
    out = []
    for i, row in enumerate(sorted(found, key=lambda row: not _at_first(row))):
        name = row["name"] + (f", {row['budget']} products" if "budget" in row else "")
        out.append((name, f.CYCLE[i % len(f.CYCLE)], row))
    return out


def _at_first(row: dict[str, Any]) -> bool:
    return row["row"] != "4" and row.get("form") in (None, "literal")


def _error_curves(source: Source) -> dict[str, Any]:
    traces = []
    for name, color, row in _trained(source):
        settings, validation, train = row["settings"][0], row["curves"]["validation"], row["curves"]["train"]
        best = settings["best_epoch"]
        show = f.shown(_at_first(row))
        common: dict[str, Any] = {"legendgroup": name, "visible": show}
        hover = f"<b>{name}</b><br>%{{y:.4f}} at epoch %{{x}}"
        sizes = [9 if epoch == best else 0 for epoch in range(len(validation))]
        marker = {"size": sizes, "line": {"width": 0}, "opacity": 1}
        epochs = range(len(validation))
        traces.append(f.curve(name, epochs, validation, color, f"{hover}, validation", marker=marker, **common))
        if settings["loss"] == "subspace":
            more = common | {"mode": "lines", "line": {"width": 1.3, "dash": "dot"}, "showlegend": False}
            epochs = range(1, len(train) + 1)
            traces.append(f.curve(f"{name} training", epochs, train, color, f"{hover}, training", **more))
    return f.figure(traces, x="epoch", y="subspace error", log="y", height=520, legend=TOGETHER)


def _theory_curves(source: Source) -> dict[str, Any]:
    traces = []
    for name, color, row in _trained(source):
        train = row["curves"]["train"]
        if row["settings"][0]["loss"] == "theory":
            hover, show = f"<b>{name}</b><br>%{{y:.4g}} at epoch %{{x}}", f.shown(_at_first(row))
            traces.append(f.curve(name, range(1, len(train) + 1), train, color, hover, mode="lines", visible=show))
    return f.figure(traces, x="epoch", y="theory loss on the training graphs", height=520)


def _short(values: Any) -> list[float]:
    return [float(f"{value:.5g}") for value in values.tolist()]
