"""How every benchmark measures: interleaved repeats in one process, medians, ratios."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from statistics import median
from typing import Any


def interleaved(
    jobs: dict[str, Callable[[], Any]],
    *,
    repeats: int = 5,
    slow: float = math.inf,
    clock: Callable[[], float] = time.perf_counter,
) -> tuple[dict[str, float], dict[str, Any]]:
    """Return the median seconds and the last answer of each job.

    One warm-up each, then the jobs take turns, so that whatever else the machine does falls on all of them alike. One
    whose warm-up takes longer than ``slow`` seconds is not run again. ``clock=time.process_time``: processor time.
    """
    answers: dict[str, Any] = {}
    seconds: dict[str, list[float]] = {name: [] for name in jobs}

    def run(name: str) -> float:
        start = clock()
        answers[name] = jobs[name]()
        return clock() - start

    for name in jobs:
        first = run(name)
        seconds[name] += [first] if first > slow else []
    turns = [name for name in jobs if not seconds[name]]
    for _ in range(repeats):
        for name in turns:
            seconds[name].append(run(name))
    return {name: median(times) for name, times in seconds.items()}, answers
