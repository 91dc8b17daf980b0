"""What a response is: a function of the frequency, or a bank of them, whatever it is made of."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from krylow import _checks
from krylow._checks import InputError
from krylow.operators import Operator

if TYPE_CHECKING:
    from matplotlib.axes import Axes


class Response(ABC):
    r"""A frequency response $g(\lambda)$, or a bank of them. Calling one evaluates it.

    A subclass implements :meth:`evaluate`. Its fields may be tensors with a gradient.
    """

    @abstractmethod
    def evaluate(self, lam: Tensor) -> Tensor:
        r"""Return $g(\lambda)$ of frequencies ``(*batch, m)``, of that shape; for a bank with ``(filters,)`` behind."""

    def __call__(self, lam: Any) -> Any:
        r"""Return $g(\lambda)$ of a number, an array, a list or a tensor, of its kind."""
        given = _checks.numbers(lam, "frequencies")
        point = given if given.is_floating_point() else given.to(torch.float64)
        return _checks.as_given(self.evaluate(point), lam)

    def plot(self, L: Any, **options: Any) -> Axes:
        """Draw it over the frequencies of a graph, or up to a number: :func:`krylow.plot.response` and its options."""
        from krylow import plot

        return plot.response(self, L, **options)

    def on(self, L: Operator) -> Response:
        """Return the response for one operator's spectrum; itself where it does not depend on that."""
        return self

    @property
    def jumps(self) -> tuple[Any, ...]:
        """Frequencies where it is known to jump."""
        return ()

    @property
    def tail(self) -> tuple[float, float] | None:
        """The frequency beyond which the response is constant, and that constant; None: there is none."""
        return None

    @property
    def dtype(self) -> torch.dtype:
        """What it is evaluated in."""
        return torch.float64


class Function(Response):
    """Any function of the frequencies, elementwise, or one that returns a bank, ``(*batch, m, filters)``."""

    def __init__(self, function: Callable[[Tensor], Any]) -> None:
        self.function = function

    def evaluate(self, lam: Tensor) -> Tensor:
        """Return the function's values."""
        found = self.function(lam)
        values = found if isinstance(found, Tensor) else torch.as_tensor(found, dtype=lam.dtype, device=lam.device)
        if values.ndim == 0:
            values = values.expand(lam.shape)
        if values.is_complex() or values.shape[: lam.ndim] != lam.shape or values.ndim > lam.ndim + 1:
            raise InputError(
                f"a response must return a real value a frequency, {tuple(lam.shape)}, or one a filter behind it, got "
                f"{tuple(values.shape)} of {values.dtype}."
            )
        return values

    @property
    def dtype(self) -> torch.dtype:
        """A module's own, else float64."""
        if isinstance(self.function, nn.Module):
            return next((p.dtype for p in self.function.parameters()), torch.float64)
        return torch.float64


class Several(Response):
    """A bank of single responses."""

    def __init__(self, parts: Sequence[Any]) -> None:
        if not parts:
            raise InputError("a bank must hold at least one response, got none.")
        self.parts = [response_of(part) for part in parts]

    def evaluate(self, lam: Tensor) -> Tensor:
        """Return their values side by side."""
        values = [part.evaluate(lam.to(part.dtype)).to(lam.dtype) for part in self.parts]
        return torch.cat([v if v.ndim > lam.ndim else v[..., None] for v in values], dim=-1)

    def on(self, L: Operator) -> Response:
        """Return the bank for one operator's spectrum."""
        return Several([part.on(L) for part in self.parts])

    @property
    def jumps(self) -> tuple[Any, ...]:
        """All of them."""
        return tuple(jump for part in self.parts for jump in part.jumps)


def response_of(response: Any) -> Response:
    """Return a response, a function, or a list of them as a response."""
    if isinstance(response, Response):
        return response
    if isinstance(response, (list, tuple)):
        return Several(response)
    if callable(response):
        return Function(response)
    raise InputError(
        f"a response must be one of krylow.responses, a function of a tensor of frequencies, or a list of them, got "
        f"{response!r}."
    )


def is_bank(response: Response) -> bool:
    """Return whether a response has several filters."""
    return response.evaluate(torch.zeros(2, dtype=response.dtype)).ndim > 1
