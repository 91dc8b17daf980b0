r"""Bisection of a connected graph into sides of given sizes: multilevel, with a spectral start.

1. Aggregates of nodes are the nodes of a coarser graph, until some hundred are left (Barnard and Simon, 1994;
   Hendrickson and Leland, 1995). An aggregate weighs as much as its nodes, and the edges between two are added up, so
   that a cut of the coarse graph is one of the fine graph, with the same value and the same sizes.
2. The coarsest graph is divided at the weighted quantile of its Fiedler vector,

$$L x = \lambda_2 M x, \qquad M = \mathrm{diag}(\text{nodes of each aggregate}).$$

3. On every level, from the coarsest to the graph itself, single nodes move to the other side where that makes the cut
   less (Fiduccia and Mattheyses, 1982). Sizes are kept to within half an aggregate, and exactly on the graph itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import scipy.linalg

from krylow import _native


@dataclass(frozen=True)
class BisectionSettings:
    """Settings of the multilevel bisection."""

    coarsest: int = 100  #: most nodes of the graph that is divided by its Fiedler vector
    strong: float = 0.1  #: neighbours are aggregated from this share of their largest weights on,
    shrinking: float = 0.7  #: and whatever their weight where more than this share of the nodes would remain
    stalled: float = 0.9  #: where more than this share remains all the same, there are no coarser graphs
    heaviest: float = 0.03  #: most of the graph in one aggregate
    passes: int = 8  #: most passes of refinement on a level
    patience: int = 100  #: moves of a pass without a better cut before it ends


SETTINGS = BisectionSettings()


class Graph(NamedTuple):
    """A graph by the rows of a symmetric matrix whose entries off the diagonal are its negative weights."""

    crow: np.ndarray
    col: np.ndarray
    values: np.ndarray

    def part(self, nodes: np.ndarray) -> Graph:
        """Return the graph of some nodes."""
        return Graph(*_native.subgraph(*self, nodes))


def bisect(graph: Graph, left: int, settings: BisectionSettings = SETTINGS) -> np.ndarray:
    """Return ``(n,)`` which nodes are on the right; ``left`` are not."""
    weights = np.ones(len(graph.crow) - 1)  # nodes of the graph itself in each node
    finer: list[tuple[Graph, np.ndarray, np.ndarray]] = []
    while len(weights) > settings.coarsest:
        labels, coarse = _aggregates(graph, weights, settings)
        if len(coarse) > settings.stalled * len(weights):  # components of one node, or weights that cancel
            break
        finer.append((graph, weights, labels))
        one = np.broadcast_to(1.0, len(labels))
        graph, weights = Graph(*_native.coarsen(*graph, labels, one, np.ones(len(coarse)))), coarse
    component, count = _native.search(graph.crow, graph.col, None, False, 0.0)[1:3]
    if count > 1:
        for _, _, labels in reversed(finer):
            component = component[labels]
        return _by_components(finer[0][0] if finer else graph, component, left, settings)
    side = _start(graph, weights, left, settings, exact=not finer)
    for graph, weights, labels in reversed(finer):
        side = side[labels]
        _refine(graph, weights, side, left, settings, exact=graph is finer[0][0])
    return side.astype(bool)


def _by_components(graph: Graph, component: np.ndarray, left: int, settings: BisectionSettings) -> np.ndarray:
    """Return which nodes are on the right where whole components are, and at most one is divided."""
    sizes = np.bincount(component)
    outside = np.ones(len(sizes), dtype=bool)
    free = left
    for c in np.argsort(-sizes, kind="stable"):  # of those that fit, the largest first
        if sizes[c] <= free:
            outside[c] = False
            free -= int(sizes[c])
    right = outside[component]
    if free:  # every other component is larger than what is free: the smallest is divided
        members = np.flatnonzero(component == np.where(outside, sizes, len(right) + 1).argmin())
        right[members] = bisect(graph.part(members), free, settings)
    return right


def _aggregates(graph: Graph, weights: np.ndarray, settings: BisectionSettings) -> tuple[np.ndarray, np.ndarray]:
    """Return the aggregate of each node and what the aggregates weigh; one that is too heavy becomes several."""
    labels, count = _native.aggregate(*graph, settings.strong, 0.0)
    if count > settings.shrinking * len(labels):
        labels, count = _native.aggregate(*graph, 0.0, 0.0)
    coarse = np.bincount(labels, weights)
    most = settings.heaviest * weights.sum()
    if coarse.max() > most:
        order = np.argsort(labels, kind="stable")
        before = np.cumsum(weights[order]) - weights[order]
        piece = (before - np.r_[0, np.cumsum(coarse)][labels[order]]) // most
        labels[order] = np.r_[0, ((np.diff(labels[order]) != 0) | (np.diff(piece) != 0)).cumsum()]
        coarse = np.bincount(labels, weights)
    return labels, coarse


def _start(graph: Graph, weights: np.ndarray, left: int, settings: BisectionSettings, *, exact: bool) -> np.ndarray:
    """Return the sides by the weighted quantile of the Fiedler vector or the one after it, refined: the lesser cut."""
    n = len(weights)
    starts = np.arange(n)[:, None]
    if n <= settings.coarsest:
        L = np.zeros((n, n))
        L[np.repeat(np.arange(n), np.diff(graph.crow)), graph.col] = graph.values
        np.fill_diagonal(L, 0)
        np.fill_diagonal(L, -L.sum(1))
        root = np.sqrt(weights)
        if np.isfinite(L).all():  # sums of weights may overflow where they do not
            starts = scipy.linalg.eigh(L / root / root[:, None], subset_by_index=(1, min(2, n - 1)))[1] / root[:, None]
    found = []
    for x in starts.T:
        order = np.argsort(x, kind="stable")
        side = np.ones(n, dtype=np.uint8)
        side[order[np.cumsum(weights[order]) - weights[order] / 2 < left]] = 0
        found.append((_refine(graph, weights, side, left, settings, exact=exact), side))
    return min(found, key=lambda pair: pair[0])[1]


def _refine(
    graph: Graph, weights: np.ndarray, side: np.ndarray, left: int, settings: BisectionSettings, *, exact: bool
) -> float:
    """Refine the sides in place, and return their cut."""
    slack = 0.0 if exact else float(weights.max()) / 2  # as near as moves of single nodes come in any case
    return _native.refine(*graph, weights, side, float(left), slack, settings.passes, settings.patience)
