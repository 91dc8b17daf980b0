r"""Banks of filters, $g_1, \ldots, g_F$: wavelets and tight frames.

$$A \|x\|^2 \le \sum_f \|g_f(L) x\|^2 \le B \|x\|^2, \qquad A = \min_\lambda \sum_f g_f(\lambda)^2, \;
B = \max_\lambda \sum_f g_f(\lambda)^2$$

A bank with A > 0 is a frame: its coefficients hold the whole signal. It is tight where A = B.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Sequence
from copy import copy
from typing import Any, Self

import torch
from torch import Tensor

from krylow import _checks
from krylow._checks import InputError
from krylow._response import Response, Several
from krylow.density import SpectralDensity, spectral_density
from krylow.expansion import spectral_interval
from krylow.filtering import combine, filter
from krylow.graph import as_operator
from krylow.operators import Operator

#: Frames whose bounds differ by less than this part are tight.
TIGHT = 1e-9


class Bank(Response):
    """A bank of filters: what a signal is taken apart by, and put together from."""

    def analyze(self, L: Any, x: Any, **options: Any) -> Any:
        """Return the coefficients $c_f = g_f(L) x$, of x's shape with ``(filters,)`` behind.

        ``options`` are those of :func:`krylow.filter`, which this is.
        """
        return filter(L, x, self, **options)

    def adjoint(self, L: Any, c: Any, **options: Any) -> Any:
        r"""Return $\sum_f g_f(L) c_f$ of coefficients ``(n, filters)`` or ``(*batch, n, c, filters)``."""
        return combine(as_operator(L), c, self, **options)

    def synthesize(self, L: Any, c: Any, **options: Any) -> Any:
        r"""Return the signal of these coefficients by the dual frame.

        $$\sum_f g_f(L) \, S^{-1} c_f, \qquad S = \sum_f g_f(L)^2$$

        It undoes :meth:`analyze`, and of coefficients that no signal has it returns the one that fits best in least
        squares. For a tight frame it is the adjoint over A. Costs as many products as one filter.

        Parameters
        ----------
        L
            As for :meth:`analyze`.
        c
            ``(n, filters)`` or ``(*batch, n, c, filters)``.
        options
            ``method``, "auto", "exact" or "chebyshev", ``tol`` and ``degree``, as of :func:`krylow.filter`.
        """
        L = as_operator(L)
        fixed = self.on(L)
        low, high = fixed.frame_bounds(L)
        if low <= TIGHT * high:
            raise InputError(
                f"a bank must be a frame to be undone, got frame bounds {low:.3g} and {high:.3g}: no filter passes "
                "some frequencies. adjoint() needs no frame."
            )
        return combine(L, c, _Dual(fixed, low if high - low <= TIGHT * high else None), **options)

    def frame_bounds(self, L: Any, *, points: int = 2000) -> tuple[float, float]:
        r"""Return the frame bounds A and B, over the whole interval that holds the spectrum.

        Parameters
        ----------
        L
            As in :func:`krylow.filter`, or a tensor of frequencies to look at, such as all eigenvalues.
        points
            Of the grid, where there are no frequencies given.
        """
        if isinstance(L, Tensor) and L.ndim == 1:
            squares = self.evaluate(L).square().sum(-1)
            return float(squares.min()), float(squares.max())
        L = as_operator(L)
        low, high = spectral_interval(L)
        grid = low[..., None] + (high - low)[..., None] * torch.linspace(0, 1, points, dtype=torch.float64).to(low)
        if L.psd or bool((low >= -1e-12 * high).all()):
            grid = grid.clamp(min=0)
        squares = self.on(L).evaluate(grid).square().sum(-1)
        return float(squares.min()), float(squares.max())

    def on(self, L: Operator) -> Bank:
        """Return the bank for one operator's spectrum."""
        return self


class _Dual(Response):
    """The canonical dual of a bank; ``bound`` is that of a tight frame."""

    def __init__(self, bank: Bank, bound: float | None) -> None:
        self.bank, self.bound = bank, bound

    def evaluate(self, lam: Tensor) -> Tensor:
        values = self.bank.evaluate(lam)
        return values / (values.square().sum(-1, keepdim=True) if self.bound is None else self.bound)


class FilterBank(Several, Bank):
    """A bank of any responses and functions.

    >>> from krylow.responses import Heat, HighPass
    >>> FilterBank([Heat(1.0), HighPass(0.5)])([0.0, 1.0]).round(4)
    array([[1.    , 0.    ],
           [0.3679, 1.    ]])
    """

    def on(self, L: Operator) -> FilterBank:
        """Return the bank for one operator's spectrum."""
        return FilterBank([part.on(L) for part in self.parts])


class _Scaled(Bank):
    r"""A bank on [0, lmax], whose filters are placed by the end of the spectrum.

    ``lmax`` is a number; None: the upper bound of each graph's spectrum. With ``adapted``, frequencies are replaced by
    $\lambda_{max}$ times the share of the graph's frequencies below them, so that every filter is for as many.
    """

    def __init__(self, filters: int, lmax: float | None, least: int, *, adapted: bool = False) -> None:
        self.filters = _checks.count(filters, "filters", least)
        self.lmax: Any = None if lmax is None else _checks.positive(lmax, "lmax")
        self.adapted = _checks.flag(adapted, "adapted")
        self.density: SpectralDensity | None = None

    def on(self, L: Operator) -> Self:
        """Return the bank for one operator's spectrum."""
        if self.lmax is not None and (self.density is not None or not self.adapted):
            return self
        other = copy(self)
        if other.lmax is None:
            other.lmax = spectral_interval(L)[1][..., None]
        if self.adapted:
            other.density = spectral_density(L)
        return other

    def evaluate(self, lam: Tensor) -> Tensor:
        """Return the values, ``(*batch, m, filters)``."""
        if self.lmax is None or (self.adapted and self.density is None):
            need = "a spectrum to adapt to" if self.adapted else "the end of the spectrum"
            raise InputError(f"the bank needs {need}: pass lmax, or use bank.on(krylow.laplacian(W)).")
        lmax = torch.as_tensor(self.lmax, dtype=lam.dtype, device=lam.device)
        if self.density is not None:
            lam = lmax * self.density.cdf(lam)
        return self._values(lam[..., None], lmax[..., None] if lmax.ndim else lmax)

    @abstractmethod
    def _values(self, lam: Tensor, lmax: Tensor) -> Tensor:
        """Return the values at frequencies ``(*batch, m, 1)``, the end being a number or ``(*batch, 1, 1)``."""

    def __repr__(self) -> str:
        end = self.lmax if isinstance(self.lmax, float) else None
        return f"{type(self).__name__}(filters={self.filters}, lmax={end}{', adapted=True' if self.adapted else ''})"


def _log_scales(filters: int, lmin: Tensor, lmax: Tensor) -> Tensor:
    """Return the scales of wavelets whose passbands are spread over [lmin, lmax] by equal ratios, the widest last."""
    part = torch.linspace(0, 1, filters, dtype=lmax.dtype, device=lmax.device)
    return torch.exp(torch.log(2 / lmin) + part * (torch.log(1 / lmax) - torch.log(2 / lmin)))


class MexicanHat(_Scaled):
    r"""Wavelets $s \lambda e^{-s \lambda}$ at several scales s beside one low-pass filter: a frame, but not tight.

    The low-pass filter is $1.2 e^{-1} \exp(-(\lambda / (0.4 \lambda_{min}))^4)$ with
    $\lambda_{min} = \lambda_{max} / \text{lpfactor}$ (Hammond, Vandergheynst and Gribonval, 2011).

    Parameters
    ----------
    filters
        How many, the low-pass filter included.
    lmax
        The end of the spectrum; None: an upper bound of it.
    lpfactor
        $\lambda_{max} / \lambda_{min}$.
    scales
        ``(filters - 1,)`` in place of those spread by equal ratios from $2 / \lambda_{min}$ to $1 / \lambda_{max}$.
    normalize
        Whether wavelets are multiplied by $\sqrt s$, so that those of all scales have about the same norm.

    >>> MexicanHat(3, lmax=2.0)([0.0, 1.0]).round(4)
    array([[0.4415, 0.    , 0.    ],
           [0.    , 0.    , 0.3033]])
    """

    def __init__(
        self,
        filters: int = 6,
        lmax: float | None = None,
        *,
        lpfactor: float = 20.0,
        scales: Sequence[float] | None = None,
        normalize: bool = False,
        adapted: bool = False,
    ) -> None:
        super().__init__(filters, lmax, 2, adapted=adapted)
        self.lpfactor = _checks.positive(lpfactor, "lpfactor")
        self.scales, self.normalize = _scales(scales, self.filters), _checks.flag(normalize, "normalize")

    def _values(self, lam: Tensor, lmax: Tensor) -> Tensor:
        lmin = lmax / self.lpfactor
        scales = _log_scales(self.filters - 1, lmin, lmax) if self.scales is None else self.scales.to(lam)
        wavelets = scales * lam * torch.exp(-scales * lam) * (scales.sqrt() if self.normalize else 1)
        low = 1.2 / math.e * torch.exp(-((lam / (0.4 * lmin)) ** 4))
        return torch.cat([low, wavelets], dim=-1)


def _scales(scales: Any, filters: int) -> Tensor | None:
    """Return the scales of wavelets that were given, checked."""
    if scales is None:
        return None
    found = _checks.finite(_checks.floating(_checks.numbers(scales, "scales"), "scales"), "scales")
    if found.shape != (filters - 1,) or not bool((found > 0).all()):
        raise InputError(f"scales must be {filters - 1} positive numbers, one a wavelet, got {scales!r}.")
    return found.double()


class Meyer(_Scaled):
    r"""Meyer's wavelets, octave by octave: a tight frame with A = 1 up to lmax.

    Each filter is 0 outside its band, $[2/3, 8/3] / s$ for a wavelet of scale s, and falls as the cosine of
    $\pi / 2 \, v(\cdot)$ with $v(x) = x^4 (35 - 84 x + 70 x^2 - 20 x^3)$ (Leonardi and Van De Ville, 2011).

    Parameters
    ----------
    filters, lmax, scales
        As for :class:`MexicanHat`; scales fall from the widest, $\tfrac43 2^{j} / \lambda_{max}$.

    >>> Meyer(3, lmax=2.0)([0.0, 0.75, 2.0]).round(4)
    array([[1.    , 0.    , 0.    ],
           [0.7071, 0.7071, 0.    ],
           [0.    , 0.    , 1.    ]])
    """

    def __init__(
        self,
        filters: int = 6,
        lmax: float | None = None,
        *,
        scales: Sequence[float] | None = None,
        adapted: bool = False,
    ) -> None:
        super().__init__(filters, lmax, 2, adapted=adapted)
        self.scales = _scales(scales, self.filters)

    def _values(self, lam: Tensor, lmax: Tensor) -> Tensor:
        octaves = 2.0 ** torch.arange(self.filters - 2, -1, -1, dtype=lam.dtype, device=lam.device)
        scales = 4 / (3 * lmax) * octaves if self.scales is None else self.scales.to(lam)
        x = scales * lam
        rise = torch.sin(torch.pi / 2 * _meyer(1.5 * x - 1))
        fall = torch.cos(torch.pi / 2 * _meyer(0.75 * x - 1))
        wavelets = torch.where(x < 4 / 3, rise, fall)
        low = torch.cos(torch.pi / 2 * _meyer(1.5 * x[..., :1] - 1))
        return torch.cat([low, wavelets], dim=-1)


def _meyer(x: Tensor) -> Tensor:
    x = x.clamp(0, 1)
    return x**4 * (35 - 84 * x + 70 * x.square() - 20 * x**3)


class _Translates(_Scaled):
    """Translates of one window over [0, lmax], each over ``overlap`` distances: tight for the windows here."""

    def __init__(self, filters: int, lmax: float | None, overlap: int, least: int, *, adapted: bool) -> None:
        overlap = _checks.count(overlap, "overlap", least)
        super().__init__(filters, lmax, overlap, adapted=adapted)
        self.overlap = overlap

    def _values(self, lam: Tensor, lmax: Tensor) -> Tensor:
        # The first and last windows reach as far beyond the ends as the overlap needs.
        distance = lmax / (self.filters - self.overlap + 1)
        i = torch.arange(1, self.filters + 1, dtype=lam.dtype, device=lam.device)
        x = (lam / distance - (i - self.overlap / 2)) / self.overlap
        return torch.where(x.abs() <= 0.5, self._window(x), torch.zeros_like(x))

    @abstractmethod
    def _window(self, x: Tensor) -> Tensor:
        """Return the window on [-1/2, 1/2]."""


class Itersine(_Translates):
    r"""Translates of $\sin(\tfrac{\pi}{2} \cos^2(\pi x))$: a tight frame with A = 1 (Perraudin et al., 2014).

    Parameters
    ----------
    filters
        How many.
    lmax
        The end of the spectrum; None: an upper bound of it.
    overlap
        How many filters there are at each frequency: 2, or more that is even.
    adapted
        Whether each filter is for as many frequencies, by the estimated spectral density.

    >>> Itersine(3, lmax=2.0)([0.0, 0.5]).round(4)
    array([[1.    , 0.    , 0.    ],
           [0.7071, 0.7071, 0.    ]])
    """

    def __init__(self, filters: int = 6, lmax: float | None = None, *, overlap: int = 2, adapted: bool = False) -> None:
        super().__init__(filters, lmax, overlap, 2, adapted=adapted)

    def _window(self, x: Tensor) -> Tensor:
        return torch.sin(torch.pi / 2 * torch.cos(torch.pi * x).square()) * math.sqrt(2 / self.overlap)


class Hann(_Translates):
    r"""Translates of the Hann window $\tfrac12 + \tfrac12 \cos(2 \pi x)$: a tight frame with A = 1.

    Shuman, Wiesmeyr, Holighaus and Vandergheynst (2015); ``adapted=True`` is theirs.

    Parameters
    ----------
    filters, lmax, adapted
        As for :class:`Itersine`.
    overlap
        How many filters there are at each frequency, at least 3.

    >>> Hann(4, lmax=2.0)([0.0, 0.5]).round(4)
    array([[0.7071, 0.7071, 0.    , 0.    ],
           [0.2357, 0.9428, 0.2357, 0.    ]])
    """

    def __init__(self, filters: int = 6, lmax: float | None = None, *, overlap: int = 3, adapted: bool = False) -> None:
        super().__init__(filters, lmax, overlap, 3, adapted=adapted)

    def _window(self, x: Tensor) -> Tensor:
        return (0.5 + 0.5 * torch.cos(2 * torch.pi * x)) * math.sqrt(8 / (3 * self.overlap))


class HalfCosine(_Translates):
    r"""Translates of $\tfrac12 + \tfrac12 \cos(2 \pi x)$, three at each frequency: a tight frame with A = 9/8.

    :class:`Hann` without its normalisation.

    Parameters
    ----------
    filters, lmax, adapted
        As for :class:`Itersine`.

    >>> HalfCosine(4, lmax=2.0)([0.0, 0.5]).round(4)
    array([[0.75, 0.75, 0.  , 0.  ],
           [0.25, 1.  , 0.25, 0.  ]])
    """

    def __init__(self, filters: int = 6, lmax: float | None = None, *, adapted: bool = False) -> None:
        super().__init__(filters, lmax, 3, 3, adapted=adapted)

    def _window(self, x: Tensor) -> Tensor:
        return 0.5 + 0.5 * torch.cos(2 * torch.pi * x)
