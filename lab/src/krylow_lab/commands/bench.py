"""``krylow bench``: ours beside the other libraries."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from krylow.cli.app import app, console, messages, writable

bench = typer.Typer(help="Measure krylow beside other libraries.", no_args_is_help=True)
app.add_typer(bench, name="bench")


def _numbers(text: str) -> tuple[float, ...]:
    try:
        return tuple(float(part) for part in text.split(","))
    except ValueError:
        raise typer.BadParameter(f"expected numbers separated by commas, such as 1e4,1e5, got {text!r}.") from None


def _threads(text: str) -> tuple[int, ...]:
    """Read numbers of threads; 0 stands for all cores."""
    return tuple(int(number) for number in _numbers(text.replace("all", "0")))


@bench.command("large")
def large(
    n: Annotated[str, typer.Option(help="Numbers of nodes, separated by commas.")] = "1e4,1e5,1e6",
    families: Annotated[str, typer.Option(help="Families of graphs, separated by commas, or all.")] = "all",
    tol: Annotated[str, typer.Option(help="Normalised squared subspace errors asked for.")] = "1e-3,1e-6",
    threads: Annotated[str, typer.Option(help="Numbers of threads; all: one a core.")] = "1,all",
    repeats: Annotated[int, typer.Option(help="Runs of each solver in a race.", min=1)] = 3,
    peers: Annotated[str, typer.Option(help="Other libraries' solvers by name, or all.")] = "all",
    ours: Annotated[str, typer.Option(help="krylow, krylow-multilevel, krylow-chebyshev, ...")] = "krylow",
    best: Annotated[int, typer.Option(help="How many of the peers run beside ours in a race.", min=0)] = 2,
    most_k: Annotated[int, typer.Option(help="Largest k on graphs of more than 3e5 nodes.", min=1)] = 20,
    limit: Annotated[str, typer.Option(help="Longest call: so many times the best so far, plus seconds.")] = "10,60",
    stage: Annotated[str, typer.Option(help="tune (the peers), race, or all.")] = "all",
    former: Annotated[
        Path | None, typer.Option(help="A record whose peers' settings and races stand where there are none yet.")
    ] = None,
    out: Annotated[Path, typer.Option(help="Where records go; what is there is not measured again.")] = Path(
        "runs/large"
    ),
) -> None:
    """Time the low-frequency subspace of one large graph, ours and the peers', each at its cheapest right setting.

    Hours for everything; interrupted anywhere, the same command goes on. Needs the extra bench.
    """
    with messages():
        writable(out)
        from krylow._checks import InputError
        from krylow_lab.large.graphs import FAMILIES
        from krylow_lab.large.render import draw, markdown
        from krylow_lab.large.run import Plan, measure
        from krylow_lab.large.solvers import PEERS
        from krylow_lab.large.tune import Limit

        bounds = _numbers(limit)
        if len(bounds) != 2:
            raise InputError(f"limit must be a factor and seconds, such as 10,60, got {limit!r}.")
        plan = Plan(
            sizes=tuple(int(size) for size in _numbers(n)),
            families=tuple(FAMILIES) if families == "all" else tuple(families.split(",")),
            tols=_numbers(tol),
            threads=_threads(threads),
            repeats=repeats,
            peers=tuple(PEERS) if peers == "all" else tuple(name for name in peers.split(",") if name),
            ours=tuple(ours.split(",")),
            best=best,
            most_k=most_k,
            limit=Limit(*bounds),
        )
        with console.status("starting") as status:
            record = measure(out, plan, stage=stage, former=former, report=status.update)
        if record is None:
            console.print(f"The peers' settings are in {out / 'cells'}; --stage race goes on from there.")
            return
        console.print(markdown(record), markup=False, highlight=False, soft_wrap=True)
        console.print(f"record: {out / record.file_name}, picture: {draw(record, out / 'large.svg')}")
