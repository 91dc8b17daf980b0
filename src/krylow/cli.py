"""The command line. Commands import what they need when they run, so that ``krylow --help`` is there at once."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

try:
    import typer
    from rich.console import Console
except ImportError:  # pragma: no cover (depends on the installation)
    sys.exit("the krylow command needs typer and rich: pip install 'krylow[cli]'")

app = typer.Typer(
    name="krylow",
    help="Ideal low-pass graph filtering without the eigendecomposition.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
reproduce = typer.Typer(help="Measure the paper's tables again.", no_args_is_help=True)
app.add_typer(reproduce, name="reproduce")
console = Console()
errors = Console(stderr=True, soft_wrap=True, highlight=False)

#: Exit code for arguments or data that do not fit.
BAD_INPUT = 2


@contextmanager
def messages() -> Iterator[None]:
    """Turn the library's own errors, and missing extras, into one line and exit code 2."""
    try:
        yield
    except (ValueError, FileNotFoundError) as error:
        if not type(error).__module__.startswith("krylow"):
            raise
        errors.print(f"[red]error:[/red] {_one_line(error)}", markup=True)
        raise typer.Exit(BAD_INPUT) from None
    except ModuleNotFoundError as error:
        if error.name not in ("lightning", "matplotlib"):
            raise
        errors.print(f"error: this command needs {error.name}: pip install 'krylow[train]'", markup=False)
        raise typer.Exit(BAD_INPUT) from None


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split()).replace("[", r"\[")


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
            found = measure(out, names, _integers(k), seeds, grid, workers=workers, report=report)
        for record in found:
            console.print(rich_table(record))
            console.print(paired_text(record), highlight=False)
            files = draw_all(record, out / "pictures")
            console.print(f"record: {out / record.file_name}, {len(files)} pictures in {files[0].parent}\n")
        if not full:
            console.print("The grid is reduced: --full searches all of the paper's settings.", style="bold")


@app.command()
def train(
    data: Annotated[str, typer.Option(help="sbm, a TUDataset by name, or a folder of graphs.")] = "sbm",
    k: Annotated[int, typer.Option(help="Kept frequencies.", min=1)] = 6,
    m: Annotated[int | None, typer.Option(help="Recurrence steps. Default: 2 k.", min=1)] = None,
    probe: Annotated[str, typer.Option(help="inverse (the paper's), roots or none.")] = "roots",
    roots: Annotated[int | None, typer.Option(help="Number of roots. Default: 2 k.", min=1)] = None,
    power: Annotated[int, typer.Option(help="p of the inverse polynomial.", min=1)] = 3,
    degree: Annotated[int, typer.Option(help="T of the inverse polynomial.", min=1)] = 7,
    cg_steps: Annotated[int, typer.Option(help="Conjugate-gradient steps a solve.", min=1)] = 10,
    scaled: Annotated[bool, typer.Option(help="Scale L by its Gershgorin bound inside the probe.")] = True,
    loss: Annotated[str, typer.Option(help="subspace or theory.")] = "subspace",
    lr: Annotated[float, typer.Option(help="Learning rate.")] = 3e-3,
    weight: Annotated[float, typer.Option(help="lambda of the theory loss.")] = 0.1,
    epochs: Annotated[int, typer.Option(min=1)] = 50,
    batch_size: Annotated[int, typer.Option(min=1)] = 4,
    seed: Annotated[int, typer.Option(help="Of the graphs, the split and all random vectors.")] = 0,
    out: Annotated[Path, typer.Option(help="Where state, curves and network go.")] = Path("runs/train"),
) -> None:
    """Train one network on a family of graphs and save it. Interrupted, the same command goes on."""
    with messages():
        import torch

        from krylow._checks import choice
        from krylow.data import load_family
        from krylow.nn import GaussianProbe, InversePolynomialProbe, RootProbe, UnrolledLanczos
        from krylow.training.loop import Recipe
        from krylow.training.single import train_network

        torch.set_num_threads(1)  # the tensors are tiny: more threads are slower
        starts = {
            "inverse": lambda: InversePolynomialProbe(degree, power, cg_steps, "cg", scaled),
            "roots": lambda: RootProbe(roots or 2 * k),
            "none": GaussianProbe,
        }
        start = starts[choice(probe, tuple(starts), "probe")]()
        rooted = probe == "roots"  # a well filtered start needs reorthogonalised steps, and those have no gammas
        net = UnrolledLanczos(k, m, start, init=0.0 if rooted else 0.03, reorthogonalize=rooted).double()
        family = load_family(data, seed=seed, dtype=torch.float64)
        recipe = Recipe(loss=loss, epochs=epochs, batch_size=batch_size)
        trained = train_network(net, family, recipe, lr=lr, weight=weight, seed=seed, folder=out, progress=True)
        console.print_json(data=trained.card)
        console.print(f"network: {out / 'network.safetensors'}, curves: {out / 'curves.csv'}")


def _integers(text: str) -> list[int]:
    """Read numbers separated by commas."""
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise typer.BadParameter(f"expected numbers separated by commas, such as 6,8,10, got {text!r}.") from None


def main() -> None:
    """Run the command line."""
    app()
