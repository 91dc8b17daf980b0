"""A process that holds one graph and runs solvers on it, one call at a time, and that can be stopped in the middle.

Jobs and outcomes are lines of JSON on its standard input and output. Time is taken around the solver alone; the peak of
memory is that of the call above what the process held before, from the kernel's high-water mark, which Linux lets a
process reset.
"""

from __future__ import annotations

import json
import os
import selectors
import subprocess
import sys
import time
import traceback
from pathlib import Path
from typing import Any

from krylow._checks import InputError
from krylow_lab._extras import install_line

#: What limits the threads of the libraries.
THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")
#: Seconds to start and read the graph.
START_LIMIT = 300.0
#: Seconds between two looks at how long a call has taken.
POLL = 0.5
#: Most memory of the process over the machine's: a factorisation that fills up fails alone.
MEMORY_SHARE = 0.5
#: Nodes of the graph of the family that ours is warmed up on: enough for what is done on large ones only.
WARM = 10_000


class OverLimitError(Exception):
    """A call took longer than it was given; its process is gone."""


class Worker:
    """The process, from the side of whoever runs the benchmark. Started when first needed, and anew after a stop."""

    def __init__(self, graph: Path, k: int, threads: int) -> None:
        self.arguments = [str(graph), str(k)]
        self.threads = threads
        self._process: subprocess.Popen[str] | None = None

    def run(self, solver: str, setting: float, seed: int, limit: float) -> dict[str, Any]:
        """Return the outcome of one call, or raise :class:`OverLimitError` after ``limit`` seconds.

        They are the processor's, on as many threads as there are: other work on the machine does not stop a call.
        """
        if self._process is None:
            self._process = self._start()
        process = self._process
        assert process.stdin is not None
        process.stdin.write(json.dumps({"solver": solver, "setting": setting, "seed": seed}) + "\n")
        process.stdin.flush()
        return self._answer(limit)

    def close(self) -> None:
        """Stop the process."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _start(self) -> subprocess.Popen[str]:
        environment = {**os.environ, **dict.fromkeys(THREADS, str(self.threads))}
        command = [sys.executable, "-W", "ignore", "-m", "krylow_lab.large.worker", *self.arguments]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment, start_new_session=True
        )
        self._answer(START_LIMIT)
        return self._process

    def _answer(self, limit: float) -> dict[str, Any]:
        process = self._process
        assert process is not None
        assert process.stdout is not None
        begin = _processor_seconds(process.pid)
        with selectors.DefaultSelector() as selector:
            selector.register(process.stdout, selectors.EVENT_READ)
            while not (ready := selector.select(min(limit, POLL))):
                if _processor_seconds(process.pid) - begin > limit * self.threads:
                    break
        line = process.stdout.readline() if ready else ""
        if not line:
            code = process.poll()
            self.close()
            if ready:
                return {"failed": f"the process ended with code {code}, perhaps out of memory"}
            raise OverLimitError(f"more than {limit:.0f} s")
        outcome: dict[str, Any] = json.loads(line)
        return outcome


def _processor_seconds(process: int) -> float:
    """Return the processor time that a process has used, or the clock where the kernel does not say."""
    try:
        fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return time.monotonic()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def main(graph: str, k: str) -> None:
    """Read the graph, say so, then answer jobs until standard input ends."""
    import numpy as np
    import torch

    from krylow_lab.large.reference import load
    from krylow_lab.large.solvers import Problem

    torch.set_num_threads(int(os.environ.get(THREADS[0], "1")))
    _limit_memory()
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # what a library prints must not be taken for an answer
    reference, number = load(Path(graph)), int(k)
    problem = Problem(reference.L, number, float(reference.values[number - 1]), float(reference.values[number]))
    truth = np.ascontiguousarray(reference.vectors[:, :number])
    del reference
    answers.write(json.dumps({"ready": True}) + "\n")
    warm: set[str] = set()
    for line in sys.stdin:
        job = json.loads(line)
        try:
            if job["solver"] not in warm:
                _warm_up(job["solver"], job["setting"], Path(graph).name.split("-")[0])
                warm.add(job["solver"])
            outcome = _call(problem, truth, **job)
        except (Exception, MemoryError) as error:
            traceback.print_exc()
            outcome = {"failed": f"{type(error).__name__}: {error}"[:300]}
        answers.write(json.dumps(outcome) + "\n")


def _limit_memory() -> None:
    import resource

    most = int(MEMORY_SHARE * os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    resource.setrlimit(resource.RLIMIT_AS, (most, most))


def _warm_up(solver: str, setting: float, family: str) -> None:
    """Call the solver on a small graph, so that what is imported or compiled once is not timed.

    Ours is called on one of the family, too: other methods are other compiled loops.
    """
    import contextlib

    from krylow_lab.large import graphs, reference
    from krylow_lab.large.solvers import OURS, SOLVERS, Problem

    L = graphs.make("grid", 5000, 0)
    values, _ = reference.grid_eigenpairs(*graphs.grid(5000), 12)
    with contextlib.suppress(Exception):
        SOLVERS[solver].run(Problem(L, 11, float(values[10]), float(values[11])), setting, 0)
    if solver in OURS and family in graphs.FAMILIES:
        SOLVERS[solver].run(Problem(graphs.make(family, WARM, 0), 20, 0.0, 0.0), setting, 0)


def _call(problem: Any, truth: Any, solver: str, setting: float, seed: int) -> dict[str, Any]:
    from krylow_lab.large.solvers import SOLVERS

    before = reset_peak()
    cpu, wall = time.process_time(), time.perf_counter()
    answer = SOLVERS[solver].run(problem, setting, seed)
    outcome: dict[str, Any] = {"seconds": time.perf_counter() - wall, "cpu_seconds": time.process_time() - cpu}
    outcome["peak_mib"] = peak() - before
    basis = answer.basis
    if hasattr(basis, "ritz_values"):
        wall = time.perf_counter()
        status = basis.status.name
        outcome |= {"certificate_seconds": time.perf_counter() - wall, "status": status}
        outcome |= {"bound": float(basis.error_bound), "why": basis.why, "products": basis.products}
        outcome |= {"passes": basis.passes, "method": basis.method, "success": status == "CONVERGED"}
        basis = basis.basis.numpy()
    else:
        outcome |= {"success": answer.success, "note": answer.note}
    outcome["error"] = _filter_error(problem, truth, basis, seed) if solver == "pygsp" else _error(truth, basis)
    return outcome


def _error(truth: Any, basis: Any) -> float:
    """Return the normalised squared subspace error; 1 where there is no basis."""
    import numpy as np

    if basis is None or not np.isfinite(basis).all() or basis.size == 0:
        return 1.0
    Q, _ = np.linalg.qr(np.asarray(basis, dtype=np.float64))
    return float(np.linalg.norm(truth - Q @ (Q.T @ truth)) ** 2 / truth.shape[1])


def _filter_error(problem: Any, truth: Any, filtered: Any, seed: int) -> float:
    """Return the squared error of a filtered random block relative to the true projection."""
    import numpy as np

    from krylow_lab.large.solvers import signals

    true = truth @ (truth.T @ signals(problem, seed))
    return float((np.linalg.norm(filtered - true) / np.linalg.norm(true)) ** 2)


def reset_peak() -> float:
    """Give unused memory back, set the high-water mark to what is held, and return that in MiB."""
    import ctypes
    import gc

    gc.collect()
    try:
        ctypes.CDLL("libc.so.6").malloc_trim(0)
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        pass
    return peak()


def peak() -> float:
    """Return the high-water mark of memory held in MiB."""
    try:
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith("VmHWM"):
                return int(line.split()[1]) / 1024
    except OSError:
        pass
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def check_packages(solvers: list[str]) -> None:
    """Raise where a peer is not installed."""
    from importlib.util import find_spec

    from krylow_lab.large.solvers import SOLVERS

    for name in solvers:
        package = SOLVERS[name].package
        if package is not None and find_spec(package) is None:
            raise InputError(f"{name} needs {package}: {install_line('peers')}, or leave it out of --solvers.")


if __name__ == "__main__":
    main(*sys.argv[1:])
