"""Traversals of a graph in compressed rows, and aggregates of its nodes."""

from __future__ import annotations

from typing import Any

import numpy as np

from krylow._kernels._compile import kernel
from krylow._kernels._prefetch import prefetch

#: A component whose widest level exceeds this share of its nodes is not searched again from its far end.
BROAD = 0.25
#: Nodes ahead whose rows are prefetched.
AHEAD = 32


@kernel
def search(crow: Any, col: Any, values: Any, zeros: bool, back: bool) -> Any:
    n = crow.size - 1
    order = np.empty(n, dtype=np.int32)
    labels = np.empty(n, dtype=np.int32)
    met = np.zeros(n, dtype=np.uint8)  # in how many walks
    components, widest, begin = 0, 1, 0
    for root in range(n):
        if met[root]:
            continue
        start, end = root, begin
        for again in range(2):
            broad = 1
            order[begin] = start
            labels[start] = components
            met[start] = again + 1
            end, read = begin + 1, begin
            while read < end:
                last = end
                broad = max(broad, last - read)
                while read < last and end < n:  # with all nodes met, what is left to read tells nothing
                    i = order[read]
                    read += 1
                    if read + AHEAD < end:
                        prefetch(crow, np.int64(order[read + AHEAD]))
                        prefetch(col, np.int64(crow[order[read + AHEAD // 2]]))
                    for p in range(crow[i], crow[i + 1]):
                        j = col[p]
                        if met[j] <= again and not (zeros and values[p] == 0):
                            labels[j] = components
                            met[j] = again + 1
                            order[end] = j
                            end += 1
                read = last
            start = order[end - 1]
            if again == 1 or not back or end - begin <= 2 or broad > BROAD * (end - begin):
                widest = max(widest, broad)
                break
        begin = end
        components += 1
    return order, labels, components, widest


@kernel
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


@kernel
def propagate(crow: Any, col: Any, tally: Any, rounds: int, enough: float) -> Any:
    n, number = crow.size - 1, tally.dtype.type
    labels = np.arange(n).astype(np.int32)
    # A name's tally, 0 at first, begins anew at each node: from ``start``, beyond all tallies of the nodes before.
    start = number(0)
    for _ in range(rounds):
        agreed = 0
        for i in range(n):
            if i + AHEAD < n:
                for p in range(crow[i + AHEAD - 1], crow[i + AHEAD]):
                    prefetch(labels, np.int64(col[p]))
            entries = crow[i + 1] - crow[i]
            own = best = labels[i]
            most = start
            for p in range(np.uint64(crow[i]), np.uint64(crow[i + 1])):
                if col[p] != i:
                    name = labels[np.uint64(col[p])]
                    counted = number(max(tally[name], start) + number(1))
                    tally[name] = counted
                    if counted > most or (counted == most and name == own):
                        best, most = name, counted
            agreed += 2 * (most - start) > entries - 1
            labels[i] = best
            start = number(start + entries)
        if agreed >= enough * n:
            break
    return labels


@kernel
def mirror_balance(crow: Any, col: Any, bits: Any) -> Any:
    total = np.uint64(0)
    for i in range(crow.size - 1):
        for p in range(np.uint64(crow[i]), np.uint64(crow[i + 1])):
            j = np.int64(col[p])
            below, above = (i, j) if i < j else (j, i)
            x = np.uint64(below) * np.uint64(0x9E3779B97F4A7C15) + np.uint64(above)
            x = (x ^ (x >> np.uint64(32))) * np.uint64(0xD6E8FEB86659FD93) + bits[p]
            x = (x ^ (x >> np.uint64(29))) * np.uint64(0xBF58476D1CE4E5B9)
            x ^= x >> np.uint64(32)
            if i < j:
                total += x
            elif i > j:
                total -= x
    return total


@kernel
def permute(crow: Any, col: Any, values: Any, order: Any, rows: Any, columns: Any, entries: Any) -> None:
    n = order.size
    new = np.empty(n, dtype=col.dtype)
    rows[0] = 0
    for i in range(n):
        new[order[i]] = i
        rows[i + 1] = rows[i] + crow[order[i] + 1] - crow[order[i]]
    for i in range(n):
        if i + AHEAD < n:
            prefetch(crow, np.int64(order[i + AHEAD]))
            soon = order[i + AHEAD // 2]
            for p in range(crow[soon], crow[soon + 1], 8):
                prefetch(col, np.int64(p))
                prefetch(values, np.int64(p))
            soon = order[i + AHEAD // 4]
            for p in range(crow[soon], crow[soon + 1]):
                prefetch(new, np.int64(col[p]))
        low, start = crow[order[i]], rows[i]
        for p in range(rows[i + 1] - start):
            columns[start + p] = new[col[low + p]]
            entries[start + p] = values[low + p]


@kernel
def move_rows(X: Any, order: Any) -> None:
    n, columns = X.shape
    carried, moved = np.empty(columns, X.dtype), np.zeros(n, np.bool_)
    for first in range(n):
        if moved[first]:
            continue
        carried[:] = X[first]
        place = np.int64(order[first])
        while not moved[place]:  # once around a cycle of the order
            moved[place] = True
            following = np.int64(order[place])
            for j in range(0, columns, 8):
                prefetch(X, following * columns + j)
            for j in range(columns):
                carried[j], X[place, j] = X[place, j], carried[j]
            place = following


@kernel
def aggregate(crow: Any, col: Any, values: Any, strong: float, bound: float, places: Any, numbers: Any) -> Any:
    """By falling degree: a node without a joined near neighbour becomes a root; the others join the nearest.

    Roots of many neighbours make fewer aggregates, and more even ones. They are numbered in the order of the nodes.
    ``places`` and ``numbers`` are room for five and two of them a node.
    """
    n = len(crow) - 1
    order, labels, roots, late, joined = places[0], places[1], places[2], places[3], places[4]
    scale, tie = numbers[0], numbers[1]
    most = 0
    for i in range(n):
        most = max(most, crow[i + 1] - crow[i])
    place = np.zeros(most + 2, dtype=np.int64)  # where nodes of a degree begin
    for i in range(n):
        place[most - (crow[i + 1] - crow[i]) + 1] += 1
    for d in range(most + 1):
        place[d + 1] += place[d]
    for i in range(n):
        d = most - (crow[i + 1] - crow[i])
        order[place[d]] = i
        place[d] += 1
    for i in range(n):
        found = 0.0
        for q in range(np.uint64(crow[i]), np.uint64(crow[i + 1])):
            found = max(found, abs(values[q]) if col[q] != i else 0.0)
        scale[i], tie[i], labels[i] = np.sqrt(strong * found), 0.0, -1  # tie: the edge to the root
    count = 0
    for visited in range(n):
        i = int(order[visited])
        free = labels[i] < 0
        q = crow[i]
        while free and q < crow[i + 1]:
            j = col[q]
            if labels[j] >= 0 and j != i and abs(values[q]) > 0 and abs(values[q]) >= scale[i] * scale[j]:
                free = False
            q += 1
        if free:
            labels[i] = count
            roots[count] = i
            for q in range(np.uint64(crow[i]), np.uint64(crow[i + 1])):
                j = col[q]
                if j != i and abs(values[q]) > 0 and abs(values[q]) >= scale[i] * scale[j]:
                    labels[j] = count
                    tie[j] = abs(values[q])
            count += 1
    for i in range(n):
        late[i] = labels[i]
    for i in range(n):
        best = 0.0
        if labels[i] < 0:
            for q in range(np.uint64(crow[i]), np.uint64(crow[i + 1])):
                j, size = col[q], abs(values[q])
                if labels[j] >= 0 and size > best and size >= scale[i] * scale[j]:
                    best = size
                    late[i] = labels[j]
            if late[i] < 0:
                late[i] = count
                roots[count] = i
                count += 1
            for q in range(np.uint64(crow[i]), np.uint64(crow[i + 1])):
                if col[q] == roots[late[i]] and col[q] != i:
                    tie[i] = abs(values[q])
    for i in range(n):
        joined[i] = late[i]
    for i in range(n):
        tied, q = tie[i], crow[i]
        while tied < bound and q < crow[i + 1]:
            if col[q] != i and joined[col[q]] == joined[i]:
                tied += min(abs(values[q]), tie[col[q]])
            q += 1
        if tied < bound and roots[joined[i]] != i:
            late[i] = count
            count += 1
    number, named = np.full(count, -1, np.int32), 0
    for i in range(n):
        if number[late[i]] < 0:
            number[late[i]] = named
            named += 1
        late[i] = number[late[i]]
    return late, named


@kernel
def coarsen(crow: Any, col: Any, values: Any, labels: Any, v: Any, sizes: Any, met: Any, sums: Any) -> Any:
    """Add up the rows of each aggregate's nodes, then mirror what was found, so that columns ascend.

    ``met`` and ``sums`` are room for as many columns and sums as there are entries.
    """
    n, count = len(crow) - 1, sizes.size
    first = np.zeros(count + 1, dtype=np.int64)
    for i in range(n):
        first[labels[i] + 1] += 1
    for a in range(count):
        first[a + 1] += first[a]
    nodes, filled = np.empty(n, dtype=labels.dtype), first.copy()
    for i in range(n):
        nodes[filled[labels[i]]] = i
        filled[labels[i]] += 1
    rows = np.zeros(count + 1, dtype=crow.dtype)
    place = np.full(count, -1, dtype=np.int64)  # of a column's entry, if at or after the row's start
    end = 0
    for a in range(count):
        start = end
        for q in range(first[a], first[a + 1]):
            i = nodes[q]
            for p in range(np.uint64(crow[i]), np.uint64(crow[i + 1])):
                j = col[p]
                b = labels[j]
                if place[b] < start:
                    place[b] = end
                    met[end] = b
                    sums[end] = 0.0
                    end += 1
                sums[place[b]] += values[p] * v[i] * v[j]
        rows[a + 1] = end
    columns, entries, following = np.empty(end, dtype=col.dtype), np.empty(end), rows[:-1].copy()
    for a in range(count):
        for p in range(rows[a], rows[a + 1]):
            q = following[met[p]]
            columns[q], entries[q] = a, sums[p] / (sizes[a] * sizes[met[p]])
            following[met[p]] += 1
    return rows, columns, entries


@kernel
def coarsen_dense(crow: Any, col: Any, values: Any, labels: Any, v: Any, sizes: Any) -> Any:
    """Return P^T L P, which is dense: most entries of a row are in its own aggregate."""
    total = np.zeros((sizes.size, sizes.size))
    for i in range(len(crow) - 1):
        a, own = labels[i], 0.0
        for p in range(np.uint64(crow[i]), np.uint64(crow[i + 1])):
            j = col[p]
            part = values[p] * v[j]
            if labels[j] == a:
                own += part
            else:
                total[a, labels[j]] += v[i] * part
        total[a, a] += v[i] * own
    return total / sizes / sizes[:, None]


@kernel
def add_squares(labels: Any, v: Any, total: Any) -> None:
    """Add the squares of v on each aggregate to ``total``."""
    for i in range(labels.size):
        total[labels[i]] += v[i] * v[i]


@kernel
def restrict(labels: Any, v: Any, sizes: Any, X: Any, total: Any) -> None:
    """Add P^T X to ``total``."""
    for i in range(labels.size):
        a = labels[i]
        w = v[i] / sizes[a]
        for j in range(X.shape[1]):
            total[a, j] += w * X[i, j]


@kernel
def prolong(labels: Any, v: Any, sizes: Any, Z: Any, X: Any) -> None:
    """Write P Z to X."""
    for i in range(labels.size):
        a = labels[i]
        w = X.dtype.type(v[i] / sizes[a])
        for j in range(Z.shape[1]):
            X[i, j] = w * Z[a, j]


@kernel
def subtract(labels: Any, v: Any, sizes: Any, Z: Any, X: Any) -> None:
    """Subtract P Z from X."""
    for i in range(labels.size):
        a = labels[i]
        w = X.dtype.type(v[i] / sizes[a])
        for j in range(X.shape[1]):
            X[i, j] -= w * Z[a, j]
