"""The method that ``auto`` takes, and why. The thresholds come from ``benchmarks/crossover.py``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from krylow._floor import PROOF_LIMIT
from krylow.operators import FunctionOperator, Operator, SparseOperator
from krylow.profile import GraphProfile


@dataclass(frozen=True)
class Limits:
    """Where one method becomes faster than another. Work is multiplications a node of a dense factor as full."""

    exact: int = 1000  # nodes up to which a graph is decomposed
    sparse_exact: int = 500  # nodes up to which a sparse one whose factor is light is decomposed
    factor: int = 4096  # nodes up to which a light factor is used, or an eighth of the frequencies decomposed
    light_fill: float = 90.0  # estimated entries of a light factor, a node
    tree_neighbors: float = 3.5  # neighbours a node of a graph that is nearly a tree (a tree has 2),
    tree_fill: float = 3.0  # if its factor has at most so many times its entries
    thin_neighbors: float = 2.5  # neighbours of one whose Schur complement is small, whatever that fills,
    thin_work: float = 6e4  # if its factor takes at most so much work
    contrast: float = 20.0  # mean over harmonic mean of the degrees from which weights differ by orders of magnitude
    contrast_work: float = 5e5  # work of a factor of such a graph, which coarser graphs are unlike
    wide_degrees: float = 10.0  # largest over mean degree from which the diagonal is a good preconditioner
    geometric: float = 0.1  # share of the nodes in the largest level set of a graph with a geometry


LIMITS = Limits()


def choose(L: Operator, k: int, weights: Any = None, profile: GraphProfile | None = None) -> tuple[str, str]:
    """Return the name of the method for the k lowest frequencies of L, and why."""
    if weights is not None:
        return "unrolled", "weights were given"
    if isinstance(L, FunctionOperator):
        return "thick_restart", "no entries are known, only products"
    least = LIMITS.sparse_exact if isinstance(L, SparseOperator) else LIMITS.exact
    if L.n <= least or (L.n <= LIMITS.factor and k > L.n // 8):
        return "exact", f"a graph of {L.n} nodes is fastest to decompose for k = {k}"
    if isinstance(L, SparseOperator):
        profile = profile or GraphProfile(L)
        if L.n <= LIMITS.factor and L.device.type == "cpu" and profile.fill.entries <= LIMITS.light_fill * L.n:
            return "shift_invert", f"a factor of its {L.n} nodes is light"
        return _choose_large(L, profile) if L.n > PROOF_LIMIT else _choose_proved(L, profile)
    if not L.batch_shape and L.n <= PROOF_LIMIT and _spread(profile or GraphProfile(L)):
        return "exact", f"a graph of {L.n} nodes whose degrees differ by far is fastest to decompose"
    return "chebyshev", f"a graph of {L.n} nodes is too large to decompose for k = {k}"


def _spread(profile: GraphProfile) -> bool:
    """Return whether degrees differ by so much that the lowest frequencies are far below most, which filters mind."""
    return profile.contrast > LIMITS.contrast or profile.degree_spread > LIMITS.wide_degrees


def _choose_proved(L: SparseOperator, profile: GraphProfile) -> tuple[str, str]:
    """Return the method for one sparse graph whose certificate a dense factor proves, since no light one does."""
    # A filter takes long where the lowest frequencies are far below the others, or zero once a component.
    if L.n <= LIMITS.exact or _spread(profile) or profile.components[1] > 1:
        return "exact", f"a graph of {L.n} nodes whose factor is not light is fastest to decompose"
    return "chebyshev", f"a graph of {L.n} nodes is too large to decompose, and its factor is not light"


def _choose_large(L: SparseOperator, profile: GraphProfile) -> tuple[str, str]:
    """Return the method for one large sparse graph, by its fill and the width of its level sets, and why."""
    host = L.device.type == "cpu"
    if L.col.numel() <= (1 + LIMITS.tree_neighbors) * L.n and host:
        fill = profile.fill
        thin = L.col.numel() <= (1 + LIMITS.thin_neighbors) * L.n and fill.entries**1.5 <= LIMITS.thin_work * L.n
        if fill.ratio <= LIMITS.tree_fill or thin:
            return "shift_invert", f"a factor of its {L.n} nodes has about {fill.ratio:.1f} times the graph's entries"
    if profile.contrast > LIMITS.contrast:
        apart = f"the mean of its degrees is {profile.contrast:.0f} times the harmonic one"
        if host and profile.fill.entries**1.5 <= LIMITS.contrast_work * L.n:
            return "shift_invert", f"{apart}, and a factor stays small"
        return "davidson", f"{apart}, so that the diagonal is a good preconditioner"
    seen = f"level sets of a breadth-first search hold at most {max(profile.width, 1e-3):.1%} of {L.n} nodes"
    if profile.width <= LIMITS.geometric and profile.smooth:
        return "multilevel", f"{seen}, so that coarser graphs are like it"
    if profile.degree_spread > LIMITS.wide_degrees:
        return "davidson", f"{seen}, and its largest degree is {profile.degree_spread:.0f} times the mean"
    if profile.width <= LIMITS.geometric:
        seen += ", but self-loops of different weights confine low frequencies"
    return "chebyshev", f"{seen}, so that no coarser graph is like it"
