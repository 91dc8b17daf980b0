"""From the Ritz pairs of a refinement to a :class:`~krylow.certify.Subspace`; the options that every method takes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from krylow.certify import Subspace
from krylow.linalg.implicit import attach_gradient
from krylow.operators import Operator
from krylow.refine.progress import Callback
from krylow.refine.ritz import Evidence, Ritz


@dataclass(frozen=True)
class Options:
    """The options of every method, checked once."""

    tol: float = 1e-3
    m: int | None = None
    generator: torch.Generator | None = None
    weights: Any = None
    max_products: int | None = None
    callback: Callback | None = None
    #: Of a method on one large graph: all frequencies up to this one are wanted, and k is an estimate of their number.
    cutoff: float | None = None


def refined(L: Operator, k: int, run: Callable[[Operator], Ritz], why: str) -> Subspace:
    """Run a refinement without a tape, and attach the implicit gradient where one is wanted."""
    products, passes = L.products, L.passes
    with torch.no_grad():
        pairs = run(L)
    kept = pairs.kept
    k = k if kept is None else max(1, kept)
    X, theta = pairs.X[..., :k], pairs.theta[..., :k]
    if kept == 0:
        X, theta = torch.zeros_like(X), torch.full_like(theta, torch.inf)
    guard = pairs.theta.shape[-1] > k
    products, passes = L.products - products, L.passes - passes
    if torch.is_grad_enabled() and L.requires_grad:
        X = attach_gradient(L, X, theta)
    return result(
        L,
        X,
        theta,
        products,
        passes,
        why,
        following=pairs.theta[..., k] if guard else None,
        following_residual=pairs.residuals[..., k] if guard else None,
        interrupted=pairs.interrupted,
        evidence=pairs.evidence,
        kept=None if kept is None else torch.full_like(L.sizes, kept),
    )


def result(
    L: Operator,
    basis: Tensor,
    theta: Tensor,
    products: int,
    passes: int,
    why: str = "",
    *,
    following: Tensor | None = None,
    following_residual: Tensor | None = None,
    exact: bool = False,
    interrupted: bool = False,
    evidence: Evidence | None = None,
    kept: Tensor | None = None,
) -> Subspace:
    """Return the subspace without a name of its method, which :func:`krylow.subspace` gives it."""
    return Subspace(
        basis=basis,
        ritz_values=theta,
        operator=L,
        products=products,
        passes=passes,
        method="",
        why=why,
        tol=1e-3,
        following=following,
        following_residual=following_residual,
        exact=exact,
        interrupted=interrupted,
        evidence=evidence,
        kept=kept,
    )
