"""Sparse LDL^T factors without pivoting: minimum-degree order, elimination tree, factor and solves."""

from __future__ import annotations

from typing import Any

import numpy as np

from krylow._kernels._compile import kernel


@kernel
def minimum_degree(rows: Any, columns: Any, most: int) -> Any:
    """Return the places, the entries, and whether all is done: at most ``most`` entries of lists are read."""
    n = rows.size - 1
    lists, end, read = np.empty(columns.size + most, np.int32), 0, 0
    start, length, room = np.empty(n, np.int64), np.empty(n, np.int32), np.empty(n, np.int32)
    # Nodes of each degree, in chains: the last one that came is the first to go. One whose degree has changed since is
    # in another chain, too, and passed over where it was.
    head, links = np.full(n + 1, -1, np.int32), 0
    linked, following = np.empty(n + most, np.int32), np.empty(n + most, np.int32)
    place, mark = np.full(n, -1, np.int64), np.full(n, -1, np.int32)
    for i in range(n):
        start[i] = end
        for e in range(rows[i], rows[i + 1]):
            if columns[e] != i:
                lists[end] = columns[e]
                end += 1
        length[i] = room[i] = end - start[i]
    for i in range(n - 1, -1, -1):
        linked[links], following[links], head[length[i]] = i, head[length[i]], links
        links += 1
    least, count, entries = 0, 0, 0
    while count < n:
        while head[least] < 0:
            least += 1
        v = linked[head[least]]
        head[least] = following[head[least]]
        if place[v] >= 0 or length[v] != least:
            continue
        place[v] = count
        count += 1
        entries += length[v]
        first, last = start[v], start[v] + length[v]
        for p in range(first, last):
            u = lists[p]
            own, degree = start[u], length[u]
            read += degree + last - first
            if read > most:
                return place, entries, False
            mark[u], kept = u, 0
            for q in range(own, own + degree):
                w = lists[q]
                if w != v:
                    lists[own + kept], mark[w] = w, u
                    kept += 1
            new = 0
            for q in range(first, last):
                new += mark[lists[q]] != u
            if kept + new > room[u]:
                if end + 2 * (kept + new) > lists.size:
                    return place, entries, False
                for q in range(kept):
                    lists[end + q] = lists[own + q]
                start[u], room[u], own = end, 2 * (kept + new), end
                end += 2 * (kept + new)
            for q in range(first, last):
                if mark[lists[q]] != u:
                    lists[own + kept] = lists[q]
                    kept += 1
            if kept != degree:
                linked[links], following[links], head[kept] = u, head[kept], links
                links += 1
                length[u], least = kept, min(least, kept)
    return place, entries, True


@kernel
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


@kernel
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


@kernel
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


@kernel
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
