"""Stages of a command: a line for each on a terminal while it runs, their times, and Ctrl-C."""

from __future__ import annotations

import math
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import typer

from krylow.cli.app import errors, messages

if TYPE_CHECKING:
    from krylow.solvers._problem import Progress

#: Exit code of Ctrl-C.
INTERRUPTED = 130
NOTHING_WRITTEN = "interrupted: nothing was written."


@dataclass
class Stages:
    """Runs the stages of a command: a line for each on a terminal while it runs, and its time in ``seconds``."""

    progress: Any
    seconds: dict[str, float] = field(default_factory=dict)

    @contextmanager
    def __call__(self, name: str, text: str) -> Iterator[Callable[[float, str], None]]:
        """Show ``text`` while the stage runs; what is yielded moves the bar to a part of 1 and adds to the text."""
        start = time.perf_counter()
        task = self.progress.add_task(text, total=None)

        def move(part: float, more: str) -> None:
            self.progress.update(task, total=1.0, completed=part, description=f"{text}: {more}")

        yield move
        self.progress.remove_task(task)
        self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - start

    @contextmanager
    def starting(self) -> Iterator[None]:
        """Run the imports: torch takes its time. Ctrl-C leaves at once, since some packages swallow it half-way."""

        def leave(*_: Any) -> None:
            self.progress.stop()
            errors.print(NOTHING_WRITTEN)
            os._exit(INTERRUPTED)

        ours = threading.current_thread() is threading.main_thread()  # others may not set a handler
        before = signal.signal(signal.SIGINT, leave) if ours else None
        try:
            with self("start", "starting"):
                yield
        finally:
            if before is not None:
                signal.signal(signal.SIGINT, before)


@dataclass
class Shown:
    """Draws the progress of an iteration: how much of the way from the first error to tol it has come, in decades."""

    move: Callable[[float, str], None]
    tol: float
    first: float | None = None
    part: float = 0.0

    def __call__(self, now: Progress) -> None:
        """Move the bar, never back."""
        error = min(max(now.bound, 1e-300), 1.0)
        self.first = error if self.first is None else max(self.first, error)
        if self.first > self.tol:
            way = math.log(self.first / error) / math.log(self.first / self.tol)
            self.part = max(self.part, min(way, 1.0))
        left = "" if now.remaining is None else f", {now.remaining:.0f} s left"
        self.move(self.part, f"{now.passes} passes, error {error:.1g}{left}")


@contextmanager
def staged() -> Iterator[Stages]:
    """Show progress on a terminal, and end a command the way a shell expects: bad input 2, Ctrl-C 130."""
    from rich.progress import BarColumn, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as Bars

    shown = sys.stderr.isatty()
    columns = (TextColumn("{task.description}"), BarColumn(bar_width=20), TimeElapsedColumn())
    try:
        with messages(), Bars(*columns, console=errors, transient=True, disable=not shown) as progress:
            yield Stages(progress)
    except KeyboardInterrupt:
        errors.print(NOTHING_WRITTEN)
        raise typer.Exit(INTERRUPTED) from None
