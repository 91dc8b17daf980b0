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
from collections.abc import Iterable
from copy import copy
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from krylow import _checks
from krylow._checks import InputError
from krylow.api import METHODS
from krylow.integrations._frequencies import fixed_signs, missing_extra, without_trivial, zero_frequency
from krylow.integrations._union import Graphs, low_frequencies

try:
    from torch_geometric.data import Data
    from torch_geometric.data.datapipes import functional_transform
    from torch_geometric.transforms import BaseTransform
    from torch_geometric.transforms.add_positional_encoding import add_node_attr
except ModuleNotFoundError as error:
    raise missing_extra(__name__, "torch_geometric", "pyg") from error


#: Single graphs below this size are decomposed by numpy.
_SMALL = 128


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
            alike = [i for i, part in enumerate(parts) if part.kind == kind]
            for group in low_frequencies(_joined([parts[i] for i in alike]), self.k, method=self.method, tol=self.tol):
                if group.advice:
                    warnings.warn(group.advice, stacklevel=4)
                members = [alike[i] for i in group.members.tolist()]
                encodings = self._shown(group.basis).to(parts[members[0]].dtype)  # (g, n, k or 1)
                if coins is not None:
                    encodings = encodings * (2 * coins[members] - 1)[:, None].to(encodings)
                for i, pe in zip(members, encodings.unbind(), strict=True):
                    found[i] = pe[: parts[i].n].clone()  # not a view, which would keep, and save, the whole batch
        return [found[i] for i in range(len(graphs))]

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
    kind: tuple[bool, str, str]  # graphs that differ here cannot share a batch

    @property
    def dtype(self) -> torch.dtype:
        return torch.float32 if self.weight is None else self.weight.dtype


def _read(data: Data) -> _Graph:
    fields = data.to_dict()  # once, since every attribute of a Data takes microseconds, and the number of nodes many
    index, weight, n = fields.get("edge_index"), fields.get("edge_weight"), fields.get("num_nodes")
    n = data.num_nodes if n is None else n
    if index is None or n is None:
        raise InputError("a graph must have an edge_index and num_nodes, got a Data without: set both.")
    if weight is not None:
        weight = _checks.finite(_checks.floating(weight, "edge_weight"), "edge_weight")
        if weight.shape != index.shape[1:]:
            raise InputError(f"edge_weight must be ({index.shape[1]},), got shape {tuple(weight.shape)}.")
    kind = (weight is not None, "" if weight is None else str(weight.dtype), str(index.device))
    return _Graph(index, weight, n, kind)


def _joined(parts: list[_Graph]) -> Graphs:
    index, weights = torch.cat([part.edge_index for part in parts], dim=1), [part.weight for part in parts]
    sizes, counts = [part.n for part in parts], [part.edge_index.shape[1] for part in parts]
    weight = None if weights[0] is None else torch.cat([each for each in weights if each is not None])
    return Graphs(index, weight, *torch.tensor([sizes, counts], device=index.device))


def _small_spectrum(part: _Graph) -> tuple[np.ndarray, np.ndarray, np.ndarray] | None:
    """Return all frequencies, their vectors and the degrees of a small undirected graph on the host, in float64.

    None where it is none: what is wrong with it, or has to be looked at closely, :func:`low_frequencies` says.
    """
    n, (_, _, device) = part.n, part.kind
    if not 0 < n < _SMALL or device != "cpu" or part.edge_index.dtype != torch.int64:
        return None
    row, col = part.edge_index.numpy()
    if row.size and not (min(row.min(), col.min()) >= 0 and max(row.max(), col.max()) < n):
        return None
    weight = None if part.weight is None else part.weight.detach().numpy()
    if weight is not None and (weight < 0).any():
        return None
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
