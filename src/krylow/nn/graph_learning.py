r"""From token features to a graph: learned distances, exponential weights, Laplacian.

$$f_i = F(x_i), \qquad d_{ij} = (f_i - f_j)^\top M (f_i - f_j), \quad M = R^\top R \succeq 0, \qquad
w_{ij} = e^{-d_{ij}}$$

(the paper's eq. (weightExp)). With $g_i = R f_i$ the distance is Euclidean, $d_{ij} = \|g_i - g_j\|^2$, and all of them
come from one Gram matrix: no tensor of differences ``(batch, n, n, D)`` is ever made.

Tokens that occur more than once have a part of the spectrum that is known before any product: the difference of two of
them is an eigenvector, since their rows of W are the same, with $L u = u$ for the normalized Laplacian and
$L u = d_i u$ for $D - W$. A Krylov space of one vector contains one of the differences of each frequency; on a graph
that matches words these are most of what a low-pass filter removes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from krylow import _checks
from krylow._checks import InputError
from krylow.operators import DenseOperator

KINDS = ("combinatorial", "normalized")
#: Points that differ by rounding alone have no weight beyond a size of this over eps: e^-4096.
ROUNDED_DISTANCE = 64


@dataclass(frozen=True)
class TokenGraph:
    r"""A batch of complete graphs over tokens, known by a point a token.

    =============  =====================================  ======================================
    kind           Laplacian                              isolated token
    =============  =====================================  ======================================
    combinatorial  $L = D - W$                            row of zeros
    normalized     $L = I - D^{-1/2} W D^{-1/2}$          row of zeros, to within its weights
    =============  =====================================  ======================================

    $D_{ii} = \sum_j w_{ij}$ includes $w_{ii} = e^0 = 1$, which cancels in the first and keeps the second defined: no
    degree is below 1. Eigenvalues of the second lie in [0, 1], since a kernel matrix is positive semidefinite.

    Attributes
    ----------
    points
        ``(*batch, n, D)``, $g$.
    mask
        ``(*batch, n)`` booleans, False for padding, which has no edges; None: no padding.
    kind
        "combinatorial" or "normalized".

    Examples
    --------
    Two tokens at distance log 2, so that their weight is 1/2:

    >>> graph = TokenGraph(torch.tensor([[0.0], [0.8326]]), None, "combinatorial")
    >>> graph.laplacian().to_dense().round(decimals=2)
    tensor([[ 0.5000, -0.5000],
            [-0.5000,  0.5000]])
    """

    points: Tensor
    mask: Tensor | None
    kind: str

    def weights(self) -> Tensor:
        """Return $w_{ij}$, ``(*batch, n, n)``: ones on the diagonal, zeros in rows and columns of padding."""
        with torch.autocast(self.points.device.type, enabled=False):
            W = kernel(self.points)
        if self.mask is None:
            return W
        return W * (self.mask[..., :, None] & self.mask[..., None, :])

    def laplacian(self) -> DenseOperator:
        """Return the Laplacian as a dense operator that carries the gradient."""
        W = self.weights()
        degree = W.sum(-1)  # (*batch, n)
        if self.kind == "combinatorial":
            L = torch.diag_embed(degree) - W
        else:
            scale = inverse_root(degree)
            L = torch.diag_embed((degree > 0).to(W.dtype)) - scale[..., :, None] * W * scale[..., None, :]
        return DenseOperator(L, mask=self.mask, psd=True)


def kernel(points: Tensor, out: Tensor | None = None) -> Tensor:
    r"""Return $e^{-\|g_i - g_j\|^2}$, ``(*batch, n, n)``, by one product of matrices.

    $-\|g_i - g_j\|^2 = (2 g_i, -\|g_i\|^2, -1) \cdot (g_j, 1, \|g_j\|^2)$. Rounding may leave it slightly positive
    where two points meet; it is cut off at zero, and is zero from a point to itself whatever its norm. A weight below
    eps is rounding against a token's own weight of 1, and taken as 0: isolated tokens are isolated, and nothing is ever
    denormal.

    Parameters
    ----------
    points
        ``(*batch, n, D)``, best centred: rounding grows with their norm.
    out
        Where to write the result, without a gradient. None: a new tensor.
    """
    square = points.square().sum(-1, keepdim=True)
    one = torch.ones_like(square)
    left, right = torch.cat([2 * points, -square, -one], -1), torch.cat([points, one, square], -1)
    eps = torch.finfo(points.dtype).eps
    exponent = left @ right.mT if out is None else torch.bmm(left, right.mT, out=out)
    exponent.diagonal(dim1=-2, dim2=-1).zero_()
    if out is None:
        return nn.functional.threshold(torch.exp(exponent.clamp(max=0)), eps, 0.0)
    return torch.threshold_(exponent.clamp_(max=0).exp_(), eps, 0.0)


def inverse_root(degree: Tensor) -> Tensor:
    """Return degree^-1/2, and 0 where there is no token: any other has its own weight of 1."""
    return torch.where(degree > 0, degree, torch.ones_like(degree)).rsqrt() * (degree > 0)


class GraphLearning(nn.Module):
    r"""The paper's graph-learning module: features, metric, weights, Laplacian.

    $F$ is linear (a shift would cancel), $R$ starts as the identity, and the points are scaled by one number per graph,
    set at the first batch so that the mean squared distance between two of its tokens is ``distance``. Without that,
    features after a layer norm are so far apart that every token is isolated, or so near that the graph is complete.

    Parameters
    ----------
    embed_dim
        E, the width of the tokens.
    feature_dim
        D, the width of the features. None: a quarter of E, at least 1.
    num_graphs
        Graphs learned over the same tokens, each with its own F, R and scale.
    kind
        "normalized" or "combinatorial" Laplacian; the paper's is the latter, the former is far better conditioned.
    distance
        Mean squared distance at the start: about 1 makes a dense graph, 16 one in which tokens are joined to their
        likes and to hardly any other.

    Shapes
    ------
    ``(*batch, n, E)`` to a :class:`TokenGraph` with points ``(*batch, n, D)``, or ``(*batch, num_graphs, n, D)`` for
    more than one graph.

    Examples
    --------
    >>> learn = GraphLearning(8, kind="combinatorial")
    >>> L = learn(torch.ones(2, 3, 8)).laplacian()  # identical tokens: the complete graph, whatever the parameters
    >>> L.to_dense()[0]
    tensor([[ 2., -1., -1.],
            [-1.,  2., -1.],
            [-1., -1.,  2.]], grad_fn=<SelectBackward0>)
    """

    scale: Tensor

    def __init__(
        self,
        embed_dim: int,
        feature_dim: int | None = None,
        *,
        num_graphs: int = 1,
        kind: str = "normalized",
        distance: float = 1.0,
    ) -> None:
        super().__init__()
        self.embed_dim = embed_dim = _checks.width(embed_dim, "embed_dim")
        feature_dim = max(1, embed_dim // 4) if feature_dim is None else feature_dim
        self.feature_dim = feature_dim = _checks.width(feature_dim, "feature_dim")
        self.num_graphs = num_graphs = _checks.width(num_graphs, "num_graphs")
        self.kind = _checks.choice(kind.replace("ised", "ized"), KINDS, "kind")
        self.distance = _checks.positive(distance, "distance")
        self.features = nn.Linear(embed_dim, num_graphs * feature_dim, bias=False)  # F
        self.R = nn.Parameter(torch.eye(feature_dim).repeat(num_graphs, 1, 1))  # (num_graphs, D, D)
        self.register_buffer("scale", torch.full((num_graphs, 1, 1), torch.nan))
        self._set = False  # whether the scale is known to be set: read back from the device once, not at every batch

    @property
    def metric(self) -> Tensor:
        """``(num_graphs, D, D)``, M = R^T R."""
        return self.R.mT @ self.R

    def forward(self, x: Tensor, mask: Tensor | None = None) -> TokenGraph:
        """Return the graph over the tokens ``x``; ``mask`` ``(*batch, n)`` is False for padding."""
        what = "the tokens of a graph"
        x = _checks.tokens(_checks.tensor(x, what, floating=False), self.R.dtype, what)
        if x.ndim < 2 or x.shape[-1] != self.embed_dim:
            raise InputError(f"{what} must be (*batch, n, {self.embed_dim}), got shape {tuple(x.shape)}.")
        x = _checks.token_size(without_padding(x, mask), what)
        with torch.autocast(x.device.type, enabled=False):  # distances need more digits than half precision has
            return self._graph(x, mask)

    def _graph(self, x: Tensor, mask: Tensor | None) -> TokenGraph:
        f = self.features(x).unflatten(-1, (self.num_graphs, self.feature_dim)).transpose(-3, -2)
        g = f @ self.R.mT  # (*batch, num_graphs, n, D)
        if mask is not None:
            mask = mask[..., None, :].expand(g.shape[:-1])
        g = _representable(_centred(g, mask) * self._scale(g, mask))
        if self.num_graphs == 1:
            g, mask = g[..., 0, :, :], None if mask is None else mask[..., 0, :]
        return TokenGraph(g, mask, self.kind)

    def _scale(self, g: Tensor, mask: Tensor | None) -> Tensor:
        """Return the scale ``(num_graphs, 1, 1)``, setting it where this is the first batch that has a distance."""
        if self._set:
            return self.scale
        if _checks.traced() or bool(self.scale.isnan().any()):
            with torch.no_grad():
                scale = _scale_to(self.distance, _centred(g, mask), mask)[:, None, None]
                # Identical tokens say nothing about the scale: wait for others.
                first = self.scale.isnan().any() & scale.isfinite().all()
                self.scale.copy_(torch.where(first, scale, self.scale))
        if _checks.traced():
            return self.scale.nan_to_num(1.0)
        self._set = not bool(self.scale.isnan().any())
        return self.scale if self._set else torch.ones_like(self.scale)

    def _load_from_state_dict(self, *args: Any, **kwargs: Any) -> None:
        super()._load_from_state_dict(*args, **kwargs)
        self._set = False

    def extra_repr(self) -> str:
        """Return the widths, the kind and the distance."""
        sizes = f"{self.embed_dim}, {self.feature_dim}, num_graphs={self.num_graphs}"
        return f"{sizes}, kind={self.kind!r}, distance={self.distance}"


def without_padding(x: Tensor, mask: Tensor | None) -> Tensor:
    """Return x ``(*batch, n, c)`` with zeros at padding, whatever is there: 0 times NaN would be NaN."""
    return x if mask is None else x.masked_fill(~mask[..., None], 0)


def _centred(g: Tensor, mask: Tensor | None) -> Tensor:
    """Return the points about their mean, which changes no distance and keeps rounding small."""
    if mask is None:
        return g - g.mean(-2, keepdim=True)
    real = mask[..., None].to(g.dtype)
    return (g - (g * real).sum(-2, keepdim=True) / real.sum(-2, keepdim=True).clamp(min=1)) * real


def _representable(g: Tensor) -> Tensor:
    """Return the points of graphs, those of a graph divided by a power of 2 where they are larger than they need be.

    Beyond the limit rounding leaves distances of 0 or without any weight, and so it does after the division: the graph
    is the same, and neither squares nor gradients overflow.
    """
    limit = ROUNDED_DISTANCE / torch.finfo(g.dtype).eps
    largest = g.detach().abs().amax((-2, -1), keepdim=True)
    if not _checks.traced() and bool((largest <= limit).all()):
        return g
    if not _checks.traced() and not bool(largest.isfinite().all()):
        raise InputError(
            "the points of a learned graph must be finite, got NaN or inf from finite tokens: the graph's parameters "
            "have diverged, or the tokens outgrew its scale. Clip gradients, or put an nn.LayerNorm before."
        )
    return g * torch.exp2(-(largest / limit).log2().ceil().clamp(min=0))


def _scale_to(distance: float, g: Tensor, mask: Tensor | None) -> Tensor:
    """Return what makes this the mean squared distance of centred points, ``(num_graphs,)``; inf where there is none.

    Squares are those of points divided by a power of 2 near the largest, so that none of them over- or underflows.
    """
    largest = g.abs().amax((-2, -1))
    largest = largest.amax(tuple(range(largest.ndim - 1))) if largest.ndim > 1 else largest
    unit = torch.exp2(torch.where(largest > 0, largest, torch.ones_like(largest)).log2().floor())
    return (distance / _mean_distance(g / unit[:, None, None], mask)).sqrt() / unit


def _mean_distance(g: Tensor, mask: Tensor | None) -> Tensor:
    r"""Return the mean squared distance over all pairs of centred points of a graph, ``(num_graphs,)``.

    $\sum_{i < j} \|g_i - g_j\|^2 = n \sum_i \|g_i - \bar g\|^2$: no pairs are visited.
    """
    size = torch.full(g.shape[:-2], float(g.shape[-2])) if mask is None else mask.sum(-1).to(g.dtype)
    size = size.to(g)
    total = size * g.square().sum((-2, -1))  # (*batch, num_graphs)
    pairs = size * (size - 1) / 2
    axes = tuple(range(total.ndim - 1))
    return (total.sum(axes) / pairs.sum(axes).clamp(min=1)) if axes else total / pairs.clamp(min=1)


#: Numbers that differ by this many eps of the largest token's norm are those of the same token.
EQUAL_EPS = 64


@dataclass(frozen=True)
class EqualTokens:
    """Which tokens of each graph are equal.

    Attributes
    ----------
    kind
        ``(batch, n)`` numbers below n, the same for equal tokens.
    share
        ``(batch, n)``, 1 over the number of tokens that equal each, itself included.
    different
        ``(batch,)`` how many different tokens there are, padding left out.
    repeated
        ``(batch,)`` how many of these occur more than once.
    """

    kind: Tensor
    share: Tensor
    different: Tensor
    repeated: Tensor

    def __getitem__(self, some: slice) -> EqualTokens:
        """Return a part of the batch."""
        return EqualTokens(self.kind[some], self.share[some], self.different[some], self.repeated[some])

    def mean(self, X: Tensor) -> Tensor:
        """Return X ``(batch, n, c)`` with each token's row replaced by the mean over the tokens equal to it."""
        kind = self.kind[..., None].expand_as(X)
        return torch.zeros_like(X).scatter_add(1, kind, X).gather(1, kind) * self.share[..., None]


def equal_tokens(graph: TokenGraph) -> EqualTokens:
    """Return which tokens of each graph are equal, to rounding.

    Examples
    --------
    >>> graph = TokenGraph(torch.tensor([[[0.0, 1.0], [2.0, 0.0], [0.0, 1.0]]]), None, "normalized")
    >>> tokens = equal_tokens(graph)
    >>> tokens.different, tokens.mean(torch.tensor([[[1.0], [5.0], [3.0]]]))[0, :, 0]
    (tensor([2]), tensor([2., 5., 2.]))
    """
    points = graph.points.detach()
    tolerance = EQUAL_EPS * torch.finfo(points.dtype).eps * torch.linalg.vector_norm(points, dim=-1).amax(-1)[..., None]
    mixtures = torch.arange(1, 2 * points.shape[-1] + 1, device=points.device, dtype=points.dtype).cos().view(-1, 2)
    x, y = (points @ mixtures).unbind(-1)  # what different tokens might have in common is not two sums of all they are
    if graph.mask is not None:
        x = x.masked_fill(~graph.mask, torch.inf)  # equal to nothing: inf - inf is not a number
    x, order = x.sort(dim=-1, stable=True)
    equal = (x.diff() <= tolerance) & (y.gather(-1, order).diff().abs() <= tolerance)  # to the one before, (batch, n-1)
    number = torch.nn.functional.pad((~equal).cumsum(-1), (1, 0))
    real = torch.full_like(number[:, 0], x.shape[-1]) if graph.mask is None else graph.mask.sum(-1)
    runs = equal.sum(-1) - (equal[:, 1:] & equal[:, :-1]).sum(-1)
    kind = torch.empty_like(number).scatter_(-1, order, number)
    size = torch.zeros_like(x).scatter_add_(-1, kind, torch.ones_like(x)).gather(-1, kind)
    return EqualTokens(kind, 1 / size, real - equal.sum(-1), runs)
