"""Static condensation."""

from __future__ import annotations

from typing import Any

import numpy as np

from krylow import _native
from krylow._native import down, extend, inherit, up

__all__ = ["ENTRY", "NODE", "down", "eliminate", "extend", "gather", "inherit", "up"]

ENTRY = np.dtype("u1")
NODE = np.dtype([(name, "f8") for name in "abcd"])
_made: dict[int, tuple[Any, Any]] = {}


def eliminate(crow: Any, col: Any, values: Any, shift: float, slowest: float, widest: int, met: Any, *room: Any) -> Any:
    symmetric, order, coefficients, *core = _native.eliminate(crow, col, values, shift, slowest, widest)
    _made[id(room[-1])] = order, coefficients
    return symmetric, len(order), *core


def gather(nodes_met: Any, other: Any, stack: Any, order: Any, coefficients: Any) -> None:
    order[:], coefficients[:] = _made.pop(id(stack))
