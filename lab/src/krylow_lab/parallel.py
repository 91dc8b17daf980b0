"""Jobs in worker processes, one thread each: what the experiments train their cells with."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from typing import TypeVar

import torch

Result = TypeVar("Result")
#: Called with the progress: the jobs done, the jobs in all, and what the last one was.
Report = Callable[[int, int, str], None]


def parallel(jobs: Sequence[Callable[[], Result]], workers: int) -> Iterator[tuple[int, Result]]:
    """Do the jobs in so many processes, and yield the number and the result of each as it is done.

    With one worker, or one job, they are done in this process.
    """
    if workers == 1 or len(jobs) < 2:
        yield from ((i, job()) for i, job in enumerate(jobs))
        return
    # Spawned, not forked: a forked process inherits locks of threads that do not exist in it.
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(min(workers, len(jobs)), mp_context=context, initializer=one_thread) as pool:
        try:
            futures = {pool.submit(job): i for i, job in enumerate(jobs)}
            for future in as_completed(futures):
                yield futures[future], future.result()
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def one_thread() -> None:
    """Give a worker one thread: the workers are the parallelism, and tiny tensors are slower on many."""
    torch.set_num_threads(1)
