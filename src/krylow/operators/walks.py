r"""One walk over a graph, breadth first, and what it tells: an order of the nodes, the components, and a width.

Each component is walked twice, unless it has no geometry: from any node to one that is far away, and back from there.
Its nodes in the order of the second walk are near their neighbours (Cuthill and McKee's order, but for ties); the
widest level tells a geometry, where a front is a line or a surface, from a graph without one, where half of the nodes
are met at a time.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components, reverse_cuthill_mckee
from torch import Tensor

from krylow._memory import arrays
from krylow.operators.compiled import ask, asking, compiled
from krylow.operators.sparse import SparseOperator

#: A walk that meets more than this share of a component at a time is not made again from its far end: another one would
#: hardly be narrower.
BROAD = 0.25
#: Nodes ahead whose rows are asked for.
AHEAD = 32
#: Most rounds in which nodes take their neighbours' names; one in which so many agree with most of those is the last.
ROUNDS, AGREED = 6, 0.9


@dataclass(frozen=True)
class Walk:
    """What a walk over the whole graph tells.

    Attributes
    ----------
    order
        ``(n,)``: the nodes one after the other, component by component.
    labels
        ``(n,)``: the component of each node; they share their room if there is one.
    components
        Their number, an isolated node being one.
    widest
        The most nodes that are equally far from a component's first node, over the number of all nodes.
    """

    order: np.ndarray
    labels: np.ndarray
    components: int
    widest: float


def walk(L: SparseOperator) -> Walk:
    """Return the walk over the graph of L's entries that are not zero; made once for an operator. On the host."""
    key = f"walk {L.version}"
    known = L.kept.get(key)
    if not isinstance(known, Walk):
        crow, col = L.host_indices()
        known = _walk(crow, col, L.values.detach().cpu().numpy())
        L.kept[key] = known
    return known


def components_of(L: SparseOperator) -> tuple[np.ndarray, int]:
    """Return the component ``(n,)`` of each node, and their number, without the way back of a whole walk.

    From the operator's walk, if that was made already.
    """
    known = L.kept.get(f"walk {L.version}")
    if not isinstance(known, Walk):
        crow, col = L.host_indices()
        known = _walk(crow, col, L.values.detach().cpu().numpy(), back=False)
    return known.labels, known.components


def components_of_rows(crow: np.ndarray, col: np.ndarray) -> tuple[np.ndarray, int]:
    """Return the component of each node of a symmetric pattern in rows, and their number."""
    walk = _walk(crow, col, np.ones(col.size, np.bool_), back=False)
    return walk.labels, walk.components


def _walk(crow: np.ndarray, col: np.ndarray, values: np.ndarray, *, back: bool = True) -> Walk:
    """Return the walk; without the way ``back`` its order and width are of no use."""
    kernel = asking(_walk_twice)
    if kernel is not None:
        order, labels, components, widest = kernel(crow, col, values, not values.all(), back)
        labels = labels.astype(np.int64) if components > 1 else np.broadcast_to(np.int64(0), order.size)
        return Walk(order, labels, int(components), int(widest) / (crow.size - 1))
    n = crow.size - 1
    zeros = not values.all()  # entries that are there but zero join nothing; to drop them writes into the indices
    linked = csr_array((values != 0, col, crow), shape=(n, n), copy=zeros)
    if zeros:
        linked.eliminate_zeros()
    components, labels = connected_components(linked, directed=True, connection="strong")  # L is symmetric
    order = np.ascontiguousarray(reverse_cuthill_mckee(linked, symmetric_mode=True))[::-1].copy()
    order = order[np.argsort(labels[order], kind="stable")]
    return Walk(order.astype(np.int64), labels.astype(np.int64), int(components), _widest(linked, order, labels) / n)


def _widest(linked: Any, order: np.ndarray, labels: np.ndarray) -> int:
    """Return the widest level of walks from each component's first node, all components at once, each on its own."""
    crow, col = linked.indptr, linked.indices
    seen = np.zeros(labels.size, dtype=bool)
    _, firsts = np.unique(labels[order], return_index=True)
    level = order[firsts]
    seen[level] = True
    widest = 1
    while level.size:
        widest = max(widest, int(np.bincount(labels[level]).max()))
        counts = (crow[level + 1] - crow[level]).astype(np.int64)
        places = np.repeat(crow[level] - (np.cumsum(counts) - counts), counts) + np.arange(counts.sum())
        following = col[places]
        level = np.unique(following[~seen[following]]).astype(np.int64)
        seen[level] = True
    return widest


def _walk_twice(crow: Any, col: Any, values: Any, zeros: bool, back: bool) -> Any:
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
                        ask(crow, np.int64(order[read + AHEAD]))
                        ask(col, np.int64(crow[order[read + AHEAD // 2]]))
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


def communities(L: SparseOperator) -> Tensor | None:
    """Return the community of each node as its neighbours name it, or None without numba. On the host.

    Label propagation: every node begins with a name of its own, and takes the one that most of its neighbours have,
    until most nodes agree with most of their neighbours. Weights do not count.
    """
    kernel = asking(_propagate)
    if kernel is None:
        return None
    crow, col = L.host_indices()
    tally = np.zeros(L.n, np.int32 if (ROUNDS + 1) * col.size < 2**31 else np.int64)
    return torch.from_numpy(kernel(crow, col, tally, ROUNDS, AGREED)).long()


def _propagate(crow: Any, col: Any, tally: Any, rounds: int, enough: float) -> Any:
    n, number = crow.size - 1, tally.dtype.type
    labels = np.arange(n).astype(np.int32)
    # A name's tally, 0 at first, begins anew at each node: from ``start``, beyond all tallies of the nodes before.
    start = number(0)
    for _ in range(rounds):
        agreed = 0
        for i in range(n):
            if i + AHEAD < n:
                for p in range(crow[i + AHEAD - 1], crow[i + AHEAD]):
                    ask(labels, np.int64(col[p]))
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


def mirrored(crow: np.ndarray, col: np.ndarray, values: np.ndarray) -> bool:
    """Return whether each entry has a mirror image equal to the last bit; False also where that is not known.

    A number is drawn from place and value of each entry by a hash, and those above the diagonal are compared with those
    below by their sum: two matrices of the same sum are the same, but for one case in 10^19. One pass over the entries
    in their order, where a comparison jumps through memory. False without numba.
    """
    kernel = compiled(_balance)
    return kernel is not None and int(kernel(crow, col, np.asarray(values, dtype=np.float64).view(np.uint64))) == 0


def _balance(crow: Any, col: Any, bits: Any) -> Any:
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


def permuted_rows(
    crow: np.ndarray, col: np.ndarray, values: np.ndarray, order: np.ndarray, dtype: Any = None
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the rows of a matrix whose nodes are put in an order, ``order[new] = old``; its columns are in none.

    Its values are of a ``dtype``, or as they are.
    """
    kernel = asking(_permuted)
    if kernel is not None:
        rows, columns, entries = arrays(
            (crow.size, crow.dtype), (col.size, col.dtype), (values.size, dtype or values.dtype)
        )
        kernel(crow, col, values, order, rows, columns, entries)
        return rows, columns, entries
    n = order.size
    matrix = csr_array((values, col, crow), shape=(n, n), copy=False)[order]
    new = np.empty(n, dtype=col.dtype)
    new[order] = np.arange(n)
    return matrix.indptr.astype(crow.dtype), new[matrix.indices], matrix.data.astype(dtype or values.dtype, copy=False)


def _permuted(crow: Any, col: Any, values: Any, order: Any, rows: Any, columns: Any, entries: Any) -> None:
    n = order.size
    new = np.empty(n, dtype=col.dtype)
    rows[0] = 0
    for i in range(n):
        new[order[i]] = i
        rows[i + 1] = rows[i] + crow[order[i] + 1] - crow[order[i]]
    for i in range(n):
        if i + AHEAD < n:
            ask(crow, np.int64(order[i + AHEAD]))
            soon = order[i + AHEAD // 2]
            for p in range(crow[soon], crow[soon + 1], 8):
                ask(col, np.int64(p))
                ask(values, np.int64(p))
            soon = order[i + AHEAD // 4]
            for p in range(crow[soon], crow[soon + 1]):
                ask(new, np.int64(col[p]))
        low, start = crow[order[i]], rows[i]
        for p in range(rows[i + 1] - start):
            columns[start + p] = new[col[low + p]]
            entries[start + p] = values[low + p]


def move_rows(X: np.ndarray, order: np.ndarray) -> None:
    """Move row i of a contiguous block to place ``order[i]``, for all rows at once, without room for another block."""
    kernel = asking(_move_rows)
    if kernel is not None:
        kernel(X, order)
    else:
        X[order] = X.copy()


def _move_rows(X: Any, order: Any) -> None:
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
                ask(X, following * columns + j)
            for j in range(columns):
                carried[j], X[place, j] = X[place, j], carried[j]
            place = following
