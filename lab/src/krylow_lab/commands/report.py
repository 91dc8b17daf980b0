"""``krylow report``: one page from records."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from krylow.cli.app import app, console, messages


@app.command()
def report(
    records: Annotated[list[Path], typer.Argument(help="Records, or folders of records, which are searched whole.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="The page.")] = Path("report.html"),
) -> None:
    """Make one self-contained page of tables and interactive plots from records: no network, one file to pass on."""
    with messages():
        from krylow_lab.report import write_report

        path = write_report(records, output)
    console.print(f"report: {path}", soft_wrap=True, highlight=False)
