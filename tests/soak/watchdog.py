"""Cases in processes of their own, watched: one that crashes or hangs is a row, not the end of the run."""

from __future__ import annotations

import multiprocessing
import resource
import time
from collections.abc import Callable, Iterable, Iterator
from multiprocessing.connection import Connection, wait
from typing import Any

Job = Callable[[int], dict[str, Any]]


def _serve(pipe: Connection, job: Job, seconds: int) -> None:
    """Answer seeds with rows; the system ends a case that takes more processor seconds than that."""
    while True:
        seed = pipe.recv()
        spent = resource.getrusage(resource.RUSAGE_SELF)
        limit = int(spent.ru_utime + spent.ru_stime) + seconds + 1
        resource.setrlimit(resource.RLIMIT_CPU, (limit, resource.getrlimit(resource.RLIMIT_CPU)[1]))
        pipe.send(job(seed))


class _Worker:
    """One process, the seed that it is at, and since when."""

    def __init__(self, job: Job, seconds: int) -> None:
        start = multiprocessing.get_context("forkserver")
        self.pipe, theirs = start.Pipe()
        self.process = start.Process(target=_serve, args=(theirs, job, seconds), daemon=True)
        self.process.start()
        theirs.close()
        self.seed: int | None = None
        self.since = time.monotonic()

    def give(self, seed: int | None) -> None:
        """Begin a case; None: there is none left."""
        self.seed, self.since = seed, time.monotonic()
        if seed is not None:
            self.pipe.send(seed)

    def end(self) -> int | None:
        self.process.kill()
        self.process.join()
        return self.process.exitcode


def watched(
    job: Job, seeds: Iterable[int], workers: int, *, seconds: int = 240, clock: float = 1800.0
) -> Iterator[dict[str, Any]]:
    """Yield the rows of a job as they come, "crash" or "hang" where it does not return.

    A hang has taken ``seconds`` of its processor, or ``clock`` of time without an answer (the machine may be busy, or
    stopped for a while, so that this is far more).
    """
    seeds, running = iter(seeds), [_Worker(job, seconds) for _ in range(workers)]
    try:
        for worker in running:
            worker.give(next(seeds, None))
        while busy := [worker for worker in running if worker.seed is not None]:
            wait([worker.pipe for worker in busy], timeout=1.0)
            for worker in busy:
                row = _row(worker, seconds, clock)
                if row is None:
                    continue
                yield row
                if row["outcome"] in ("crash", "hang"):
                    running.remove(worker)
                    running.append(worker := _Worker(job, seconds))
                worker.give(next(seeds, None))
    finally:
        for worker in running:
            worker.end()


def _row(worker: _Worker, seconds: int, clock: float) -> dict[str, Any] | None:
    """Return the row that a worker has come to, or None while it is at it."""
    try:
        if worker.pipe.poll():
            return worker.pipe.recv()
    except (EOFError, ConnectionError):
        code = worker.end()
        over = code in (-24, -9)  # SIGXCPU, or the limit's own SIGKILL
        why = f"more than {seconds} processor seconds" if over else f"exit code {code}"
        return {"seed": worker.seed, "outcome": "hang" if over else "crash", "why": why}
    if time.monotonic() - worker.since <= clock:
        return None
    worker.end()
    return {"seed": worker.seed, "outcome": "hang", "why": f"no answer within {clock:.0f} seconds"}
