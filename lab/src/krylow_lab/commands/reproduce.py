"""``krylow reproduce``: measure the paper's tables again."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated

import typer

from krylow.cli.app import app, console, messages, writable
from krylow_lab._extras import install_line

reproduce = typer.Typer(help="Measure the paper's tables again.", no_args_is_help=True)
app.add_typer(reproduce, name="reproduce")


def _integers(text: str) -> list[int]:
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise typer.BadParameter(f"expected numbers separated by commas, such as 6,8,10, got {text!r}.") from None


@contextlib.contextmanager
def _progress(what: str) -> Iterator[Callable[[int, int, str], None]]:
    """Show a bar, and yield what moves it: a function of the cells done, the cells in all and what is done."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True) as progress:
        bar = progress.add_task(what, total=None)
        yield lambda done, total, what: progress.update(bar, completed=done, total=total, description=what)


def _write_page(out: Path, records: list[Path]) -> None:
    """Write the page of a run's records into its folder and say where, or what is missing for it."""
    try:
        from krylow_lab.report import write_report

        path = write_report(records, out / "report.html")
    except ModuleNotFoundError as error:
        if error.name not in ("jinja2", "plotly"):
            raise
        line = f"no report was written, which needs plotly and jinja2: {install_line()}"
        console.print(line, markup=False, soft_wrap=True)
    else:
        console.print(f"report: {path}", highlight=False, soft_wrap=True)


@reproduce.command("table1")
def table1(
    full: Annotated[bool, typer.Option("--full", help="The paper's whole grid: hours.")] = False,
    data: Annotated[str, typer.Option(help="sbm, PROTEINS, all, or the name of another TUDataset.")] = "sbm",
    k: Annotated[str, typer.Option(help="Numbers of kept frequencies, separated by commas.")] = "6,8,10",
    seeds: Annotated[int, typer.Option(help="How many seeds, counted from --seed-base.", min=1)] = 5,
    seed_base: Annotated[int, typer.Option(help="The first seed: other graphs, splits and random vectors.", min=0)] = 0,
    out: Annotated[Path, typer.Option(help="Where records and pictures go; what is there is not done again.")] = Path(
        "runs/table1"
    ),
    workers: Annotated[int | None, typer.Option(help="Trainings at a time. Default: one a core.", min=1)] = None,
) -> None:
    """Train and measure the paper's Table 1: subspace errors on SBM and PROTEINS, beside what they cost.

    The default is a reduced grid, a few minutes. Interrupted anywhere, the same command goes on.
    """
    with messages():
        writable(out)
        from krylow_lab.table1 import FULL, REDUCED
        from krylow_lab.table1.pictures import draw_all
        from krylow_lab.table1.plan import DATA
        from krylow_lab.table1.render import paired_text, rich_table
        from krylow_lab.table1.run import reproduce as measure

        grid = FULL if full else REDUCED
        with _progress("training") as report:
            names = DATA if data == "all" else (data,)
            found = measure(out, names, _integers(k), seeds, grid, workers=workers, report=report, seed_base=seed_base)
        for record in found:
            console.print(rich_table(record))
            console.print(paired_text(record), highlight=False)
            files = draw_all(record, out / "pictures")
            console.print(f"record: {out / record.file_name}, {len(files)} pictures in {files[0].parent}\n")
        _write_page(out, [out / record.file_name for record in found])
        if not full:
            console.print("The grid is reduced: --full searches all of the paper's settings.", style="bold")


@reproduce.command("table2")
def table2(
    data: Annotated[str, typer.Option(help="mrpc, qnli, synthetic, or all.")] = "mrpc",
    protocol: Annotated[
        str, typer.Option(help="A (the paper's), B (tuned), all (both), R (one recipe), L (B with the literal filter).")
    ] = "all",
    seeds: Annotated[int, typer.Option(help="How many seeds, counted from 0.", min=1)] = 5,
    out: Annotated[Path, typer.Option(help="Where records and logs go; what is there is not done again.")] = Path(
        "runs/table2"
    ),
    workers: Annotated[int | None, typer.Option(help="Trainings at a time. Default: one a core.", min=1)] = None,
    quick: Annotated[bool, typer.Option("--quick", help="A look in two minutes: synthetic, 400 rows of MRPC.")] = False,
    gain: Annotated[
        bool, typer.Option("--gain", help="Instead: synthetic settings in which the filter could beat its graph.")
    ] = False,
) -> None:
    """Train and measure the paper's Table 2: pairs of sentences by low-pass attention, beside its controls.

    GLUE is read from the folder that KRYLOW_DATA names, or fetched. Interrupted anywhere, the same command goes on.
    """
    with messages():
        writable(out)
        from krylow_lab.table2.choice import quick_tables, tables
        from krylow_lab.table2.gain import measure as measure_gain
        from krylow_lab.table2.gain import render_markdown as gain_markdown
        from krylow_lab.table2.render import notes, rich_table
        from krylow_lab.table2.run import reproduce as measure

        if quick:
            asked, remarks = quick_tables()
            seeds = min(seeds, 2)
            for remark in remarks:
                console.print(remark, style="yellow")
        else:
            asked = tables(data, protocol)
        with _progress("reading") as report:
            if gain:
                compared = measure_gain(out, seeds, workers=workers, report=report)
            else:
                found = measure(out, asked, seeds, workers=workers, report=report)
        if gain:
            console.print(gain_markdown(compared), markup=False)
            return
        for record in found:
            console.print(rich_table(record))
            for note in notes(record):
                console.print(f"- {note}", highlight=False, markup=False)
            console.print(f"record: {out / record.file_name}, logs in {out / 'logs'}\n")
        _write_page(out, [out / record.file_name for record in found])
