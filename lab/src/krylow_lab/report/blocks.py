"""What a page is made of, free of HTML: sections of text, tables and charts, which ``template.html`` lays out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from krylow_lab.report.sources import Source


@dataclass(frozen=True)
class Text:
    """A paragraph."""

    kind: ClassVar[str] = "text"
    text: str


@dataclass(frozen=True)
class Cell:
    """A cell of a table: what it says, a smaller line below, and how it is marked ("good", "bad", "paper" or "")."""

    text: str
    below: str = ""
    mark: str = ""


@dataclass(frozen=True)
class Table:
    """A table whose first column names the rows."""

    kind: ClassVar[str] = "table"
    head: Sequence[str]
    rows: Sequence[Sequence[str | Cell]]
    caption: str = ""


@dataclass(frozen=True)
class Variant:
    """One state of a chart: what is chosen for it to be shown, and the plotly figure as plain JSON values."""

    choice: dict[str, str]  # such as {"data": "sbm", "K": "6"}
    figure: dict[str, Any]  # data and layout


@dataclass(frozen=True)
class Chart:
    """A plotly chart. Of several variants a reader chooses one; charts that offer the same choice change together."""

    kind: ClassVar[str] = "chart"
    name: str  # its identifier on the page
    variants: Sequence[Variant]  # at least one; the first is shown at first
    caption: str = ""

    @property
    def choices(self) -> list[str]:
        """The names of what can be chosen, in order."""
        return list(self.variants[0].choice)


@dataclass(frozen=True)
class Row:
    """Charts side by side, below each other on a narrow screen."""

    kind: ClassVar[str] = "row"
    charts: Sequence[Chart]


@dataclass(frozen=True)
class Fold:
    """Blocks that are shown on request."""

    kind: ClassVar[str] = "fold"
    summary: str
    blocks: Sequence[Block]


Block = Text | Table | Chart | Row | Fold


@dataclass(frozen=True)
class Section:
    """A part of the page with a heading."""

    name: str  # its identifier on the page
    title: str
    blocks: Sequence[Block]
    sources: Sequence[Source] = ()  # the records it is made of: its footnotes


@dataclass(frozen=True)
class Missing:
    """A section that is not on the page for want of records, and the command that makes them."""

    title: str
    command: str


def charts(blocks: Sequence[Block]) -> list[Chart]:
    """Return all charts of some blocks, wherever they are."""
    found: list[Chart] = []
    for block in blocks:
        if isinstance(block, Chart):
            found.append(block)
        elif isinstance(block, Row):
            found += block.charts
        elif isinstance(block, Fold):
            found += charts(block.blocks)
    return found
