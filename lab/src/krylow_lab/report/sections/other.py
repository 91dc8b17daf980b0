"""Records without a section of their own, as plain tables: nothing that was given is passed over in silence."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from krylow_lab.report.blocks import Block, Fold, Section, Table, Text
from krylow_lab.report.sources import Source

#: Kinds with a section of their own.
SHOWN = {"table1", "table2", "methods", "crossover", "attention", "large"}
#: Kinds that other records sum up.
PARTS = {"table1-cell", "table2-cell"}


def section(sources: Sequence[Source]) -> Section | None:
    """Return a table for every other record that is one or two levels of numbers and words."""
    others = [source for source in sources if source.record.kind not in SHOWN | PARTS]
    tables = {source.name: table for source in others if (table := _table(source.results)) is not None}
    parts = Counter(source.record.kind for source in sources if source.record.kind in PARTS)
    parts += Counter(source.record.kind for source in others if source.name not in tables)
    if not tables and not parts:
        return None
    blocks: list[Block] = []
    shown = [source for source in others if source.name in tables]
    for source in shown:
        config = ", ".join(f"{key} = {value}" for key, value in source.config.items() if not isinstance(value, dict))
        blocks.append(Fold(f"{source.record.kind}: {config}", [tables[source.name]]))
    if parts:
        counts = ", ".join(f"{count} of kind {kind}" for kind, count in sorted(parts.items()))
        blocks.append(Text(f"Records that the above is made of, or that have no table: {counts}."))
    return Section("other", "Other measurements", blocks, shown)


def _table(results: dict[str, Any]) -> Table | None:
    if all(_simple(value) for value in results.values()):
        return Table(("quantity", "value"), [(name, _text(value)) for name, value in results.items()])
    if all(isinstance(row, dict) and all(map(_simple, row.values())) for row in results.values()):
        head = list(dict.fromkeys(key for row in results.values() for key in row))
        rows = [(name, *(_text(row.get(key, "")) for key in head)) for name, row in results.items()]
        return Table(("", *head), rows)
    return None


def _simple(value: Any) -> bool:
    return isinstance(value, str | int | float | bool | type(None))


def _text(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
