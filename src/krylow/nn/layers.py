r"""Filters of a graph as layers: the ideal low-pass filter between the layers of any network.

A layer takes what PyG's layers take, ``(x, edge_index, edge_weight=None, batch=None)``, or ``(x, L)`` with anything
that :func:`krylow.lowpass` takes for a graph. Gradients flow to x, to the edge weights, and to a response's parameters.

>>> path = torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])
>>> LowPass(k=1)(torch.tensor([[0.0], [3.0], [6.0]]), path).round(decimals=4)
tensor([[3.],
        [3.],
        [3.]])
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from krylow import _checks
from krylow._checks import InputError
from krylow._response import Function, Response, Several, response_of
from krylow.api import least_nodes, lowpass
from krylow.choose import LIMITS
from krylow.filtering import filter
from krylow.graph import KINDS, batched_laplacian, laplacian
from krylow.operators import Operator
from krylow.responses.single import Rational, Single


class _GraphFilter(nn.Module):
    """A filter of one graph, of a batch as PyG makes them, or of what is a Laplacian already."""

    def __init__(self, kind: str | None) -> None:
        super().__init__()
        self.kind = kind if kind is None else _checks.choice(kind, KINDS, "kind")

    def forward(self, x: Tensor, graph: Any, edge_weight: Tensor | None = None, batch: Tensor | None = None) -> Tensor:
        """Return the filtered signals, of x's shape and dtype; of a bank with ``(filters,)`` behind.

        Parameters
        ----------
        x
            ``(nodes, channels)``; beside a Laplacian also ``(*batch, n, channels)``.
        graph
            An ``edge_index`` ``(2, e)`` of integers with both directions of every edge; or a Laplacian, as
            :func:`krylow.laplacian` makes it, or a matrix or graph as :func:`krylow.lowpass` takes it.
        edge_weight
            ``(e,)`` weights of an ``edge_index``, equal in both directions; None: 1.
        batch
            ``(nodes,)`` the graph of each node, ascending, as of PyG's ``Batch``. Every graph is filtered on its own.
        """
        _checks.tensor(x, "x", floating=False)
        is_index = isinstance(graph, Tensor) and not graph.is_floating_point() and graph.shape[:1] == (2,)
        if not is_index or graph.ndim != 2:
            if edge_weight is not None or batch is not None:
                raise InputError("edge_weight and batch belong to an edge_index (2, e) of integers, got another graph.")
            return self._filtered(graph, x)
        if x.ndim != 2:
            raise InputError(f"x must be (nodes, channels) beside an edge_index, got shape {tuple(x.shape)}.")
        weight = torch.ones(graph.shape[1], dtype=x.dtype, device=x.device) if edge_weight is None else edge_weight
        if batch is not None and _checks.tensor(batch, "batch", floating=False).dtype != torch.int64:
            raise InputError(f"batch must be whole numbers, torch.int64, got {batch.dtype}.")
        if batch is None or (batch.numel() and int(batch.max()) == 0):
            return self._filtered(laplacian((graph, weight), self.kind, num_nodes=len(x)), x)
        if batch.shape != x.shape[:1] or bool((batch.diff() < 0).any()):
            shape = tuple(batch.shape)
            raise InputError(f"batch must name the graph of each of {len(x)} nodes, ascending, got shape {shape}.")
        sizes = torch.bincount(batch)
        sizes = sizes[sizes > 0]
        if int(sizes.max()) > LIMITS.exact:
            return self._one_by_one(x, graph, weight, sizes)
        L, place = batched_laplacian(graph, weight, sizes, self.kind)
        padded = x.new_zeros(sizes.numel() * L.n, x.shape[1]).index_copy(0, place, x)
        return self._filtered(L, padded.reshape(sizes.numel(), L.n, -1)).flatten(0, 1)[place]

    def _one_by_one(self, x: Tensor, edge_index: Tensor, weight: Tensor, sizes: Tensor) -> Tensor:
        """Filter every graph as a sparse one."""
        ends = sizes.cumsum(0).tolist()
        parts = []
        for first, last in zip([0, *ends[:-1]], ends, strict=True):
            inside = (edge_index[0] >= first) & (edge_index[0] < last)
            one = (edge_index[:, inside] - first, weight[inside])
            parts.append(self._filtered(laplacian(one, self.kind, num_nodes=last - first), x[first:last]))
        return torch.cat(parts)

    @abstractmethod
    def _filtered(self, L: Any, x: Tensor) -> Tensor:
        """Return the filtered signal."""


class LowPass(_GraphFilter):
    r"""The ideal low-pass filter $y = U_k U_k^\top x$ of a graph as a layer, without parameters.

    Differentiable in x and in the edge weights. A graph of at most k nodes passes all of x. Costs what
    :func:`krylow.lowpass` costs; a PyG batch of graphs of up to 1000 nodes is one batch of dense decompositions.

    Parameters
    ----------
    k
        Number of kept frequencies of every graph.
    cutoff
        Instead of k: keep every frequency up to this one.
    kind
        The Laplacian of an ``edge_index``, as in :func:`krylow.laplacian`.
    method, tol
        As in :func:`krylow.lowpass`.

    Examples
    --------
    >>> two, x = torch.tensor([[0, 1, 2, 3], [1, 0, 3, 2]]), torch.tensor([[1.0], [3.0], [5.0], [5.0]])
    >>> LowPass(1)(x, two, batch=torch.tensor([0, 0, 1, 1])).T.round(decimals=4)
    tensor([[2., 2., 5., 5.]])
    """

    def __init__(
        self,
        k: int | None = None,
        *,
        cutoff: float | None = None,
        kind: str | None = None,
        method: str = "auto",
        tol: float = 1e-3,
    ) -> None:
        super().__init__(kind)
        self.k, self.cutoff = _checks.k_or_cutoff(k, cutoff, 2**62)
        self.method = method
        self.tol = _checks.positive(tol, "tol")

    def _filtered(self, L: Any, x: Tensor) -> Tensor:
        k = self.k
        if k is not None and isinstance(L, Operator) and k > (smallest := least_nodes(L)):
            if not L.batch_shape:
                k = smallest
            else:
                return self._small_graphs(L, x, k)
        return lowpass(L, x, k, cutoff=self.cutoff, method=self.method, tol=self.tol)

    def _small_graphs(self, L: Operator, x: Tensor, k: int) -> Tensor:
        """Filter a batch of which some graphs have fewer than k nodes, which pass all."""
        whole = L.sizes < k
        y = x.clone()
        if not bool(whole.all()):
            y[~whole] = lowpass(L[~whole], x[~whole], k, method=self.method, tol=self.tol)
        return y

    def extra_repr(self) -> str:
        """Return the settings, for print()."""
        band = f"k={self.k}" if self.k is not None else f"cutoff={self.cutoff}"
        return band if self.kind is None else f"{band}, kind={self.kind!r}"


class SpectralFilter(_GraphFilter):
    r"""A graph filter $y = g(L) x$ of any response as a layer, whose parameters are the response's.

    Differentiable in x, in the edge weights, and in every parameter of the response: of the single filters of
    :mod:`krylow.responses` all numbers are learned, those that are positive by their logarithm; a module is learned as
    it is. Not of filters that jump, and not the placing of wavelets. What it costs is what :func:`krylow.filter` costs.

    Parameters
    ----------
    response
        As in :func:`krylow.filter`; a list of responses is a bank.
    kind
        The Laplacian of an ``edge_index``, as in :func:`krylow.laplacian`.
    method, tol, degree
        As in :func:`krylow.filter`.

    Examples
    --------
    >>> import krylow as kl
    >>> layer, path = SpectralFilter(kl.responses.Heat(1.0)), torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])
    >>> layer(torch.tensor([[0.0], [3.0], [6.0]]), path).T.detach().round(decimals=3)
    tensor([[1.8960, 3.0000, 4.1040]])
    >>> [name for name, _ in layer.named_parameters()]
    ['log_tau']
    """

    def __init__(
        self,
        response: Any,
        *,
        kind: str | None = None,
        method: str = "auto",
        tol: float = 1e-6,
        degree: int | None = None,
    ) -> None:
        super().__init__(kind)
        self.method, self.tol, self.degree = method, _checks.positive(tol, "tol"), degree
        self._given = response_of(response)
        self.parts = nn.ModuleList()
        if isinstance(self._given, Several):
            self.parts.extend(SpectralFilter(part) for part in self._given.parts)
        elif isinstance(self._given, Function) and isinstance(self._given.function, nn.Module):
            self.module = self._given.function
        for name, (value, positive) in _parameters(self._given).items():
            value = value.detach().clone().to(torch.get_default_dtype())
            self.register_parameter(
                f"log_{name}" if positive else name, nn.Parameter(value.log() if positive else value)
            )

    @property
    def response(self) -> Response:
        """The response with the parameters as they are now."""
        given = self._given
        if isinstance(given, Several):
            return type(given)([part.response for part in self.parts])
        now = {
            name: getattr(self, f"log_{name}").exp() if positive else getattr(self, name)
            for name, (_, positive) in _parameters(given).items()
        }
        if isinstance(given, Rational):
            return Rational(**now)
        return replace(given, **now) if now else given  # type: ignore[type-var]

    def _filtered(self, L: Any, x: Tensor) -> Tensor:
        y: Tensor = filter(L, x, self.response, method=self.method, tol=self.tol, degree=self.degree)
        return y

    def extra_repr(self) -> str:
        """Return the settings, for print()."""
        kind = "" if self.kind is None else f", kind={self.kind!r}"
        return f"{type(self._given).__name__}, method={self.method!r}, tol={self.tol}{kind}"


def _parameters(response: Response) -> dict[str, tuple[Tensor, bool]]:
    """Return the values that are learned of one response, and whether they are positive."""
    if isinstance(response, Rational):
        return {name: (getattr(response, name), False) for name in ("numerator", "denominator")}
    if not isinstance(response, Single):
        return {}
    return {
        name: (torch.as_tensor(getattr(response, name)), positive) for name, positive in response.learnable().items()
    }
