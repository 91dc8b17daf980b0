"""Ctrl-C, held back while something must not be left half done."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Hold Ctrl-C back until the end: a block whose rows are replaced one after the other is none in between.

    Only the main thread is told of Ctrl-C; in others nothing has to be held back. Neither is it where another language
    handles Ctrl-C, whose handler could not be put back.
    """
    if threading.current_thread() is not threading.main_thread() or signal.getsignal(signal.SIGINT) is None:
        yield
        return
    held: list[Any] = []
    former = signal.signal(signal.SIGINT, lambda number, frame: held.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, former)
        if held:
            signal.raise_signal(signal.SIGINT)
