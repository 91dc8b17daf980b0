"""The tables that docs show of Table 1's records: each column from the full grid where that was run."""

from __future__ import annotations

import math
from pathlib import Path

from krylow_lab.records import Record, find
from krylow_lab.table1 import PAPER, render_markdown

FOLDER = Path(__file__).parent.parent / "results" / "table1"
TRANSFER = FOLDER.parent / "roots-transfer"
STARTS = FOLDER.parent / "learned-steps-start"

#: Rows of the first table: number and name in the record, budget in multiples of k, and what to call it.
HEADLINES = (
    ("2", "standard Lanczos, random start", None, "standard Lanczos, random start"),
    ("5", "gammas only (theory)", None, "learned gammas only"),
    ("3", "untrained probe, literal", None, "the paper's probe, untrained"),
    ("6", "full network (theory), literal", None, "the paper's network, its theory loss"),
    ("7", "full network (subspace), literal", None, "the paper's network, trained on the error itself"),
    ("13", "learned steps, untrained", None, "its author's solver (learned CG steps), untrained"),
    (
        "13",
        "learned steps (theory), the paper's learning rates",
        None,
        "the same, theory loss, the paper's lr (to .003)",
    ),
    ("13", "learned steps (theory), learning rates to 0.01", None, "the same, theory loss, lr to .01"),
    ("9", "thick-restart Lanczos", 4, "thick-restart Lanczos, 4K products"),
    ("12", "root probe", 4, "**learned filter roots (ours), 4K products**"),
    ("9", "thick-restart Lanczos", 6, "thick-restart Lanczos, 6K products"),
    ("12", "root probe", 6, "**learned filter roots (ours), 6K products**"),
)

#: Rows of the page "what is learned": the network taken apart.
APART = (
    ("2", "standard Lanczos, random start", None, "standard Lanczos, random start"),
    ("5", "gammas only (theory)", None, "gammas alone, theory loss"),
    ("5", "gammas only (subspace)", None, "gammas alone, trained on the error"),
    ("3", "untrained probe, literal", None, "the probe as written, untrained"),
    ("4", "learned probe (theory), literal", None, "the probe as written, theory loss"),
    ("4", "learned probe (subspace), literal", None, "the probe as written, trained on the error"),
    ("6", "full network (theory), literal", None, "the full network, theory loss"),
    ("7", "full network (subspace), literal", None, "the full network, trained on the error"),
    ("3", "untrained probe, converged", None, "the probe solved exactly, untrained"),
    ("4", "learned probe (subspace), converged", None, "the probe solved exactly, trained on the error"),
    ("6", "full network (theory), converged", None, "the full network over it, theory loss"),
    ("7", "full network (subspace), converged", None, "the full network over it, trained on the error"),
    ("3", "untrained probe, scaled", None, "the probe of L over its Gershgorin bound, untrained"),
    ("4", "learned probe (subspace), scaled", None, "the same, trained on the error"),
    ("7", "full network (subspace), scaled", None, "the full network over it, trained on the error"),
    ("13", "learned steps, untrained", None, "learned steps of conjugate gradients, untrained"),
    ("13", "learned steps (theory), the paper's learning rates", None, "the same, theory loss, lr to .003"),
    ("13", "learned steps (theory), learning rates to 0.01", None, "the same, theory loss, lr to .01"),
    ("9", "thick-restart Lanczos", 3, "thick-restart Lanczos, 3K products"),
    ("9", "thick-restart Lanczos", 4, "thick-restart Lanczos, 4K products"),
    ("9", "thick-restart Lanczos", 6, "thick-restart Lanczos, 6K products"),
)

#: Rows of the same page, over budgets: learned roots and what they are compared with.
ROOTS = (
    ("12", "root probe", "learned roots"),
    ("12", "root probe, untrained (Chebyshev roots)", "the same, untrained"),
    ("9", "thick-restart Lanczos", "thick restart"),
    ("11", "Lanczos, a vector a product", "Lanczos, a vector a product"),
)


def columns(data: str | None = None) -> list[Record]:
    """The columns of the table, SBM first; of a column that was run on both grids, the full one."""
    best: dict[tuple[bool, str, int], Record] = {}
    for record in sorted(find(FOLDER, kind="table1"), key=lambda r: r.config["grid"], reverse=True):
        name = record.config["data"]
        if data in (None, name):
            best[name != "sbm", name, record.config["k"]] = record
    return [best[key] for key in sorted(best)]


def headlines() -> str:
    """The first table: error and products."""
    records = columns()
    names = [f"{title(r)} K={r.config['k']}" for r in records]
    lines = ["| error (products) | " + " | ".join(names) + " |", "| --- |" + " --- |" * len(names)]
    paper = [PAPER[r.config["data"], r.config["k"]] for r in records]
    lines.append("| *the paper: standard Lanczos* | " + " | ".join(f"*{p[0]:.3f}*" for p in paper) + " |")
    lines.append("| *the paper: unrolled Lanczos* | " + " | ".join(f"*{p[1]:.3f}*" for p in paper) + " |")
    for number, name, multiple, shown in HEADLINES:
        cells = []
        for record in records:
            row = find_row(record, number, name, multiple)
            cells.append(f"{row['mean']:.3f} ± {row['std']:.3f} ({spent(row)})")
        lines.append(f"| {shown} | " + " | ".join(cells) + " |")
    files = "; ".join(
        f"{name}, {r.config['grid']} grid: `{r.file_name}`" for name, r in zip(names, records, strict=True)
    )
    return "\n".join([*lines, "", f"Records in `results/table1/` ({files}); all rows further down."])


def apart(data: str) -> str:
    """Mean error, products and Krylov ceiling of every part of the network, for each K."""
    records = columns(data)
    heads = " | ".join(f"K = {r.config['k']} | products | ceiling" for r in records)
    lines = [f"| {title(records[0])} | {heads} |", "| --- |" + " --- |" * (3 * len(records))]
    for index, kind in enumerate(("standard", "unrolled")):
        cells = " | ".join(f"*{PAPER[data, r.config['k']][index]:.3f}* | | " for r in records)
        lines.append(f"| *the paper: {kind} Lanczos* | {cells} |")
    for number, name, multiple, shown in APART:
        cells = []
        for record in records:
            row = find_row(record, number, name, multiple)
            ceiling = "" if row.get("ceiling") is None else f"{row['ceiling']:.3f}"
            cells.append(f"{row['mean']:.3f} | {spent(row)} | {ceiling}")
        lines.append(f"| {shown} | " + " | ".join(cells) + " |")
    return "\n".join([*lines, "", grids(records)])


def roots(data: str) -> str:
    """Error of the learned roots and of their peers at each budget, and the paired difference to thick restart."""
    records = columns(data)
    budgets = [paired["budget"] // records[0].config["k"] for paired in records[0].results["paired"]]
    ks = " / ".join(str(r.config["k"]) for r in records)
    lines = [
        f"| {title(records[0])}, K = {ks}; products in all | " + " | ".join(f"{b}K" for b in budgets) + " |",
        "| --- |" + " --- |" * len(budgets),
    ]
    for number, name, shown in ROOTS:
        cells = [" / ".join(f"{find_row(r, number, name, b)['mean']:.4f}" for r in records) for b in budgets]
        lines.append(f"| {shown} | " + " | ".join(cells) + " |")
    cells = []
    for i in range(len(budgets)):
        pairs = [r.results["paired"][i] for r in records]
        cells.append(" / ".join(f"{p['difference']:+.4f} ± {p['half_width_95']:.4f}" for p in pairs))
    lines.append("| learned roots - thick restart, 95 % | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def starts() -> str:
    """The rows of learned steps for each value at which the steps begin."""
    (record,) = find(STARTS, kind="learned-steps-start")
    columns = list(record.results)
    heads = " | ".join(name.replace("sbm", "SBM") for name in columns)
    lines = [f"| steps begin at | learning rates | {heads} |", "| --- | --- |" + " --- |" * len(columns)]
    for first in record.config["first"]:
        for name in list(record.results[columns[0]][f"{first:g}"])[1:]:
            pairs = [record.results[column][f"{first:g}"][name] for column in columns]
            cells = " | ".join(f"{mean:.3f} ± {std:.3f}" for mean, std in pairs)
            rates = "the paper's, to .003" if "paper" in name else "to .01"
            lines.append(f"| softplus({first:g}) = {math.log1p(math.exp(first)):.4f} | {rates} | {cells} |")
    path = (STARTS / record.file_name).relative_to(STARTS.parents[1])
    return "\n".join([*lines, "", f"Record `{path}`, made by `python benchmarks/learned_steps_start.py`."])


def transfer() -> str:
    """Learned roots and thick restart at equal products on fresh graphs, in the family of the training and outside."""
    (record,) = find(TRANSFER, kind="roots-transfer")
    cost = f"K = 6, {record.products} products, 12 vectors"
    lines = [
        f"| {cost} | graphs | learned roots | thick restart | difference, 95 % |",
        "| --- | --- | --- | --- | --- |",
    ]
    for name, r in record.results.items():
        shown = [f"{r[key]:.3f}" for key in ("learned roots", "thick restart")]
        best = min(range(2), key=lambda i: (r["learned roots"], r["thick restart"])[i])
        if abs(r["difference"]) > r["half width 95"]:
            shown[best] = f"**{shown[best]}**"
        difference = f"{r['difference']:+.4f} ± {r['half width 95']:.4f}"
        lines.append(f"| {name} | {r['graphs']} | {shown[0]} | {shown[1]} | {difference} |")
    path = (TRANSFER / record.file_name).relative_to(TRANSFER.parents[1])
    return "\n".join([*lines, "", f"Record `{path}`, made by `python benchmarks/roots_transfer.py`."])


def searched() -> list[str]:
    """The families with a column that is from the full grid."""
    return list(dict.fromkeys(r.config["data"] for r in columns() if r.config["grid"] == "full"))


def scan(data: str) -> str:
    """Mean test errors over the paper's grid of the probe as written, untrained and of the full network."""
    records = [r for r in columns(data) if r.config["grid"] == "full"]
    blocks = []
    for record in records:
        found = {
            (s["power"], s["cg_steps"], s["degree"]): f"{s['untrained']:.3f} / {s['trained']:.3f}"
            for s in record.results["scan"]
            if s["form"] == "literal"
        }
        powers, steps, degrees = (sorted({key[i] for key in found}) for i in range(3))
        pairs = [(step, degree) for step in steps for degree in degrees]
        head = f"| {title(record)}, K = {record.config['k']} | "
        blocks.append(head + " | ".join(f"CG = {step}, T = {degree}" for step, degree in pairs) + " |")
        blocks.append("| --- |" + " --- |" * len(pairs))
        for power in powers:
            cells = " | ".join(found[power, step, degree] for step, degree in pairs)
            blocks.append(f"| p = {power} | {cells} |")
        blocks.append("")
    return "\n".join(blocks).rstrip()


def grids(records: list[Record]) -> str:
    """Which grid and which record each column is from."""
    parts = [f"K = {r.config['k']}: {r.config['grid']} grid, `results/table1/{r.file_name}`" for r in records]
    return "Records: " + "; ".join(parts) + "."


def all_rows() -> str:
    return render_markdown(columns()).rstrip()


def find_row(record: Record, number: str, name: str, multiple: int | None) -> dict:
    budget = None if multiple is None else multiple * record.config["k"]
    for row in record.results["rows"]:
        if (row["row"], row["name"]) == (number, name) and (budget is None or row.get("budget") == budget):
            return row
    raise SystemExit(f"{record.file_name} has no row {number}, {name!r}, budget {budget}.")


def spent(row: dict) -> str:
    products = sorted(set(row["products"]))
    return str(products[0]) if len(products) == 1 else f"{products[0]}-{products[-1]}"


def title(record: Record) -> str:
    return "SBM" if record.config["data"] == "sbm" else record.config["data"]
