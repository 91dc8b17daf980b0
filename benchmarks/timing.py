"""How every benchmark measures: interleaved repeats in one process, medians, ratios."""

from __future__ import annotations

import time
from collections.abc import Callable
from statistics import median
from typing import Any


def interleaved(jobs: dict[str, Callable[[], Any]], *, repeats: int = 5) -> tuple[dict[str, float], dict[str, Any]]:
    """Return the median seconds and the last answer of each job.

    One warm-up each, then the jobs take turns, so that whatever else the machine does falls on all of them alike.
    """
    answers = {name: job() for name, job in jobs.items()}
    seconds: dict[str, list[float]] = {name: [] for name in jobs}
    for _ in range(repeats):
        for name, job in jobs.items():
            start = time.perf_counter()
            answers[name] = job()
            seconds[name].append(time.perf_counter() - start)
    return {name: median(times) for name, times in seconds.items()}, answers
