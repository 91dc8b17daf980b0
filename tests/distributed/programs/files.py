"""Load the graph of a folder on all ranks, solve, save; and what has to be refused."""

import sys
from pathlib import Path

import numpy as np
from mpi4py import MPI
from petsc4py import PETSc

import krylow as kl

comm, folder = MPI.COMM_WORLD, Path(sys.argv[1])
G = kl.distributed.load(folder / "graph.petsc")
sub = kl.subspace(G, 4)
sub.save(folder / "saved")
matrix = PETSc.Mat().load(PETSc.Viewer().createBinary(str(folder / "graph.petsc"), "r", comm=comm))
same = kl.subspace(kl.distributed.from_petsc(matrix), 4)
basis, other = sub.gather().numpy(), same.gather().numpy()
if comm.rank == 0:
    np.save(folder / "basis.npy", basis)
    np.save(folder / "other.npy", other)
for case, name in (
    ("truncated", "truncated.petsc"),
    ("none", "missing.petsc"),
    ("other", "graph.csv"),
    ("disagree", "graph.petsc" if comm.rank else "small.petsc"),
):
    try:
        kl.distributed.load(folder / name)
    except kl.InputError as error:
        print(f"{case} {comm.rank} {error}\n", end="", flush=True)
