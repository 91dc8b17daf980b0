r"""Positional encodings for PyTorch Geometric: the low frequencies of each graph, one by one or a data set at a time.

:class:`AddLowFrequencyPE` stands where ``torch_geometric.transforms.AddLaplacianEigenvectorPE`` stood:

>>> import torch
>>> from torch_geometric.data import Data
>>> edge = Data(edge_index=torch.tensor([[0, 1], [1, 0]]), num_nodes=2)
>>> AddLowFrequencyPE(k=2, sign="largest")(edge).laplacian_eigenvector_pe
tensor([[ 0.7071,  0.0000],
        [-0.7071,  0.0000]])
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator
from copy import copy
from dataclasses import dataclass
from itertools import accumulate
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from krylow import _checks
from krylow._checks import InputError
from krylow.api import METHODS, subspace
from krylow.graph import laplacian
from krylow.integrations._frequencies import fixed_signs, missing_extra, unconverged, without_trivial, zero_frequency
from krylow.operators import DenseOperator, Operator, SparseOperator

try:
    from torch_geometric.data import Data
    from torch_geometric.data.datapipes import functional_transform
    from torch_geometric.transforms import BaseTransform
    from torch_geometric.transforms.add_positional_encoding import add_node_attr
except ModuleNotFoundError as error:
    raise missing_extra(__name__, "torch_geometric", "pyg") from error


@dataclass(frozen=True)
class _Settings:
    """How graphs are put together."""

    dense_limit: int = 700  # larger graphs stay sparse and are treated one at a time; up to here decomposing is fastest
    small: int = 128  # single graphs below this size are decomposed by numpy
    padding: float = 0.2  # graphs up to this part larger than a batch's smallest are padded into the same batch
    batch_entries: int = 2**24  # most entries of one dense batch
    asymmetry: float = 1e-12  # relative difference between a graph's two directions from which on entries are compared


_SETTINGS = _Settings()


@functional_transform("add_low_frequency_pe")
class AddLowFrequencyPE(BaseTransform):
    r"""Add the k lowest non-trivial graph frequencies as positional encoding, in place of AddLaplacianEigenvectorPE.

    $$\mathcal L u_i = \lambda_i u_i, \qquad \mathcal L = I - D^{-1/2} W D^{-1/2}, \qquad
    \mathrm{PE} = (u_2, \ldots, u_{k+1})$$

    with PyG's own Laplacian: parallel edges add up, self-loops are dropped, ``edge_attr`` is not read, an isolated node
    has frequency 1. The encoding has the dtype of ``edge_weight``, else float32. It differs from PyG's where that one's
    answer is an error or arbitrary:

    ====================  ======================================  ==============================================
    input                 AddLaplacianEigenvectorPE               AddLowFrequencyPE
    ====================  ======================================  ==============================================
    at most k nodes       an error (one node: no columns)         the missing columns are zero: always ``(n, k)``
    c > 1 components      drops an arbitrary vector of            drops $D^{1/2} 1$: the encodings are orthogonal
                          frequency 0                             to it, and their span is unique
    directed edges        a non-symmetric decomposition, or one   an error that names ``ToUndirected``
                          triangle if ``is_undirected``
    a negative degree     NaN                                     an error
    signs                 random, from torch's global generator   the same, or from ``seed``, or fixed
    further arguments     scipy's                                 ``tol``, ``method``: krylow's
    ====================  ======================================  ==============================================

    Parameters
    ----------
    k
        Number of non-trivial frequencies.
    attr_name
        The attribute to write; None: concatenate to ``data.x``.
    is_undirected
        Taken for compatibility: graphs must be undirected and are checked in any case.
    sign
        "random": each column is flipped by a fair coin, as in PyG, after the following convention has made it
        reproducible. "largest": the first of the entries of largest modulus is positive.
    output
        "vectors", ``(n, k)``; or "diagonal", ``(n, 1)``: that of the projector, $\sum_i u_i(v)^2$, which depends on no
        sign and no basis.
    seed
        Of the random signs: transforms with equal seeds give equal signs to equal sequences of graphs. None: torch's
        global generator.
    method, tol
        As in :func:`krylow.subspace`.

    Notes
    -----
    :meth:`batched` takes a whole data set, and is many times faster than a loop. A loop is about as fast as one over
    PyG's transform, or faster: ``benchmarks/integrations.py``.
    """

    def __init__(
        self,
        k: int,
        attr_name: str | None = "laplacian_eigenvector_pe",
        is_undirected: bool = False,
        *,
        sign: str = "random",
        output: str = "vectors",
        seed: int | None = None,
        method: str = "auto",
        tol: float = 1e-6,
    ) -> None:
        self.k = _checks.count(k, "k")
        self.attr_name = attr_name
        self.is_undirected = is_undirected
        self.sign = _checks.choice(sign, ("random", "largest"), "sign")
        self.output = _checks.choice(output, ("vectors", "diagonal"), "output")
        self.seed = seed
        self.method = _checks.choice(method, ("auto", *METHODS), "method")
        self.tol = _checks.positive(tol, "tol")
        self._generator = None if seed is None else torch.Generator().manual_seed(seed)

    def forward(self, data: Data) -> Data:
        """Return ``data`` with its encoding."""
        return self._attach([data])[0]

    def batched(self, dataset: Iterable[Data]) -> list[Data]:
        """Return shallow copies of all graphs of a data set with their encodings, in its order.

        Graphs of nearly one size are padded into one dense batch, those beyond 700 nodes are treated one by one. The
        result is that of a loop over the data set, signs included.

        >>> ring = Data(edge_index=torch.tensor([[0, 1, 2, 1, 2, 0], [1, 2, 0, 0, 1, 2]]), num_nodes=3)
        >>> edge = Data(edge_index=torch.tensor([[0, 1], [1, 0]]), num_nodes=2)
        >>> both = AddLowFrequencyPE(k=2, attr_name="pe", output="diagonal").batched([ring, edge])
        >>> [item.pe.flatten() for item in both]
        [tensor([0.6667, 0.6667, 0.6667]), tensor([0.5000, 0.5000])]
        """
        return self._attach([copy(data) for data in dataset])

    def _attach(self, graphs: list[Data]) -> list[Data]:
        for data, pe in zip(graphs, self._encodings(graphs), strict=True):
            add_node_attr(data, pe, self.attr_name)
        return graphs

    @torch.no_grad()
    def _encodings(self, graphs: list[Data]) -> list[Tensor]:
        """Return the encodings in the order of the graphs."""
        coins = None
        if self.output == "vectors" and self.sign == "random":  # as many draws, in the same order, as PyG makes
            coins = torch.randint(0, 2, (len(graphs), self.k), generator=self._generator)
        parts = [_read(data) for data in graphs]
        alone = self._of_small(parts[0]) if len(parts) == 1 else None
        if alone is not None:
            return [alone if coins is None else alone * (2 * coins[0] - 1).to(alone)]
        found: dict[int, Tensor] = {}
        for kind in sorted({part.kind for part in parts}):
            alike = sorted((i for i, part in enumerate(parts) if part.kind == kind), key=lambda i: parts[i].n)
            union = _Union([parts[i] for i in alike])
            for first, last in _groups([parts[i].n for i in alike], self.k + 1):
                members = alike[first:last]
                encodings = self._of_group(union, first, last).to(parts[members[0]].dtype)  # (g, n, k or 1)
                if coins is not None:
                    encodings = encodings * (2 * coins[members] - 1)[:, None].to(encodings)
                for i, pe in zip(members, encodings.unbind(), strict=True):
                    found[i] = pe[: parts[i].n].clone()  # not a view, which would keep, and save, the whole batch
        return [found[i] for i in range(len(graphs))]

    def _of_group(self, union: _Union, first: int, last: int) -> Tensor:
        """Return the encodings of graphs of nearly one size with fixed signs, ``(g, n, k or 1)``."""
        width = self.k if self.output == "vectors" else 1
        least, n = union.sizes[first], union.sizes[last - 1]
        if n == 0:
            return union.values.new_zeros(last - first, 0, width)
        k, alone = min(self.k + 1, least), n > _SETTINGS.dense_limit
        L = union.sparse_laplacian(first) if alone else union.dense_laplacian(first, last)
        method = "exact" if self.method == "auto" and not alone else self.method
        found = subspace(L, k, method=method, tol=self.tol)
        advice = unconverged(found)
        if advice:
            warnings.warn(f"the low frequencies of a graph of {n} nodes are inaccurate. {advice}", stacklevel=5)
        basis, theta = (x[None] if alone else x for x in (found.basis, found.ritz_values))
        if union.signed:  # the trivial vector may be anywhere in the spectrum: as PyG, drop the lowest
            basis = basis[..., 1:]
        else:
            zero = zero_frequency(n, L.dtype)
            basis, _ = without_trivial(basis, theta, union.trivial(first, last, basis.dtype), zero)
        return self._shown(basis)

    def _of_small(self, part: _Graph) -> Tensor | None:
        """Return the same of one small graph, ``(n, k or 1)``; None where it is not small, or unusual in any way.

        On ten nodes most of the time goes to the calls, not to the numbers: numpy's take the least.
        """
        found = _small_spectrum(part) if self.method in ("auto", "exact") else None
        if found is None:
            return None
        theta, vectors, degree = found
        basis = torch.from_numpy(vectors[:, : self.k + 1])
        zero = zero_frequency(part.n, part.dtype)
        if len(theta) > 1 and theta[1] <= zero:
            trivial = torch.from_numpy(np.sqrt(degree))
            basis, _ = without_trivial(basis, torch.from_numpy(theta[: self.k + 1]), trivial, zero)
        else:
            basis = basis[:, 1:]
        return self._shown(basis).to(part.dtype)

    def _shown(self, basis: Tensor) -> Tensor:
        """Return what is asked for of non-trivial frequencies ``(*batch, n, at most k)``."""
        basis = fixed_signs(basis) if self.output == "vectors" else basis.square().sum(-1, keepdim=True)
        missing = (self.k if self.output == "vectors" else 1) - basis.shape[-1]
        return torch.nn.functional.pad(basis, (0, missing)) if missing else basis

    def __repr__(self) -> str:
        return f"{type(self).__name__}(k={self.k}, sign={self.sign!r}, output={self.output!r})"


class _Graph(NamedTuple):
    edge_index: Tensor
    weight: Tensor | None
    n: int
    kind: tuple[bool, bool, str, str]  # graphs that differ here cannot share a batch

    @property
    def dtype(self) -> torch.dtype:
        return torch.float32 if self.weight is None else self.weight.dtype


def _read(data: Data) -> _Graph:
    fields = data.to_dict()  # once, since every attribute of a Data takes microseconds, and the number of nodes many
    index, weight, n = fields.get("edge_index"), fields.get("edge_weight"), fields.get("num_nodes")
    n = data.num_nodes if n is None else n
    if index is None or n is None:
        raise InputError("a graph must have an edge_index and num_nodes, got a Data without: set both.")
    signed = False
    if weight is not None:
        weight = _checks.finite(_checks.floating(weight, "edge_weight"), "edge_weight")
        if weight.shape != index.shape[1:]:
            raise InputError(f"edge_weight must be ({index.shape[1]},), got shape {tuple(weight.shape)}.")
        signed = bool((weight < 0).any())
    kind = (weight is not None, signed, "" if weight is None else str(weight.dtype), str(index.device))
    return _Graph(index, weight, n, kind)


def _small_spectrum(part: _Graph) -> tuple[np.ndarray, np.ndarray, np.ndarray] | None:
    """Return all frequencies, their vectors and the degrees of a small undirected graph on the host, in float64.

    None where it is none: what is wrong with it, or has to be looked at closely, :class:`_Union` says.
    """
    n, (_, signed, _, device) = part.n, part.kind
    if not 0 < n < _SETTINGS.small or signed or device != "cpu" or part.edge_index.dtype != torch.int64:
        return None
    row, col = part.edge_index.numpy()
    if row.size and not (min(row.min(), col.min()) >= 0 and max(row.max(), col.max()) < n):
        return None
    weight = None if part.weight is None else part.weight.detach().numpy()
    W = np.bincount(n * row + col, weight, n * n).reshape(n, n).astype(np.float64, copy=False)
    W.flat[:: n + 1] = 0
    if not np.array_equal(W, W.T):
        return None
    degree = W.sum(0)
    scale = 1 / np.sqrt(np.where(degree > 0, degree, np.inf))  # 0 for isolated nodes
    L = W * (-scale[:, None] * scale)
    L.flat[:: n + 1] = 1
    theta, vectors = np.linalg.eigh(L)
    return theta, vectors, degree


def _groups(sizes: list[int], k: int) -> Iterator[tuple[int, int]]:
    """Yield first and last + 1 of the graphs of one batch: of nearly one size, and with as many columns."""
    start = 0
    for end in range(1, len(sizes) + 1):
        if end < len(sizes):
            least, n = sizes[start], sizes[end]
            near = n == least or (k <= least and n <= (1 + _SETTINGS.padding) * least)
            if near and n <= _SETTINGS.dense_limit and (end - start + 1) * n**2 <= _SETTINGS.batch_entries:
                continue
        yield start, end
        start = end


class _Union:
    """The disjoint union of graphs, ordered by size, as entries of PyG's normalised Laplacian off the diagonal."""

    def __init__(self, parts: list[_Graph]) -> None:
        index = torch.cat([part.edge_index for part in parts], dim=1)
        weights = [part.weight for part in parts if part.weight is not None]
        weight = torch.cat(weights) if weights else torch.ones(index.shape[1], device=index.device)
        self.sizes = [part.n for part in parts]
        self.signed = parts[0].kind[1]
        self.size = torch.tensor(self.sizes, device=index.device)
        self.nodes = [0, *accumulate(self.sizes)]
        self.edges = [0, *accumulate(part.edge_index.shape[1] for part in parts)]
        self.graph = torch.repeat_interleave(torch.tensor(self.edges, device=index.device).diff())
        if bool((index >= self.size[self.graph]).any()) or bool((index < 0).any()):
            raise InputError("an edge_index must hold nodes 0 to num_nodes - 1, got others: set num_nodes.")
        self.index = index
        row, col = index + torch.tensor(self.nodes, device=index.device)[self.graph]
        weight = torch.where(row == col, 0.0, weight)
        self._check_symmetry(parts, row, col, weight)
        self.degree = weight.new_zeros(self.nodes[-1]).index_add_(0, row, weight)
        if bool((self.degree < 0).any()):
            least = float(self.degree.min())
            raise InputError(f"the weights of a node's edges must sum to at least 0, got {least:.3g}: clip them.")
        scale = torch.where(self.degree > 0, self.degree, torch.inf).rsqrt()  # 0 for isolated nodes
        self.values = -weight * (scale[row] * scale[col])

    def _check_symmetry(self, parts: list[_Graph], row: Tensor, col: Tensor, weight: Tensor) -> None:
        """Look for graphs with u^T W v != v^T W u for random u and v, and at those entry by entry."""
        generator = torch.Generator(device=row.device).manual_seed(0)
        u, v = torch.rand(2, self.nodes[-1], dtype=torch.float64, device=row.device, generator=generator)
        weight = weight.double()
        skew, size = weight.new_zeros(2, len(parts))
        skew.index_add_(0, self.graph, weight * (u[row] * v[col] - u[col] * v[row]))
        size.index_add_(0, self.graph, weight.abs())
        for i in (skew.abs() > _SETTINGS.asymmetry * size).nonzero()[:, 0].tolist():
            try:
                laplacian((parts[i].edge_index, parts[i].weight), num_nodes=parts[i].n)
            except InputError as error:
                raise InputError(f"{error} For a data set: torch_geometric.transforms.ToUndirected().") from None

    def dense_laplacian(self, first: int, last: int) -> Operator:
        """Return the Laplacians of some graphs as one batch, padded to the size of the last."""
        n, count = self.sizes[last - 1], last - first
        edges = slice(self.edges[first], self.edges[last])
        row, col = self.index[:, edges]
        L = self.values.new_zeros(count * n * n)
        L.index_add_(0, ((self.graph[edges] - first) * n + row) * n + col, self.values[edges])  # parallel edges add up
        L = L.reshape(count, n, n)
        # Padding nodes are given a frequency above every other, so that they are never among the lowest.
        top = 3 + L.abs().sum(-1).max() if self.signed else 3.0
        L.diagonal(dim1=-2, dim2=-1).copy_(torch.where(self._real(first, last), 1.0, top))
        return DenseOperator(L, psd=not self.signed)

    def sparse_laplacian(self, which: int) -> Operator:
        """Return the Laplacian of one large graph, in float64."""
        edges, n = slice(self.edges[which], self.edges[which + 1]), self.sizes[which]
        nodes = torch.arange(n, device=self.index.device)
        index = torch.cat([self.index[:, edges], nodes.expand(2, n)], dim=1)
        values = torch.cat([self.values[edges], self.values.new_ones(n)]).double()
        return SparseOperator.from_coo(index[0], index[1], values, n, psd=not self.signed)

    def trivial(self, first: int, last: int, dtype: torch.dtype) -> Tensor:
        """Return the vectors of frequency 0 that every graph has, D^1/2 1, ``(g, n)``."""
        vectors = torch.zeros(last - first, self.sizes[last - 1], dtype=dtype, device=self.degree.device)
        vectors[self._real(first, last)] = self.degree[self.nodes[first] : self.nodes[last]].sqrt().to(dtype)
        return vectors

    def _real(self, first: int, last: int) -> Tensor:
        return torch.arange(self.sizes[last - 1], device=self.size.device) < self.size[first:last, None]
