"""Tables in Markdown and for the terminal."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.table import Table


def markdown(head: Sequence[str], rows: Iterable[Sequence[str]], align: str = "---:") -> list[str]:
    """Return the lines of a table in Markdown; the first column is aligned to the left.

    >>> markdown(["a", "b"], [["1", "2"]])
    ['| a | b |', '| --- | ---: |', '| 1 | 2 |']
    """
    lines = [head, ["---", *[align] * (len(head) - 1)], *rows]
    return ["| " + " | ".join(line) + " |" for line in lines]


def terminal(
    title: str, lines: Sequence[dict[str, str]], style: Callable[[int], str | None], section: str | None = None
) -> Table:
    """Return a table for the terminal; ``style`` of a line's number, a rule where the column ``section`` changes."""
    from rich.table import Table

    table = Table(title=title, title_justify="left", title_style="bold")
    for name in lines[0]:
        table.add_column(name, justify="left" if name == "method" else "right")
    for i, line in enumerate(lines):
        if section and i and line[section] != lines[i - 1][section]:
            table.add_section()
        table.add_row(*line.values(), style=style(i))
    return table
