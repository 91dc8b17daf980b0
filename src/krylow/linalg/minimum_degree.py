"""An order of elimination for graphs that are nearly trees: always a node with the fewest neighbours next.

The graph is kept as it is after each elimination, every node with a list of its neighbours, which is quick only where
the lists stay short. SuperLU's order, made for all graphs, takes eight times as long on the core of a road network.
"""

from __future__ import annotations

import numpy as np

from krylow import _kernels

#: Most entries a row of a matrix that is nearly a tree's, diagonal included.
THIN = 6.0
#: Entries of lists that are read before the graph is given up, for each entry of the matrix.
MOST_READ = 12


def minimum_degree(rows: np.ndarray, columns: np.ndarray) -> tuple[np.ndarray, int] | None:
    """Return the place of each node of a symmetric pattern in the order, and the entries below a factor's diagonal.

    None where the lists get long, and without numba.
    """
    if not _kernels.available() or columns.size > THIN * (rows.size - 1):
        return None
    place, entries, done = _kernels.factor.minimum_degree(rows, columns, MOST_READ * columns.size)
    return (place, int(entries)) if done else None
