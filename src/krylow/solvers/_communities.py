r"""A start block from communities: the lowest frequencies of the graph between them, constant on each.

Where a graph falls into communities, its lowest eigenvectors are nearly constant on these, to within a percent of their
length on a block model, so that a filter of a few degrees finishes them. A vector below the cut that no community shows
(nodes of degree 2 at the edge of one, say) is found by the random columns of the block, whose components along any
vector are $1 / \sqrt{n}$ at first (``Estimate.undetected`` in :mod:`krylow.solvers._estimate`).
"""

from __future__ import annotations

import torch
from torch import Tensor

from krylow._memory import empty
from krylow._random import gaussian
from krylow.linalg.eigh import lowest_eigenpairs
from krylow.linalg.row_blocks import orthonormalize_
from krylow.operators import SparseOperator
from krylow.solvers._aggregation import galerkin


def community_block(
    L: SparseOperator, vector: Tensor, labels: Tensor, k: int, columns: int, generator: torch.Generator | None = None
) -> Tensor | None:
    """Return an orthonormal start block ``(n, columns)`` whose first k columns are constant on communities.

    In float32. None where there are fewer communities than wanted frequencies, or where the next frequency between them
    is not clearly above the k-th: communities that differ are split by no cut.

    Parameters
    ----------
    L
        The operator.
    vector
        ``(n,)`` its null vector, nowhere zero.
    labels
        ``(n,)`` the community of each node, counted from zero; the smallest ones beyond 255 are taken as one.
    k, columns
        Wanted frequencies, and columns of the block.
    generator
        Source of the block's last columns, which are random.
    """
    most, random = 256, 8  # communities, between which the graph is decomposed; least random columns
    sizes = torch.bincount(labels)
    if sizes.numel() > most:
        names = torch.full_like(sizes, most - 1)
        names[sizes.topk(most - 1).indices] = torch.arange(most - 1, device=labels.device)
        labels = names[labels]
    count = min(sizes.numel(), most)
    structured = min(count, columns - random)
    if structured < k:
        return None
    level = galerkin(L, vector, labels.cpu().numpy(), count)
    theta, V = lowest_eigenpairs(level.coarse.to_dense(), count)
    if count > k and float(theta[k]) < 2 * float(theta[k - 1]):
        return None
    V = V[:, :structured]
    X = empty(L.n, columns, dtype=torch.float32, device=L.device)
    level.prolong(V, X[:, :structured])
    others = empty(L.n, columns - structured, dtype=X.dtype, device=L.device)
    gaussian(L, columns - structured, generator=generator, out=others)
    level.subtract_(others, V @ (V.mT @ level.restrict(others)))
    X[:, structured:] = orthonormalize_(others)
    return X
