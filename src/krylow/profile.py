"""What is known of one graph before it is solved: computed once, when first asked for, and passed on.

The choice of a method reads it and the solvers reuse it: a breadth-first search, the components and the null space that
they show, the Schur complement after static condensation, the estimated fill of a factor, the contrast of weights.
"""

from __future__ import annotations

import math
from functools import cached_property

import numpy as np
import torch

from krylow._reduce import largest
from krylow.linalg.components import NullSpace, null_space
from krylow.linalg.elimination import SchurComplement, condense_graph
from krylow.linalg.fill import Fill, condensed_fill
from krylow.operators import Operator, SparseOperator
from krylow.operators.ordering import Search, breadth_first_search


class GraphProfile:
    """The structure of one graph.

    Parameters
    ----------
    L
        Its operator; what is searched or factored needs a sparse one.
    """

    def __init__(self, L: Operator) -> None:
        self.operator = L

    @property
    def _sparse(self) -> SparseOperator:
        assert isinstance(self.operator, SparseOperator)
        return self.operator

    @cached_property
    def search(self) -> Search:
        """The breadth-first search of the whole graph: order, components, width."""
        return breadth_first_search(self._sparse)

    @cached_property
    def components(self) -> tuple[np.ndarray, int]:
        """The component of each node ``(n,)``, and their number."""
        return self.search.labels, self.search.components

    @cached_property
    def null_space(self) -> NullSpace | None:
        """The null vectors that the components show; None where the entries are not sparse."""
        return null_space(self.operator, self.components) if isinstance(self.operator, SparseOperator) else None

    @cached_property
    def smooth(self) -> bool:
        """Whether low frequencies are smooth: every component has a null vector, or all rows have one sum.

        Self-loops of different weights confine them to nodes that have none, as no coarse graph does.
        """
        null, L = self.null_space, self.operator.detach()
        if null is not None and null.count == null.components:
            return True
        sums = L @ torch.ones(L.rows, 1, dtype=L.dtype, device=L.device)
        high, low = (float(end) for end in (sums.max(), sums.min())) if sums.numel() else (-math.inf, math.inf)
        spread = sum(largest(high, -low))
        return spread <= 8 * L.n**0.5 * torch.finfo(L.dtype).eps * float(L.norm_bound().max())

    @cached_property
    def condensed(self) -> SchurComplement:
        """The Schur complement after static condensation of nodes of degree 1 and 2."""
        return condense_graph(self._sparse)

    @cached_property
    def fill(self) -> Fill:
        """The estimated fill of a factor."""
        return condensed_fill(self.condensed)

    @property
    def width(self) -> float:
        """The largest level set of the search as a share of the nodes: small where the graph has a geometry."""
        return self.search.width

    @cached_property
    def contrast(self) -> float:
        """The mean of the degrees over their harmonic mean: 1 if all are alike."""
        diagonal = self.operator.diagonal().detach().abs()
        return float(diagonal.mean() * diagonal[diagonal > 0].reciprocal().mean()) if bool(diagonal.any()) else 1.0

    @cached_property
    def degree_spread(self) -> float:
        """The largest degree over the mean; 1 where one is negative, and the diagonal tells nothing."""
        diagonal = self.operator.diagonal().detach()
        return float(diagonal.max() / diagonal.mean()) if bool(diagonal.any()) and bool((diagonal >= 0).all()) else 1.0

    @property
    def entries(self) -> float:
        """Entries of L a node, the diagonal among them."""
        return self._sparse.col.numel() / self.operator.n
