r"""A graph without its chains and twigs, and factors of what is left.

Nodes of one or two neighbours are most nodes of a road network. With T the eliminated ones and C the core,

$$S = L_{CC} - L_{CT} L_{TT}^{-1} L_{TC}, \qquad E = \begin{pmatrix} -L_{TT}^{-1} L_{TC} \\ I \end{pmatrix}, \qquad
M = E^\top E,$$

S and M are as sparse as each other, a solve with L is a solve with S between two passes over T, and the lowest
eigenvectors of L are nearly E y with $S y = \lambda M y$: E is the extension that is exact at $\lambda = 0$, off by
about $\lambda$ over the lowest frequency of a piece of T with its ends held. That is why the pieces are kept small.

A factor $S = G D G^\top$ that is light is computed here, in an order of our own where the core is nearly a tree
(:mod:`krylow.linalg.minimum_degree`) and in that of scipy's sparse LU elsewhere; its solves are twice as fast as those
of the LU, and the signs of D count the eigenvalues below any number (Sylvester). All of this is compiled by numba
(``_kernels.elimination``, ``_kernels.factor``); without it nothing is eliminated, and the LU solves.
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

from krylow import _kernels
from krylow._memory import arrays
from krylow.linalg.minimum_degree import minimum_degree
from krylow.linalg.rounding import restored_values
from krylow.operators import SparseOperator
from krylow.operators.ordering import components_of_rows

#: Entries a row of both factors up to which one is light: our own loops, which take a block of columns together, are
#: faster than SuperLU's, and to count is no dearer than to look for what was missed by another start.
LIGHT = 150
#: Multiplications of a factor that SuperLU makes in a fraction of a second, so that one more is made in order to count;
#: columns are so many times as costly as if all had the same entries.
CHEAP, SKEW = 1e9, 3.0
#: Of SuperLU, for symmetric matrices.
SYMMETRIC: dict[str, Any] = {
    "permc_spec": "MMD_AT_PLUS_A",
    "diag_pivot_thresh": 0.0,
    "options": {"SymmetricMode": True},
}
#: A node between two nodes that both have more neighbours than this is not eliminated: to look for an edge is dear.
WIDEST = 64
#: Numbers that are this small against the frequencies of what was eliminated are counted by the core alone.
NEAR = 1e-2
#: A core of more than this part of the nodes is not worth the way there.
MOST_LEFT = 0.9
#: Columns that are solved for together on the core: their room is three times theirs.
AT_A_TIME = 16
#: Pieces that are condensed have a lowest frequency of at least one over this, for weights of 1 on average.
SLOWEST = 36.0


class Eliminated(NamedTuple):
    """What is left of a matrix, and what it took.

    Attributes
    ----------
    symmetric
        Whether the pattern was; nothing else is of use if not.
    order
        ``(t, 3)`` each eliminated node, in order, and its two neighbours then, twice the same if it had one.
    coefficients
        ``(t, 3)`` its weights on these, and its pivot.
    nodes
        ``(c,)`` those left.
    rows, columns, S, M
        Of the core, its values and its mass, the diagonal first in each row.
    farthest
        A bound of the row sums of the inverse of what was eliminated; infinite where none is known.
    joined
        Entries of the whole off its diagonal.
    """

    symmetric: bool
    order: np.ndarray
    coefficients: np.ndarray
    nodes: np.ndarray
    rows: np.ndarray
    columns: np.ndarray
    S: np.ndarray
    M: np.ndarray
    farthest: float
    joined: int


def eliminated(crow: Any, col: Any, values: Any, shift: float, slowest: float, widest: int) -> Eliminated:
    """Return what ``_kernels.elimination.eliminate`` makes of a matrix, in buffers of huge pages."""
    n = crow.size - 1
    nodes_met, *numbers = arrays((n, _kernels.elimination.NODE), (n + 1, np.int32), (n, np.int32), (n, np.int32))
    other = nodes_met.view(np.float64).reshape(n, 4)[:, 2]
    (met,) = arrays((col.size, _kernels.elimination.ENTRY))
    found = _kernels.elimination.eliminate(crow, col, values, shift, slowest, widest, met, nodes_met, other, *numbers)
    symmetric, count, *core = found
    del met  # the most room by far
    order, coefficients = arrays(((count, 3), np.int32), ((count, 3), np.float64))
    _kernels.elimination.gather(nodes_met, other, numbers[-1], order, coefficients)
    return Eliminated(symmetric, order, coefficients, *core)


@dataclass(frozen=True)
class Condensed:
    """A symmetric matrix without its thin nodes.

    Attributes
    ----------
    matrix
        The whole, a ``csr_array`` with ascending columns.
    shift
        That was added to its diagonal.
    slowest
        That its pieces were kept within (:func:`condense`).
    nodes
        ``(c,)`` those of the core.
    S, M
        ``(c, c)`` the core's matrix and mass; M is None where nothing was eliminated.
    farthest
        An upper bound of :attr:`reach`, within a small factor, that costs nothing.
    """

    matrix: Any
    shift: float
    slowest: float
    nodes: np.ndarray
    S: Any
    M: Any | None
    farthest: float = 0.0
    _pieces: tuple[np.ndarray, ...] = ()

    @cached_property
    def components(self) -> tuple[np.ndarray, int] | None:
        """The component ``(n,)`` of each node and their number, from those of the core: a node that went has one's.

        None where nothing was eliminated, or where entries are zero, which join nothing.
        """
        if self.M is None or not self.matrix.data.all():
            return None
        own, count = components_of_rows(self.S.indptr, self.S.indices)
        n = self.matrix.shape[0]
        if count == 1:
            return np.broadcast_to(own[:1], n), 1  # takes no room
        labels = np.empty(n, np.int64)
        labels[self.nodes] = own
        _kernels.elimination.inherit(self._pieces[0], labels)
        return labels, count

    @cached_property
    def order(self) -> tuple[np.ndarray, int] | None:
        """The order in which S is factorised and the factor's entries, where S is nearly a tree's; else None."""
        return minimum_degree(self.S.indptr, self.S.indices)

    @cached_property
    def reach(self) -> float:
        r"""An upper bound of the norm of $L_{TT}^{-1}$, infinite where none is known.

        Its largest row sum: where no weight on a neighbour is negative, no entry of that inverse is.
        """
        if self.M is None:
            return 0.0
        order, coefficients = self._pieces
        if not ((coefficients >= 0).all() and coefficients[:, 2].all()):
            return math.inf
        sums = np.ones((self.matrix.shape[0], 1))
        _kernels.elimination.down(order, coefficients, sums)
        sums[self.nodes] = 0.0
        _kernels.elimination.up(order, coefficients, sums)
        return float(sums.max())

    def extend(self, Y: np.ndarray, beside: np.ndarray | None = None) -> np.ndarray:
        """Return E Y, ``(n, s)``, of a block ``(c, s)`` on the core: with Y orthonormal for M, orthonormal.

        Columns ``beside`` it, ``(n, d)``, come before it as they are.
        """
        first = 0 if beside is None else beside.shape[1]
        if self.M is None:
            return Y if beside is None else np.concatenate([beside, Y], axis=1)
        (X,) = arrays(((self.matrix.shape[0], first + Y.shape[1]), np.float64))
        X[self.nodes, :first] = 0.0
        X[self.nodes, first:] = Y
        _kernels.elimination.extend(*self._pieces, X)
        if beside is not None:
            X[:, :first] = beside
        return X

    def solve(self, factor: Factor, X: np.ndarray, out: np.ndarray | None = None) -> np.ndarray:
        """Return the solution for a block ``(n, s)``, with a factor of S; it may take the room of ``out``."""
        if self.M is None:
            return factor.solve(X)
        (Z,) = arrays((X.shape, np.float64)) if out is None else (out,)
        Z[:] = X
        _kernels.elimination.down(*self._pieces, Z)
        for columns in (Z[:, j : j + AT_A_TIME] for j in range(0, Z.shape[1], AT_A_TIME)):
            columns[self.nodes] = factor.solve(columns[self.nodes])
        _kernels.elimination.up(*self._pieces, Z)
        return Z

    def below(self, factor: Factor, sigma: float) -> tuple[int, float] | None:
        r"""Return how many eigenvalues of the matrix, without the shift, lie below ``sigma``, and the count's rounding.

        The second number is roughly by how much ``sigma`` may be off. None where a factor, that of S to begin with, is
        not light. With r the :attr:`reach`, $S - \sigma' M$ at $\sigma' = \sigma / (1 - \sigma r)$ lies below what
        would be left of $L - \sigma I$: the count may then include what is between the two numbers.
        """
        if not factor.counts:
            return None
        if self.M is None:
            return factor.negative_pivots(_whole(self.matrix, -sigma).S)
        reach = self.farthest if sigma * self.farthest <= NEAR else self.reach
        if self.shift == 0 and 0 < sigma * reach <= NEAR:
            above = self.S.data - sigma / (1 - sigma * reach) * self.M.data
            return factor.negative_pivots(csr_array((above, self.S.indices, self.S.indptr), shape=self.S.shape))
        other = condense(self.matrix, -sigma, self.slowest)
        factor, pivots = Factor(other.S, other.order and other.order[0]), np.empty(0)
        if not factor.counts:
            return None
        if other.M is not None:
            pivots = other._pieces[1][:, 2]
        count, rounding = factor.negative_pivots(other.S)
        own = float(np.finfo(np.float64).eps * np.abs(pivots).max(initial=0))
        return count + int((pivots < 0).sum()), max(rounding, own)


def condense(matrix: Any, shift: float, slowest: float) -> Condensed:
    """Return a symmetric ``csr_array`` plus shift I without chains and twigs.

    ``slowest`` bounds the pieces: about one over the lowest frequency that one may have with its ends held; with 0,
    and without numba, nothing is eliminated.
    """
    rows = matrix
    if not rows.has_canonical_format:
        rows = rows.copy()
        rows.sum_duplicates()
    if slowest <= 0 or not _kernels.available() or max(rows.shape[0], rows.nnz) >= 2**31:
        return _whole(rows, shift)
    rows = csr_array((rows.data.astype(np.float64, copy=False), rows.indices, rows.indptr), shape=rows.shape)
    found = eliminated(rows.indptr, rows.indices, rows.data, shift, slowest, WIDEST)
    left = found.nodes.size
    if not found.symmetric or left > MOST_LEFT * rows.shape[0]:
        return _whole(rows, shift)
    core, mass = (csr_array((part, found.columns, found.rows), shape=(left, left)) for part in (found.S, found.M))
    pieces = (found.order, found.coefficients)
    return Condensed(rows, shift, slowest, found.nodes, core, mass, found.farthest, pieces)


def _whole(rows: Any, shift: float) -> Condensed:
    S = csr_array(rows, dtype=np.float64, copy=True)
    S.setdiag(rows.diagonal() + shift)
    return Condensed(rows, shift, 0.0, np.arange(rows.shape[0]), S, None)


def _columns(S: Any) -> Any:
    """Return a symmetric ``csr_array`` by columns, with ascending rows: its rows."""
    columns = csc_array((S.data, S.indices, S.indptr), shape=S.shape, copy=True)
    columns.sort_indices()
    return columns


def _order(S: Any) -> np.ndarray:
    """Return the place of each node of a ``csc_array`` in SuperLU's order for a symmetric pattern.

    There is no call for the order alone: an incomplete factor of the identity in the same pattern is the least that
    comes with it, a quarter of the whole factor's time.
    """
    diagonal = S.indices == np.repeat(np.arange(S.shape[0]), np.diff(S.indptr))
    identity = csc_array((diagonal.astype(np.float64), S.indices, S.indptr), shape=S.shape)
    return spilu(identity, drop_tol=0.5, fill_factor=1, **SYMMETRIC).perm_c.astype(np.int64)


def _signs(S: Any) -> tuple[int, float]:
    """Return how many pivots of SuperLU are negative, and their rounding: infinite if one was not on the diagonal."""
    try:
        lu = splu(_columns(S), **SYMMETRIC)
    except RuntimeError:  # exactly singular
        return 0, math.inf
    D, largest = lu.U.diagonal(), float(np.abs(lu.U.data).max())
    if not np.array_equal(lu.perm_r, lu.perm_c) or not math.isfinite(largest):
        return 0, math.inf
    return int((D < 0).sum()), float(np.finfo(np.float64).eps * largest)


class SingularFactorError(ArithmeticError):
    """A matrix that should be positive definite is singular but for rounding."""


class Factor:
    """A factor of a sparse symmetric positive definite matrix.

    :class:`SingularFactorError` is raised where the matrix is not, at the latest by a solve.

    Parameters
    ----------
    S
        The matrix, ``csr_array``.
    place
        Of each node in the order; None: SuperLU finds one.
    """

    def __init__(self, S: Any, place: np.ndarray | None = None) -> None:
        self.n, self._lu, self._cheap = S.shape[0], None, False
        if _kernels.available():
            self._place = _order(_columns(S)) if place is None else place
            self._at = np.empty_like(self._place)
            self._at[self._place] = np.arange(self.n)
            self._parent, counts = _kernels.factor.tree_and_counts(S.indptr, S.indices, self._place, self._at)
            if 2 * (int(counts.sum()) + self.n) <= LIGHT * self.n:
                self._start = np.concatenate([[0], np.cumsum(counts)])
                where, G, D, _ = self._factorise(S)
                self._parts = {np.dtype(np.float64): (self._start, where, G, D)}
                return
        try:
            self._lu = splu(_columns(S), **SYMMETRIC)
        except RuntimeError as error:  # a pivot is exactly zero
            raise SingularFactorError from error
        # Each column of the factor costs the square of its entries: more than their sum times their mean.
        self._cheap = float(self._lu.nnz) ** 2 / (4 * self.n) * SKEW <= CHEAP

    def _factorise(self, S: Any) -> Any:
        tree = (self._place, self._at, self._parent, self._start)
        return _kernels.factor.factorise(S.indptr, S.indices, S.data, *tree)

    @property
    def counts(self) -> bool:
        """Whether eigenvalues are counted: the factor is light, our own, or it takes little time to make another."""
        return self._lu is None or self._cheap

    def negative_pivots(self, S: Any) -> tuple[int, float]:
        """Return how many eigenvalues of a matrix of the same pattern are negative, and the rounding of that.

        The second number is roughly by how much a multiple of the identity may be off that was added before; infinite
        where the pivots tell nothing. For factors that count (:attr:`counts`).
        """
        if self._lu is not None:
            return _signs(S)
        _, _, D, largest = self._factorise(S)
        return int((D < 0).sum()), float(np.finfo(np.float64).eps * max(largest, np.abs(D).max()))

    def solve(self, X: np.ndarray) -> np.ndarray:
        """Return the solution for a vector ``(c,)`` or a block ``(c, s)``, in the dtype of X, float64 or float32."""
        if self._lu is not None:
            Y = self._lu.solve(np.asfortranarray(X, dtype=np.float64)).astype(X.dtype, copy=False)
        else:
            Y = X[self._at]
            substitute = _kernels.factor.substitute if X.ndim > 1 else _kernels.factor.substitute_one
            substitute(*self._rounded(X.dtype), Y)
            Y = Y[self._place]
        if not math.isfinite(float(Y.sum())):
            raise SingularFactorError
        return Y

    def _rounded(self, dtype: Any) -> Any:
        """Return the parts of the factor with numbers in a dtype; made once for each."""
        if dtype not in self._parts:
            start, where, G, D = self._parts[np.dtype(np.float64)]
            self._parts[dtype] = start, where, G.astype(dtype), D.astype(dtype)
        return self._parts[dtype]


def condense_graph(L: SparseOperator) -> Condensed:
    """Return L without the chains and pendant trees whose frequencies are far above the lowest ones. On the host."""
    # about twice the weights of all entries
    total = float(torch.linalg.vector_norm(L.values.detach(), ord=1, dtype=torch.float64))
    slowest = 2 * SLOWEST * max(1, L.col.numel() - L.n) / total if total else 0.0
    return condense(float64_matrix(L), 0.0, slowest)


def float64_matrix(L: SparseOperator) -> Any:
    """Return L in float64; where float32 has rounded it, frequencies far below that rounding are found all the same."""
    crow, col = L.host_indices()
    return csr_array((restored_values(L), col, crow), shape=(L.n, L.n))
