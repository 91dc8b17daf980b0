"""Single filters. Every parameter is a number or a tensor, with a gradient where one is wanted."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from krylow import _checks
from krylow._checks import InputError
from krylow._response import Response

#: A number, or a tensor without dimensions.
Number = float | Tensor


#: Of a field whose values are positive: layers learn its logarithm.
POSITIVE = {"positive": True}


class Single(Response):
    """A filter whose fields are its parameters."""

    def learnable(self) -> dict[str, bool]:
        """Return the fields that have a gradient, and which of them are positive."""
        fields = self.__dataclass_fields__  # type: ignore[attr-defined]
        return {name: bool(part.metadata.get("positive")) for name, part in fields.items()}

    def __post_init__(self) -> None:
        for name, part in self.__dataclass_fields__.items():  # type: ignore[attr-defined]
            value = getattr(self, name)
            if isinstance(value, Tensor):
                if value.ndim or value.is_complex():
                    raise InputError(f"{name} must be a number, got a tensor of shape {tuple(value.shape)}.")
                _checks.finite(value, name)
            elif part.metadata.get("positive"):
                object.__setattr__(self, name, _checks.positive(value, name))
            elif not isinstance(value, tuple):
                number = _checks.number(value, name)
                if not math.isfinite(number):
                    raise InputError(f"{name} must be finite, got {value!r}.")
                object.__setattr__(self, name, number)


@dataclass(frozen=True, eq=False)
class Heat(Single):
    r"""Diffusion for a time: $g(\lambda) = e^{-\tau \lambda}$, the heat kernel.

    Parameters
    ----------
    tau
        The time. Frequencies above 1 / tau are damped.

    >>> Heat(2.0)([0.0, 1.0]).round(4)
    array([1.    , 0.1353])
    """

    tau: Number = field(metadata=POSITIVE)

    def evaluate(self, lam: Tensor) -> Tensor:
        """Return the values."""
        return torch.exp(-self.tau * lam)


@dataclass(frozen=True, eq=False)
class Tikhonov(Single):
    r"""Denoising by a quadratic penalty: $g(\lambda) = 1 / (1 + a \lambda)$.

    $y = \arg\min_y \|y - x\|^2 + a \, y^\top L y$.

    Parameters
    ----------
    a
        The weight of the penalty. Frequencies above 1 / a are damped.

    >>> Tikhonov(0.5)([0.0, 2.0])
    array([1. , 0.5])
    """

    a: Number = field(metadata=POSITIVE)

    def evaluate(self, lam: Tensor) -> Tensor:
        """Return the values."""
        return 1 / (1 + self.a * lam)


@dataclass(frozen=True, eq=False)
class Gaussian(Single):
    r"""A bell around one frequency: $g(\lambda) = \exp(-(\lambda - \mu)^2 / (2 \sigma^2))$.

    Parameters
    ----------
    sigma
        Its standard deviation.
    mu
        The frequency; 0: a low-pass filter.

    >>> Gaussian(1.0)([0.0, 1.0]).round(4)
    array([1.    , 0.6065])
    """

    sigma: Number = field(metadata=POSITIVE)
    mu: Number = 0.0

    def evaluate(self, lam: Tensor) -> Tensor:
        """Return the values."""
        return torch.exp(-((lam - self.mu) / self.sigma).square() / 2)


@dataclass(frozen=True, eq=False)
class Exponential(Single):
    r"""The exponential filter of spectral methods: $g(\lambda) = \exp(-(\lambda / \lambda_c)^p)$.

    Parameters
    ----------
    cutoff
        $\lambda_c$, where it has fallen to 1 / e.
    power
        p: 1 is :class:`Heat`, and the larger it is, the sharper the fall.

    >>> Exponential(2.0, power=4)([0.0, 2.0]).round(4)
    array([1.    , 0.3679])
    """

    cutoff: Number = field(metadata=POSITIVE)
    power: Number = field(default=1.0, metadata=POSITIVE)

    def evaluate(self, lam: Tensor) -> Tensor:
        """Return the values; frequencies below zero, which rounding makes, are taken for zero."""
        # Not clamped to zero itself, where a power below one has no slope.
        least = torch.finfo(lam.dtype).tiny ** 0.5
        return torch.exp(-((lam / self.cutoff).clamp(min=least) ** self.power))


def _step(s: Tensor) -> Tensor:
    r"""Return the smooth step from 0 at s <= 0 to 1 at s >= 1, $e^{-1/s} / (e^{-1/s} + e^{-1/(1-s)})$."""
    inside = (s > 0) & (s < 1)
    at = torch.where(inside, s, torch.full_like(s, 0.5))
    return torch.where(inside, torch.sigmoid(1 / (1 - at) - 1 / at), (s >= 1).to(s.dtype))


def _rise(lam: Tensor, at: Number, width: Number) -> Tensor:
    """Return the step from 0 to 1 around a frequency, over so wide a transition; 0: a jump."""
    if not isinstance(width, Tensor) and width == 0:
        return (lam >= at).to(lam.dtype)
    return _step((lam - at) / width + 0.5)


def _end(at: Number, width: Number) -> float:
    return _plain(at) + _plain(width) / 2


def _plain(value: Number) -> float:
    return float(value.detach()) if isinstance(value, Tensor) else value


class _Band(Single):
    """A filter with transitions of one width, which jumps where that is 0."""

    width: Number

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.width, Tensor) and self.width < 0:
            raise InputError(f"width must be 0, for a jump, or a positive number, got {self.width!r}.")

    def learnable(self) -> dict[str, bool]:
        """Return all fields, the width as a positive one; a jump has no gradient."""
        return {} if self.sharp else super().learnable() | {"width": True}

    @property
    def sharp(self) -> bool:
        """Whether it jumps."""
        return not isinstance(self.width, Tensor) and self.width == 0


@dataclass(frozen=True, eq=False)
class LowPass(_Band):
    r"""Frequencies up to a cutoff pass: 1 for $\lambda \le \omega$, else 0, the ideal low-pass filter.

    Parameters
    ----------
    cutoff
        $\omega$.
    width
        Of a smooth transition around the cutoff, infinitely often differentiable; then the cutoff has a gradient. 0: a
        jump.

    >>> LowPass(1.0)([1.0, 1.5]), LowPass(1.0, width=1.0)([0.5, 1.0, 1.5])
    (array([1., 0.]), array([1. , 0.5, 0. ]))
    """

    cutoff: Number
    width: Number = 0.0

    def evaluate(self, lam: Tensor) -> Tensor:
        """Return the values."""
        if self.sharp:
            return (lam <= self.cutoff).to(lam.dtype)
        return 1 - _rise(lam, self.cutoff, self.width)

    @property
    def jumps(self) -> tuple[Any, ...]:
        """The cutoff, where there is no transition."""
        return (self.cutoff,) if self.sharp else ()

    @property
    def tail(self) -> tuple[float, float] | None:
        """0 beyond the transition."""
        return _end(self.cutoff, self.width), 0.0


@dataclass(frozen=True, eq=False)
class HighPass(_Band):
    r"""Frequencies above a cutoff pass: 0 for $\lambda \le \omega$, else 1; with :class:`LowPass` it adds up to 1.

    Parameters
    ----------
    cutoff, width
        As for :class:`LowPass`.

    >>> HighPass(1.0)([1.0, 1.5])
    array([0., 1.])
    """

    cutoff: Number
    width: Number = 0.0

    def evaluate(self, lam: Tensor) -> Tensor:
        """Return the values."""
        if self.sharp:
            return (lam > self.cutoff).to(lam.dtype)
        return _rise(lam, self.cutoff, self.width)

    @property
    def jumps(self) -> tuple[Any, ...]:
        """The cutoff, where there is no transition."""
        return (self.cutoff,) if self.sharp else ()

    @property
    def tail(self) -> tuple[float, float] | None:
        """1 beyond the transition."""
        return _end(self.cutoff, self.width), 1.0


@dataclass(frozen=True, eq=False)
class BandPass(_Band):
    r"""Frequencies of a band pass: 1 for $\omega_1 \le \lambda \le \omega_2$, else 0.

    Parameters
    ----------
    low, high
        $\omega_1$ and $\omega_2$.
    width
        Of smooth transitions around both, as for :class:`LowPass`; 0: jumps.

    >>> BandPass(1.0, 2.0)([0.5, 1.0, 2.0, 2.5])
    array([0., 1., 1., 0.])
    """

    low: Number
    high: Number
    width: Number = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if not _plain(self.low) < _plain(self.high):
            raise InputError(f"low must be below high, got {_plain(self.low)} and {_plain(self.high)}.")

    def evaluate(self, lam: Tensor) -> Tensor:
        """Return the values."""
        if self.sharp:
            return ((lam >= self.low) & (lam <= self.high)).to(lam.dtype)
        return _rise(lam, self.low, self.width) * (1 - _rise(lam, self.high, self.width))

    @property
    def jumps(self) -> tuple[Any, ...]:
        """Both ends, where there is no transition."""
        return (self.low, self.high) if self.sharp else ()

    @property
    def tail(self) -> tuple[float, float] | None:
        """0 beyond the upper transition."""
        return _end(self.high, self.width), 0.0


class Rational(Response):
    r"""A rational response, that of an ARMA filter: $g(\lambda) = \sum_i b_i \lambda^i \big/ \sum_i a_i \lambda^i$.

    Parameters
    ----------
    numerator, denominator
        Coefficients b and a of rising powers: numbers, or tensors ``(p,)``. The denominator must have no zero among
        the frequencies.

    >>> Rational([1.0], [1.0, 0.5])([0.0, 2.0])
    array([1. , 0.5])
    """

    def __init__(self, numerator: Sequence[float] | Tensor, denominator: Sequence[float] | Tensor = (1.0,)) -> None:
        self.numerator = _polynomial(numerator, "numerator")
        self.denominator = _polynomial(denominator, "denominator")
        if not bool((self.denominator != 0).any()):
            raise InputError("denominator must not be zero, got zeros only.")

    def evaluate(self, lam: Tensor) -> Tensor:
        """Return the values."""
        return _horner(self.numerator, lam) / _horner(self.denominator, lam)

    def __repr__(self) -> str:
        return f"Rational({self.numerator.tolist()}, {self.denominator.tolist()})"


def _polynomial(coefficients: Any, what: str) -> Tensor:
    found = _checks.numbers(coefficients, what)
    if found.ndim != 1 or not found.numel():
        raise InputError(f"{what} must be coefficients (p,) of rising powers, got shape {tuple(found.shape)}.")
    return _checks.finite(_checks.floating(found, what), what)


def _horner(coefficients: Tensor, lam: Tensor) -> Tensor:
    value = torch.zeros_like(lam)
    for coefficient in coefficients.flip(0):
        value = value * lam + coefficient
    return value
