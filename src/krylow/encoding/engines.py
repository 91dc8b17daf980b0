"""Where tasks run: every engine is a ``concurrent.futures.Executor``, so that Dask's or MPI's are as good as ours."""

from __future__ import annotations

import ipaddress
import logging
import multiprocessing
import os
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Executor, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from typing import Any, TypeVar
from unittest.mock import patch

from krylow._checks import InputError
from krylow.integrations._frequencies import missing_extra

Result = TypeVar("Result")
ENGINES = ("local", "ray")
#: Tasks that an executor is given for each worker: one to work on, and one that waits.
AHEAD = 2


@contextmanager
def executor_of(engine: str | Executor, workers: int, address: str | None) -> Iterator[Executor]:
    """Open the engine of that name with so many workers; an executor is taken as it is, and left open."""
    if isinstance(engine, Executor):
        yield engine
        return
    if engine not in ENGINES:
        raise InputError(f"engine must be {' or '.join(ENGINES)}, or a concurrent.futures.Executor, got {engine!r}.")
    if address is not None and engine != "ray":
        raise InputError(f"an address is for the engine ray, got one for {engine}.")
    if engine == "ray":
        own: Executor = RayExecutor(address, workers)
    elif workers == 1:
        own = _InProcess()
    else:
        own = processes(workers)
    try:
        yield own
    finally:
        own.shutdown(cancel_futures=True)


def processes(workers: int) -> ProcessPoolExecutor:
    """Return worker processes that end when this one does, even where it is killed."""
    # Spawned, not forked: a forked process inherits locks of threads that do not exist in it.
    return ProcessPoolExecutor(workers, mp_context=multiprocessing.get_context("spawn"), initializer=_end_with_parent)


def _end_with_parent() -> None:
    """Watch the parent from a thread: a worker holds both ends of the queue of its tasks, which never closes for it."""
    parent = multiprocessing.parent_process()

    def watch() -> None:
        if parent is not None:
            parent.join()
            os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def completed(work: Callable[..., Result], jobs: Iterable[Any], executor: Executor, workers: int) -> Iterator[Result]:
    """Yield ``work(job)`` of all jobs as they are done; no more are handed out, or made, than can soon begin."""
    waiting: set[Future[Result]] = set()
    most = 1 if isinstance(executor, _InProcess) else AHEAD * workers
    try:
        for job in jobs:
            waiting.add(executor.submit(work, job))
            if len(waiting) >= most:
                done, waiting = wait(waiting, return_when=FIRST_COMPLETED)
                yield from (each.result() for each in done)
        while waiting:
            done, waiting = wait(waiting, return_when=FIRST_COMPLETED)
            yield from (each.result() for each in done)
    except BrokenProcessPool:
        raise InputError(
            "a worker process has died, of a signal or of too little memory: give the same command again, which goes "
            "on where it was, with fewer workers if memory was short."
        ) from None


class _InProcess(Executor):
    """Does what it is given at once."""

    def submit(self, work: Any, /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        try:
            future.set_result(work(*args, **kwargs))
        except Exception as error:
            future.set_exception(error)
        return future


def _call(work: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    return work(*args, **kwargs)


class RayExecutor(Executor):
    """Ray's tasks as a ``concurrent.futures.Executor``. A task whose worker dies runs again, up to three times.

    Parameters
    ----------
    address
        Of a running cluster, such as ``"auto"`` or ``"ray://head:10001"``. None: a Ray of its own on this machine,
        which listens on the loopback interface only and ends with :meth:`shutdown`.
    workers
        Tasks that this Ray of its own runs at a time. None: one a core.
    """

    def __init__(self, address: str | None = None, workers: int | None = None) -> None:
        try:
            import ray
        except ModuleNotFoundError as error:
            raise missing_extra("engine ray", "ray", "cluster") from error
        self._ray, self._own = ray, not ray.is_initialized()
        if self._own and address is not None:
            ray.init(address=address, log_to_driver=False)
        elif self._own:
            # Ray listens on all interfaces, but for the systems on which its clusters are switched off.
            with patch.object(ray._private.ray_constants, "ENABLE_RAY_CLUSTER", False):
                quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.WARNING}
                ray.init(num_cpus=workers, include_dashboard=False, **quiet)
            if not all(ipaddress.ip_address(node["NodeManagerAddress"]).is_loopback for node in ray.nodes()):
                ray.shutdown()
                raise InputError("this version of Ray cannot be kept on this machine: start it yourself, by ray.init.")
        self._remote = ray.remote(num_cpus=1, max_retries=3)(_call)

    def submit(self, work: Any, /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Start a task and return its future."""
        return self._remote.remote(work, *args, **kwargs).future()

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Leave the cluster; a Ray that was already there when this began is left as it is."""
        if self._own:
            self._ray.shutdown()
