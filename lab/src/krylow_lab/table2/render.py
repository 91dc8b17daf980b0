"""The table, from records alone: for a terminal and for a page."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from krylow_lab.records import Record
from krylow_lab.table2.plan import DATA, PAPER, ROWS
from krylow_lab.tables import markdown, terminal

if TYPE_CHECKING:
    from rich.table import Table

#: Below this a difference is called one.
LEVEL = 0.05
PROTOCOL_NAMES = {
    "A": "the paper's protocol",
    "B": "tuned",
    "R": "one recipe, untuned",
    "L": "tuned, the paper's literal filter",
    "quick": "quick, one setting a row",
}


def heading(record: Record) -> str:
    """Return what a table is: data, protocol, seeds, and what it was trained on."""
    config = record.config
    seeds = len(config["seeds"])
    protocol = PROTOCOL_NAMES[config["protocol"]]
    return f"{config['data']['name'].upper()}, {protocol}, {seeds} seeds ({record.results['source']})"


def lines(record: Record) -> list[dict[str, str]]:
    """Return the rows as text: method, accuracy, F1, the paper's figures, and the difference to unrolled."""
    paper = PAPER.get(record.config["data"]["name"], {})
    pairs = {pair["row"]: pair for pair in record.results["paired"]}
    out = []
    for row in record.results["rows"]:
        theirs = paper.get(row["row"])
        out.append(
            {
                "method": row["name"],
                "accuracy": f"{row['accuracy']:.1f} ± {row['accuracy_std']:.1f}",
                "F1": f"{row['f1']:.1f} ± {row['f1_std']:.1f}",
                "the paper": f"{theirs[0]:.1f} / {theirs[1]:.1f}" if theirs else "",
                "unrolled minus it": _difference(pairs.get(row["row"])),
            }
        )
    return out


def _difference(pair: dict[str, Any] | None) -> str:
    if pair is None:
        return ""
    low, high = pair["bootstrap_95"]
    mark = "*" if pair["bootstrap_p"] < LEVEL else ""
    return f"{pair['difference']:+.1f} [{low:+.1f}, {high:+.1f}]{mark}"


def rich_table(record: Record) -> Table:
    """Return one table for the terminal."""
    rows = record.results["rows"]
    return terminal(heading(record), lines(record), lambda i: "green" if rows[i]["row"] == "unrolled" else None)


def notes(record: Record) -> list[str]:
    """Return the notes on a table: how it was chosen, what is missing, and how to read it."""
    results = record.results
    out = [
        f"Chosen: {results['selection']}.",
        f"F1 counts {results['positive']!r}. Differences are in points of accuracy with the 95 % interval of a paired "
        "bootstrap over sentences, seeds averaged; * where it excludes 0.",
        f"{results['cells']} trainings, {results['cell_seconds'] / 60:.0f} minutes of one process in all.",
    ]
    if results["missing"]:
        names = ", ".join(ROWS[row] for row in results["missing"])
        out.append(f"Not all trained yet: {names}. The same command goes on.")
    return out


def render_markdown(records: Iterable[Record]) -> str:
    """Return the tables as Markdown, a data set after the other, from the records of kind "table2"."""
    blocks = []
    for record in ordered(records):
        shown = lines(record)
        text = [f"**{heading(record)}**", "", *markdown(list(shown[0]), [list(line.values()) for line in shown])]
        text += ["", *(f"- {note}" for note in notes(record)), f"- Record: `{record.file_name}`"]
        blocks.append("\n".join(text))
    return "\n\n".join(blocks) + "\n"


def ordered(records: Iterable[Record]) -> Sequence[Record]:
    """Return the records in the order of the tables."""
    return sorted(records, key=lambda r: (DATA.index(r.config["data"]["name"]), r.config["protocol"]))


def render_side_by_side(records: Iterable[Record]) -> str:
    """Return one Markdown table with accuracy / F1 of every record in a column of its own: what README shows."""
    columns = ordered(records)
    titles = []
    for record in columns:
        name = record.config["data"]["name"].upper()
        rebuilt = " (rebuilt train)" if "rebuilt" in record.results["source"] else ""
        titles.append(
            f"{name}{rebuilt}, {PROTOCOL_NAMES[record.config['protocol']]}, {len(record.config['seeds'])} seeds"
        )
    papers = list(dict.fromkeys(r.config["data"]["name"] for r in columns if r.config["data"]["name"] in PAPER))
    head = ["accuracy / F1", *(f"*the paper, {name.upper()}*" for name in papers), *titles]
    body = []
    for row, name in ROWS.items():
        cells = [_scores(record, row) for record in columns]
        if not any(cells):
            continue
        figures = (PAPER[data].get(row) for data in papers)
        theirs = [f"*{f[0]:.1f} / {f[1]:.1f}*" if f else "" for f in figures]
        body.append([name, *theirs, *cells])
    return "\n".join(markdown(head, body, "---"))


def _scores(record: Record, row: str) -> str:
    for line in record.results["rows"]:
        if line["row"] == row:
            return f"{line['accuracy']:.1f} ± {line['accuracy_std']:.1f} / {line['f1']:.1f} ± {line['f1_std']:.1f}"
    return ""
