"""One page from records: tables, interactive plots and where every number comes from.

The page is a single file without any network: style, data and plotly.js are inside. It is made of sections
(:mod:`krylow_lab.report.sections`), each of which draws the records of one kind and leaves itself out where there are
none.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from krylow._checks import InputError
from krylow.io.atomic import write_whole

__all__ = ["write_report"]


def write_report(records: Iterable[str | os.PathLike[str]], path: str | os.PathLike[str]) -> Path:
    """Write the page of some records to ``path``, whole or not at all, and return that.

    Folders of records are searched with all they contain. Of records with the same kind, configuration and seed the
    newest is taken.
    """
    path = Path(path)
    if not path.parent.is_dir():
        raise InputError(f"the page's folder {path.parent} does not exist: make it, or choose another.")
    if path.is_dir():
        raise InputError(f"the page must be a file, got the folder {path}: name a file in it, such as report.html.")
    from krylow_lab.report.page import render  # plotly and jinja2 are extras
    from krylow_lab.report.sources import gather

    page = render(gather(records))
    try:
        return write_whole(path, page)
    except OSError as error:
        raise InputError(f"{path} cannot be written ({error.strerror}): choose another place.") from error
