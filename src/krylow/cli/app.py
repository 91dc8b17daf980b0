"""What the commands share: the application, the two consoles, and how errors become messages and exit codes."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from krylow._extras import install_line

app = typer.Typer(
    name="krylow",
    help="Ideal low-pass graph filtering without the eigendecomposition.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
console = Console()
errors = Console(stderr=True, soft_wrap=True, highlight=False)

#: Exit codes: arguments or data that do not fit; standard output that cannot be written; one whose reader went away.
BAD_INPUT = 2
NO_OUTPUT = 4
CLOSED_PIPE = 141

#: How each optional package is installed; other distributions add theirs.
EXTRAS = {
    "numba": install_line("large"),
    "pyamg": install_line("large"),
    "sklearn": install_line("sklearn"),
    "torch_geometric": install_line("pyg"),
}


@contextmanager
def messages() -> Iterator[None]:
    """Turn the library's own errors, missing extras and files that cannot be used into one line and exit code 2."""
    try:
        yield
    except (ValueError, OSError) as error:
        ours = type(error).__module__.startswith("krylow")
        if not ours and (isinstance(error, ValueError) or getattr(error, "filename", None) is None):
            raise
        said = _one_line(error) if ours else _about_file(error)
        errors.print(f"[red]error:[/red] {said}", markup=True)
        raise typer.Exit(BAD_INPUT) from None
    except MemoryError:
        errors.print("[red]error:[/red] there is not enough memory for this: take a smaller graph, or fewer signals.")
        raise typer.Exit(BAD_INPUT) from None
    except ModuleNotFoundError as error:
        if error.name not in EXTRAS:
            raise
        errors.print(f"error: this command needs {error.name}: {EXTRAS[error.name]}", markup=False)
        raise typer.Exit(BAD_INPUT) from None


def _one_line(error: Exception | str) -> str:
    return " ".join(str(error).split()).replace("[", r"\[")


def _about_file(error: Exception) -> str:
    name, reason = getattr(error, "filename", None), getattr(error, "strerror", None) or str(error)
    return _one_line(f"cannot read or write {str(name)!r}: {reason}. Choose another place.")


def _show_version(asked: bool) -> None:
    if asked:
        from krylow import __version__

        typer.echo(f"krylow {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and leave.")
    ] = False,
) -> None:
    pass  # its help is the application's


def writable(folder: Path) -> None:
    """Make a folder for results, and find out that they can be written before the time is spent to compute them."""
    from krylow.io.atomic import check_folder

    folder.mkdir(parents=True, exist_ok=True)
    check_folder(folder)


def run() -> None:
    """Run the command line such that nothing that befalls its streams is a traceback."""
    _occupy_streams()
    try:
        app()
    except SystemExit as leave:
        if isinstance(leave.__context__, OSError) and leave.__context__.errno == errno.EPIPE:
            _drop_stdout()
            raise SystemExit(CLOSED_PIPE) from None
        _flush(leave.code)
        raise
    except OSError as error:
        raise no_output(error) from None


def no_output(error: OSError) -> SystemExit:
    """Say that standard output cannot be written, and return what leaves with the exit code for that."""
    _drop_stdout()
    if error.errno == errno.EPIPE:
        return SystemExit(CLOSED_PIPE)
    with suppress(OSError):  # standard error may be as full
        errors.print(
            f"[red]error:[/red] cannot write to the standard output: {_one_line(error.strerror or str(error))}."
        )
    return SystemExit(NO_OUTPUT)


def _flush(code: object) -> None:
    """Write what is still in the buffer, while there is somebody to tell of a failure."""
    try:
        if sys.stdout is not None:
            sys.stdout.flush()
    except OSError as error:
        failed = no_output(error)
        if code in (None, 0):
            raise failed from None


def _occupy_streams() -> None:
    """Give closed standard streams a place, so that no file gets their number and what is printed with it."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest number that is free
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115 (for the life of the process)


def _drop_stdout() -> None:
    """Let Python's last flush at exit go nowhere: it would complain once more."""
    if sys.stdout is not None:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def integers(text: str) -> list[int]:
    """Read numbers separated by commas."""
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise typer.BadParameter(f"expected numbers separated by commas, such as 6,8,10, got {text!r}.") from None
