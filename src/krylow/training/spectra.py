r"""Graphs as their spectra: what Krylov networks are trained on.

Krylov methods commute with orthogonal changes of basis. With $L = U \Lambda U^\top$, the recurrence on $\Lambda$ from
$U^\top z$ has the same coefficients as on L from z, and vectors $U^\top$ times the same; $U^\top z$ is Gaussian where z
is. The exact subspace of the k lowest frequencies is spanned by the first k coordinates.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from krylow.data import GraphFamily
from krylow.graph import laplacian
from krylow.operators import DiagonalOperator
from krylow.training.seeds import generator


@dataclass(frozen=True)
class Spectra:
    """Eigenvalues of the Laplacians of a set of graphs, with the bounds that products alone would know.

    Attributes
    ----------
    eigenvalues
        ``(*batch, n)`` ascending.
    low, high
        ``(*batch,)`` Gershgorin's bounds of the Laplacians themselves, which the probe scales by.
    """

    eigenvalues: Tensor
    low: Tensor
    high: Tensor

    @classmethod
    def of(cls, W: Tensor) -> Spectra:
        """Decompose the combinatorial Laplacians of adjacencies ``(*batch, n, n)``, in float64."""
        L = laplacian(W.to(torch.float64))
        low, high = L.gershgorin()
        eigenvalues = torch.linalg.eigvalsh(L.to_dense())
        return cls(eigenvalues.clamp(min=0) if L.psd else eigenvalues, low, high)

    @property
    def n(self) -> int:
        """Number of nodes."""
        return self.eigenvalues.shape[-1]

    def __getitem__(self, index: Any) -> Spectra:
        """Index the batch."""
        return Spectra(self.eigenvalues[index], self.low[index], self.high[index])

    def operator(self) -> DiagonalOperator:
        """Return the Laplacians in their eigenbasis, with the bounds of the originals."""
        psd = bool((self.low >= 0).all())
        return DiagonalOperator(self.eigenvalues, bounds=(self.low, self.high), psd=psd)

    def target(self, k: int) -> Tensor:
        """Return the exact basis of the k lowest frequencies, the same for all graphs: ``(n, k)``."""
        return torch.eye(self.n, k, dtype=self.eigenvalues.dtype)


@dataclass(frozen=True)
class Task:
    """The spectra of one family for several seeds, each with graphs or a split of its own.

    Attributes
    ----------
    name
        The family.
    seeds
        The S seeds.
    train, validation, test
        Spectra of batch shape ``(S, graphs)``.
    """

    name: str
    seeds: tuple[int, ...]
    train: Spectra
    validation: Spectra
    test: Spectra

    @classmethod
    def of(cls, families: Sequence[GraphFamily], seeds: Sequence[int]) -> Task:
        """Stack the families that were loaded with the given seeds."""
        parts = [[Spectra.of(W) for W in (f.train, f.validation, f.test)] for f in families]
        return cls(families[0].name, tuple(seeds), *(_stack(column) for column in zip(*parts, strict=True)))

    @property
    def n(self) -> int:
        """Number of nodes."""
        return self.train.n

    def draw(self, part: str, draws: int) -> Tensor:
        """Return the Gaussian vectors that a part is evaluated with, ``(draws, S, graphs, n, 1)``: always the same."""
        graphs = getattr(self, part).eigenvalues.shape[1]
        z = [
            torch.randn(draws, graphs, self.n, 1, dtype=torch.float64, generator=generator(seed, part))
            for seed in self.seeds
        ]
        return torch.stack(z, dim=1)


def _stack(parts: Sequence[Spectra]) -> Spectra:
    return Spectra(*(torch.stack([getattr(p, name) for p in parts]) for name in ("eigenvalues", "low", "high")))
