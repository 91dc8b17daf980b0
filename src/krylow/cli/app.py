"""The application: its consoles, standard streams, errors as messages and exit codes, and progress."""

from __future__ import annotations

import errno
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from krylow._machine import install_line

app = typer.Typer(
    name="krylow",
    help="Ideal low-pass graph filtering without the eigendecomposition.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
console = Console()
errors = Console(stderr=True, soft_wrap=True, highlight=False)

#: Exit codes: bad arguments or data; an error bound above tol; standard output that cannot be written; Ctrl-C; standard
#: output whose reader is gone.
BAD_INPUT, NOT_CONVERGED, NO_OUTPUT, INTERRUPTED, CLOSED_PIPE = 2, 3, 4, 130, 141
NOTHING_WRITTEN = "interrupted: nothing was written."

#: How each optional package is installed; other distributions add theirs.
EXTRAS = {
    "pyarrow": install_line("encode"),
    "sklearn": install_line("sklearn"),
    "torch_geometric": install_line("pyg"),
}


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


@contextmanager
def messages() -> Iterator[None]:
    """Show the library's own errors, missing extras and unusable files as one line, and leave with exit code 2."""
    try:
        yield
        return
    except (ValueError, OSError) as error:
        if type(error).__module__.startswith("krylow"):
            message = _one_line(error)
        elif isinstance(error, OSError) and error.filename is not None:
            reason = error.strerror or str(error)
            message = _one_line(f"cannot read or write {str(error.filename)!r}: {reason}. Choose another place.")
        else:
            raise
    except MemoryError:
        message = "there is not enough memory for this: take a smaller graph, or fewer signals."
    except ModuleNotFoundError as error:
        if error.name not in EXTRAS:
            raise
        message = _one_line(f"this command needs {error.name}: {EXTRAS[error.name]}")
    errors.print(f"[red]error:[/red] {message}", markup=True)
    raise typer.Exit(BAD_INPUT)


def _one_line(error: Exception | str) -> str:
    return " ".join(str(error).split()).replace("[", r"\[")


def writable(folder: Path) -> None:
    """Make a folder for results, and refuse one that cannot be written to, before anything is computed."""
    from krylow.io.atomic import check_folder

    folder.mkdir(parents=True, exist_ok=True)
    check_folder(folder)


def run() -> None:
    """Run the command line such that closed or full standard streams give no traceback."""
    for number in range(3):  # a closed stream's number must not go to the next file, which would get what is printed
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest number that is free
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115 (for the life of the process)
    try:
        app()
    except SystemExit as leave:
        if isinstance(leave.__context__, OSError) and leave.__context__.errno == errno.EPIPE:
            raise _no_output(leave.__context__) from None
        try:
            if sys.stdout is not None:
                sys.stdout.flush()
        except OSError as error:
            failed = _no_output(error)
            if leave.code in (None, 0):
                raise failed from None
        raise
    except OSError as error:
        raise _no_output(error) from None


def _no_output(error: OSError) -> SystemExit:
    """Report that standard output cannot be written, unless its reader is gone, and return the exit."""
    if sys.stdout is not None:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # Python's last flush would complain once more
    if error.errno == errno.EPIPE:
        return SystemExit(CLOSED_PIPE)
    with suppress(OSError):  # standard error may be as full
        errors.print(
            f"[red]error:[/red] cannot write to the standard output: {_one_line(error.strerror or str(error))}."
        )
    return SystemExit(NO_OUTPUT)


def write_stdout(text: str) -> None:
    """Write to standard output; leave with an exit code where its reader is gone or there is no space."""
    if sys.stdout is None:
        raise _no_output(OSError(errno.EBADF, "it is closed"))
    rest = memoryview(text.encode())
    try:
        while rest:  # without a buffer (PYTHONUNBUFFERED) a write may be partial, which only its count shows
            rest = rest[sys.stdout.buffer.write(rest) :]
        sys.stdout.flush()
    except OSError as error:
        raise _no_output(error) from None


@dataclass
class Stages:
    """Runs the stages of a command: a line for each on a terminal while it runs, and its time in ``seconds``."""

    progress: Any
    seconds: dict[str, float] = field(default_factory=dict)

    @contextmanager
    def __call__(self, name: str, text: str) -> Iterator[Callable[[float, str], None]]:
        """Show ``text`` while the stage runs; the yielded function moves the bar to a part of 1 and adds text."""
        start = time.perf_counter()
        task = self.progress.add_task(text, total=None)

        def move(part: float, more: str) -> None:
            self.progress.update(task, total=1.0, completed=part, description=f"{text}: {more}")

        yield move
        self.progress.remove_task(task)
        self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - start

    @contextmanager
    def starting(self) -> Iterator[None]:
        """Run the imports, torch's above all. Ctrl-C leaves at once, since some packages suppress it."""

        def leave(*_: Any) -> None:
            self.progress.stop()
            errors.print(NOTHING_WRITTEN)
            os._exit(INTERRUPTED)

        is_main = threading.current_thread() is threading.main_thread()  # others may not set a handler
        before = signal.signal(signal.SIGINT, leave) if is_main else None
        try:
            with self("start", "starting"):
                yield
        finally:
            if before is not None:
                signal.signal(signal.SIGINT, before)


@contextmanager
def staged() -> Iterator[Stages]:
    """Show progress on a terminal, and end a command the way a shell expects: bad input 2, Ctrl-C 130."""
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(bar_width=20), TimeElapsedColumn())
    try:
        with messages(), Progress(*columns, console=errors, transient=True, disable=not sys.stderr.isatty()) as shown:
            yield Stages(shown)
    except KeyboardInterrupt:
        errors.print(NOTHING_WRITTEN)
        raise typer.Exit(INTERRUPTED) from None
