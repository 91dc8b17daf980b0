"""A sparse factor G D G^T and the widths of a walk as loops over plain arrays, which numba compiles.

They run, slowly, as the Python they are.
"""

from __future__ import annotations

from typing import Any

import numpy as np


def tree_and_counts(rows: Any, columns: Any, place: Any, at: Any) -> Any:
    """Return the elimination tree of a symmetric pattern in a given order, and the entries of its factor's columns."""
    n = rows.size - 1
    parent, ancestor, mark = np.full(n, -1, np.int64), np.full(n, -1, np.int64), np.full(n, -1, np.int64)
    counts = np.zeros(n, np.int64)
    for i in range(n):
        mark[i] = i
        for e in range(rows[at[i]], rows[at[i] + 1]):
            j = place[columns[e]]
            while j < i and ancestor[j] != i:  # climb with shortcuts, as far as row i has not been
                above = ancestor[j]
                ancestor[j] = i
                if above < 0:
                    parent[j] = i
                    break
                j = above
        for e in range(rows[at[i]], rows[at[i] + 1]):
            j = place[columns[e]]
            while j < i and mark[j] != i:
                counts[j] += 1
                mark[j] = i
                j = parent[j]
    return parent, counts


def factorise(rows: Any, columns: Any, values: Any, place: Any, at: Any, parent: Any, start: Any) -> Any:
    r"""Return the factor of $P A P^\top = G D G^\top$, row by row, without pivoting.

    Parameters
    ----------
    rows, columns, values
        A, symmetric, in rows.
    place, at
        The place of each node in the order, and the node at each place.
    parent, start
        The elimination tree, and where each column of G begins.

    Returns
    -------
    tuple
        The rows and the values of G below its diagonal, by columns; D; and the largest number that was met.
    """
    n = rows.size - 1
    where, G, D = np.empty(start[n], np.int32), np.empty(start[n]), np.empty(n)
    end, y, mark = start[:n].copy(), np.zeros(n), np.full(n, -1, np.int64)
    pattern, path = np.empty(n, np.int64), np.empty(n, np.int64)
    largest = 0.0
    for i in range(n):
        top, pivot = n, 0.0
        mark[i] = i
        for e in range(rows[at[i]], rows[at[i] + 1]):
            j = place[columns[e]]
            if j == i:
                pivot += values[e]
            elif j < i:
                y[j] += values[e]
                length = 0
                while mark[j] != i:
                    path[length], mark[j] = j, i
                    length += 1
                    j = parent[j]
                while length:
                    length -= 1
                    top -= 1
                    pattern[top] = path[length]
        for t in range(top, n):
            j = pattern[t]
            z = y[j]
            y[j] = 0.0
            for p in range(start[j], end[j]):
                y[where[p]] -= G[p] * z
            g = z / D[j]
            pivot -= g * z
            largest = max(largest, abs(g * z))
            where[end[j]], G[end[j]] = i, g
            end[j] += 1
        D[i] = pivot
    return where, G, D, largest


def substitute(start: Any, where: Any, G: Any, D: Any, X: Any) -> None:
    """Overwrite a block, in the factor's order, with the solution."""
    n, columns = X.shape
    for i in range(n):
        for p in range(start[i], start[i + 1]):
            r, g = where[p], G[p]
            for j in range(columns):
                X[r, j] -= g * X[i, j]
    for i in range(n - 1, -1, -1):
        pivot = 1 / D[i]
        for j in range(columns):
            X[i, j] *= pivot
        for p in range(start[i], start[i + 1]):
            r, g = where[p], G[p]
            for j in range(columns):
                X[i, j] -= g * X[r, j]


def substitute_one(start: Any, where: Any, G: Any, D: Any, x: Any) -> None:
    """Overwrite one vector, as :func:`substitute` does a block: without the inner loop, twice as fast."""
    n = x.size
    for i in range(n):
        z = x[i]
        for p in range(start[i], start[i + 1]):
            x[where[p]] -= G[p] * z
    for i in range(n - 1, -1, -1):
        z = x[i] / D[i]
        for p in range(start[i], start[i + 1]):
            z -= G[p] * x[where[p]]
        x[i] = z


def levels(crow: Any, col: Any, start: int) -> Any:
    """Return the widths of the levels of a breadth-first walk, and a node of the last one."""
    n = crow.size - 1
    seen, queue, widths = np.zeros(n, np.bool_), np.empty(n, np.int64), np.empty(n, np.int64)
    queue[0], seen[start] = start, True
    low, high, depth = 0, 1, 0
    while low < high:
        widths[depth] = high - low
        depth += 1
        end = high
        for p in range(low, end):
            for e in range(crow[queue[p]], crow[queue[p] + 1]):
                if not seen[col[e]]:
                    seen[col[e]], queue[high] = True, col[e]
                    high += 1
        low, last = end, queue[low]
    return widths[:depth], last
