r"""Graph filters $y = g(L) x$ of any response: :func:`filter`, and :func:`filtered` with its cost and error.

$$g(L) = U g(\Lambda) U^\top, \qquad L = U \Lambda U^\top$$

- "exact": the eigendecomposition.
- "chebyshev": the response's Chebyshev series, of the degree that its own coefficients ask for
  (:mod:`krylow.expansion`), a long one on an interval whose end is estimated and watched
  (:mod:`krylow._short_interval`); Jackson's damping where it jumps.
- "lanczos": each signal's own Krylov space (:mod:`krylow.krylov.signal`).
- "lowpass": the low subspace, where the response is constant beyond a band.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from krylow import _checks
from krylow._checks import InputError
from krylow._floor import lifted_dense
from krylow._response import Response
from krylow._similar import filter_similar
from krylow.api import filter_list
from krylow.autodiff.matrix_function import apply_bank
from krylow.certificate import Status
from krylow.filter_methods import FILTER_METHODS, METHODS, Ask, Job, choose_filter
from krylow.graph import as_operator
from krylow.operators import Operator, SimilarOperator

__all__ = ["FILTER_METHODS", "Filtered", "combine", "filter", "filtered"]


@dataclass(frozen=True, repr=False)
class Filtered:
    r"""A filtered signal, what it cost, and how good it is.

    Attributes
    ----------
    signal
        $g(L) x$, as :func:`filter` returns it.
    error_bound
        ``(*batch, c)``, for a bank with ``(filters,)`` behind, no c for one signal ``(n,)``: a bound or an estimate of
        the error's norm, rounding included.
    proved
        Whether it is a bound: of the exact method and of a smooth response's series, as far as its values at Chebyshev
        nodes show the response and the spectrum's ends are known. It is one where an end is estimated, too, as what
        lies beyond is bounded by the signal's own recurrence. Else it is an estimate.
    method, why
        The method that was used, and why.
    degree
        Degree of the polynomial, or Lanczos steps; 0 for the other methods.
    products, passes
        Products with L that were spent, and sweeps over it.
    status
        CONVERGED where the error is within ``tol`` of the largest one possible, else MAX_STEPS.
    tol
        What was asked for.
    """

    signal: Any
    error_bound: Tensor
    proved: bool
    method: str
    why: str
    degree: int
    products: int
    passes: int
    status: Status
    tol: float

    def __repr__(self) -> str:
        worst = float(self.error_bound.max()) if self.error_bound.numel() else 0.0
        kind = "bound" if self.proved else "estimate"
        return (
            f"Filtered(method={self.method!r}, degree={self.degree}, products={self.products}, "
            f"error {kind}={worst:.1e}, status={self.status.name})"
        )


def filter(L: Any, x: Any, response: Any, *, method: str = "auto", tol: float = 1e-6, degree: int | None = None) -> Any:
    r"""Return the filtered signal $y = g(L) x = U g(\Lambda) U^\top x$ of any response g, or of a bank of them.

    Differentiable in x, in L, and in what the response depends on.

    Parameters
    ----------
    L
        As in :func:`krylow.subspace`: an operator, a Laplacian, a graph, or a list of graphs.
    x
        As in :func:`krylow.lowpass`: ``(n,)``, ``(n, c)`` or ``(*batch, n, c)``; a list for a list of graphs.
    response
        One of :mod:`krylow.responses`, any elementwise function of a tensor of frequencies, or a list of these, which
        is a bank.
    method
        One of :data:`FILTER_METHODS`, or "auto": the eigendecomposition where that is cheaper, or where the response
        jumps on a graph that can be decomposed; the low subspace where it jumps and is constant beyond a band that
        keeps few frequencies; the Chebyshev series for all others. "lanczos" is taken only if asked for.
    tol
        Error accepted, as a part of the largest value of $|g|$ times the norm of the signal. A polynomial does not
        reach it where a response jumps: :func:`filtered` says how far it came.
    degree
        The degree of "chebyshev", or the steps of "lanczos", in place of those that ``tol`` asks for.

    Returns
    -------
    Tensor, ndarray or list of them
        Of x's kind and dtype, and of its shape; for a bank with ``(filters,)`` behind.

    Examples
    --------
    >>> import krylow as kl
    >>> L = torch.tensor([[1.0, -1.0], [-1.0, 1.0]], dtype=torch.float64)  # frequencies 0 and 2
    >>> x = torch.tensor([1.0, 3.0], dtype=torch.float64)
    >>> kl.filter(L, x, kl.responses.Tikhonov(0.5)).round(decimals=6)
    tensor([1.5000, 2.5000], dtype=torch.float64)
    >>> kl.filter(L, x, lambda lam: (-lam).exp()).round(decimals=4)
    tensor([1.8647, 2.1353], dtype=torch.float64)
    """
    if isinstance(L, SimilarOperator):
        return filter_similar(
            L, x, lambda lifted: filter(L.core, lifted, response, method=method, tol=tol, degree=degree)
        )
    return _filtered(as_operator(L), x, response, Ask(method, tol, degree, report=False)).signal


def filtered(
    L: Any, x: Any, response: Any, *, method: str = "auto", tol: float = 1e-6, degree: int | None = None
) -> Filtered:
    r"""Return what :func:`filter` does with its error, cost and status.

    The error of a series that jumps costs as many products again: it is estimated by the signal's own spectral density.

    Parameters
    ----------
    L, x, response, method, tol, degree
        As in :func:`filter`; one signal or array of them, no list.

    Examples
    --------
    >>> import krylow as kl
    >>> L = torch.tensor([[1.0, -1.0], [-1.0, 1.0]], dtype=torch.float64)
    >>> found = kl.filtered(L, torch.ones(2, dtype=torch.float64), kl.responses.Heat(1.0), method="chebyshev")
    >>> found.degree, found.status.name, bool(found.error_bound < 1e-5)
    (7, 'CONVERGED', True)
    """
    L = as_operator(L)
    if isinstance(x, (list, tuple)) and len(L.batch_shape) == 1:
        raise InputError("filtered() takes an array of signals, got a list: pass one padded array, or use filter().")
    return _filtered(L, x, response, Ask(method, tol, degree, report=True))


def _filtered(L: Operator, x: Any, response: Any, ask: Ask) -> Filtered:
    if isinstance(x, (list, tuple)) and len(L.batch_shape) == 1 and not ask.report:
        signals = filter_list(L, x, lambda padded: _filtered(L, padded, response, ask).signal)
        nothing = torch.zeros(())
        return Filtered(signals, nothing, False, "", "", 0, 0, 0, Status.CONVERGED, ask.tol)
    signal = _checks.signal(x, L.batch_shape, L.n, L.dtype, L.device)
    column = signal if signal.ndim > 1 else signal[:, None]
    if L.mask is not None:
        column = column * L.mask[..., None]
    with L.counted_separately():
        products, passes = L.products, L.passes
        job = Job(L, response, ask)
        method, why = (ask.method, "asked for") if ask.method != "auto" else choose_filter(job, column)
        answer = METHODS[method](job, column)
        cost = L.products - products, L.passes - passes
    y = answer.y if L.mask is None else answer.y * L.mask[..., None, None]
    y = y if job.is_bank else y[..., 0]
    y = y if signal.ndim > 1 else y[:, 0]
    error, status = torch.zeros(()), Status.CONVERGED
    if answer.error is not None:
        error = answer.error.detach().to(torch.float64)
        limit = 2 * job.tol * _sizes(job) * torch.linalg.vector_norm(column.detach().double(), dim=-2)[..., None]
        status = Status.CONVERGED if bool((error <= limit).all()) else Status.MAX_STEPS
        error = error if job.is_bank else error[..., 0]
        error = error if signal.ndim > 1 else error[0]
    why = f"{why}; {answer.how}" if answer.how else why
    return Filtered(_checks.as_given(y, x), error, answer.proved, method, why, answer.degree, *cost, status, ask.tol)


def _sizes(job: Job) -> Tensor:
    """Return the largest modulus of each filter on the interval, ``(*batch, 1, filters)``."""
    return job.expansion.size[..., None, :]


def combine(
    L: Operator, c: Any, response: Response, *, method: str = "auto", tol: float = 1e-6, degree: int | None = None
) -> Any:
    r"""Return $\sum_f g_f(L) c_f$ of coefficients ``(n, filters)`` or ``(*batch, n, c, filters)``, of c's kind.

    By Clenshaw's recurrence: as many products as one filter takes.
    """
    ask = Ask(method, tol, degree, report=False)
    if ask.method not in ("auto", "exact", "chebyshev"):
        raise InputError(f'coefficients are put together by "exact" or "chebyshev", got method={method!r}.')
    job = Job(L, response, ask)
    parts = _checks.numbers(c, "the coefficients")
    filters = job.g(torch.zeros(1, dtype=L.dtype)).shape[-1]
    if parts.ndim < 2 or parts.shape[-1] != filters:
        raise InputError(f"coefficients must be (*batch, n, c, {filters}), got shape {tuple(parts.shape)}.")
    single = parts.ndim == 2
    parts = parts[:, None] if single else parts
    flat = _checks.signal(parts.flatten(-2), L.batch_shape, L.n, L.dtype, L.device)
    if L.mask is not None:
        flat = flat * L.mask[..., None]
    parts = flat.unflatten(-1, (-1, filters))  # (*batch, n, c, filters)
    if ask.method == "auto":
        ask.method = choose_filter(job, parts[..., 0])[0]
    if ask.method == "exact":
        every = apply_bank(lifted_dense(L), job.g, flat).unflatten(-2, (-1, filters))
        y = every.diagonal(dim1=-2, dim2=-1).sum(-1)
    else:
        y = job.expansion.combine(L, parts)
    return _checks.as_given(y[..., 0] if single else y, c)
