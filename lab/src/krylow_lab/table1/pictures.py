"""The pictures, from records alone, as SVG and PNG."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import matplotlib
import numpy as np

from krylow_lab.records import Record
from krylow_lab.table1.plan import PAPER

matplotlib.use("Agg")  # files only: no window, no display needed
from matplotlib import pyplot as plt

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

#: Smallest error drawn: below it every method is exact for all purposes.
FLOOR = 1e-5


def draw_all(record: Record, folder: str | Path) -> list[Path]:
    """Draw the five pictures of one column into ``folder`` and return the files."""
    Path(folder).mkdir(parents=True, exist_ok=True)
    stem = f"{record.config['data'].lower()}-k{record.config['k']}"
    figures = {
        "error-products": error_against_products(record),
        "gammas": learned_gammas(record),
        "response": responses(record),
        "curves": curves(record),
        "spectrum": spectrum(record),
    }
    written = []
    for name, figure in figures.items():
        for suffix in ("svg", "png"):
            path = Path(folder) / f"{stem}-{name}.{suffix}"
            figure.savefig(path, dpi=120, bbox_inches="tight", metadata={"Date": None} if suffix == "svg" else None)
            written.append(path)
        plt.close(figure)
    return written


def error_against_products(record: Record) -> Figure:
    """Draw every method's error against its products, with the paper's points."""
    figure, axes = _axes(record, "products with L", "normalised squared subspace error")
    k = record.config["k"]
    styles = {
        "9": ("thick-restart Lanczos, 2K vectors", "s-", "tab:blue"),
        "10": ("Chebyshev-filtered block", "v-", "tab:purple"),
        "11": ("Lanczos, a vector a product (floor)", ":", "black"),
        "12": ("root probe (ours), 2K vectors", "o-", "tab:green"),
    }
    for number, (label, style, color) in styles.items():
        rows = [row for row in _rows(record, number) if number != "12" or "parameters" in row]
        rows = sorted(rows, key=lambda row: row["budget"])
        x = [row["products"][0] for row in rows]
        y = [max(row["mean"], FLOOR) for row in rows]
        axes.errorbar(x, y, yerr=_bars(rows), fmt=style, color=color, label=label, markersize=5, capsize=2, zorder=3)
    marks = {"2": "P", "3": "x", "4": "+", "5": "d", "6": "^", "7": "*", "13": "h"}
    colors = {None: "tab:gray", "literal": "tab:red", "converged": "tab:orange", "scaled": "tab:brown"}
    for number, mark in marks.items():
        for row in _rows(record, number):
            point = [float(np.mean(row["products"]))], [max(row["mean"], FLOOR)]
            axes.plot(*point, mark, color=colors[row.get("form")], markersize=8, label=f"{number}: {row['name']}")
    if (record.config["data"], k) in PAPER:
        standard, unrolled = PAPER[record.config["data"], k]
        axes.plot([2 * k], [standard], "k_", markersize=16, markeredgewidth=2, label="paper: standard")
        axes.hlines(unrolled, 210 + 2 * k, 1980 + 2 * k, color="black", lw=2, label="paper: unrolled (210-1980 + m)")
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.legend(fontsize=7, loc="center left", bbox_to_anchor=(1.01, 0.5))
    return figure


def learned_gammas(record: Record) -> Figure:
    """Draw the learned gammas by layer: full networks of both losses, and gammas alone."""
    figure, axes = _axes(record, "layer j", "gamma")
    shown = [row for number in ("5", "6", "7") for row in _rows(record, number) if row.get("form") in (None, "literal")]
    for i, row in enumerate(shown):
        for name, sign, style in (("upsilon1", -1, "o-"), ("upsilon2", 1, "s--")):
            values = 1 + sign * np.square([p[name] for p in row["parameters"]])  # (seeds, m)
            layers = np.arange(1, values.shape[1] + 1)
            label = f"{row['name']}: gamma{1 if sign < 0 else 2}"
            axes.errorbar(
                layers + 0.08 * i, values.mean(0), values.std(0), fmt=style, ms=3, lw=1, color=f"C{i}", label=label
            )
    axes.axhline(1, color="black", lw=0.8)
    axes.legend(fontsize=7, loc="center left", bbox_to_anchor=(1.01, 0.5))
    return figure


def responses(record: Record) -> Figure:
    """Draw the probes' responses before and after training over the family's eigenvalues."""
    figure, axes = _axes(record, "eigenvalue", "|h|, 1 at eigenvalue 0")
    about = record.results["spectrum"]
    lam = np.linspace(0, about["edges"][-1], 600)
    _histogram(axes, about)
    axes.axvspan(0, about["lam_k"], color="tab:green", alpha=0.12, label="kept band (mean)")
    shown = [("7", "literal", "tab:red"), ("7", "scaled", "tab:brown")]
    for number, form, color in shown:
        for row in (r for r in _rows(record, number) if r["form"] == form):
            power, b = row["settings"][0]["power"], np.array(row["parameters"][0]["probe.b"])
            x = lam / about["gershgorin"] if form == "scaled" else lam
            for coefficients, style, when in ((np.zeros_like(b), "--", "before"), (b, "-", "after")):
                h = _inverse_polynomial(x, coefficients, power)
                axes.plot(lam, h.clip(1e-12), style, color=color, label=f"inverse polynomial, {form}, solved, {when}")
    roots = [r for r in _rows(record, "12") if "parameters" in r and r["budget"] == 4 * record.config["k"]]
    for row in roots:
        low, high = row["settings"][0]["interval"]
        rho = np.exp(row["parameters"][0]["probe.log_rho"])
        i = np.arange(len(rho))
        start = (high + low) / 2 - (high - low) / 2 * np.cos((2 * i + 1) * np.pi / (2 * len(rho)))
        for values, style, when in ((start, "--", "before"), (rho, "-", "after")):
            h = np.abs(np.prod(1 - lam[:, None] / about["mean_degree"] / values, axis=1))
            label = f"root probe, {row['budget']} products, {when}"
            axes.plot(lam, h.clip(1e-12), style, color="tab:blue", label=label)
    axes.set_yscale("log")
    axes.set_ylim(1e-9, 3)
    axes.legend(fontsize=7, loc="upper center", bbox_to_anchor=(0.5, -0.15), ncol=2)
    return figure


def curves(record: Record) -> Figure:
    """Draw training and validation curves of the first seed's chosen members."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4))
    rows = [row for number in ("5", "6", "7", "12", "13") for row in _rows(record, number)]
    rows = [row for row in rows if "curves" in row and row.get("form") in (None, "literal")]
    for i, row in enumerate(rows):
        label = row["name"] + (f", {row['budget']} products" if "budget" in row else "")
        validation = row["curves"]["validation"]
        right.plot(range(len(validation)), validation, color=f"C{i}", label=label)
        best = row["settings"][0]["best_epoch"]
        right.plot([best], [validation[best]], "o", color=f"C{i}", ms=5)
        if row["settings"][0]["loss"] == "subspace":
            train = row["curves"]["train"]
            left.plot(range(1, len(train) + 1), train, color=f"C{i}", label=label)
    left.set_title("training loss (subspace error)", fontsize=9)
    right.set_title("validation error; a dot marks the epoch that was kept", fontsize=9)
    for axes in (left, right):
        axes.set_xlabel("epoch")
        axes.set_yscale("log")
        axes.grid(alpha=0.3)
    right.legend(fontsize=7, loc="center left", bbox_to_anchor=(1.01, 0.5))
    figure.suptitle(_title(record), fontsize=10)
    return figure


def spectrum(record: Record) -> Figure:
    """Draw the spectrum of one test graph with the kept band."""
    figure, axes = _axes(record, "index i", "eigenvalue")
    k = record.config["k"]
    lam = np.array(record.results["spectrum"]["graph"])
    i = np.arange(1, len(lam) + 1)
    axes.axvspan(0.5, k + 0.5, color="tab:green", alpha=0.15, label=f"kept: the K = {k} lowest")
    axes.plot(i[:k], lam[:k], "o", color="tab:green", ms=4)
    axes.plot(i[k:], lam[k:], "o", color="tab:gray", ms=3, label="removed")
    axes.axhline((lam[k - 1] + lam[k]) / 2, color="black", lw=0.8, ls=":", label="cutoff")
    axes.legend(fontsize=8)
    return figure


def _axes(record: Record, x: str, y: str) -> tuple[Figure, Axes]:
    figure, axes = plt.subplots(figsize=(6.5, 4.2))
    axes.set_xlabel(x)
    axes.set_ylabel(y)
    axes.set_title(_title(record), fontsize=10)
    axes.grid(alpha=0.3)
    return figure, axes


def _title(record: Record) -> str:
    config = record.config
    return f"{config['data']}, K = {config['k']}, {len(config['seeds'])} seeds, {config['grid']} grid"


def _rows(record: Record, number: str) -> list[dict[str, Any]]:
    return [row for row in record.results["rows"] if row["row"] == number]


def _bars(rows: Sequence[dict[str, Any]]) -> np.ndarray:
    """Return error bars that do not leave the picture at the bottom."""
    mean, std = (np.array([row[key] for row in rows]) for key in ("mean", "std"))
    mean = mean.clip(FLOOR)
    return np.stack([np.minimum(std, mean - FLOOR * 0.99), std])


def _histogram(axes: Axes, about: dict[str, Any]) -> None:
    twin = axes.twinx()
    twin.stairs(about["counts"], about["edges"], fill=True, color="lightgray", alpha=0.6)
    twin.set_ylabel("eigenvalues of the test graphs", color="gray", fontsize=8)
    axes.set_zorder(twin.get_zorder() + 1)
    axes.patch.set_visible(False)


def _inverse_polynomial(lam: np.ndarray, b: np.ndarray, power: int) -> np.ndarray:
    q = np.zeros_like(lam)
    for a in np.log1p(np.exp(b))[::-1]:
        q = (q + a) * lam
    return np.asarray((1 + q) ** -power)
