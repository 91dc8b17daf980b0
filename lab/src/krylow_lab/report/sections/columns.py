"""Which record of Table 1 stands for a column, and how rows and names are found in it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from krylow_lab.report.blocks import Missing
from krylow_lab.report.sources import Source, of_kind
from krylow_lab.table1.assemble import KIND

#: What is said where Table 1 was not measured.
COMMAND = "krylow reproduce table1"


def columns(sources: Sequence[Source]) -> dict[tuple[str, int], Source]:
    """Return the record of each data set and k: the full grid before the reduced, more seeds, then the newest."""
    best: dict[tuple[str, int], Source] = {}
    for source in sorted(of_kind(sources, KIND), key=_worth):
        best[source.config["data"], source.config["k"]] = source
    return dict(sorted(best.items(), key=lambda item: (item[0][0] != "sbm", *item[0])))


def _worth(source: Source) -> tuple[bool, int, str]:
    return source.config["grid"] == "full", len(source.config["seeds"]), source.record.started


def missing(title: str) -> Missing:
    """Return the word about a section that needs Table 1."""
    return Missing(title, COMMAND)


def choice(data: str, k: int) -> dict[str, str]:
    """Return what a reader chooses to see a column."""
    return {"data": family(data), "K": str(k)}


def family(data: str) -> str:
    """Return a data set's name in text."""
    return "SBM" if data == "sbm" else data


def rows(source: Source, *numbers: str) -> Iterator[dict[str, Any]]:
    """Yield the rows of these numbers, in the record's order."""
    return (row for row in source.results["rows"] if row["row"] in numbers)
