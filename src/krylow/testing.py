"""What tests of spectral code need: graphs of known spectrum, hard graphs, references and tolerances.

Nothing here uses the rest of krylow, so that it can serve as the other side of a comparison: references come from
numpy's eigendecomposition in float64. Everything random takes a seed.

>>> lowest(laplacian_matrix(cycle(4)), 2)[0].abs().round(decimals=6)
tensor([0., 2.], dtype=torch.float64)
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

__all__ = [
    "HARD_GRAPHS",
    "block_diagonal",
    "complete",
    "cycle",
    "from_spectrum",
    "gap_at",
    "grid",
    "laplacian_matrix",
    "lowest",
    "path",
    "projector",
    "random_graph",
    "real_gaps",
    "rounding",
    "star",
]

#: Units of eps(dtype) that an identity may be off by, for each node and each unit of the matrix's norm.
ROUNDING = 32
#: A gap is real when it is at least this part of the spectrum's spread.
REAL_GAP = 1e-3


def rounding(dtype: torch.dtype, n: int = 1, size: float = 1.0) -> float:
    """Return the rounding allowed to sums over n numbers of the given size: ``32 n size eps(dtype)``.

    >>> rounding(torch.float64) < rounding(torch.float32)
    True
    """
    return ROUNDING * n * max(size, torch.finfo(dtype).tiny) * torch.finfo(dtype).eps


def random_graph(
    n: int, density: float = 0.4, *, seed: int = 0, signed: bool = False, dtype: torch.dtype = torch.float64
) -> Tensor:
    """Return the adjacency of a connected graph with weights in [0.5, 1.5], a third of them negative if ``signed``.

    A random tree keeps it connected; generic weights keep its eigenvalues apart.
    """
    rng = np.random.default_rng(seed)
    edges = rng.random((n, n)) < density
    for node in range(1, n):
        edges[node, rng.integers(node)] = True
    weights = rng.uniform(0.5, 1.5, (n, n))
    if signed:
        weights = np.where(rng.random((n, n)) < 1 / 3, -weights, weights)
    W = np.tril(np.where(edges, weights, 0.0), -1)
    return torch.from_numpy(W + W.T).to(dtype)


def from_spectrum(values: Tensor | list[float], *, seed: int = 0) -> Tensor:
    """Return a symmetric matrix with exactly these eigenvalues, to rounding, and random eigenvectors."""
    lam = np.asarray(values, dtype=np.float64)
    Q = np.linalg.qr(np.random.default_rng(seed).standard_normal((len(lam), len(lam))))[0]
    A = (Q * lam) @ Q.T
    return torch.from_numpy((A + A.T) / 2)


def complete(n: int) -> Tensor:
    """Return the complete graph: eigenvalues 0 and n, the latter n - 1 times."""
    return torch.ones(n, n, dtype=torch.float64) - torch.eye(n, dtype=torch.float64)


def path(n: int) -> Tensor:
    """Return the path: eigenvalues 2 - 2 cos(pi i / n)."""
    W = torch.diag(torch.ones(n - 1, dtype=torch.float64), 1) if n > 1 else torch.zeros(1, 1, dtype=torch.float64)
    return W + W.T


def cycle(n: int) -> Tensor:
    """Return the cycle: eigenvalues 2 - 2 cos(2 pi i / n), in pairs."""
    W = path(n)
    W[0, -1] = W[-1, 0] = 1.0
    return W


def star(n: int) -> Tensor:
    """Return the star: eigenvalues 0, n, and 1 repeated n - 2 times."""
    W = torch.zeros(n, n, dtype=torch.float64)
    W[0, 1:] = W[1:, 0] = 1.0
    return W


def grid(rows: int, columns: int) -> Tensor:
    """Return the grid: the sums of two paths' eigenvalues, many of them repeated where it is square."""
    eye_r, eye_c = (torch.eye(size, dtype=torch.float64) for size in (rows, columns))
    return torch.kron(path(rows), eye_c) + torch.kron(eye_r, path(columns))


def block_diagonal(*graphs: Tensor) -> Tensor:
    """Return the disjoint union: as many zero eigenvalues as connected graphs."""
    return torch.block_diag(*graphs)


#: Adjacencies that break naive methods: repeated and clustered eigenvalues, disconnected, tiny, badly scaled.
HARD_GRAPHS: dict[str, Callable[[], Tensor]] = {
    "complete": lambda: complete(50),
    "star": lambda: star(20),
    "cycle": lambda: cycle(12),
    "square grid": lambda: grid(6, 6),
    "two K4": lambda: block_diagonal(complete(4), complete(4)),
    "three components": lambda: block_diagonal(path(5), complete(4), cycle(6)),
    "isolated nodes": lambda: block_diagonal(path(6), torch.zeros(3, 3, dtype=torch.float64)),
    "zero": lambda: torch.zeros(8, 8, dtype=torch.float64),
    "one node": lambda: torch.zeros(1, 1, dtype=torch.float64),
    "two nodes": lambda: complete(2),
    "weights over 12 orders": lambda: _wide_weights(30),
    "signed": lambda: random_graph(24, seed=5, signed=True),
    "nearly complete": lambda: complete(20) + 1e-6 * random_graph(20, 1.0, seed=3),
}


def _wide_weights(n: int) -> Tensor:
    W = random_graph(n, 0.3, seed=9)
    exponents = torch.from_numpy(np.random.default_rng(9).uniform(-6, 6, (n, n)))
    exponents = torch.tril(exponents, -1)
    return W * 10 ** (exponents + exponents.T)


def laplacian_matrix(W: Tensor) -> Tensor:
    """Return ``D - W``, ``(*batch, n, n)``."""
    return torch.diag_embed(W.sum(-1)) - W


def lowest(L: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """Return the k lowest eigenvalues ``(*batch, k)`` and eigenvectors ``(*batch, n, k)`` by numpy, in float64."""
    lam, U = np.linalg.eigh(L.detach().cpu().numpy().astype(np.float64))
    return torch.from_numpy(lam[..., :k].copy()), torch.from_numpy(U[..., :k].copy())


def projector(U: Tensor) -> Tensor:
    """Return ``U U^T``, ``(*batch, n, n)``: what two bases of the same span have in common."""
    return U @ U.mT


def gap_at(L: Tensor, k: int) -> Tensor:
    """Return lambda_{k+1} - lambda_k over the spread of the spectrum, ``(*batch,)``."""
    lam = torch.from_numpy(np.linalg.eigvalsh(L.detach().cpu().numpy().astype(np.float64)))
    return (lam[..., k] - lam[..., k - 1]) / (lam[..., -1] - lam[..., 0])


def real_gaps(L: Tensor, *, least: float = REAL_GAP) -> list[int]:
    """Return every k < n at which all matrices of the batch have a real gap: where a subspace can be compared."""
    return [k for k in range(1, L.shape[-1]) if bool((gap_at(L, k) > least).all())]
