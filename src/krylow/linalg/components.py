r"""The null space of a Laplacian, free from the components of its graph.

A Laplacian of non-negative weights maps to zero exactly the vectors that are constant on each component (combinatorial)
or there proportional to the roots of the degrees (normalised). So the eigenvalue 0, as often repeated as the graph has
components and isolated nodes, need not be iterated for: it can be read off and deflated. Whether a component's
vector is null is measured, not assumed, since self-loops (generalised) take it away; that nothing lies below zero
follows from the signs of the entries, or is not claimed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from krylow._reduce import largest, summed
from krylow.linalg.row_blocks import gram
from krylow.operators import Operator, SparseOperator
from krylow.operators.ordering import components_of


@dataclass(frozen=True)
class NullSpace:
    r"""The null vectors of a Laplacian that its components show, one a component.

    Attributes
    ----------
    labels
        ``(n,)`` the component of each node; those with a null vector come first, the largest first.
    components
        Number of components, an isolated node being one.
    count
        Number of null vectors: components ``0, ..., count - 1`` have one, the others (with self-loops) have none.
    vector
        ``(n,)`` float64: all null vectors in one, each of length 1 on its component; zero where there is none. Its
        entries may share memory if they are all the same.
    lowest
        Whether no eigenvalue lies below zero, so that these are the lowest frequencies. Signed graphs: not known.
    """

    labels: Tensor
    components: int
    count: int
    vector: Tensor
    lowest: bool

    def basis(self, k: int | None = None, dtype: torch.dtype = torch.float64) -> Tensor:
        """Return the first k null vectors (all, if there are no more) as orthonormal columns ``(n, min(k, count))``.

        They may share memory with ``vector``.
        """
        width = self.count if k is None else min(k, self.count)
        if self.components == 1:
            return self.vector[:, None][:, :width].to(dtype).contiguous()
        columns = torch.zeros(self.labels.numel(), width, dtype=dtype, device=self.vector.device)
        rows = torch.nonzero(self.labels < width)[:, 0]
        columns[rows, self.labels[rows]] = self.vector[rows].to(dtype)
        return columns

    def reordered(self, order: Tensor) -> NullSpace:
        """Return the null vectors of the graph with its nodes in another order, ``order[new] = old``."""
        flat = self.components == 1 and bool((self.vector == self.vector[0]).all())
        if flat:
            return self
        place = order.long()
        labels = self.labels if self.components == 1 else self.labels[place]
        return replace(self, labels=labels, vector=self.vector[place])

    def coefficients(self, X: Tensor) -> Tensor:
        r"""Return $U^\top X$, ``(count, s)``, of a block ``(n, s)`` and all null vectors U, without forming U."""
        column = self.vector.to(X.dtype)[:, None]
        if self.components == 1:
            return gram(column, X).to(X.dtype)[: self.count]
        inside = X.new_zeros(self.components, X.shape[-1]).index_add_(0, self.labels, column * X)[: self.count]
        return summed(inside)[0].to(X.dtype)

    def remove(self, X: Tensor) -> Tensor:
        """Return what :meth:`remove_` makes of a copy of X."""
        return self.remove_(X.clone())

    def remove_(self, X: Tensor) -> Tensor:
        r"""Replace a block X ``(n, s)`` by $X - U U^\top X$, without forming U, and return it."""
        if self.count == 0:
            return X
        inside = torch.zeros(self.components, X.shape[-1], dtype=X.dtype, device=X.device)
        inside[: self.count] = self.coefficients(X)
        if self.components == 1:
            return X.addmm_(self.vector.to(X.dtype)[:, None], inside, alpha=-1)
        return X.sub_(self.vector.to(X.dtype)[:, None] * inside[self.labels])


def null_space(L: Operator, known: tuple[np.ndarray, int] | None = None) -> NullSpace | None:
    """Return the null vectors that a sparse L's components show; None for operators whose entries are not sparse.

    Costs a breadth-first search, unless the component of each node and their number are ``known``, and one pass over L,
    which are not counted as products. No gradient.
    """
    if not isinstance(L, SparseOperator):
        return None
    with torch.no_grad():
        return null_space_of(L, *(known or components_of(L)))


def null_space_of(L: Any, labels: np.ndarray, components: int) -> NullSpace:
    """Return the null vectors of a sparse operator, or of this rank's rows of one, whose components are known."""
    device = L.device
    u, null, positive = np.zeros(1), np.zeros(components, dtype=bool), True
    for candidate in candidates(L):
        within, positive = L.null_rows(candidate)
        outside, signs = largest(float(not within.all()), float(positive))
        positive = signs > 0
        if components == 1 and not outside:  # the usual case, without the memory that many components need
            unit = np.full(1, L.n**-0.5) if candidate is None else candidate / _norm(candidate)
            vector = torch.from_numpy(unit).to(device).expand(L.rows)
            zero = torch.zeros(1, dtype=torch.int64, device=device).expand(L.rows)
            return NullSpace(zero, 1, 1, vector, L.psd or not positive)
        candidate = np.ones(L.rows) if candidate is None else candidate
        fits = ~_count(labels, components, ~within).astype(bool) & ~null
        u = np.where(fits[labels], candidate, u)
        null |= fits
        if null.all():
            break
    lengths = np.sqrt(_count(labels, components, u**2))
    u = np.divide(u, lengths[labels], out=np.zeros(L.rows), where=null[labels])
    rank = np.empty(components, dtype=np.int64)
    rank[np.lexsort((-_count(labels, components), ~null))] = np.arange(components)
    # With a positive null vector and nothing positive off the diagonal, Gershgorin's discs start at zero.
    lowest = L.psd or (bool(null.all()) and not positive)
    return NullSpace(
        torch.from_numpy(rank[labels]).to(device), components, int(null.sum()), torch.from_numpy(u).to(device), lowest
    )


def _count(labels: np.ndarray, components: int, weights: np.ndarray | None = None) -> np.ndarray:
    """Return the sums of weights of nodes, or their number, in each component."""
    counts = np.bincount(labels, weights=weights, minlength=components).astype(np.float64)
    return np.asarray(summed(torch.from_numpy(counts))[0].numpy())


def _norm(x: np.ndarray) -> float:
    return float(summed(torch.tensor([x @ x]))[0]) ** 0.5


def candidates(L: Any) -> Iterator[np.ndarray | None]:
    """Return positive vectors that may be null: the operator's own, ones (None), roots of the unweighted degrees."""
    if L.null_vector is not None:
        yield L.null_vector.detach().cpu().double().numpy()
    yield None
    crow, _ = L.host_indices()
    yield np.sqrt(np.maximum(np.diff(crow) - 1, 1).astype(np.float64))
