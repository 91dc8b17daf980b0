r"""Tokens that occur more than once, whose part of the spectrum is known before any product.

The difference of two equal tokens is an eigenvector: their rows of W are the same, so that $W u = 0$, and $L u = u$ for
the normalized Laplacian, $L u = d_i u$ for $D - W$. A Krylov space of one vector sees one of the differences of each
frequency; on a graph that matches words these are most of what a low-pass filter removes.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from krylow.nn.graph_learning import TokenGraph

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
