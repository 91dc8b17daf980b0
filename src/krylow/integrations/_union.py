"""Many small graphs at once: their disjoint union, and the low frequencies of those of nearly one size as one batch."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate
from typing import NamedTuple

import torch
from torch import Tensor

from krylow import _checks
from krylow._checks import InputError
from krylow.api import subspace
from krylow.graph import laplacian
from krylow.integrations._frequencies import unconverged, without_trivial, zero_frequency
from krylow.operators import DenseOperator, Operator, SparseOperator


@dataclass(frozen=True)
class Settings:
    """How graphs are put together."""

    dense_limit: int = 700  # larger graphs stay sparse and are treated one at a time; up to here decomposing is fastest
    padding: float = 0.2  # graphs up to this part larger than a batch's smallest are padded into the same batch
    batch_entries: int = 2**24  # most entries of one dense batch
    asymmetry: float = 1e-12  # relative difference between a graph's two directions from which on entries are compared


SETTINGS = Settings()


@dataclass(frozen=True)
class Graphs:
    """Graphs one after the other: the edges of all, the nodes of each numbered from 0."""

    index: Tensor  # (2, e)
    weight: Tensor | None  # (e,)
    sizes: Tensor  # (g,) nodes of each
    counts: Tensor  # (g,) edges of each

    def take(self, which: Tensor) -> Graphs:
        """Return some of the graphs, in this order."""
        counts, starts = self.counts[which], (self.counts.cumsum(0) - self.counts)[which]
        shift = torch.repeat_interleave(starts - (counts.cumsum(0) - counts), counts)
        edges = torch.arange(shift.numel(), device=shift.device) + shift
        weight = None if self.weight is None else self.weight[edges]
        return Graphs(self.index[:, edges], weight, self.sizes[which], counts)

    def signed(self) -> Tensor:
        """Return which graphs have a negative weight."""
        if self.weight is None:
            return torch.zeros_like(self.sizes, dtype=torch.bool)
        graph = torch.repeat_interleave(self.counts)
        return torch.bincount(graph[self.weight < 0], minlength=self.sizes.numel()) > 0


class Frequencies(NamedTuple):
    """The low frequencies of graphs of nearly one size, without the trivial one."""

    members: Tensor  # (g,) which graphs
    basis: Tensor  # (g, n, at most k), rows beyond a graph's nodes of no meaning
    values: Tensor  # (g, at most k)
    advice: str | None  # where they are inaccurate


def low_frequencies(graphs: Graphs, k: int, *, method: str = "auto", tol: float = 1e-6) -> Iterator[Frequencies]:
    """Yield the k lowest non-trivial frequencies of all graphs, those of nearly one size together.

    Of PyG's normalised Laplacian; what is no undirected graph is refused before the first are computed.
    """
    signed = graphs.signed()
    alike = [(signed == flag).nonzero()[:, 0] for flag in (False, True)]
    unions = []
    for which in alike:
        order = which[graphs.sizes[which].sort(stable=True).indices]
        if order.numel():
            unions.append((order, Union(graphs.take(order), bool(signed[order[0]]))))
    for order, union in unions:
        for first, last in groups(union.sizes, k + 1):
            yield Frequencies(order[first:last], *union.lowest(first, last, k, method, tol))


def groups(sizes: list[int], k: int) -> Iterator[tuple[int, int]]:
    """Yield first and last + 1 of the graphs of one batch: of nearly one size, and with as many columns."""
    start = 0
    for end in range(1, len(sizes) + 1):
        if end < len(sizes):
            least, n = sizes[start], sizes[end]
            near = n == least or (k <= least and n <= (1 + SETTINGS.padding) * least)
            if near and n <= SETTINGS.dense_limit and (end - start + 1) * n**2 <= SETTINGS.batch_entries:
                continue
        yield start, end
        start = end


class Union:
    """The disjoint union of graphs, ordered by size, as entries of PyG's normalised Laplacian off the diagonal."""

    def __init__(self, graphs: Graphs, signed: bool) -> None:
        index, self.size, device = graphs.index, graphs.sizes, graphs.index.device
        weight = torch.ones(index.shape[1], device=device) if graphs.weight is None else graphs.weight
        _checks.finite(weight, "edge_weight")
        self.sizes: list[int] = self.size.tolist()
        self.signed = signed
        self.nodes = [0, *accumulate(self.sizes)]
        self.edges = [0, *accumulate(graphs.counts.tolist())]
        self.graph = torch.repeat_interleave(graphs.counts)
        if bool((index >= self.size[self.graph]).any()) or bool((index < 0).any()):
            raise InputError("an edge_index must hold nodes 0 to num_nodes - 1, got others: set num_nodes.")
        self.index = index
        row, col = index + torch.tensor(self.nodes, device=device)[self.graph]
        weight = torch.where(row == col, 0.0, weight)
        self._check_symmetry(graphs, row, col, weight)
        self.degree = weight.new_zeros(self.nodes[-1]).index_add_(0, row, weight)
        if bool((self.degree < 0).any()):
            least = float(self.degree.min())
            raise InputError(f"the weights of a node's edges must sum to at least 0, got {least:.3g}: clip them.")
        scale = torch.where(self.degree > 0, self.degree, torch.inf).rsqrt()  # 0 for isolated nodes
        self.values = -weight * (scale[row] * scale[col])

    def _check_symmetry(self, graphs: Graphs, row: Tensor, col: Tensor, weight: Tensor) -> None:
        """Look for graphs with u^T W v != v^T W u for random u and v, and at those entry by entry."""
        generator = torch.Generator(device=row.device).manual_seed(0)
        u, v = torch.rand(2, self.nodes[-1], dtype=torch.float64, device=row.device, generator=generator)
        weight = weight.double()
        skew, size = weight.new_zeros(2, len(self.sizes))
        skew.index_add_(0, self.graph, weight * (u[row] * v[col] - u[col] * v[row]))
        size.index_add_(0, self.graph, weight.abs())
        for i in (skew.abs() > SETTINGS.asymmetry * size).nonzero()[:, 0].tolist():
            edges = slice(self.edges[i], self.edges[i + 1])
            own = None if graphs.weight is None else graphs.weight[edges]
            try:
                laplacian((graphs.index[:, edges], own), num_nodes=self.sizes[i])
            except InputError as error:
                raise InputError(f"{error} For a data set: torch_geometric.transforms.ToUndirected().") from None

    def lowest(self, first: int, last: int, k: int, method: str, tol: float) -> tuple[Tensor, Tensor, str | None]:
        """Return non-trivial frequencies of some graphs and their values, and advice where they are inaccurate."""
        least, n = self.sizes[first], self.sizes[last - 1]
        if n == 0:
            return self.values.new_zeros(last - first, 0, 0), self.values.new_zeros(last - first, 0), None
        alone = n > SETTINGS.dense_limit
        L = self._sparse_laplacian(first) if alone else self._dense_laplacian(first, last)
        chosen = "exact" if method == "auto" and not alone else method
        found = subspace(L, min(k + 1, least), method=chosen, tol=tol)
        basis, theta = (x[None] if alone else x for x in (found.basis, found.ritz_values))
        if self.signed:  # the trivial vector may be anywhere in the spectrum: as PyG, drop the lowest
            basis, theta = basis[..., 1:], theta[..., 1:]
        else:
            zero = zero_frequency(n, L.dtype)
            basis, theta = without_trivial(basis, theta, self._trivial(first, last, basis.dtype), zero)
        advice = unconverged(found)
        return basis, theta, advice and f"the low frequencies of a graph of {n} nodes are inaccurate. {advice}"

    def _dense_laplacian(self, first: int, last: int) -> Operator:
        """Return the Laplacians of some graphs as one batch, padded to the size of the last."""
        n, count = self.sizes[last - 1], last - first
        edges = slice(self.edges[first], self.edges[last])
        row, col = self.index[:, edges]
        L = self.values.new_zeros(count * n * n)
        L.index_add_(0, ((self.graph[edges] - first) * n + row) * n + col, self.values[edges])  # parallel edges add up
        L = L.reshape(count, n, n)
        # Padding nodes are given a frequency above every other, so that they are never among the lowest.
        top = 3 + L.abs().sum(-1).max() if self.signed else 3.0
        L.diagonal(dim1=-2, dim2=-1).copy_(torch.where(self.real(first, last), 1.0, top))
        return DenseOperator(L, psd=not self.signed)

    def _sparse_laplacian(self, which: int) -> Operator:
        """Return the Laplacian of one large graph, in float64."""
        edges, n = slice(self.edges[which], self.edges[which + 1]), self.sizes[which]
        nodes = torch.arange(n, device=self.index.device)
        index = torch.cat([self.index[:, edges], nodes.expand(2, n)], dim=1)
        values = torch.cat([self.values[edges], self.values.new_ones(n)]).double()
        return SparseOperator.from_coo(index[0], index[1], values, n, psd=not self.signed)

    def _trivial(self, first: int, last: int, dtype: torch.dtype) -> Tensor:
        """Return the vectors of frequency 0 that every graph has, D^1/2 1, ``(g, n)``."""
        vectors = torch.zeros(last - first, self.sizes[last - 1], dtype=dtype, device=self.degree.device)
        vectors[self.real(first, last)] = self.degree[self.nodes[first] : self.nodes[last]].sqrt().to(dtype)
        return vectors

    def real(self, first: int, last: int) -> Tensor:
        """Return which rows of a padded batch are nodes."""
        return torch.arange(self.sizes[last - 1], device=self.size.device) < self.size[first:last, None]
