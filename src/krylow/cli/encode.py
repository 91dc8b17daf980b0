"""``krylow encode``: the low frequencies of many graphs, from files to files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from krylow.cli.app import app, staged, write_stdout
from krylow.cli.solving import JsonOption


@app.command()
def encode(
    dataset: Annotated[
        Path,
        typer.Argument(
            metavar="DATASET",
            help="Parquet files (id, num_nodes, src, dst and perhaps weight), or a folder of files of one graph each.",
            show_default=False,
        ),
    ],
    out: Annotated[Path, typer.Argument(metavar="OUT", help="The folder of the results.", show_default=False)],
    k: Annotated[int, typer.Option("-k", "--k", help="Number of frequencies.")] = 8,
    engine: Annotated[str, typer.Option(help="local or ray.")] = "local",
    workers: Annotated[int, typer.Option(help="Tasks that run at a time.")] = 1,
    address: Annotated[str | None, typer.Option(help="Of a running Ray. Default: one of its own here.")] = None,
    edges: Annotated[str, typer.Option(help="both: tables list both directions of an edge; once: one.")] = "both",
    tol: Annotated[float, typer.Option(help="Error of graphs beyond 700 nodes.")] = 1e-6,
    as_json: JsonOption = False,
) -> None:
    """Write the lowest frequencies of every graph of a data set. Interrupted, the same command goes on."""
    with staged() as stages:
        with stages.starting():
            import krylow as kl
        with stages("encode", "encoding") as move:
            done = kl.encode(
                dataset,
                out,
                k,
                engine=engine,
                workers=workers,
                address=address,
                edges=edges,
                tol=tol,
                callback=lambda number, count: move(number / count, f"{number} of {count} files"),
            )
        found = {
            "out": str(done.out),
            "graphs": done.graphs,
            "rejected": done.rejected,
            "files": done.files,
            "kept": done.kept,
            "seconds": round(stages.seconds["encode"], 3),
        }
        text = f"{done.graphs} graphs in {done.files} files ({done.kept} were there), {done.rejected} rejected"
        where = f": {done.out / 'rejects'}" if done.rejected else ""
        write_stdout(json.dumps(found) + "\n" if as_json else f"{text}{where}\n")
