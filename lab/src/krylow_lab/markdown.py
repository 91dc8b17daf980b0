"""Tables in Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def table(head: Sequence[str], rows: Iterable[Sequence[str]], align: str = "---:") -> list[str]:
    """Return the lines of a table whose first column is to the left and whose others are aligned as said.

    >>> table(["a", "b"], [["1", "2"]])
    ['| a | b |', '| --- | ---: |', '| 1 | 2 |']
    """
    lines = [head, ["---", *[align] * (len(head) - 1)], *rows]
    return ["| " + " | ".join(line) + " |" for line in lines]
