"""Table 1: the paper's figures beside those measured, what they cost, and learned roots beside thick restart."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from krylow_lab.report.blocks import Block, Cell, Fold, Missing, Section, Table, Text
from krylow_lab.report.sections.columns import columns, family, missing, rows
from krylow_lab.report.sources import Source
from krylow_lab.table1.plan import PAPER
from krylow_lab.table1.render import heading, lines, span

TITLE = "Table 1: the subspace error"
#: Rows that are shown at once: row and name in the record, budget in multiples of k, what to call it, and its mark.
HEADLINES = (
    ("2", "standard Lanczos, random start", None, "standard Lanczos, measured", ""),
    ("5", "gammas only (theory)", None, "learned gammas only", ""),
    ("3", "untrained probe, literal", None, "the paper's probe, untrained", ""),
    ("6", "full network (theory), literal", None, "the paper's network, its theory loss", ""),
    ("7", "full network (subspace), literal", None, "the paper's network, trained on the error itself", ""),
    ("13", "learned steps, untrained", None, "its author's solver (learned CG steps), untrained", ""),
    ("13", "learned steps (theory), the paper's learning rates", None, "the same, theory loss, the paper's lr", ""),
    ("13", "learned steps (theory), learning rates to 0.01", None, "the same, theory loss, lr to .01", ""),
    ("9", "thick-restart Lanczos", 4, "thick-restart Lanczos, 4K products", ""),
    ("12", "root probe", 4, "learned filter roots (ours), 4K products", "good"),
    ("9", "thick-restart Lanczos", 6, "thick-restart Lanczos, 6K products", ""),
    ("12", "root probe", 6, "learned filter roots (ours), 6K products", "good"),
)


def section(sources: Sequence[Source]) -> Section | Missing:
    """Return the table, one block a data set."""
    found = columns(sources)
    if not found:
        return missing(TITLE)
    intro = (
        "Normalised squared subspace error between the exact space of the K lowest frequencies and the one found: 0 is "
        "exact, 1 is orthogonal. Mean ± standard deviation over the seeds; below it the products with L that one graph "
        "costs. Every method but the floor holds 2K basis vectors."
    )
    blocks: list[Block] = [Text(intro)]
    for data in dict.fromkeys(data for data, _ in found):
        part = {k: source for (name, k), source in found.items() if name == data}
        blocks += [_headlines(data, part), _paired(data, part)]
        blocks += [Fold(f"All rows: {heading(source.record)}", [_all_rows(source)]) for source in part.values()]
    return Section("table1", TITLE, blocks, list(found.values()))


def _headlines(data: str, part: dict[int, Source]) -> Table:
    body: list[list[str | Cell]] = []
    for i, name in enumerate(("the paper: standard Lanczos", "the paper: unrolled Lanczos")):
        if any((data, k) in PAPER for k in part):
            figures = [Cell(f"{PAPER[data, k][i]:.3f}" if (data, k) in PAPER else "", mark="paper") for k in part]
            body.append([Cell(name, mark="paper"), *figures])
    for number, name, multiple, title, mark in HEADLINES:
        cells = [_cell(source, number, name, multiple, mark) for source in part.values()]
        if any(cell.text for cell in cells):
            body.append([Cell(title, mark=mark), *cells])
    return Table([family(data), *(f"K = {k}" for k in part)], body)


def _cell(source: Source, number: str, name: str, multiple: int | None, mark: str) -> Cell:
    budget = None if multiple is None else multiple * source.config["k"]
    for row in rows(source, number):
        if row["name"] == name and row.get("budget") == budget:
            return Cell(f"{row['mean']:.3f} ± {row['std']:.3f}", f"{span(row['products'])} products", mark)
    return Cell("")


def _paired(data: str, part: dict[int, Source]) -> Table:
    multiples: dict[int, dict[int, dict[str, Any]]] = {}
    for k, source in part.items():
        for pair in source.results["paired"]:
            multiples.setdefault(pair["budget"] // k, {})[k] = pair
    body: list[list[str | Cell]] = []
    for multiple, pairs in sorted(multiples.items()):
        body.append([f"{multiple}K products", *(_difference(pairs.get(k)) for k in part)])
    caption = (
        f"{family(data)}: learned roots minus thick restart at equal products and with the same random vectors, graph "
        "by graph, with the 95 % interval. Green is below, red above, grey equal within the interval."
    )
    return Table(["root probe − thick restart", *(f"K = {k}" for k in part)], body, caption)


def _difference(pair: dict[str, Any] | None) -> Cell:
    if pair is None:
        return Cell("")
    difference, half = pair["difference"], pair["half_width_95"]
    mark = "good" if difference + half < 0 else "bad" if difference - half > 0 else "even"
    return Cell(f"{difference:+.4f}".replace("-", "−"), f"± {half:.4f}, {pair['graphs']} graphs", mark)


def _all_rows(source: Source) -> Table:
    names = ("row", "method", "error", "products", "vectors")
    body = [[line[name] for name in names] for line in lines(source.record)]
    return Table(names, [[Cell(text, mark="paper" if row[0] == "1" else "") for text in row] for row in body])
