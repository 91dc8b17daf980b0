"""Gradients of first order, that say so where one of second order is asked for."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

import torch
from torch.autograd.function import once_differentiable

from krylow._checks import InputError


def first_order(backward: Callable[..., Any]) -> Callable[..., Any]:
    """Return the backward pass of a function, which refuses to be differentiated itself (``create_graph=True``).

    torch's own decorator leaves the second gradient out without a word where no other path leads to the input.
    """
    once = once_differentiable(backward)

    @wraps(backward)
    def refusing(ctx: Any, *grads: Any) -> Any:
        if torch.is_grad_enabled():
            raise InputError(
                "the gradient of a subspace must not be differentiated again: it is of first order, got "
                "create_graph=True. For second derivatives take finite differences of the gradient."
            )
        return once(ctx, *grads)

    return refusing
