r"""Graphs as their spectra: what Krylov networks are trained on.

Krylov methods commute with orthogonal changes of basis. With $L = U \Lambda U^\top$, the recurrence on $\Lambda$ from
$U^\top z$ has the same coefficients as on L from z, and vectors $U^\top$ times the same; $U^\top z$ is Gaussian where z
is. The exact subspace of the k lowest frequencies is spanned by the first k coordinates.

That holds in exact arithmetic. In floating point a product with a dense L leaves rounding of size eps in every
direction, and one with a diagonal leaves it relative to each component: components of 1e-12 that a sharp filter leaves
are lost in the former and exact in the latter. So whatever filters sharply has to be trained and measured with
``dense=True``, on the Laplacians themselves.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from krylow.data import GraphFamily
from krylow.graph import laplacian
from krylow.operators import DenseOperator, DiagonalOperator, Operator
from krylow.training import generator


@dataclass(frozen=True)
class Spectra:
    """Eigenvalues of the Laplacians of a set of graphs, with the bounds that products alone would know."""

    eigenvalues: Tensor  # (*batch, n) ascending
    low: Tensor  # (*batch,) Gershgorin's bounds of the Laplacians themselves, which the probe scales by
    high: Tensor
    matrices: Tensor | None = None  # (*batch, n, n) the Laplacians, where products are to be dense
    vectors: Tensor | None = None  # and their eigenvectors

    @classmethod
    def of(cls, W: Tensor, *, dense: bool = False) -> Spectra:
        """Decompose the combinatorial Laplacians of adjacencies ``(*batch, n, n)``, in float64."""
        L = laplacian(W.to(torch.float64))
        low, high = L.gershgorin()
        eigenvalues, vectors = torch.linalg.eigh(L.to_dense())
        eigenvalues = eigenvalues.clamp(min=0) if L.psd else eigenvalues
        return cls(eigenvalues, low, high, L.to_dense(), vectors) if dense else cls(eigenvalues, low, high)

    @property
    def n(self) -> int:
        """Number of nodes."""
        return self.eigenvalues.shape[-1]

    def __getitem__(self, index: Any) -> Spectra:
        """Index the batch."""
        return self._map(lambda t: t[index])

    def expand(self, count: int) -> Spectra:
        """Return the same repeated along a new first dimension."""
        return self._map(lambda t: t.expand(count, *t.shape))

    def _map(self, f: Callable[[Tensor], Tensor]) -> Spectra:
        return Spectra(*(None if t is None else f(t) for t in self._tensors()))  # type: ignore[arg-type]

    def _tensors(self) -> tuple[Tensor | None, ...]:
        return self.eigenvalues, self.low, self.high, self.matrices, self.vectors

    def operator(self) -> Operator:
        """Return the Laplacians in their eigenbasis, with the bounds of the originals, or the originals if dense."""
        psd = bool((self.low >= 0).all())
        if self.matrices is not None:
            return DenseOperator(self.matrices, psd=psd)
        return DiagonalOperator(self.eigenvalues, bounds=(self.low, self.high), psd=psd)

    def rotate(self, z: Tensor) -> Tensor:
        """Return random vectors drawn in the eigenbasis in the basis of the operator: the same draw for both."""
        return z if self.vectors is None else self.vectors @ z

    def target(self, k: int) -> Tensor:
        """Return the exact basis of the k lowest frequencies: ``(n, k)`` for all, or ``(*batch, n, k)`` if dense."""
        if self.vectors is not None:
            return self.vectors[..., :k]
        return torch.eye(self.n, k, dtype=self.eigenvalues.dtype)


@dataclass(frozen=True)
class Task:
    """The spectra of one family for S seeds, each with graphs or a split of its own: batch shape ``(S, graphs)``."""

    name: str
    seeds: tuple[int, ...]
    train: Spectra
    validation: Spectra
    test: Spectra

    @classmethod
    def of(cls, families: Sequence[GraphFamily], seeds: Sequence[int], *, dense: bool = False) -> Task:
        """Stack the families that were loaded with the given seeds."""
        parts = [[Spectra.of(W, dense=dense) for W in (f.train, f.validation, f.test)] for f in families]
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
    columns = zip(*(p._tensors() for p in parts), strict=True)
    return Spectra(*(None if column[0] is None else torch.stack(column) for column in columns))  # type: ignore[arg-type]
