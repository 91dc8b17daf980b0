"""What of a graph is drawn: nodes and edges, a random part of many, and where."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from krylow._checks import InputError
from krylow.operators import FunctionOperator, Operator
from krylow.plot.layout import REFINED, layout


@dataclass(frozen=True)
class Drawing:
    """A graph to draw.

    Attributes
    ----------
    positions
        ``(n, 2)`` coordinates of all nodes.
    nodes
        ``(drawn,)`` the nodes that are drawn, ascending.
    edges
        ``(drawn edges, 2)`` nodes at their ends, drawn or not.
    num_edges
        Of the whole graph.
    placed
        Where the coordinates come from, in words.
    """

    positions: np.ndarray
    nodes: np.ndarray
    edges: np.ndarray
    num_edges: int
    placed: str

    @property
    def whole(self) -> bool:
        """Whether nothing is left out."""
        return len(self.nodes) == len(self.positions) and len(self.edges) == self.num_edges

    @property
    def in_words(self) -> str:
        """What is drawn, in words."""
        if self.whole:
            return f"All nodes and edges are drawn. Positions: {self.placed}."
        nodes = f"{len(self.nodes):,} of {len(self.positions):,} nodes"
        edges = f"{len(self.edges):,} of {self.num_edges:,} edges"
        return f"Drawn are {nodes} and {edges}, chosen at random. Positions: {self.placed}."


def drawing(L: Operator, positions: Any, *, most_nodes: int = 4000, most_edges: int = 12000, seed: int = 0) -> Drawing:
    """Return what is drawn of a graph: entries of L off the diagonal are its edges; without positions a layout."""
    if L.batch_shape or isinstance(L, FunctionOperator):
        raise InputError(f"one graph whose entries are known can be drawn, got {L!r}: of a batch, take one by L[i].")
    entries = L.detach().to_scipy().tocoo()
    off = (entries.row < entries.col) & (entries.data != 0)
    ends = np.stack([entries.row[off], entries.col[off]], axis=1)
    if positions is None:
        place, placed = layout(entries.tocsr(), seed=seed), "two low frequencies as coordinates"
        placed += ", refined by distances in the graph" if L.n <= REFINED else ""
    else:
        place, placed = np.asarray(positions, dtype=np.float64), "the graph's own coordinates"
        if place.shape != (L.n, 2):
            raise InputError(f"positions must be {(L.n, 2)}, a row for each node, got shape {place.shape}.")
        if not np.isfinite(place).all():
            raise InputError("positions must be finite numbers, got nan or infinity.")
    source = np.random.default_rng(seed)
    nodes = _some(L.n, most_nodes, source)
    return Drawing(place, nodes, ends[_some(len(ends), most_edges, source)], len(ends), placed)


def _some(count: int, most: int, source: np.random.Generator) -> np.ndarray:
    """Return so many of the whole numbers below ``count``, in ascending order."""
    return np.arange(count) if count <= most else np.sort(source.choice(count, most, replace=False))


def without_rounding(values: np.ndarray, L: Operator) -> np.ndarray:
    """Return ascending eigenvalues of L with zero for those that are rounding errors."""
    if not values.size:
        return values
    return np.where(np.abs(values) <= min(1e-8 * float(L.norm_bound()), 1e-4 * abs(values[-1])), 0.0, values)
