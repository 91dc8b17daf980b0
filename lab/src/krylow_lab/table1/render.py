"""The table, from records alone: for a terminal and for a page."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from krylow_lab.records import Record
from krylow_lab.table1.plan import FORMS, PAPER
from krylow_lab.tables import markdown, terminal

if TYPE_CHECKING:
    from rich.table import Table

#: What the forms of the probe are called in the table.
FORM_NAMES = {
    "literal": "as written, truncated CG",
    "converged": "as written, solved to convergence",
    "scaled": "of L over its Gershgorin bound",
}


def lines(record: Record) -> list[dict[str, str]]:
    """Return the lines of one column of the table, in order, as text: row, method, error, products, vectors."""
    data, k = record.config["data"], record.config["k"]
    rows = record.results["rows"]
    out = []
    if (data, k) in PAPER:
        standard, unrolled = PAPER[data, k]
        out.append(_line("1", "the paper: standard Lanczos", f"{standard:.3f}", str(2 * k), 2 * k))
        out.append(_line("1", "the paper: unrolled Lanczos", f"{unrolled:.3f}", "210-1980 + m", 2 * k))
    for row in rows:
        name = row["name"]
        for form in FORMS:
            name = re.sub(f", {form}$", f", {FORM_NAMES[form]}", name)
        out.append(_line(row["row"], name, _error(row["mean"], row["std"]), span(row["products"]), row["vectors"]))
    for row in rows:
        if row["row"] in ("6", "7"):
            name = f"Krylov ceiling of row {row['row']}, {FORM_NAMES[row['form']]}"
            out.append(_line("8", name, f"{row['ceiling']:.3f}", span(row["products"]), row["vectors"]))
    out.sort(key=lambda line: int(line["row"]))
    return out


def _line(row: str, name: str, error: str, products: str, vectors: int) -> dict[str, str]:
    return {"row": row, "method": name, "error": error, "products": products, "vectors": str(vectors)}


def _error(mean: float, std: float) -> str:
    places = 3 if mean >= 0.01 else 4
    return f"{mean:.{places}f} ± {std:.{places}f}"


def span(products: Sequence[int]) -> str:
    """Return the products of all seeds as text: one number where they agree."""
    low, high = min(products), max(products)
    return str(low) if low == high else f"{low}-{high}"


def heading(record: Record) -> str:
    """Return what a column is: data, k, seeds, and how much of the paper's grid was searched."""
    config = record.config
    done = record.results["combinations"]
    if config["grid"] == "reduced":
        grid = "reduced grid: one setting of the probe of the paper's 36, one learning rate, one lambda"
    else:
        parts = ", ".join(f"{form} {done[form][0]} of {done[form][1]}" for form in FORMS)
        grid = f"the paper's grid ({parts} settings of the probe)"
    return f"{config['data']}, K = {config['k']}, m = {2 * config['k']}, {len(config['seeds'])} seeds, {grid}"


def rich_table(record: Record) -> Table:
    """Return one column as a table for the terminal."""
    shown = lines(record)
    return terminal(heading(record), shown, lambda i: {"1": "cyan", "12": "green"}.get(shown[i]["row"]), "row")


def paired_text(record: Record) -> str:
    """Return the comparison of the root probe with thick restart, one line a budget."""
    out = []
    for pair in record.results["paired"]:
        low, high = (pair["difference"] + sign * pair["half_width_95"] for sign in (-1, 1))
        verdict = "below" if high < 0 else "above" if low > 0 else "equal within the interval"
        out.append(
            f"{pair['budget']} products: root probe minus thick restart {pair['difference']:+.4f} "
            f"± {pair['half_width_95']:.4f} (95 %, {pair['graphs']} graphs): {verdict}"
        )
    return "\n".join(out)


def render_markdown(records: Iterable[Record]) -> str:
    """Return the table as Markdown, one block of columns a data set, from the records of kind "table1".

    A cell holds the error, mean and standard deviation over the seeds, and the products it cost.
    """
    blocks = []
    ordered = sorted(records, key=lambda r: (r.config["data"] != "sbm", r.config["data"], r.config["k"]))
    for data in dict.fromkeys(record.config["data"] for record in ordered):
        blocks.append(_block(data, [record for record in ordered if record.config["data"] == data]))
    return "\n\n".join(blocks) + "\n"


def _block(data: str, records: Sequence[Record]) -> str:
    columns = {record.config["k"]: lines(record) for record in records}
    # Budgets are multiples of k: rows of different columns belong together by their place, not by their products.
    keys: dict[tuple[str, str, int], dict[int, dict[str, str]]] = {}
    for k, column in columns.items():
        seen: dict[tuple[str, str], int] = {}
        for line in column:
            name = (line["row"], line["method"])
            seen[name] = seen.get(name, -1) + 1
            keys.setdefault((*name, seen[name]), {})[k] = line
    head = ["row", "method", *(text for k in columns for text in (f"K = {k}: error", "products"))]
    empty = {"error": "", "products": ""}
    body = []
    for (row, method, _), cells in sorted(keys.items(), key=lambda item: int(item[0][0])):
        found = [cells.get(k, empty) for k in columns]
        body.append([row, method, *(line[name] for line in found for name in empty)])
    about = [f"- {heading(record)}: `{record.file_name}`" for record in records]
    return "\n".join([f"**{data}**", "", *markdown(head, body, "---"), "", *about])
