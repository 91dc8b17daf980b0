r"""Cutting a graph: the Fiedler vector, and partitions by multilevel bisection or by k-means on the low subspace.

The relaxed problem behind both: of all vectors orthogonal to the trivial one, the Fiedler vector has the least

$$\lambda_2 = \min_{x \perp 1, \|x\| = 1} x^\top L x = \min_x \sum_{i < j} W_{ij} (x_i - x_j)^2 ,$$

and a vector of two values would be a balanced cut (Fiedler, 1973; Pothen, Simon and Liou, 1990).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.linalg
import torch
from scipy.cluster.vq import kmeans2
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components
from torch import Tensor

from krylow import _checks
from krylow._bisection import Graph, bisect
from krylow._checks import InputError
from krylow.api import subspace
from krylow.certificate import Status
from krylow.graph import as_operator
from krylow.operators import FunctionOperator, Operator, SparseOperator
from krylow.profile import GraphProfile
from krylow.result import Subspace


@dataclass(frozen=True)
class Fiedler:
    r"""The second lowest eigenpair of a Laplacian; unpacks as ``value, vector``.

    Attributes
    ----------
    value
        ``(*batch,)`` the algebraic connectivity $\lambda_2$; exactly 0 where the graph is not connected.
    vector
        ``(*batch, n)`` of unit length, the first of its largest entries positive.
    connected
        ``(*batch,)`` whether the graph is connected, by its edges and not by the value.
    subspace
        The two lowest frequencies with their certificate. NO_GAP says that $\lambda_2$ is repeated: then the vector is
        one of many.
    """

    value: Tensor
    vector: Tensor
    connected: Tensor
    subspace: Subspace

    @property
    def status(self) -> Status:
        """What the certificate says of the two lowest frequencies."""
        return self.subspace.status

    def __iter__(self) -> Iterator[Tensor]:
        return iter((self.value, self.vector))

    def __repr__(self) -> str:
        joined = "connected" if bool(self.connected.all()) else "not connected"
        return f"Fiedler(value={self.value.tolist()}, {joined}, status={self.status})"


def fiedler(L: Any, *, method: str = "auto", tol: float = 1e-6, seed: int | None = None) -> Fiedler:
    r"""Return the Fiedler vector of a graph and its value, the algebraic connectivity.

    $$L u_2 = \lambda_2 u_2, \qquad 0 = \lambda_1 \le \lambda_2 \le \ldots$$

    Exact up to 500 to 1000 nodes; beyond, to ``tol``, and the value's error is of the order of the vector's squared. A
    graph that is not connected has $\lambda_2 = 0$, and ``connected`` says so: the vector is then constant on each of
    two components up to the scaling of the trivial vector, of opposite signs, and orthogonal to that vector.

    Parameters
    ----------
    L
        As in :func:`krylow.subspace`, of at least two nodes; one graph or a batch.
    method, tol, seed
        As there, for k = 2.

    Examples
    --------
    >>> value, vector = fiedler(torch.tensor([[1.0, -1.0, 0.0], [-1.0, 2.0, -1.0], [0.0, -1.0, 1.0]]))
    >>> value.round(decimals=4), vector.round(decimals=4).abs()
    (tensor(1.), tensor([0.7071, 0.0000, 0.7071]))
    """
    L = as_operator(L)
    if int(L.sizes.min()) < 2:
        raise InputError("a Fiedler vector needs at least two nodes, got a graph of one.")
    sub = subspace(L, 2, method=method, tol=tol, seed=seed)
    connected = _connected(L, sub)
    value, vector = sub.ritz_values[..., 1], sub.basis[..., 1]
    if not bool(connected.all()):
        apart = ~connected & (sub.ritz_values[..., 1].abs() <= _rounding(L))  # self-loops leave no frequency at zero
        c = (_trivial(L, sub.basis)[..., None, :] @ sub.basis)[..., 0, :]  # (*batch, 2)
        turned = sub.basis @ torch.stack([-c[..., 1], c[..., 0]], dim=-1)[..., None]
        turned = turned[..., 0] / torch.linalg.vector_norm(turned, dim=-2)
        vector = torch.where(apart[..., None], turned, vector)
        value = torch.where(apart, torch.zeros_like(value), value)
    largest = vector.abs().argmax(-1, keepdim=True)
    vector = vector * torch.where(vector.gather(-1, largest) < 0, -1.0, 1.0).to(vector.dtype)
    return Fiedler(value, vector, connected, sub)


def _connected(L: Operator, sub: Subspace) -> Tensor:
    """Return whether each graph is connected, by its edges; by the second value where no entries are known."""
    if isinstance(L, FunctionOperator):
        return sub.ritz_values[..., 1].detach() > _rounding(L)
    if isinstance(L, SparseOperator):
        return torch.tensor(GraphProfile(L).components[1] == 1, device=L.device)
    flat = [L] if not L.batch_shape else [L[index] for index in np.ndindex(*L.batch_shape)]
    whole = [connected_components(graph.to_scipy(), directed=False, return_labels=False) == 1 for graph in flat]
    return torch.tensor(whole, device=L.device).reshape(L.batch_shape)


def _rounding(L: Operator) -> Tensor:
    """Return what a frequency of zero may come out as."""
    return 32 * L.n * torch.finfo(L.dtype).eps * L.norm_bound()


def _trivial(L: Operator, null: Tensor) -> Tensor:
    """Return the trivial null vector ``(*batch, n)``: ones, or roots of the degrees; from null vectors if unknown."""
    known = getattr(L, "null_vector", None)
    if known is not None:
        return known.to(null)
    ones = torch.ones((*L.batch_shape, L.n), dtype=L.dtype, device=L.device)
    flat = (L.detach() @ ones[..., None]).abs().amax((-2, -1)) <= _rounding(L)
    # A row's length is the entry of its component's own positive null vector.
    return torch.where(flat[..., None], ones, torch.linalg.vector_norm(null, dim=-1)).to(null)


@dataclass(frozen=True)
class Partition:
    """A graph's nodes in parts.

    Attributes
    ----------
    labels
        ``(n,)`` the part of each node, 0 to parts - 1.
    cut
        Sum of the weights of the edges between different parts, each edge counted once.
    sizes
        ``(parts,)`` nodes of each part.
    balance
        The largest part over n / parts: 1 if all are of one size.
    method
        "bisection" or "kmeans".
    """

    labels: Tensor
    cut: float
    sizes: Tensor
    balance: float
    method: str

    def __repr__(self) -> str:
        sizes = f"parts={len(self.sizes)}, cut={self.cut:.6g}, balance={self.balance:.3f}"
        return f"Partition({sizes}, method={self.method!r})"


def partition(
    L: Any, parts: int, *, method: str = "bisection", tol: float = 1e-5, seed: int | None = None
) -> Partition:
    r"""Divide a graph into parts of few edges between them, and report the cut.

    - "bisection": recursive multilevel bisection (Barnard and Simon, 1994; Hendrickson and Leland, 1995). Nodes are
      aggregated until some hundred are left, which are divided at the quantile of their Fiedler vector; on every level
      back, single nodes move to the other side where the cut becomes less (Fiduccia and Mattheyses, 1982). Components
      are kept whole as far as the sizes allow. Parts differ by a few nodes at most.
    - "kmeans": k-means on the rows of the ``parts`` lowest frequencies, of unit length for a normalized Laplacian (Ng,
      Jordan and Weiss, 2001), from the starting points of Damle, Minden and Ying (2019). Parts are as the graph has
      them, of any size.

    Neither bounds how near the cut is to the least one. Bisection costs a few passes over the edges for every doubling
    of the parts, k-means one subspace of k = parts.

    Parameters
    ----------
    L
        As in :func:`krylow.subspace`, one graph whose entries are known. The weights of a cut are its entries off the
        diagonal, $W_{ij} = -L_{ij}$; for a normalized Laplacian those of the normalized adjacency.
    parts
        Their number.
    method, tol, seed
        "bisection" or "kmeans", and the accuracy and the random numbers of the latter's subspace.

    Examples
    --------
    >>> import krylow as kl
    >>> path = np.diag(np.ones(3), 1) + np.diag(np.ones(3), -1)
    >>> kl.partition(kl.laplacian(path), 2)
    Partition(parts=2, cut=1, balance=1.000, method='bisection')
    """
    L = as_operator(L)
    _checks.choice(method, ("bisection", "kmeans"), "method")
    parts = _checks.count(parts, "parts", 1, L.n, hint=" (the number of nodes)")
    if L.batch_shape or isinstance(L, FunctionOperator):
        raise InputError(f"partition() takes one graph whose entries are known, got {L!r}.")
    matrix = csr_array(L.detach().to_scipy(), dtype=np.float64)
    matrix.eliminate_zeros()
    if method == "kmeans":
        labels = _k_means(L.detach(), parts, tol, seed)
    else:
        labels = np.zeros(L.n, dtype=np.int64)
        _divide(Graph(matrix.indptr, matrix.indices, matrix.data), np.arange(L.n), (0, parts), labels)
    apart = np.repeat(labels, np.diff(matrix.indptr)) != labels[matrix.indices]
    cut = 0.0 - float(matrix.data[apart].sum()) / 2
    sizes = np.bincount(labels, minlength=parts)
    at = [torch.from_numpy(part).to(L.device) for part in (labels, sizes)]
    return Partition(at[0], cut, at[1], float(sizes.max()) * parts / L.n, method)


def _divide(graph: Graph, nodes: np.ndarray, span: tuple[int, int], labels: np.ndarray) -> None:
    """Give the nodes of a graph the labels of a span by recursive bisection."""
    first, last = span
    labels[nodes] = first
    if last - first < 2:
        return
    middle = first + (last - first) // 2
    left = round(len(nodes) * (middle - first) / (last - first))
    # Both sides hold at least as many nodes as parts.
    left = min(max(left, middle - first), len(nodes) - (last - middle))
    right = bisect(graph, left)
    for side, part in ((np.flatnonzero(~right), (first, middle)), (np.flatnonzero(right), (middle, last))):
        _divide(graph.part(side) if part[1] - part[0] > 1 else graph, nodes[side], part, labels)


def _k_means(L: Operator, parts: int, tol: float, seed: int | None) -> np.ndarray:
    basis = subspace(L, parts, tol=tol, seed=seed).basis.cpu().double()
    ones = torch.ones(L.n, 1, dtype=L.dtype, device=L.device)
    rows = basis.numpy()
    if not bool((L @ ones).abs().max() <= _rounding(L)):
        size = np.linalg.norm(rows, axis=1, keepdims=True)
        rows = rows / np.where(size > 0, size, 1)
    # The pivots of a QR factorisation of the rows are nodes as far apart as can be, one in each cluster.
    pivots = scipy.linalg.qr(rows.T, mode="r", pivoting=True)[1][:parts]
    return kmeans2(rows, rows[pivots], iter=100, minit="matrix")[1].astype(np.int64)
