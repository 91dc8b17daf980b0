"""The method that ``auto`` takes, and why. The thresholds come from ``benchmarks/crossover.py``."""

from __future__ import annotations

from typing import Any

from krylow._floor import PROOF_LIMIT
from krylow.operators import FunctionOperator, Operator, SparseOperator
from krylow.profile import GraphProfile

#: Up to this size ``auto`` decomposes a graph, and up to the second a sparse one whose factor is light; that one it
#: factorises up to the third. Up to there it decomposes where more than an eighth of the frequencies is wanted.
EXACT_LIMIT = 1000
SPARSE_EXACT_LIMIT = 500
FACTOR_LIMIT = 4096
#: A factor of so many entries a node, by estimate, is light.
LIGHT_FILL = 90.0
#: A large graph of so few neighbours a node (a tree has 2), whose factor has at most so many times its own entries by
#: estimate, is nearly a tree.
TREE_NEIGHBORS = 3.5
TREE_FILL = 3.0
#: So is one of so few neighbours, if a dense matrix of as many entries as its factor is estimated to have takes at most
#: this many multiplications a node: its Schur complement is small, whatever that fills.
THIN_NEIGHBORS = 2.5
THIN_WORK = 6e4
#: A graph whose weights differ by orders of magnitude is factorised if that takes at most so many multiplications a
#: node, as above: coarser graphs are unlike it, and a filter would take for ever.
CONTRAST_WORK = 5e5
#: Weights differ by orders of magnitude if the mean degree is so many times the harmonic mean.
CONTRAST = 20.0
#: Degrees lie far apart if the largest is so many times the mean: the diagonal is then a good preconditioner.
WIDE_DEGREES = 10.0
#: A graph has a geometry if no level set of a breadth-first search holds more than this share of its nodes.
GEOMETRIC = 0.1


def choose(L: Operator, k: int, weights: Any = None, profile: GraphProfile | None = None) -> tuple[str, str]:
    """Return the name of the method for the k lowest frequencies of L, and why."""
    if weights is not None:
        return "unrolled", "weights were given"
    if isinstance(L, FunctionOperator):
        return "thick_restart", "no entries are known, only products"
    least = SPARSE_EXACT_LIMIT if isinstance(L, SparseOperator) else EXACT_LIMIT
    if L.n <= least or (L.n <= FACTOR_LIMIT and k > L.n // 8):
        return "exact", f"a graph of {L.n} nodes is fastest to decompose for k = {k}"
    if isinstance(L, SparseOperator):
        profile = profile or GraphProfile(L)
        if L.n <= FACTOR_LIMIT and L.device.type == "cpu" and profile.fill.entries <= LIGHT_FILL * L.n:
            return "shift_invert", f"a factor of its {L.n} nodes is light"
        return _choose_large(L, profile) if L.n > PROOF_LIMIT else _choose_proved(L, profile)
    return "chebyshev", f"a graph of {L.n} nodes is too large to decompose for k = {k}"


def _choose_proved(L: SparseOperator, profile: GraphProfile) -> tuple[str, str]:
    """Return the method for one sparse graph whose certificate a dense factor proves, since no light one does."""
    # A filter takes long where frequencies are hidden among far larger ones, or as often zero as there are components.
    hard = profile.contrast > CONTRAST or profile.degree_spread > WIDE_DEGREES or profile.components[1] > 1
    if L.n <= EXACT_LIMIT or hard:
        return "exact", f"a graph of {L.n} nodes whose factor is not light is fastest to decompose"
    return "chebyshev", f"a graph of {L.n} nodes is too large to decompose, and its factor is not light"


def _choose_large(L: SparseOperator, profile: GraphProfile) -> tuple[str, str]:
    """Return the method for one large sparse graph, by its fill and the width of its level sets, and why."""
    host = L.device.type == "cpu"
    if L.col.numel() <= (1 + TREE_NEIGHBORS) * L.n and host:
        fill = profile.fill
        thin = L.col.numel() <= (1 + THIN_NEIGHBORS) * L.n and fill.entries**1.5 <= THIN_WORK * L.n
        if fill.ratio <= TREE_FILL or thin:
            return "shift_invert", f"a factor of its {L.n} nodes has about {fill.ratio:.1f} times the graph's entries"
    if profile.contrast > CONTRAST:
        apart = f"the mean of its degrees is {profile.contrast:.0f} times the harmonic one"
        if host and profile.fill.entries**1.5 <= CONTRAST_WORK * L.n:
            return "shift_invert", f"{apart}, and a factor stays small"
        return "davidson", f"{apart}, so that the diagonal is a good preconditioner"
    seen = f"level sets of a breadth-first search hold at most {max(profile.width, 1e-3):.1%} of {L.n} nodes"
    if profile.width <= GEOMETRIC:
        return "multilevel", f"{seen}, so that coarser graphs are like it"
    if profile.degree_spread > WIDE_DEGREES:
        return "davidson", f"{seen}, and its largest degree is {profile.degree_spread:.0f} times the mean"
    return "chebyshev", f"{seen}, so that no coarser graph is like it"
