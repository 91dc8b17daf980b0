"""The stochastic block model: random graphs with planted communities."""

from __future__ import annotations

import torch
from torch import Tensor

from krylow import _checks
from krylow._checks import InputError


def sbm(
    num_graphs: int = 50,
    n: int = 100,
    communities: int = 4,
    p_in: float = 0.3,
    p_out: float = 0.02,
    *,
    generator: torch.Generator | None = None,
    dtype: torch.dtype | None = None,
) -> Tensor:
    r"""Draw adjacencies of the stochastic block model.

    $$W_{ij} = W_{ji} \sim \mathrm{Bernoulli}(p_{in} \text{ if } c_i = c_j \text{ else } p_{out}), \quad i < j,
    \qquad W_{ii} = 0$$

    with the communities $c$ of :func:`sbm_labels`. Every pair of nodes is drawn once, so that time and memory are
    $O(\text{num\_graphs} \cdot n^2)$: it is meant for graphs that are kept dense. The defaults are the paper's
    synthetic data; it does not say how many communities, and 4 fits its numbers.

    Parameters
    ----------
    num_graphs, n, communities
        Number of graphs, of nodes in each and of communities in each.
    p_in, p_out
        Probability of an edge inside a community and between two.
    generator
        Source of randomness, whose device the graphs are made on. None: a fresh one with seed 0, so that equal calls
        give equal graphs.
    dtype
        float32 or float64. None: torch's default. The graphs do not depend on it.

    Returns
    -------
    Tensor
        ``(num_graphs, n, n)``, symmetric, of zeros and ones.

    Examples
    --------
    Two communities, certain inside and impossible between:

    >>> sbm(1, 5, 2, p_in=1, p_out=0, dtype=torch.float32)
    tensor([[[0., 1., 1., 0., 0.],
             [1., 0., 1., 0., 0.],
             [1., 1., 0., 0., 0.],
             [0., 0., 0., 0., 1.],
             [0., 0., 0., 1., 0.]]])
    """
    num_graphs = _checks.count(num_graphs, "num_graphs")
    labels = sbm_labels(n, communities)
    for what, p in (("p_in", p_in), ("p_out", p_out)):
        if not 0 <= p <= 1:
            raise InputError(f"{what} must be a probability, between 0 and 1, got {p!r}.")
    dtype = torch.get_default_dtype() if dtype is None else dtype
    if dtype not in (torch.float32, torch.float64):
        raise InputError(f"dtype must be torch.float32 or torch.float64, got {dtype}.")
    if generator is None:
        generator = torch.Generator().manual_seed(0)
    device = generator.device
    i, j = torch.triu_indices(n, n, offset=1)
    # Drawn and compared in float64, so that the graphs are the same in every dtype.
    probability = torch.where(labels[i] == labels[j], float(p_in), float(p_out)).double().to(device)  # (pairs,)
    u = torch.rand(num_graphs, len(i), generator=generator, dtype=torch.float64, device=device)
    upper = torch.zeros(num_graphs, n, n, dtype=dtype, device=device)
    upper[:, i, j] = (u < probability).to(dtype)
    return upper + upper.mT


def sbm_labels(n: int, communities: int) -> Tensor:
    """Return the community of every node, ``(n,)``: ascending, with sizes that differ by at most one.

    Examples
    --------
    >>> sbm_labels(7, 3)
    tensor([0, 0, 0, 1, 1, 2, 2])
    """
    n = _checks.count(n, "n")
    communities = _checks.count(communities, "communities", 1, n, hint=" (the number of nodes)")
    return torch.arange(n) * communities // n
