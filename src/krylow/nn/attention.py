"""Low-pass attention: a graph over the tokens, and a low-pass filter of the values on it."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from krylow import _checks
from krylow._checks import InputError
from krylow.nn.graph_learning import GraphLearning, TokenGraph, without_padding
from krylow.nn.probes import Probe
from krylow.nn.token_filters import (
    Band,
    KrylovSettings,
    Relaxation,
    chebyshev_filter,
    exact_filter,
    kernel_filter,
    krylov_filter,
)

FILTERS = ("unrolled", "lanczos", "block", "chebyshev", "exact", "kernel")
IN_A_BASIS = ("unrolled", "lanczos", "block")
GRADIENTS = ("basis", "recurrence")
#: Kept frequencies where neither k nor a cutoff is given: half the default m, the paper's m = 2 K.
DEFAULT_K = 10


class LowPassAttention(nn.Module):
    r"""Low-pass attention, in the place of self-attention.

    $$Y = f(L) \, X W_v \; W_o, \qquad L = \mathrm{Laplacian}\big(e^{-d_{ij}}\big), \qquad
    d_{ij} = (f_i - f_j)^\top M (f_i - f_j), \quad f_i = F(x_i)$$

    with the ideal response f: 1 for the k lowest graph frequencies, or for those up to a cutoff, and 0 for the others.

    ============  =========================================  ==================================================
    filter        how f(L) is approximated                   passes over each graph
    ============  =========================================  ==================================================
    unrolled      m relaxed Lanczos steps, learned gammas    m + 1
    lanczos       m Lanczos steps (all gammas 1)             m + 1
    block         m vectors from a block of b                m / b + 1; sees repeated frequencies
    chebyshev     polynomial of degree m                     m, of all columns of the values
    exact         eigendecomposition                         O(n^3)
    kernel        none: $D^{-1} W$ on the same graph         1; not a low-pass filter but the control for one
    ============  =========================================  ==================================================

    One graph is shared by the heads by default; they then filter alike, and ``num_heads`` makes no difference. With
    ``graph_per_head`` each has its own and filters its own part of the values, at num_heads times the cost.

    Padding does not exist for the mathematics, and evaluation is deterministic: without a generator, a token's random
    start depends on its position alone. The basis methods never hold the graphs of a whole batch (see
    :mod:`krylow.nn.kernel_krylov`); chebyshev, exact, kernel and ``gradient="recurrence"`` do.

    Parameters
    ----------
    embed_dim, num_heads
        Width of the tokens, and heads, which must divide it.
    filter
        One of the table.
    k, cutoff
        Kept frequencies, or the largest kept one. Neither: k = 10. Where the orthogonal
        complement of the basis lies below the cutoff, what is above it is removed instead: give it where few are.
    m
        Basis vectors, or the polynomial's degree.
    block_size
        Columns of the block's start.
    kind, feature_dim, distance
        Of the graph: see :class:`~krylow.nn.GraphLearning`.
    graph_per_head
        Whether each head learns its own graph.
    probe, probe_steps
        For "unrolled": the start, such as :class:`~krylow.nn.InversePolynomialProbe`, and the basis vectors added for
        it: probe and recurrence run on the matrix that one Krylov sequence of ``m + probe_steps`` vectors has made of
        the graph. None: Gaussian, and no more vectors.
    merge_equal
        For the basis methods on normalized Laplacians: whether equal tokens are merged. The differences of equal tokens
        have the highest frequency, 1, many times over, of which a Krylov space finds one; merged they are dropped
        exactly and cost no basis vectors. Their gradient is that of moving equal tokens together. False: they are not,
        but where the space is full all the same its exact Ritz vectors are taken, and the gammas do nothing.
    literal
        For "unrolled" and "lanczos": the filter as the paper writes it. Nothing is merged, the recurrence makes m
        steps, or as many as there are tokens, whether or not its space is full before, the gammas act in every step,
        and the values are projected on the kept Ritz vectors, whatever the unseen frequencies are.
    gradient
        "basis": that of f(L) for the graph, with the Krylov basis held constant and the unseen part of the spectrum at
        its mean; that of the numbers computed for the gammas and the probe. "recurrence": the latter for all, through
        every step, on a tape, with the probe on L itself; it explodes where the steps have not converged.
    init
        First value of the $\upsilon$ in $\gamma^{(1)} = 1 - \upsilon^2$ and $\gamma^{(2)} = 1 + \upsilon^2$, whose
        gradient at exactly 0 is 0. Where a Krylov space nearly closes the Ritz vectors hang on the gammas by a factor
        of $1 / \beta_j$, and so does their gradient: clip that of the parameters ``upsilon1`` and ``upsilon2``
        separately, or it drowns the others.
    bias
        Of the value and output projections.
    batch_first
        Whether tokens are ``(batch, n, embed_dim)``, or ``(n, batch, embed_dim)``.

    Shapes
    ------
    ``(batch, n, embed_dim)``, or ``(n, embed_dim)`` for one sequence, in and out.

    Examples
    --------
    >>> attention = LowPassAttention(embed_dim=16, num_heads=4, k=2, m=4)
    >>> attention(torch.randn(3, 7, 16)).shape
    torch.Size([3, 7, 16])
    """

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        *,
        filter: str = "unrolled",
        k: int | None = None,
        cutoff: float | None = None,
        m: int = 20,
        block_size: int = 8,
        kind: str = "normalized",
        feature_dim: int | None = None,
        distance: float = 1.0,
        graph_per_head: bool = False,
        probe: Probe | None = None,
        probe_steps: int = 10,
        merge_equal: bool = True,
        literal: bool = False,
        gradient: str = "basis",
        init: float = 0.01,
        bias: bool = True,
        batch_first: bool = True,
    ) -> None:
        super().__init__()
        self.embed_dim = embed_dim = _checks.width(embed_dim, "embed_dim")
        self.num_heads = num_heads = _checks.count(num_heads, "num_heads")
        if embed_dim % num_heads:
            raise InputError(f"num_heads must divide embed_dim, got {num_heads} and {embed_dim}.")
        self.filter = _checks.choice(filter, FILTERS, "filter")
        self.m = _checks.count(m, "m")
        self.block_size = _checks.count(block_size, "block_size")
        self.band = self._checked_band(k, cutoff)
        self.batch_first = batch_first
        self.graph_per_head = _checks.flag(graph_per_head, "graph_per_head")
        self.probe = probe
        self.probe_steps = _checks.count(probe_steps, "probe_steps", 0)
        self.merge_equal = _checks.flag(merge_equal, "merge_equal")
        self.literal = self._checked_literal(literal)
        self.gradient = self._checked_gradient(gradient)
        # Not "graph": an exported program has an attribute of that name.
        self.graph_learning = GraphLearning(
            embed_dim, feature_dim, num_graphs=num_heads if graph_per_head else 1, kind=kind, distance=distance
        )
        self.value = nn.Linear(embed_dim, embed_dim, bias=_checks.flag(bias, "bias"))
        self.out = nn.Linear(embed_dim, embed_dim, bias=_checks.flag(bias, "bias"))
        if self.filter == "unrolled":
            self.upsilon1 = nn.Parameter(torch.full((self.m,), float(init)))
            self.upsilon2 = nn.Parameter(torch.full((self.m,), float(init)))

    @property
    def relaxation(self) -> Relaxation | None:
        """The gammas ``(m,)``, at most and at least 1; None for the other filters."""
        if self.filter != "unrolled":
            return None
        _checks.finite(torch.cat([self.upsilon1, self.upsilon2]), "the learned upsilon")
        return Relaxation(1 - self.upsilon1.square(), 1 + self.upsilon2.square())

    def forward(
        self,
        x: Tensor,
        *,
        key_padding_mask: Tensor | None = None,
        graph_features: Tensor | None = None,
        generator: torch.Generator | None = None,
    ) -> Tensor:
        """Return the filtered tokens.

        Parameters
        ----------
        x
            ``(batch, n, embed_dim)`` tokens.
        key_padding_mask
            ``(batch, n)`` booleans, True for padding, or the same as numbers 0 and -inf, as in
            ``nn.MultiheadAttention``. At padding the output is the bias alone.
        graph_features
            Tokens of the same shape to learn the graph from, such as embeddings without position. None: ``x``.
        generator
            Source of the random start. None: a fixed one.
        """
        features = x if graph_features is None else graph_features
        self._check_shapes(x, features)
        if key_padding_mask is not None:
            _checks.tensor(key_padding_mask, "key_padding_mask", floating=False)
        x = _checks.tokens(x, self.value.weight.dtype, "tokens")
        features = x if graph_features is None else _checks.tokens(features, x.dtype, "graph_features")
        with torch.autocast(x.device.type, enabled=False):  # eigenvectors need more digits than half precision has
            return self._oriented(x, features, key_padding_mask, generator)

    def _oriented(
        self, x: Tensor, features: Tensor, key_padding_mask: Tensor | None, generator: torch.Generator | None
    ) -> Tensor:
        if x.ndim == 2:
            mask = None if key_padding_mask is None else key_padding_mask[None]
            y = self._attend(x[None], features[None], _real(mask, (1, x.shape[0])), generator)
            return y[0]
        if not self.batch_first:
            x, features = x.transpose(0, 1), features.transpose(0, 1)
        y = self._attend(x, features, _real(key_padding_mask, (x.shape[0], x.shape[1])), generator)
        return y if self.batch_first else y.transpose(0, 1)

    def _attend(self, x: Tensor, features: Tensor, mask: Tensor | None, generator: torch.Generator | None) -> Tensor:
        x = _checks.token_size(without_padding(x, mask), "tokens")
        graph = self.graph_learning(features, mask)
        v = self.value(x)
        if mask is not None:
            v = v * mask[..., None]
        if graph.points.ndim == 3:
            return self.out(self._filter(graph, v, generator))
        batch, heads = graph.points.shape[:2]
        flat = TokenGraph(graph.points.flatten(0, 1), None if mask is None else graph.mask.flatten(0, 1), graph.kind)
        v = v.unflatten(-1, (heads, -1)).transpose(1, 2).flatten(0, 1)  # (batch heads, n, E / heads)
        y = self._filter(flat, v, generator)
        return self.out(y.unflatten(0, (batch, heads)).transpose(1, 2).flatten(2))

    def _filter(self, graph: TokenGraph, v: Tensor, generator: torch.Generator | None) -> Tensor:
        if self.filter == "kernel":
            return kernel_filter(graph, v)
        if self.filter == "exact":
            return exact_filter(graph, v, self.band)
        if self.filter == "chebyshev":
            return chebyshev_filter(graph, v, self.band, self.m, generator=generator)
        return krylov_filter(
            graph,
            v,
            self.band,
            KrylovSettings(
                self.m,
                block_size=self.block_size if self.filter == "block" else 1,
                relaxation=self.relaxation,
                probe=self.probe,
                probe_steps=0 if self.probe is None else self.probe_steps,
                merge_equal=self.merge_equal,
                literal=self.literal,
                through_recurrence=self.gradient == "recurrence",
            ),
            generator=generator,
        )

    def _checked_band(self, k: int | None, cutoff: float | None) -> Band:
        if k is None and cutoff is None:
            k = min(DEFAULT_K, self.m)
        if k is not None and cutoff is not None:
            raise InputError(f"give either k or cutoff, got k={k} and cutoff={cutoff}.")
        if cutoff is not None:
            return Band(cutoff=_checks.positive(cutoff, "cutoff"))
        inside = self.filter in IN_A_BASIS
        hint = " (m, the number of basis vectors)" if inside else ""
        return Band(k=_checks.count(k, "k", 1, self.m if inside else None, hint=hint))

    def _checked_gradient(self, gradient: str) -> str:
        if self.probe is not None and self.filter != "unrolled":
            raise InputError(f"a probe starts the filter 'unrolled', got filter={self.filter!r}: leave it out.")
        _checks.choice(gradient, GRADIENTS, "gradient")
        if gradient == "recurrence" and self.filter not in ("unrolled", "lanczos"):
            raise InputError(f"gradient='recurrence' is for 'unrolled' and 'lanczos', got filter={self.filter!r}.")
        return gradient

    def _checked_literal(self, literal: bool) -> bool:
        if _checks.flag(literal, "literal") and self.filter not in ("unrolled", "lanczos"):
            raise InputError(f"literal=True is for 'unrolled' and 'lanczos', got filter={self.filter!r}: leave it out.")
        return literal

    def _check_shapes(self, x: Tensor, features: Tensor) -> None:
        _checks.tensor(x, "tokens", floating=False)
        _checks.tensor(features, "graph_features", floating=False)
        if x.ndim not in (2, 3) or x.shape[-1] != self.embed_dim:
            raise InputError(f"tokens must be (batch, n, {self.embed_dim}), got shape {tuple(x.shape)}.")
        if x.numel() == 0:
            raise InputError(f"there must be at least one sequence and one token, got shape {tuple(x.shape)}.")
        if features.shape != x.shape:
            raise InputError(
                f"graph_features must have the tokens' shape {tuple(x.shape)}, got {tuple(features.shape)}."
            )

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *args: Any) -> None:
        for key in [key for key in state_dict if key.startswith(f"{prefix}graph.")]:  # as it was called in 0.2
            state_dict[key.replace(f"{prefix}graph.", f"{prefix}graph_learning.", 1)] = state_dict.pop(key)
        super()._load_from_state_dict(state_dict, prefix, *args)

    def extra_repr(self) -> str:
        """Return the filter and what it keeps."""
        kept = f"cutoff={self.band.cutoff}" if self.band.k is None else f"k={self.band.k}"
        literal = ", literal=True" if self.literal else ""
        return f"{self.embed_dim}, {self.num_heads}, filter={self.filter!r}, {kept}, m={self.m}{literal}"


class TransformerBlock(nn.Module):
    r"""The paper's transformer block, with low-pass attention or any other mixing.

    $$x \leftarrow \mathrm{norm}(x + \mathrm{mix}(x)), \qquad x \leftarrow \mathrm{norm}(x + \mathrm{FFN}(x))$$

    Parameters
    ----------
    mixing
        Called as ``mixing(x, key_padding_mask=..., graph_features=...)``.
    embed_dim, ffn_dim
        Widths of the tokens and of the feed-forward network's hidden layer.
    dropout
        Before each residual.

    Shapes
    ------
    ``(batch, n, embed_dim)`` in and out.

    Examples
    --------
    >>> block = TransformerBlock(LowPassAttention(8, 2, k=2, m=4), 8, 32)
    >>> block(torch.randn(2, 5, 8)).shape
    torch.Size([2, 5, 8])
    """

    def __init__(self, mixing: nn.Module, embed_dim: int, ffn_dim: int, *, dropout: float = 0.1) -> None:
        super().__init__()
        self.mixing = mixing
        self.norm1, self.norm2 = nn.LayerNorm(embed_dim), nn.LayerNorm(embed_dim)
        self.ffn = nn.Sequential(nn.Linear(embed_dim, ffn_dim), nn.GELU(), nn.Linear(ffn_dim, embed_dim))
        self.dropout = nn.Dropout(dropout)

    def forward(
        self, x: Tensor, *, key_padding_mask: Tensor | None = None, graph_features: Tensor | None = None
    ) -> Tensor:
        """Return the block's tokens; both options go to the mixing."""
        mixed = self.mixing(x, key_padding_mask=key_padding_mask, graph_features=graph_features)
        x = self.norm1(x + self.dropout(mixed))
        y: Tensor = self.norm2(x + self.dropout(self.ffn(x)))
        return y


def _real(key_padding_mask: Tensor | None, shape: tuple[int, int]) -> Tensor | None:
    """Return ``(batch, n)`` booleans, True for real tokens."""
    if key_padding_mask is None:
        return None
    if key_padding_mask.shape != shape:
        raise InputError(f"key_padding_mask must be (batch, n) = {shape}, got {tuple(key_padding_mask.shape)}.")
    if key_padding_mask.dtype == torch.bool:
        return ~key_padding_mask
    if not key_padding_mask.is_floating_point():
        raise InputError(f"key_padding_mask must be boolean, True for padding, got {key_padding_mask.dtype}.")
    return ~torch.isneginf(key_padding_mask)
