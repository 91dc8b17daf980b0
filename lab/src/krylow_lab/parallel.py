"""Jobs in worker processes, one thread each: what the experiments train their cells with."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, as_completed
from typing import TypeVar

import torch

from krylow.encoding.engines import processes

Result = TypeVar("Result")
#: Called with the progress: the jobs done, the jobs in all, and what the last one was.
Report = Callable[[int, int, str], None]


def parallel(jobs: Sequence[Callable[[], Result]], workers: int | Executor) -> Iterator[tuple[int, Result]]:
    """Do the jobs in so many processes, and yield the number and the result of each as it is done.

    With one worker, or one job, they are done in this process. An executor, such as that of Dask, of ``mpi4py.futures``
    or :class:`krylow.encoding.RayExecutor`, is given all of them, and left open.
    """
    if isinstance(workers, Executor):
        yield from _given_to(workers, jobs)
        return
    if workers == 1 or len(jobs) < 2:
        yield from ((i, job()) for i, job in enumerate(jobs))
        return
    with processes(min(workers, len(jobs))) as pool:
        yield from _given_to(pool, jobs)


def _given_to(executor: Executor, jobs: Sequence[Callable[[], Result]]) -> Iterator[tuple[int, Result]]:
    futures = {executor.submit(_on_one_thread, job): i for i, job in enumerate(jobs)}
    try:
        for future in as_completed(futures):
            yield futures[future], future.result()
    finally:
        for future in futures:
            future.cancel()


def _on_one_thread(job: Callable[[], Result]) -> Result:
    """Do a job on one thread: the workers are the parallelism, and tiny tensors are slower on many."""
    torch.set_num_threads(1)
    return job()
