"""Solve for the graphs in a folder on all ranks, and write what was found there, in a folder named by the ranks."""

import dataclasses
import json
import sys
from pathlib import Path

import numpy as np
import scipy.sparse
from mpi4py import MPI

import krylow as kl
from krylow.operators import distributed

distributed.PIECE = 700  # many pieces of a small graph
comm, folder = MPI.COMM_WORLD, Path(sys.argv[1])
out = folder / f"ranks{comm.size}"
COARSENING = kl.solvers.Multilevel.coarsening


def spread(n, layout):
    """Return the first node of each rank, and the end."""
    if layout == "empty":  # all but the last rank and the first
        return np.array([0, *[n // 3] * (comm.size - 1), n]) if comm.size > 1 else np.array([0, n])
    if layout == "single":
        return np.array([0, *np.arange(1, comm.size), n])
    return np.linspace(0, n, comm.size + 1).astype(int)


def solve(name, asked):
    W = scipy.sparse.csr_array(scipy.sparse.load_npz(folder / f"{name}.npz"))
    ends, k = spread(W.shape[0], asked.pop("layout", "")), asked.pop("k")
    first, last = ends[comm.rank : comm.rank + 2]
    own = W[first:last]
    most = asked.pop("replicated", COARSENING.replicated)
    kl.solvers.Multilevel.coarsening = dataclasses.replace(COARSENING, replicated=most)
    made = {part: asked.pop(part) for part in ("kind", "partition") if part in asked}
    given = own.data.copy()
    G = kl.distributed.from_local_rows(own.indptr, own.indices, own.data, **made)
    assert np.array_equal(own.data, given)
    sub = kl.subspace(G, k, **asked)
    x = np.random.default_rng(5).standard_normal((W.shape[0], 2))
    coefficients = comm.allgather(sub.gft(x[first:last]))
    assert all(np.array_equal(part, coefficients[0]) for part in coefficients)
    assert sub.basis.shape == (last - first, k)
    filtered = np.concatenate(comm.allgather(sub.project(x[first:last])))
    basis = sub.gather().numpy()
    found = {
        "status": sub.status.name,
        "kind": sub.certificate.kind,
        "bound": float(sub.error_bound),
        "method": sub.method,
        "why": sub.why,
        "theta": sub.ritz_values.tolist(),
        "products": sub.products,
    }
    assert len(set(comm.allgather(json.dumps(found)))) == 1
    if comm.rank == 0:
        np.savez(out / f"{name}.npz", basis=basis, filtered=filtered)
        (out / f"{name}.json").write_text(json.dumps(found))


out.mkdir(exist_ok=True)
for name, asked in json.loads((folder / "asked.json").read_text()).items():
    solve(name, asked)
