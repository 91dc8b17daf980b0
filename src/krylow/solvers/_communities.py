r"""A start block from communities: the lowest frequencies of the graph between them, constant on each.

Where a graph falls into communities, its lowest frequencies are nearly constant on these, to within a percent of their
length on a block model, so that a filter of a few degrees finishes them. A vector below the cut that no community shows
(a chain of nodes at the edge of one, say) is found by the random columns of the block. These hold $1 / \sqrt{n}$ of any
vector at first, so that it has to be measured when nothing is hidden any more
(``FilteredBlock.hidden`` in :mod:`krylow.solvers._filter`).
"""

from __future__ import annotations

import torch
from torch import Tensor

from krylow._memory import empty
from krylow._random import gaussian
from krylow.linalg.eigh import lowest_eigenpairs
from krylow.linalg.row_blocks import orthonormalize_
from krylow.operators import SparseOperator
from krylow.solvers._aggregation import joined

#: Most communities, the smaller ones being taken as one: the graph between them is decomposed.
MOST = 256
#: Least random columns of a block.
RANDOM = 8
#: By what factor the next frequency has to lie above the last wanted one: communities that differ are split by none.
CLEAR = 2.0


def community_block(
    L: SparseOperator, vector: Tensor, labels: Tensor, k: int, columns: int, generator: torch.Generator | None = None
) -> Tensor | None:
    """Return a start block whose first k columns are constant on communities, where k frequencies are theirs.

    Parameters
    ----------
    L
        The operator.
    vector
        ``(n,)`` its null vector, nowhere zero.
    labels
        ``(n,)`` the community of each node, counted from zero.
    k, columns
        Wanted frequencies, and columns of the block.
    generator
        Source of the block's last columns, which are random: ``RANDOM`` of them at least.

    Returns
    -------
    The orthonormal block ``(n, columns)`` in float32, or None where there are fewer communities than wanted
    frequencies, or more of them have frequencies as low as these.
    """
    sizes = torch.bincount(labels)
    if sizes.numel() > MOST:
        names = torch.full_like(sizes, MOST - 1)
        names[sizes.topk(MOST - 1).indices] = torch.arange(MOST - 1, device=labels.device)
        labels = names[labels]
    count = min(sizes.numel(), MOST)
    most = min(count, columns - RANDOM)
    if most < k:
        return None
    level = joined(L, vector, labels.cpu().numpy(), count)
    theta, V = lowest_eigenpairs(level.coarse.to_dense(), count)
    if count > k and float(theta[k]) < CLEAR * float(theta[k - 1]):
        return None
    V = V[:, :most]
    X = empty(L.n, columns, dtype=torch.float32, device=L.device)
    level.prolong(V, X[:, :most])
    others = gaussian(
        L, columns - most, generator=generator, out=empty(L.n, columns - most, dtype=X.dtype, device=L.device)
    )
    level.subtract_(others, V @ (V.mT @ level.restrict(others)))  # the others are orthogonal to the planted ones
    X[:, most:] = orthonormalize_(others)
    return X
