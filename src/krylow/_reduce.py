"""Sums over the nodes of a graph whose rows lie on several ranks.

The solvers of large graphs touch nodes only through products with L, inner products and rotations of blocks, and a few
sums. Those sums go through the reducer of the solve that runs: the identity on one machine, a sum over all ranks
inside :func:`reducing`. What is decided from them is decided by the first rank for all (:func:`agreed`), because two
processors may round an eigendecomposition differently, and ranks that decide differently wait for each other for ever.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Protocol, TypeVar

import torch
from torch import Tensor

from krylow import _checks

Value = TypeVar("Value")


class Reducer(Protocol):
    """What ranks do together."""

    rank: int

    def sum(self, parts: list[Tensor]) -> list[Tensor]:
        """Return the sums of every part over all ranks, in one message."""

    def largest(self, values: list[float]) -> list[float]:
        """Return the largest of each value over all ranks."""

    def agree(self, value: Any) -> Any:
        """Return the first rank's value."""

    def stack(self, part: Tensor) -> tuple[Tensor, int]:
        """Return the rows of all ranks' parts below each other, and where those of this rank begin."""


_running: ContextVar[Reducer | None] = ContextVar("krylow_reducer", default=None)


@contextmanager
def reducing(reducer: Reducer | None) -> Iterator[None]:
    """Inside, blocks hold this rank's rows, and sums over nodes are those over all ranks; None: on one machine."""
    if _checks.traced():  # torch records no context variables, and nothing on several ranks
        yield
        return
    token = _running.set(reducer)
    try:
        yield
    finally:
        _running.reset(token)


def summed(*parts: Tensor) -> list[Tensor]:
    """Return sums over nodes from those over this rank's nodes.

    >>> summed(torch.ones(2))
    [tensor([1., 1.])]
    """
    reducer = None if _checks.traced() else _running.get()
    return list(parts) if reducer is None else reducer.sum(list(parts))


def largest(*values: float) -> list[float]:
    """Return the largest values over all ranks."""
    reducer = _running.get()
    return list(values) if reducer is None else reducer.largest(list(values))


def agreed(value: Value) -> Value:
    """Return the value that the first rank has."""
    reducer = _running.get()
    return value if reducer is None else reducer.agree(value)


def stacked(part: Tensor) -> tuple[Tensor, int] | None:
    """Return all ranks' rows of a small matrix, and where this rank's begin; None on one machine."""
    reducer = _running.get()
    return None if reducer is None else reducer.stack(part)


def seeded(seed: int, device: torch.device | str = "cpu") -> torch.Generator:
    """Return a generator with a fixed seed, another one on each rank: equal rows on two would be a symmetry."""
    reducer = _running.get()
    seed += 0 if reducer is None else 1_000_003 * reducer.rank
    return torch.Generator(device=device).manual_seed(seed)
