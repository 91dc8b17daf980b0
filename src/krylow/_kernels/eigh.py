"""The lowest eigenpairs of small matrices."""

from __future__ import annotations

from typing import Any

from krylow import _native

__all__ = ["TINY", "lowest"]

TINY = 1e-36


def lowest(S: Any, values: Any, vectors: Any, failed: Any, start: Any, *room: Any) -> None:
    _native.lowest(S, values, vectors, failed, start, room[-1])
