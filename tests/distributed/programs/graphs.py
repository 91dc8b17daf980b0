"""A graph, this rank's rows of it, and the communicator."""

import numpy as np
import scipy.sparse as sp
from mpi4py import MPI

comm, n = MPI.COMM_WORLD, 5000
i, j = np.random.default_rng(0).integers(0, n, (2, 8 * n))
whole = sp.coo_array((np.ones(8 * n), (i, j)), shape=(n, n)).tocsr()
whole = sp.csr_array(whole + whole.T)
whole.setdiag(0)
whole.eliminate_zeros()
ends = np.linspace(0, n, comm.size + 1).astype(int)


def rows_of(W):
    """Return this rank's rows."""
    return W[ends[comm.rank] : ends[comm.rank + 1]]


own = rows_of(whole)
