"""Table 2: sentence pairs, the paper's figures beside those measured and beside the controls."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from krylow_lab.report.blocks import Block, Cell, Fold, Missing, Section, Table, Text
from krylow_lab.report.sources import Source, of_kind
from krylow_lab.table2.plan import PAPER
from krylow_lab.table2.render import heading, notes, ordered

TITLE = "Table 2: sentence pairs"
COMMAND = "krylow reproduce table2"


def section(sources: Sequence[Source]) -> Section | Missing:
    """Return the tables, one a task and protocol, in the order of the experiment."""
    found = {source.record.file_name: source for source in of_kind(sources, "table2")}
    if not found:
        return Missing(TITLE, COMMAND)
    intro = (
        "One transformer block whose attention is replaced by a low-pass filter on a learned graph of tokens, beside "
        "attention, beside no mixing at all, and beside what can be counted without a network. Percent on the dev set, "
        "mean ± standard deviation over the seeds; the last column is the paired difference in accuracy, with its 95 % "
        "interval."
    )
    blocks: list[Block] = [Text(intro)]
    shown = [found[record.file_name] for record in ordered([source.record for source in found.values()])]
    for source in shown:
        blocks.append(_table(source))
        blocks.append(Fold("How it was chosen, and how to read it", [Text(note) for note in notes(source.record)]))
    return Section("table2", TITLE, blocks, shown)


def _table(source: Source) -> Table:
    paper = PAPER.get(source.config["data"]["name"], {})
    pairs = {pair["row"]: pair for pair in source.results["paired"]}
    body: list[list[str | Cell]] = []
    for row in source.results["rows"]:
        mark = "good" if row["row"] == "unrolled" else ""
        theirs = paper.get(row["row"])
        figures = f"{theirs[0]:.2f} / {theirs[1]:.2f}" if theirs else ""
        body.append(
            [
                Cell(row["name"].replace("$", "").replace("^{-1}", "⁻¹"), mark=mark),
                Cell(figures, mark="paper"),
                Cell(f"{row['accuracy']:.1f} ± {row['accuracy_std']:.1f}", mark=mark),
                Cell(f"{row['f1']:.1f} ± {row['f1_std']:.1f}", mark=mark),
                _difference(pairs.get(row["row"])),
            ]
        )
    head = ("method", "the paper: accuracy / F1", "accuracy", "F1", "unrolled minus it")
    return Table(head, body, heading(source.record))


def _difference(pair: dict[str, Any] | None) -> Cell:
    if pair is None:
        return Cell("")
    low, high = pair["bootstrap_95"]
    mark = "good" if low > 0 else "bad" if high < 0 else "even"
    return Cell(f"{pair['difference']:+.1f}".replace("-", "−"), f"{low:+.1f} to {high:+.1f}".replace("-", "−"), mark)
