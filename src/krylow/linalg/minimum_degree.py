"""An order of elimination for graphs that are nearly trees: always a node with the fewest neighbours next.

The graph is kept as it is after each elimination, every node with a list of its neighbours, which is quick only where
the lists stay short. SuperLU's order, made for all graphs, takes eight times as long on the core of a road network.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from krylow.operators.compiled import compiled

#: Most entries a row of a matrix that is nearly a tree's, diagonal included.
THIN = 6.0
#: Entries of lists that are read before the graph is given up, for each entry of the matrix.
MOST_READ = 12


def minimum_degree(rows: np.ndarray, columns: np.ndarray) -> tuple[np.ndarray, int] | None:
    """Return the place of each node of a symmetric pattern in the order, and the entries below a factor's diagonal.

    None where the lists get long, and without numba.
    """
    kernel = compiled(_minimum_degree)
    if kernel is None or columns.size > THIN * (rows.size - 1):
        return None
    place, entries, done = kernel(rows, columns, MOST_READ * columns.size)
    return (place, int(entries)) if done else None


def _minimum_degree(rows: Any, columns: Any, most: int) -> Any:
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
