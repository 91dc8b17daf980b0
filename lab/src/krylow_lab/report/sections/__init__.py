"""The sections of the page, in order: each a function from all records to what it shows, or to what is missing.

A new section is a module here with a function ``(sources) -> Section | Missing | None``, named below. None leaves the
section out without a word, as for records that no command of the project promises.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from krylow_lab.report.blocks import Missing, Section
from krylow_lab.report.sections.errors import against_products, against_time
from krylow_lab.report.sections.example import section as example
from krylow_lab.report.sections.large import section as large
from krylow_lab.report.sections.learned import curves, gammas, responses
from krylow_lab.report.sections.other import section as other
from krylow_lab.report.sections.speed import attention, crossover
from krylow_lab.report.sections.table1 import section as table1
from krylow_lab.report.sections.table2 import section as table2
from krylow_lab.report.sources import Source

__all__ = ["SECTIONS"]

SECTIONS: tuple[Callable[[Sequence[Source]], Section | Missing | None], ...] = (
    table1,
    table2,
    against_products,
    against_time,
    gammas,
    responses,
    curves,
    example,
    crossover,
    large,
    attention,
    other,
)
