"""What a long run tells while it runs: passes, the error it has reached, and the time that is left."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass

from krylow.operators import Operator


@dataclass(frozen=True)
class Progress:
    """One look at a run, after a sweep.

    Attributes
    ----------
    passes, products
        Sweeps over L and products with one vector so far.
    bound
        Estimate of the normalised squared subspace error at this point; infinite while nothing is known of it.
    seconds
        Since the run began.
    remaining
        Seconds that are left if the error goes on falling as it did in the last sweep; None while that is not known.
    """

    passes: int
    products: int
    bound: float
    seconds: float
    remaining: float | None


Callback = Callable[[Progress], None]


class Watch:
    """Calls back after every sweep, with the counts since it was made.

    Parameters
    ----------
    L
        The operator whose counters tell the cost.
    tol
        The error at which the run will stop.
    callback
        Who wants to know. None: nobody.
    """

    def __init__(self, L: Operator, tol: float, callback: Callback | None) -> None:
        self._L, self._tol, self._callback = L, tol, callback
        self._start = self._before = time.perf_counter()
        self._passes, self._products = L.passes, L.products
        self._bound = math.inf

    def report(self, bound: float) -> None:
        """Tell that a sweep has ended with an estimated error of ``bound``."""
        if self._callback is None:
            return
        now = time.perf_counter()
        remaining = None
        if bound <= self._tol:
            remaining = 0.0
        elif bound < self._bound < math.inf:
            sweeps = math.log(bound / self._tol) / math.log(self._bound / bound)
            remaining = sweeps * (now - self._before)
        self._before, self._bound = now, bound
        self._callback(
            Progress(
                passes=self._L.passes - self._passes,
                products=self._L.products - self._products,
                bound=bound,
                seconds=now - self._start,
                remaining=remaining,
            )
        )
