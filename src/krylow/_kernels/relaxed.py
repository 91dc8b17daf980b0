"""The relaxed recurrence."""

from krylow._native import relaxed_backward as backward
from krylow._native import relaxed_forward as forward

__all__ = ["backward", "forward"]
