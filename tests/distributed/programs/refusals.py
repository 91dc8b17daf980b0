"""What every rank has to refuse, one line a case and rank."""

import numpy as np
import scipy.sparse as sp
from graphs import comm, n, own, rows_of, whole

import krylow as kl


def refused(case, work):
    try:
        work()
    except kl.InputError as error:
        print(f"{case} {comm.rank} {error}\n", end="", flush=True)


half, far, G = rows_of(sp.csr_array(sp.triu(whole))), own.copy(), None
if comm.rank == comm.size - 1:
    far.indices[0] = n + 5
refused("asymmetric", lambda: kl.distributed.from_local_rows(half.indptr, half.indices, half.data))
refused("column", lambda: kl.distributed.from_local_rows(far.indptr, far.indices, far.data))
mine = rows_of(sp.csr_array(sp.diags_array(whole.sum(1)) - whole))
refused("laplacian", lambda: kl.distributed.from_local_rows(mine.indptr, mine.indices, mine.data))
G = kl.distributed.from_local_rows(own.indptr, own.indices, own.data)
refused("large", lambda: kl.subspace(G, n + 1))
refused("many", lambda: kl.subspace(G, n // 2))
refused("method", lambda: kl.subspace(G, 4, method="davidson"))
refused("cutoff", lambda: kl.subspace(G, cutoff=0.1))
refused("signal", lambda: kl.lowpass(G, np.ones(n + 1), k=4))
