r"""Static condensation of nodes of degree 1 and 2, and sparse $L D L^\top$ factors of the Schur complement.

Most nodes of a road network have one or two neighbours. With T the eliminated nodes and C the remaining ones,

$$S = L_{CC} - L_{CT} L_{TT}^{-1} L_{TC}, \qquad E = \begin{pmatrix} -L_{TT}^{-1} L_{TC} \\ I \end{pmatrix}, \qquad
M = E^\top E .$$

S and M share one sparse pattern; a solve with L is a solve with S between a forward and a backward pass over T; and the
lowest eigenvectors of L are nearly E y with $S y = \lambda M y$ (Guyan, 1965): E is exact at $\lambda = 0$, with a
relative error of about $\lambda \|L_{TT}^{-1}\|$. T falls into pieces, which are kept small for that reason.

A factor $P S P^\top = G D G^\top$ follows the elimination tree (Davis, 2006), in minimum-degree order where S is nearly
a tree and in that of SuperLU elsewhere. SuperLU factorises where the fill is large. The number of negative pivots
is that of negative eigenvalues (Sylvester's law of inertia).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import torch
from scipy.sparse import csc_array, csr_array
from scipy.sparse.linalg import spilu, splu

from krylow import _native
from krylow._memory import arrays
from krylow.linalg.perturbation import restored_values
from krylow.operators import SparseOperator


@dataclass(frozen=True)
class EliminationSettings:
    r"""Numerical settings of the condensation and of the factors."""

    piece: float = 36.0  #: bound of a piece's $\|L_{TT}^{-1}\|$, about, for weights of 1 on average
    widest: int = 64  #: a node between two nodes of higher degree than this is not eliminated
    most_remaining: float = 0.9  #: nothing is eliminated where more than this share of the nodes would remain
    sparse_row: float = 6.0  #: entries a row, with the diagonal, up to which our own minimum-degree order is tried
    order_work: int = 12  #: entries of quotient lists read before that order is given up, per entry of the matrix
    light: float = 150.0  #: entries a row of both triangular factors up to which our own factor is faster than SuperLU
    inertia: bool = True  #: whether eigenvalues are counted where that is affordable
    cheap: float = 1e9  #: multiplications of a SuperLU factor up to which a second one is made to count eigenvalues
    small: float = 1e-2  #: $\sigma \|L_{TT}^{-1}\|$ up to which eigenvalues below $\sigma$ are counted on S alone
    proof: float = 1e4  #: a count is a proof where this many times its rounding fits the gap (it adds up along rows)


SETTINGS = EliminationSettings()
SUPERLU: dict[str, Any] = {
    "permc_spec": "MMD_AT_PLUS_A",
    "diag_pivot_thresh": 0.0,
    "options": {"SymmetricMode": True},
}


class SingularFactorError(ArithmeticError):
    """A matrix that should be positive definite is singular but for rounding."""


class Inertia(NamedTuple):
    """Eigenvalues below a number, and by how much that number may be off: by rounding, and for a proof."""

    below: int
    rounding: float
    proof: float


@dataclass(frozen=True)
class SchurComplement:
    """A symmetric matrix after static condensation.

    Attributes
    ----------
    matrix
        The whole, a ``csr_array`` with ascending columns.
    shift
        Added to its diagonal.
    piece
        Bound of the eliminated pieces (:func:`condense`).
    nodes
        ``(c,)`` the remaining nodes.
    S, M
        ``(c, c)`` Schur complement and mass; M is None where nothing was eliminated.
    inverse_bound
        An upper bound of :attr:`inverse_norm`, within a small factor, without further work.
    """

    matrix: Any
    shift: float
    piece: float
    nodes: np.ndarray
    S: Any
    M: Any | None
    inverse_bound: float = 0.0
    _passes: tuple[np.ndarray, np.ndarray] = (np.empty((0, 3), np.int32), np.empty((0, 3)))

    @cached_property
    def order(self) -> tuple[np.ndarray, int] | None:
        """Minimum-degree order of S and the entries of its factor where S is nearly a tree; else None."""
        return minimum_degree(self.S.indptr, self.S.indices)

    @cached_property
    def inverse_norm(self) -> float:
        r"""An upper bound of $\|L_{TT}^{-1}\|$: the largest row sum, as no entry is negative; infinite if unknown."""
        if self.M is None:
            return 0.0
        order, coefficients = self._passes
        if not ((coefficients >= 0).all() and coefficients[:, 2].all()):
            return math.inf
        sums = np.ones((self.matrix.shape[0], 1))
        _native.down(order, coefficients, sums)
        sums[self.nodes] = 0.0
        _native.up(order, coefficients, sums)
        return float(sums.max())

    def extend(self, Y: np.ndarray, first: np.ndarray) -> np.ndarray:
        """Return E Y, ``(n, d + s)``, of a block ``(c, s)`` after ``d`` columns that are given, ``(n, d)``.

        E Y is orthonormal where Y is M-orthonormal.
        """
        if self.M is None:
            return np.concatenate([first, Y], axis=1)
        d = first.shape[1]
        (X,) = arrays(((self.matrix.shape[0], d + Y.shape[1]), np.float64))
        X[self.nodes, :d] = 0.0
        X[self.nodes, d:] = Y
        _native.extend(*self._passes, X)
        X[:, :d] = first
        return X

    def solve(self, factor: Factor, X: np.ndarray) -> np.ndarray:
        """Return the solution for a block ``(n, s)``, given a factor of S."""
        if self.M is None:
            return factor.solve(X)
        (Z,) = arrays((X.shape, np.float64))
        Z[:] = X
        _native.down(*self._passes, Z)
        Z[self.nodes] = factor.solve(Z[self.nodes])
        _native.up(*self._passes, Z)
        return Z

    def below(self, factor: Factor, sigma: float) -> Inertia | None:
        r"""Return the number of eigenvalues of the matrix, without the shift, below ``sigma``.

        None where a second factor is too dear (:attr:`Factor.counts`). For small $\sigma$ and $r \ge \|L_{TT}^{-1}\|$,
        $S - \sigma' M$ with $\sigma' = \sigma / (1 - \sigma r)$ lies below the Schur complement of $L - \sigma I$: the
        count then may include eigenvalues between $\sigma$ and $\sigma'$.
        """
        if not factor.counts:
            return None
        if self.M is None:
            return factor.inertia(_whole(self.matrix, -sigma).S)
        small = factor.settings.small
        r = self.inverse_bound if sigma * self.inverse_bound <= small else self.inverse_norm
        if self.shift == 0 and 0 < sigma * r <= small:
            data = self.S.data - sigma / (1 - sigma * r) * self.M.data
            return factor.inertia(csr_array((data, self.S.indices, self.S.indptr), shape=self.S.shape))
        shifted = condense(self.matrix, -sigma, self.piece)
        factor = Factor(shifted.S, shifted.order, factor.settings)
        if not factor.counts:
            return None
        count = factor.inertia(shifted.S)
        pivots = shifted._passes[1][:, 2]
        rounding = max(count.rounding, float(np.finfo(np.float64).eps * np.abs(pivots).max(initial=0)))
        return Inertia(count.below + int((pivots < 0).sum()), rounding, factor.settings.proof * rounding)


def condense(matrix: Any, shift: float, piece: float, settings: EliminationSettings = SETTINGS) -> SchurComplement:
    r"""Return a symmetric ``csr_array`` plus shift I after static condensation of nodes of degree 1 and 2.

    A piece is not enlarged beyond $\|L_{TT}^{-1}\|$ of about ``piece``; with 0 nothing is eliminated.
    """
    if not matrix.has_canonical_format:
        matrix = matrix.copy()
        matrix.sum_duplicates()
    if piece <= 0 or max(matrix.shape[0], matrix.nnz) >= 2**31:
        return _whole(matrix, shift)
    matrix = csr_array((matrix.data.astype(np.float64, copy=False), matrix.indices, matrix.indptr), shape=matrix.shape)
    return _eliminated(matrix, shift, piece, settings) or _whole(matrix, shift)


def _eliminated(matrix: Any, shift: float, piece: float, settings: EliminationSettings) -> SchurComplement | None:
    """Return the Schur complement; None where the pattern is not symmetric or too little is eliminated."""
    found = _native.eliminate(matrix.indptr, matrix.indices, matrix.data, shift, piece, settings.widest)
    symmetric, order, coefficients, nodes, start, columns, S, M, inverse_bound, _ = found
    if not symmetric or nodes.size > settings.most_remaining * matrix.shape[0]:
        return None
    S, M = (csr_array((part, columns, start), shape=(nodes.size, nodes.size)) for part in (S, M))
    return SchurComplement(matrix, shift, piece, nodes, S, M, inverse_bound, (order, coefficients))


def _whole(matrix: Any, shift: float) -> SchurComplement:
    S = csr_array(matrix, dtype=np.float64, copy=True)
    S.setdiag(matrix.diagonal() + shift)
    return SchurComplement(matrix, shift, 0.0, np.arange(matrix.shape[0]), S, None)


def condense_graph(L: SparseOperator, settings: EliminationSettings = SETTINGS) -> SchurComplement:
    """Return the Schur complement of L, with pieces whose eigenvalues are far above the lowest ones. On the host."""
    total = float(torch.linalg.vector_norm(L.values.detach(), ord=1, dtype=torch.float64))  # twice all weights, about
    piece = 2 * settings.piece * max(1, L.col.numel() - L.n) / total if total else 0.0
    return condense(float64_matrix(L), 0.0, piece, settings)


def float64_matrix(L: SparseOperator) -> Any:
    """Return L as a ``csr_array`` in float64, with what rounding to float32 did to its diagonal undone."""
    crow, col = L.host_indices()
    return csr_array((restored_values(L), col, crow), shape=(L.n, L.n))


def minimum_degree(
    rows: np.ndarray, columns: np.ndarray, settings: EliminationSettings = SETTINGS
) -> tuple[np.ndarray, int] | None:
    """Return each node's position in minimum-degree order, and the entries of the factor below its diagonal.

    For patterns that are nearly trees, where it takes an eighth of the time of SuperLU's order; None elsewhere.
    """
    if columns.size > settings.sparse_row * (rows.size - 1):
        return None
    position, entries, done = _native.minimum_degree(rows, columns, settings.order_work * columns.size)
    return (position, int(entries)) if done else None


class Factor:
    """A factor of a sparse symmetric positive definite matrix.

    :class:`SingularFactorError` is raised where the matrix is not, at the latest by a solve.

    Parameters
    ----------
    S
        The matrix, ``csr_array``.
    order
        Positions in the order of elimination, as of :func:`minimum_degree`; None: SuperLU's.
    settings
        What it is decided by who factorises.
    """

    def __init__(
        self, S: Any, order: tuple[np.ndarray, int] | None = None, settings: EliminationSettings = SETTINGS
    ) -> None:
        self.n, self.settings, self._lu = S.shape[0], settings, None
        self._position = superlu_order(_columns(S)) if order is None else order[0]
        self._node = np.empty_like(self._position)
        self._node[self._position] = np.arange(self.n)
        self._parent, counts = _native.tree_and_counts(S.indptr, S.indices, self._position, self._node)
        if 2 * (int(counts.sum()) + self.n) <= settings.light * self.n:
            self._start = np.concatenate([[0], np.cumsum(counts)])
            self._entries, G, D, _ = self._factorise(S)
            self._values = {np.dtype(np.float64): (G, D)}
            self.counts = settings.inertia
            return
        try:
            self._lu = splu(_columns(S), **SUPERLU)
        except RuntimeError as error:  # a pivot is exactly zero
            raise SingularFactorError from error
        # At least sum(c)^2 / n multiplications for columns of c entries; about three times that where they differ.
        self.counts = settings.inertia and 3 * float(self._lu.nnz) ** 2 / (4 * self.n) <= settings.cheap

    def _factorise(self, S: Any) -> Any:
        tree = (self._position, self._node, self._parent, self._start)
        return _native.factorise(S.indptr, S.indices, S.data, *tree)

    def inertia(self, S: Any) -> Inertia:
        """Return the number of negative eigenvalues of a matrix of the same pattern, where :attr:`counts` is true.

        The rounding is that of a multiple of the identity added before; infinite where the pivots are of no use.
        """
        if self._lu is None:
            _, _, D, largest = self._factorise(S)
            largest = max(largest, np.abs(D).max())
        else:
            try:
                lu = splu(_columns(S), **SUPERLU)
            except RuntimeError:  # exactly singular
                return Inertia(0, math.inf, math.inf)
            D, largest = lu.U.diagonal(), float(np.abs(lu.U.data).max())
            if not np.array_equal(lu.perm_r, lu.perm_c) or not math.isfinite(largest):  # pivots off the diagonal
                return Inertia(0, math.inf, math.inf)
        rounding = float(np.finfo(np.float64).eps * largest)
        return Inertia(int((D < 0).sum()), rounding, self.settings.proof * rounding)

    def solve(self, X: np.ndarray) -> np.ndarray:
        """Return the solution for a vector ``(c,)`` or a block ``(c, s)``, in the dtype of X, float64 or float32."""
        if self._lu is not None:
            Y = self._lu.solve(np.asfortranarray(X, dtype=np.float64)).astype(X.dtype, copy=False)
        else:
            Y = X[self._node]
            G, D = self._rounded(X.dtype)
            _native.substitute(self._entries, G, D, Y)
            Y = Y[self._position]
        if not math.isfinite(float(Y.sum())):
            raise SingularFactorError
        return Y

    def _rounded(self, dtype: Any) -> Any:
        """Return the factor's values in a dtype; made once for each."""
        if dtype not in self._values:
            self._values[dtype] = tuple(part.astype(dtype) for part in self._values[np.dtype(np.float64)])
        return self._values[dtype]


def _columns(S: Any) -> Any:
    """Return a symmetric ``csr_array`` by columns, with ascending rows: its rows."""
    columns = csc_array((S.data, S.indices, S.indptr), shape=S.shape, copy=True)
    columns.sort_indices()
    return columns


def superlu_order(S: Any) -> np.ndarray:
    """Return the position of each node of a ``csc_array`` in SuperLU's order for a symmetric pattern.

    There is no call for the order alone: an incomplete factor of the identity in the same pattern is the least that
    comes with it, a quarter of the whole factor's time.
    """
    diagonal = S.indices == np.repeat(np.arange(S.shape[0]), np.diff(S.indptr))
    identity = csc_array((diagonal.astype(np.float64), S.indices, S.indptr), shape=S.shape)
    return spilu(identity, drop_tol=0.5, fill_factor=1, **SUPERLU).perm_c.astype(np.int64)
