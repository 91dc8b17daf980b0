"""The methods of :func:`krylow.filter`, and the choice between them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from krylow import _checks
from krylow._checks import InputError
from krylow._floor import lifted_dense
from krylow._memory import empty
from krylow._response import Response, is_bank, response_of
from krylow._short_interval import shortened
from krylow.api import subspace
from krylow.autodiff.matrix_function import apply_bank
from krylow.choose import LIMITS
from krylow.density import estimated_count
from krylow.expansion import Expansion, expand, spectral_interval
from krylow.krylov.signal import lanczos_function
from krylow.linalg.eigh import eigh
from krylow.operators import FunctionOperator, Operator, SparseOperator
from krylow.operators.ordering import breadth_first_search, reordered_if_it_pays
from krylow.solvers._filter import Precision, fits_single, spectrum_top

#: What :func:`filter` takes beside "auto".
FILTER_METHODS = ("exact", "chebyshev", "lanczos", "lowpass")


@dataclass(frozen=True)
class FilterSettings:
    """Where each method is taken, and how far it goes."""

    first_steps: int = 32  # of Lanczos, doubled until its answers agree
    most_steps: int = 512  # and most
    call: float = 3e4  # multiplications that a call of a product is worth
    decomposition: float = 12.0  # and that an eigendecomposition takes, over n^3
    long: int = 20  # degree from which a closer look at the graph pays: for a better order and a shorter interval
    work: int = 200  # and the degree times the columns
    steps: int = 8  # of Lanczos, which estimate the end of the spectrum
    shorter: float = 0.95  # part of the interval that an estimate has to leave at most
    single: float = 0.1  # share of the tolerance that rounding may take where the recurrence runs in float32
    kept: float = 1 / 16  # share of the frequencies up to which a low subspace of a large graph is found
    safety: float = 1.1  # factor of estimated errors


SETTINGS = FilterSettings()


class Ask:
    """What was asked for, checked."""

    def __init__(self, method: str, tol: float, degree: int | None, *, report: bool) -> None:
        self.method = _checks.choice(method, ("auto", *FILTER_METHODS), "method")
        self.tol = _checks.positive(tol, "tol")
        self.degree = None if degree is None else _checks.count(degree, "degree", 1, 10**6)
        self.report = report


@dataclass(frozen=True)
class Answer:
    """``(*batch, n, c, filters)`` and, where asked for, the error of each column, ``(*batch, c, filters)``."""

    y: Tensor
    error: Tensor | None = None
    proved: bool = False
    degree: int = 0
    how: str = ""


class Job:
    """One filter on one operator: the response there, its values, its expansion."""

    def __init__(self, L: Operator, response: Any, ask: Ask) -> None:
        self.L, self.ask = L, ask
        self.response: Response = response_of(response).on(L)
        self.is_bank = is_bank(self.response)
        self.dtype = self.response.dtype
        self.tol = max(ask.tol, 4 * torch.finfo(L.dtype).eps)
        self._expansion: Expansion | None = None

    def g(self, lam: Tensor) -> Tensor:
        """Return the response's values, the filters side by side."""
        values = self.response.evaluate(lam.to(self.dtype)).to(lam.dtype)
        _checks.finite(values, "the response's values")
        return values if self.is_bank else values[..., None]

    @property
    def expansion(self) -> Expansion:
        """The Chebyshev series."""
        if self._expansion is None:
            low, high = spectral_interval(self.L)
            inside = any(bool(((low < jump) & (jump < high)).any()) for jump in map(_plain, self.response.jumps))
            degree = self.ask.degree
            self._expansion = expand(self.g, low, high, self.tol / 2, degree=degree, jumps=inside, dtype=self.dtype)
        return self._expansion


def _plain(value: Any) -> Tensor:
    return torch.as_tensor(value, dtype=torch.float64).detach()


def choose_filter(job: Job, x: Tensor) -> tuple[str, str]:
    """Return the method that "auto" takes, and why."""
    L = job.L
    known, sparse = not isinstance(L, FunctionOperator), isinstance(L, SparseOperator)
    n, entries = L.n, L.col.numel() if isinstance(L, SparseOperator) else L.n**2
    series = job.expansion
    columns = x.shape[-1] * max(1, math.prod(x.shape[:-2]) // max(1, L.batch_shape.numel()))
    if series.converged:
        series_work = series.degree * (2 * columns * entries + SETTINGS.call)
        if known and n <= LIMITS.exact and SETTINGS.decomposition * n**3 < series_work:
            return "exact", f"a graph of {n} nodes is decomposed faster than multiplied {series.degree} times"
        return "chebyshev", f"a series of degree {series.degree} leaves out less than the tolerance"
    what = "the response jumps" if bool(series.jumps.any()) else "the response is too sharp for a series"
    if known and n <= (LIMITS.sparse_exact if sparse else LIMITS.exact):
        return "exact", f"{what}, and a graph of {n} nodes is decomposed"
    if job.response.tail is not None and not L.batch_shape:
        cutoff = job.response.tail[0]
        count = float(estimated_count(L.detach(), cutoff, high=float(series.high.max()), degree=50))
        if count <= SETTINGS.kept * n:
            return "lowpass", f"{what}, and about {count:.0f} frequencies lie below the band's end"
    if known and n <= LIMITS.factor:
        return "exact", f"{what}, and a graph of {n} nodes is decomposed"
    return "chebyshev", f"{what}, and the graph is too large to decompose"


def _exact(job: Job, x: Tensor) -> Answer:
    """By the eigendecomposition."""
    dense = lifted_dense(job.L)
    top = job.L.gershgorin()[1].detach()[..., None]

    def g(theta: Tensor) -> Tensor:
        # Padding nodes are lifted above the spectrum: a response is not asked about them.
        return job.g(theta if job.L.mask is None else torch.minimum(theta, top))

    y = apply_bank(dense, g, x)
    if not job.ask.report:
        return Answer(y)
    with torch.no_grad():
        # A backward error of the decomposition moves every frequency by so much.
        theta = eigh(dense)[0]
        slack = 8 * job.L.n**0.5 * torch.finfo(x.dtype).eps * theta.abs().amax(-1, keepdim=True)
        at = g(theta)
        moved = torch.maximum((g(theta + slack) - at).abs(), (g(theta - slack) - at).abs()).amax(-2)
        relative = moved + 8 * job.L.n**0.5 * torch.finfo(x.dtype).eps * at.abs().amax(-2)  # (*batch, filters)
    return Answer(y, relative[..., None, :] * _norms(x), proved=True)


def _norms(x: Tensor) -> Tensor:
    """Return the norms of signals, ``(*batch, c, 1)``."""
    return torch.linalg.vector_norm(x.detach(), dim=-2)[..., None]


def _chebyshev(job: Job, x: Tensor) -> Answer:
    """By the Chebyshev series: a long one first on an interval that is short and watched."""
    series = job.expansion
    single, long = _fits_single(job, x), _long(job, x)
    short = _shorter(job, torch.float32 if single else x.dtype) if long else None
    y = None if short is None else _applied(job, short, x, single=single, reorder=True)
    if short is not None and y is not None:
        series = short
    else:
        y = _applied(job, series, x, single=single, reorder=long)
        assert y is not None
    if not job.ask.report:
        return Answer(y, degree=series.degree)
    known = not isinstance(job.L, FunctionOperator)
    norms = _norms(x).double()
    relative = torch.where(series.jumps, torch.zeros_like(series.error), series.error)
    dtype = torch.float32 if single else x.dtype
    error = (relative + series.rounding(dtype))[..., None, :] * norms
    if bool(series.jumps.any()):
        from_density = series.jump_error(job.g, job.L, x)
        error = error + torch.where(series.jumps[..., None, :], from_density, torch.zeros_like(error))
    return Answer(y, error, proved=known, degree=series.degree, how=_how(series, short))


def _how(series: Expansion, short: Expansion | None) -> str:
    """Say what is particular about a series, and about the one on a short interval where there was one."""
    if bool(series.jumps.any()):
        return "damped, since no polynomial converges at a jump"
    if short is None:
        return ""
    end = f"an end of the spectrum estimated as {float(short.high):.4g}"
    if series is short:
        return f"degree {series.degree} for {end}, which the recurrence does not contradict"
    return f"on the proved interval, since {end} is too low"


def _tracked(job: Job, x: Tensor) -> bool:
    return torch.is_grad_enabled() and (job.L.requires_grad or x.requires_grad or job.expansion.C.requires_grad)


def _long(job: Job, x: Tensor) -> bool:
    """Return whether a series takes so long that it is worth to look closer at the graph first."""
    L, degree = job.L, job.expansion.degree
    if not isinstance(L, SparseOperator) or L.device.type != "cpu" or x.ndim > 2 or _tracked(job, x):
        return False
    return degree >= SETTINGS.long and degree * x.shape[-1] >= SETTINGS.work


def _shorter(job: Job, working: torch.dtype) -> Expansion | None:
    """Return the series on an interval that ends at an estimate of the largest frequency; None where it is no shorter.

    The estimate costs 8 products of one vector, once an operator.
    """
    L, series = job.L, job.expansion
    assert isinstance(L, SparseOperator)
    if job.ask.degree is not None or not series.converged:
        return None
    top = L.kept("estimated end", lambda: spectrum_top(L.detach().counting_for(L), steps=SETTINGS.steps, residual=True))
    high = torch.full_like(series.high, top)
    if not bool((series.low < high) & (high < SETTINGS.shorter * series.high)):
        return None
    return shortened(job.g, series, high, job.dtype, working)


def _fits_single(job: Job, x: Tensor) -> bool:
    """Return whether a sparse graph's series may run in float32: a loose tolerance, and no gradient."""
    L, series = job.L, job.expansion
    if not isinstance(L, SparseOperator) or x.dtype == torch.float32 or _tracked(job, x) or not fits_single(L):
        return False
    allowed = SETTINGS.single * job.ask.tol * series.size
    if not bool((series.rounding(torch.float32) < allowed).all()):
        return False
    largest = max(-float(x.min()), float(x.max())) if x.numel() else 0.0  # faster than the norm
    return Precision.least < largest < Precision.most


def _applied(job: Job, series: Expansion, x: Tensor, *, single: bool, reorder: bool) -> Tensor | None:
    """Return the series' images in x's dtype, None where its interval is found to be too short.

    ``reorder`` says whether it is worth to put the nodes in an order whose products miss the cache less.
    """
    L, columns = job.L, x.float() if single else x
    found = None
    if reorder and isinstance(L, SparseOperator):
        graph = L.detach()
        found = L.kept("order", lambda: reordered_if_it_pays(graph, lambda: breadth_first_search(graph)))
    if found is not None:
        L, columns = found.operator, found.there(columns.contiguous())
    if single or found is not None:
        L = (L.float() if single else L.detach()).counting_for(job.L)
    y = series.apply_watched(L, columns) if series.watched else series.apply(L, columns)
    if y is None or (found is None and not single):
        return y
    parts = y.movedim(-1, 0)  # (filters, *batch, n, c)
    images = empty(*parts.shape, dtype=x.dtype, device=x.device)
    for part, image in zip(parts, images, strict=True):
        if found is None:
            image.copy_(part)
        elif single:
            image.copy_(found.back(part.contiguous()))
        else:
            found.back(part.contiguous(), image)
    return images.movedim(0, -1)


def _lanczos(job: Job, x: Tensor) -> Answer:
    """By each signal's own Krylov space: steps are doubled until an eighth less gives the same answer."""
    L, most = job.L, min(job.L.n, SETTINGS.most_steps)
    m = min(most, job.ask.degree or SETTINGS.first_steps)
    norms = _norms(x)

    def g(theta: Tensor) -> Tensor:
        # A response of a batch is one of its graphs: the columns stand in line.
        return job.g(theta.flatten(-2)).unflatten(-2, theta.shape[-2:])

    while True:
        y, space = lanczos_function(L, x, g, m)
        with torch.no_grad():
            complete = ~space.live.all(-1)[..., None] if m < L.n else torch.ones_like(norms, dtype=torch.bool)
            size = g(space.theta).abs().amax(-2)  # (*batch, c, filters)
            error = torch.where(complete, 0.0, space.error(g, (max(2, m // 8),)))
        if job.ask.degree is not None or m >= most or bool((error <= job.tol * size * norms).all()):
            break
        m = min(most, 2 * m)
    if not job.ask.report:
        return Answer(y, degree=m)
    with torch.no_grad():
        if bool(job.expansion.jumps.any()):  # where answers agree by chance
            error = torch.where(complete, 0.0, space.error(g, tuple(range(1, m // 2))))
        elif bool((error > job.tol * size * norms).any()):  # then twice what a series of the degree leaves out
            series = job.expansion
            left = expand(job.g, series.low, series.high, job.tol, degree=m - 1, dtype=job.dtype).error
            error = torch.where(complete, 0.0, 2 * left[..., None, :] * norms)
        error = SETTINGS.safety * error + 8 * m * torch.finfo(x.dtype).eps * size * norms
    return Answer(y, error, degree=m)


def _lowpass(job: Job, x: Tensor) -> Answer:
    """Through the low subspace, where the response is constant beyond a band."""
    tail = job.response.tail
    if tail is None:
        raise InputError(
            'method="lowpass" takes a response that is constant beyond a band, such as LowPass or BandPass, got '
            f"{job.response!r}: use chebyshev."
        )
    cutoff, beyond = float(tail[0]), float(tail[1])
    sub = subspace(job.L, cutoff=cutoff, tol=max(job.tol**2, 4 * torch.finfo(x.dtype).eps ** 2))
    U = sub.basis
    kept = torch.isfinite(sub.ritz_values)
    H = U.mT @ (job.L @ U)
    H = (H + H.mT) / 2

    def g(theta: Tensor) -> Tensor:
        return job.g(theta) - beyond

    y = (U @ apply_bank(H, g, U.mT @ x).flatten(-2)).unflatten(-1, (x.shape[-1], -1)) + beyond * x[..., None]
    if not job.ask.report:
        return Answer(y, how=sub.why)
    with torch.no_grad():
        largest = torch.where(kept[..., None], g(torch.where(kept, sub.ritz_values, 0)).abs(), 0).amax(-2)
        angle = (sub.error_bound.to(x.dtype) * kept.sum(-1)).clamp(max=1).sqrt()[..., None]
        relative = 2 * largest * angle + 64 * torch.finfo(x.dtype).eps * (largest + abs(beyond))
    return Answer(y, relative[..., None, :] * _norms(x), how=sub.why)


#: By the names of :data:`FILTER_METHODS`.
METHODS = {"exact": _exact, "chebyshev": _chebyshev, "lanczos": _lanczos, "lowpass": _lowpass}
