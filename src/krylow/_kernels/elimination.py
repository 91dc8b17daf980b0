"""Static condensation: nodes of one or two neighbours eliminated, and passes over them."""

from __future__ import annotations

from typing import Any

import numpy as np

from krylow._kernels._compile import kernel
from krylow._kernels._prefetch import prefetch

#: Nodes ahead that are asked for, and numbers in a line of the cache.
AHEAD, LINE = 12, 8
#: How far above 1 rounding may take weights on neighbours, and by how much it may change a sum of such numbers.
SLACK, ROUNDED = 1e-9, 1e-4

#: What is known of an entry while nodes are eliminated, in half a line of the cache, and of a node. One that is gone
#: keeps there what is returned of it: its pivot, its weights on its neighbours a and b in place of its mass and of what
#: hung on it, and these two as -1 - a and b in place of its degree and of whether it waits.
ENTRY = np.dtype(
    [("neighbor", "i4"), ("twin", "i4"), ("deep", "f4"), ("held", "f4"), ("weight", "f8"), ("shared", "f8")]
)
NODE = np.dtype(
    [
        ("diagonal", "f8"),
        ("mass", "f8"),
        ("own", "f4"),
        ("hung", "f4"),
        ("degree", "i4"),
        ("queued", "i4"),
    ]
)


@kernel
def eliminate(
    crow: Any,
    col: Any,
    values: Any,
    shift: float,
    slowest: float,
    widest: int,
    met: Any,
    nodes_met: Any,
    other: Any,
    first: Any,
    following: Any,
    stack: Any,
) -> Any:
    """Eliminate nodes of at most two neighbours from L + shift I, and carry the mass of their pieces over.

    Parameters
    ----------
    crow, col, values
        A symmetric matrix in rows with ascending columns.
    shift
        Added to the diagonal.
    slowest
        A piece is not enlarged beyond this number: its nodes times its resistance, and an eighth of that in a chain,
        which is about one over its lowest frequency with the ends held.
    widest
        A node between two nodes that both have more entries than this is left.
    met, nodes_met, other, first, following, stack
        Room of any content for what is known of entries off the diagonal and of nodes, the room of ``own`` and
        ``hung`` of these as one number, room for where these entries begin in each row, and for numbers of nodes.
        Room that is not needed is not touched.

    Returns
    -------
    tuple
        Whether the pattern is symmetric, the number of eliminated nodes, the nodes left, rows, columns, values and
        mass of the core, the bound below, and the entries off the diagonal. The eliminated nodes are the last ones
        of ``stack``, from its end on.

    Notes
    -----
    With a load of one on every node and the ends held, a node between two others carries at most all that its piece
    has, over its pivot, and what is inside the piece that much more than it did with that node held, too: so far a
    bound of the inverse's row sums follows on the way. Weights on neighbours must be positive and add up to 1 at most.
    """
    n = crow.size - 1
    neighbor, twin, deep, held = met["neighbor"], met["twin"], met["deep"], met["held"]
    weight, shared = met["weight"], met["shared"]
    diagonal, mass, degree = nodes_met["diagonal"], nodes_met["mass"], nodes_met["degree"]
    own, hung = nodes_met["own"], nodes_met["hung"]  # nodes of a node and its twigs, and how slow these are
    queued = nodes_met["queued"]
    symmetric, joined, farthest = True, 0, 0.0
    for i in range(n):
        diagonal[i], mass[i], own[i], hung[i] = shift, 1.0, 1.0, 0.0
        queued[i], first[i], following[i] = 0, joined, joined
        for e in range(crow[i], crow[i + 1]):
            if col[e] == i:
                diagonal[i] += values[e]
            else:
                neighbor[joined], twin[joined] = col[e], 0
                deep[joined], held[joined], weight[joined], shared[joined] = 0.0, 0.0, values[e], 0.0
                joined += 1
        degree[i] = joined - first[i]
    first[n] = joined
    for i in range(n):  # row i is the next one that each of its neighbours meets
        if i + 2 * AHEAD < n:
            for e in range(first[i + 2 * AHEAD], first[i + 2 * AHEAD + 1]):
                prefetch(following, np.int64(neighbor[e]))
                prefetch(first, np.int64(neighbor[e]))
            for e in range(first[i + AHEAD], first[i + AHEAD + 1]):
                prefetch(met, np.int64(following[neighbor[e]]))
        for e in range(first[i], first[i + 1]):
            j = neighbor[e]
            p = following[j]
            if p >= first[j + 1] or neighbor[p] != i:
                symmetric = False
                break
            twin[e] = p
            following[j] = p + 1
        if not symmetric:
            break
    top, count = 0, 0
    for i in range(n - 1, -1, -1):
        if symmetric and degree[i] <= 2:
            stack[top], queued[i] = i, 1
            top += 1
    while top:
        top -= 1
        v = stack[top]
        if top >= 2 * AHEAD:
            prefetch(met, np.int64(first[stack[top - 2 * AHEAD]]))
            soon = stack[top - AHEAD]
            prefetch(nodes_met, np.int64(soon))
            for e in range(first[soon], first[soon + 1]):
                prefetch(nodes_met, np.int64(neighbor[e]))
                prefetch(first, np.int64(neighbor[e]))
                prefetch(met, np.int64(twin[e]))
        queued[v] = 0
        one, two = -1, -1
        for e in range(first[v], first[v + 1]):
            if neighbor[e] >= 0:
                if one < 0:
                    one = e
                else:
                    two = e
        if degree[v] > 2 or one < 0 or diagonal[v] == 0:
            continue
        a, pivot, total = neighbor[one], diagonal[v], own[v] + held[one]
        to_a, c = twin[one], -weight[one] / pivot
        b, d, to_b, link = a, 0.0, to_a, -1
        far = max(hung[v], deep[one])
        if two < 0:
            slow = far + total / abs(weight[one])
            if not slow <= slowest:
                continue
            own[a] += total
            hung[a] = max(hung[a], slow)
            far = slow
        else:
            total += held[two]
            b = neighbor[two]
            resistance = 1 / abs(weight[one]) + 1 / abs(weight[two])
            if not hung[v] + total * resistance / 8 <= slowest:
                continue
            to_b, d = twin[two], -weight[two] / pivot
            in_a, in_b = first[a + 1] - first[a], first[b + 1] - first[b]
            if min(in_a, in_b) > widest:
                continue
            if in_a <= in_b:  # link: the entry of b in the row of a, if they are neighbours already
                for e in range(first[a], first[a + 1]):
                    if neighbor[e] == b:
                        link = e
            else:
                for e in range(first[b], first[b + 1]):
                    if neighbor[e] == a:
                        link = twin[e]
            far = max(far, deep[two]) + total / abs(pivot)
            between, mixed = c * weight[two], c * d * mass[v] + c * shared[two] + d * shared[one]
            diagonal[b] += d * weight[two]
            mass[b] += d * (d * mass[v] + 2 * shared[two])
            if link < 0:
                neighbor[to_a], neighbor[to_b], twin[to_a], twin[to_b] = b, a, to_b, to_a
                weight[to_a], shared[to_a], held[to_a], deep[to_a] = between, mixed, total, far
                weight[to_b], shared[to_b], held[to_b], deep[to_b] = between, mixed, total, far
            else:
                back = twin[link]
                weight[link] += between
                shared[link] += mixed
                held[link] += total
                deep[link] = max(deep[link], far)
                weight[back], shared[back] = weight[link], shared[link]
                held[back], deep[back] = held[link], deep[link]
                neighbor[to_b] = -1
                degree[b] -= 1
        if c >= 0 and d >= 0 and c + d <= 1 + SLACK and pivot > 0:
            farthest = max(farthest, far)
        else:
            farthest = np.inf
        diagonal[a] += c * weight[one]
        mass[a] += c * (c * mass[v] + 2 * shared[one])
        if two < 0 or link >= 0:
            neighbor[to_a] = -1
            degree[a] -= 1
            for u in (a, b):
                if degree[u] <= 2 and not queued[u]:
                    stack[top], queued[u] = u, 1
                    top += 1
        mass[v], other[v], degree[v], queued[v] = c, d, -1 - a, b
        count += 1
        stack[n - count] = v  # nodes that wait are not gone: there is room for both
    nodes, place, left = np.empty(n - count, np.int32), following, 0
    for i in range(n):
        if degree[i] >= 0:
            nodes[left], place[i] = i, left
            left += 1
    rows = np.zeros(left + 1, np.int32)
    for r in range(left):
        rows[r + 1] = rows[r] + degree[nodes[r]] + 1
    columns, core, core_mass = np.empty(rows[left], np.int32), np.empty(rows[left]), np.empty(rows[left])
    for r in range(left):
        if r + AHEAD < left:
            soon = nodes[r + AHEAD]
            prefetch(nodes_met, np.int64(soon))
            for e in range(first[soon], first[soon + 1]):
                prefetch(met, np.int64(e))
        i, p = nodes[r], rows[r]
        columns[p], core[p], core_mass[p] = r, diagonal[i], mass[i]
        for e in range(first[i], first[i + 1]):
            if neighbor[e] >= 0:
                p += 1
                columns[p], core[p], core_mass[p] = place[neighbor[e]], weight[e], shared[e]
    farthest *= 1 + ROUNDED
    return symmetric, count, nodes, rows, columns, core, core_mass, farthest, joined


@kernel
def gather(nodes_met: Any, other: Any, stack: Any, order: Any, coefficients: Any) -> None:
    """Fill each eliminated node with its two neighbours, and its weights on these with its pivot."""
    n = stack.size
    for i in range(order.shape[0]):
        if i + AHEAD < order.shape[0]:
            prefetch(nodes_met, np.int64(stack[n - 1 - i - AHEAD]))
        v = stack[n - 1 - i]
        met = nodes_met[v]
        order[i, 0], order[i, 1], order[i, 2] = v, -1 - met["degree"], met["queued"]
        coefficients[i, 0], coefficients[i, 1], coefficients[i, 2] = met["mass"], other[v], met["diagonal"]


@kernel
def down(order: Any, coefficients: Any, X: Any) -> None:
    """Add to each node left what the eliminated ones pass on to it: the forward half of a solve with a block."""
    columns = X.shape[1]
    for i in range(order.shape[0]):
        if i + AHEAD < order.shape[0]:
            for soon in order[i + AHEAD]:
                for j in range(0, columns, LINE):
                    prefetch(X, np.int64(soon) * columns + j)
        v, a, b = order[i]
        c, d, _ = coefficients[i]
        if d == 0:
            for j in range(columns):
                X[a, j] += c * X[v, j]
        else:
            for j in range(columns):
                X[a, j] += c * X[v, j]
                X[b, j] += d * X[v, j]


@kernel
def up(order: Any, coefficients: Any, X: Any) -> None:
    """Fill the eliminated nodes from those left: the backward half of a solve."""
    columns = X.shape[1]
    for i in range(order.shape[0] - 1, -1, -1):
        if i >= AHEAD:
            for soon in order[i - AHEAD]:
                for j in range(0, columns, LINE):
                    prefetch(X, np.int64(soon) * columns + j)
        v, a, b = order[i]
        c, d, pivot = coefficients[i]
        load = 1 / pivot
        for j in range(columns):
            X[v, j] = load * X[v, j] + c * X[a, j] + d * X[b, j]


@kernel
def extend(order: Any, coefficients: Any, X: Any) -> None:
    """Fill the eliminated nodes from those left as the solution without a load on them has it."""
    columns = X.shape[1]
    for i in range(order.shape[0] - 1, -1, -1):
        if i >= AHEAD:
            for soon in order[i - AHEAD]:
                for j in range(0, columns, LINE):
                    prefetch(X, np.int64(soon) * columns + j)
        v, a, b = order[i]
        c, d, _ = coefficients[i]
        for j in range(columns):
            X[v, j] = c * X[a, j] + d * X[b, j]


@kernel
def inherit(order: Any, labels: Any) -> None:
    """Give each eliminated node the label of a neighbour that it had then."""
    for i in range(order.shape[0] - 1, -1, -1):
        if i >= AHEAD:
            prefetch(labels, np.int64(order[i - AHEAD, 0]))
            prefetch(labels, np.int64(order[i - AHEAD, 1]))
        labels[order[i, 0]] = labels[order[i, 1]]
