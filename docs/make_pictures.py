"""Draw the pictures of README and pages, for light and for dark ones: `python docs/make_pictures.py`.

README's: a noisy signal on a graph of neighbours, its low-pass projection, and the graph in parts, computed here. Of what
is learned: the error of the low-frequency subspace against products with L, from the records of Table 1.
"""

import io
import re
from collections.abc import Sequence
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from scipy.sparse import csr_array
from scipy.spatial import cKDTree

import krylow as kl
from krylow_lab.records import Record, find
from krylow_lab.table1 import PAPER

HERE = Path(__file__).parent
PALETTES = {
    "light": {"ink": "#1f2328", "faint": "#d0d7de", "roots": "#1a7f37", "restart": "#0969da", "paper": "#cf222e"},
    "dark": {"ink": "#e6edf3", "faint": "#3d444d", "roots": "#3fb950", "restart": "#58a6ff", "paper": "#ff7b72"},
}
K = 6


def main() -> None:
    for name, colors in PALETTES.items():
        plt.rcParams.update(
            {
                "svg.fonttype": "none",
                "svg.hashsalt": "krylow",
                "font.family": "sans-serif",
                "font.size": 11,
                **dict.fromkeys(("text.color", "axes.labelcolor", "xtick.color", "ytick.color"), colors["ink"]),
                "axes.edgecolor": colors["faint"],
            }
        )
        figure, axes = plt.subplots(1, 3, figsize=(11.5, 4.1), layout="constrained")
        figure.get_layout_engine().set(h_pad=0.12)
        result(axes, colors)
        save(figure, f"krylow-{name}")
        figure, one = plt.subplots(figsize=(6.2, 3.5), layout="constrained")
        cost(one, colors)
        save(figure, f"learned-{name}")


def save(figure: Figure, name: str) -> None:
    text = io.StringIO()
    figure.savefig(text, format="svg", transparent=True, metadata={"Date": None})
    short = re.sub(r"(\d\.\d\d)\d+", r"\1", text.getvalue())
    (HERE / "pictures" / f"{name}.svg").write_text(short, encoding="utf-8")
    plt.close(figure)


def result(axes: Sequence[Axes], colors: dict[str, str]) -> None:
    """Draw a noisy signal on a graph of neighbours, its k lowest frequencies, and the parts of the graph."""
    rng = np.random.default_rng(3)
    points = rng.random((420, 2))
    points = points[np.linalg.norm(points - [0.5, 0.5], axis=1) > 0.18]  # with a hole
    edges = np.array(sorted(cKDTree(points).query_pairs(0.083)))
    W = csr_array((np.ones(len(edges)), edges.T), shape=(len(points),) * 2)
    L = kl.laplacian(W + W.T)
    noisy = np.sin(2 * np.pi * points[:, 0]) * np.cos(np.pi * points[:, 1]) + rng.normal(0, 0.5, len(points))
    pictures = (
        ("a noisy signal on your graph", noisy, {"cmap": "coolwarm", "vmin": -1.2, "vmax": 1.2}),
        ("kl.lowpass(L, x, k=16)", kl.lowpass(L, noisy, k=16), {"cmap": "coolwarm", "vmin": -1.2, "vmax": 1.2}),
        ("kl.partition(L, 6)", kl.partition(L, 6).labels, {"cmap": "Set2", "vmin": 0, "vmax": 7}),
    )
    for axis, (title, values, style) in zip(axes, pictures, strict=True):
        lines = np.insert(points[edges], 2, np.nan, axis=1).reshape(-1, 2)  # one path, which is a small file
        axis.plot(*lines.T, color=colors["faint"], lw=0.6, zorder=1)
        axis.scatter(*points.T, c=values, s=22, zorder=2, lw=0, **style)
        axis.set(aspect="equal", xticks=[], yticks=[], frame_on=False)
        axis.set_title(title, fontsize=12, family="monospace" if title.startswith("kl.") else None)


def cost(axes: Axes, colors: dict[str, str]) -> None:
    """Draw errors against products."""
    record = find(HERE.parent / "results" / "table1", kind="table1", data="sbm", k=K)[0]
    curves = (
        ("9", "thick-restart Lanczos", "restart", "s"),
        ("12", "learned roots (krylow)", "roots", "o"),
    )
    for number, label, color, marker in curves:
        rows = [row for row in rows_of(record, number) if row["budget"] <= 8 * K and "untrained" not in row["name"]]
        x, y = [row["budget"] for row in rows], [row["mean"] for row in rows]
        axes.plot(x, y, marker=marker, ms=6, lw=1.8, color=colors[color], label=label)
    (lanczos,) = rows_of(record, "2")
    axes.plot(2 * K, lanczos["mean"], "D", ms=7, color=colors["ink"], label="Lanczos, m = 2K steps", zorder=3)
    network = next(row for row in rows_of(record, "6") if row["form"] == "literal")
    axes.plot(network["products"][0], network["mean"], "^", ms=8, color=colors["paper"], label="the paper's network")
    _, unrolled = PAPER["sbm", K]
    axes.hlines(
        unrolled, 210 + 2 * K, 1980 + 2 * K, color=colors["paper"], lw=1.5, ls=":", label="as the paper reports it"
    )
    axes.set(xscale="log", yscale="log", xlabel="products with $L$", xlim=(9, 3000))
    axes.set_xticks([10, 30, 100, 300, 1000], ["10", "30", "100", "300", "1000"])
    axes.set_yticks([0.5, 0.1, 0.02, 0.01], ["0.5", "0.1", "0.02", "0.01"])
    axes.minorticks_off()
    axes.grid(color=colors["faint"], lw=0.5)
    axes.set_title(f"squared subspace error, block models, K = {K}", fontsize=11)
    axes.legend(frameon=False, loc="lower right", fontsize=9.5)
    axes.spines[["top", "right"]].set_visible(False)


def rows_of(record: Record, number: str) -> list[dict]:
    rows = [row for row in record.results["rows"] if row["row"] == number]
    return sorted(rows, key=lambda row: row.get("budget", 0))


if __name__ == "__main__":
    main()
