"""``krylow reproduce``: measure the paper's tables again."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from krylow.cli.app import app, console, integers, messages

reproduce = typer.Typer(help="Measure the paper's tables again.", no_args_is_help=True)
app.add_typer(reproduce, name="reproduce")


@reproduce.command("table1")
def table1(
    full: Annotated[bool, typer.Option("--full", help="The paper's whole grid: hours.")] = False,
    data: Annotated[str, typer.Option(help="sbm, PROTEINS, all, or the name of another TUDataset.")] = "sbm",
    k: Annotated[str, typer.Option(help="Numbers of kept frequencies, separated by commas.")] = "6,8,10",
    seeds: Annotated[int, typer.Option(help="How many seeds, counted from 0.", min=1)] = 5,
    out: Annotated[Path, typer.Option(help="Where records and pictures go; what is there is not done again.")] = Path(
        "runs/table1"
    ),
    workers: Annotated[int | None, typer.Option(help="Trainings at a time. Default: one a core.", min=1)] = None,
) -> None:
    """Train and measure the paper's Table 1: subspace errors on SBM and PROTEINS, beside what they cost.

    The default is a reduced grid, a few minutes. Interrupted anywhere, the same command goes on.
    """
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    with messages():
        from krylow.experiments.table1 import FULL, REDUCED
        from krylow.experiments.table1.pictures import draw_all
        from krylow.experiments.table1.plan import DATA
        from krylow.experiments.table1.render import paired_text, rich_table
        from krylow.experiments.table1.run import reproduce as measure

        grid = FULL if full else REDUCED
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        with Progress(*columns, console=console, transient=True) as progress:
            bar = progress.add_task("training", total=None)

            def report(done: int, total: int, what: str) -> None:
                progress.update(bar, completed=done, total=total, description=what)

            names = DATA if data == "all" else (data,)
            found = measure(out, names, integers(k), seeds, grid, workers=workers, report=report)
        for record in found:
            console.print(rich_table(record))
            console.print(paired_text(record), highlight=False)
            files = draw_all(record, out / "pictures")
            console.print(f"record: {out / record.file_name}, {len(files)} pictures in {files[0].parent}\n")
        if not full:
            console.print("The grid is reduced: --full searches all of the paper's settings.", style="bold")
