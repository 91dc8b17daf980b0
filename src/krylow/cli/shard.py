"""Graphs that ranks share: ``krylow shard``, and ``krylow subspace`` of what it writes, under ``mpiexec``."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Annotated

import typer

from krylow.cli.app import BAD_INPUT, NOT_CONVERGED, app, messages, write_stdout
from krylow.cli.solving import AddUpOption, NodesOption, Request


@app.command()
def shard(
    edges: Annotated[
        Path,
        typer.Argument(
            metavar="EDGES",
            help="Edges, as many as the disk holds: .parquet (columns src, dst, weight, or the first two or three), "
            ".csv, .tsv, .txt (two nodes and perhaps a weight a line), .mtx. Nodes are whole numbers from 0.",
            show_default=False,
        ),
    ],
    out: Annotated[
        Path, typer.Argument(metavar="OUT.petsc", help="The file that ranks read, each its rows.", show_default=False)
    ],
    nodes: NodesOption = None,
    add_up: AddUpOption = False,
) -> None:
    """Write a graph that may be larger than memory so that any number of ranks read it by rows.

    Then: mpiexec -n 4 krylow subspace OUT.petsc -k 10 -o FOLDER, or kl.distributed.load in a program.
    """
    with messages():
        from krylow.io.shards import shard as write

        n, entries = write(edges, out, num_nodes=nodes, add_up=add_up)
        write_stdout(f"{out.name}: {n} nodes, {entries} entries\n")


def solve_on_ranks(request: Request) -> None:
    """Solve for a graph in PETSc's form on all ranks, and write the basis by shards into a folder."""
    with messages():
        from krylow import distributed
        from krylow._checks import InputError
        from krylow.api import subspace
        from krylow.certificate import Status
        from krylow.operators._ranks import mpi

        begin = time.perf_counter()
        first = True
        try:
            first = mpi().COMM_WORLD.rank == 0
            G = distributed.load(request.graph, kind=request.kind)
            sub = subspace(
                G,
                request.k,
                cutoff=request.cutoff,
                method=request.method,
                tol=request.tol,
                m=request.m,
                seed=request.seed,
                max_products=request.max_products,
            )
            assert isinstance(sub, distributed.ShardedSubspace)
            sub.save(request.out)
        except InputError:
            if first:
                raise
            raise typer.Exit(BAD_INPUT) from None
        if first:
            found = {
                "graph": {"file": str(request.graph), "nodes": G.n},
                "ranks": G.ranks.size,
                "method": sub.method,
                "why": sub.why,
                "k": sub.k,
                "ritz_values": sub.ritz_values.tolist(),
                "status": sub.status.name,
                "error_bound": float(sub.error_bound) if bool(sub.error_bound.isfinite()) else None,
                "products": sub.products,
                "seconds": round(time.perf_counter() - begin, 3),
                "output": str(request.out),
            }
            lines = [f"{name:<12} {value}" for name, value in found.items()]
            write_stdout((json.dumps(found) if request.json else "\n".join(lines)) + "\n")
        if sub.status != Status.CONVERGED:
            raise typer.Exit(NOT_CONVERGED)
