"""Threads that share the rows of one large graph, and Ctrl-C held back while they write.

Those of torch and BLAS wait for each other in busy loops at the end of every product, thousands of times in a solve
whose products are small, and take a core from whoever else wants it. These sleep while they wait.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache
from itertools import pairwise
from typing import Any, TypeVar

import torch

Result = TypeVar("Result")


class _Own(threading.local):
    """How many threads share rows, for each thread that is inside :func:`sharing`."""

    count: int | None = None


_own = _Own()
_lock, _limiting = threading.Lock(), threading.Lock()
_pools: dict[int, ThreadPoolExecutor] = {}

if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_pools.clear)  # a child process has none of the threads


def thread_count() -> int:
    """Return how many threads share rows: as many as torch was given."""
    return _own.count or torch.get_num_threads()


@contextmanager
def sharing() -> Iterator[None]:
    """Inside, libraries run on the thread that calls them, and rows are shared among as many threads as torch had.

    torch keeps a setting for each thread, so that other threads of a program go on as they were. The libraries
    below numpy and scipy do not: theirs is the program's, and the first of several threads inside lowers it.

    >>> with sharing():
    ...     torch.get_num_threads()
    1
    """
    threads = torch.get_num_threads()
    before = _own.count
    _own.count = before or threads
    torch.set_num_threads(1)
    try:
        with _limited_libraries():
            yield
    finally:
        torch.set_num_threads(threads)
        _own.count = before


@contextmanager
def _limited_libraries() -> Iterator[None]:
    """Inside, the libraries below numpy and scipy run on one thread; who comes while another is inside changes nothing.

    What each of several would restore when leaving is what it has found, which is not what was there first.
    """
    if not _limiting.acquire(blocking=False):
        yield
        return
    try:
        with _libraries().limit(limits=1, user_api="blas"):
            yield
    finally:
        _limiting.release()


@cache
def _libraries() -> Any:
    import scipy.linalg.blas  # noqa: F401 - what is loaded is found
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()


def shared(work: Callable[[int, int], Result], bounds: Sequence[int]) -> list[Result]:
    """Return ``work(start, stop)`` of all ranges between bounds, each on a thread of its own, the last on this one.

    >>> shared(lambda start, stop: list(range(start, stop)), [0, 2, 3])
    [[0, 1], [2]]
    """
    *others, last = pairwise(bounds)
    if not others:
        return [work(*last)]
    pool, inside = _pool(len(others)), _own.count is not None
    jobs = [pool.submit(_share, work, start, stop, inside) for start, stop in others]
    try:
        end = work(*last)
    finally:
        done = [job.result() for job in jobs]  # nothing is left running, whatever happens here
    return [*done, end]


def _share(work: Callable[[int, int], Result], start: int, stop: int, inside: bool) -> Result:
    """Do a share of the work; for one who is inside :func:`sharing`, without torch's own threads."""
    if inside and torch.get_num_threads() != 1:
        torch.set_num_threads(1)
    return work(start, stop)


def _pool(threads: int) -> ThreadPoolExecutor:
    with _lock:
        if threads not in _pools:
            _pools[threads] = ThreadPoolExecutor(threads, thread_name_prefix="krylow")
        return _pools[threads]


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Hold Ctrl-C back until the end: a block whose rows are replaced one after the other is none in between.

    Only the main thread gets Ctrl-C. Where another language handles it, whose handler could not be put back, nothing is
    held back.
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
