"""What a run has found, as JSON and in words, and the exit code that follows from it."""

from __future__ import annotations

import errno
import json
import math
import sys
from typing import TYPE_CHECKING, Any

import typer

from krylow.cli.app import errors, no_output
from krylow.cli.options import Request
from krylow.cli.progress import Stages

if TYPE_CHECKING:
    from krylow.io.graphs import GraphFile
    from krylow.result import Subspace

#: Exit code of an answer that was written, but whose error bound is above tol.
NOT_CONVERGED = 3


def describe(request: Request, graph: GraphFile, stages: Stages, sub: Subspace | None, **more: Any) -> dict[str, Any]:
    """Return all that is known of a run, as ``--json`` prints it. A bound that is infinite is null."""
    import krylow

    found: dict[str, Any] = {
        "krylow": krylow.__version__,
        "graph": {"file": str(request.graph), "nodes": graph.n, "edges": graph.edges, "kind": _kind(request, graph)},
        "tol": request.tol,
        "cutoff": request.cutoff,
        "seed": request.seed,
        "device": request.device,
        "status": None,
        "advice": None,
        "error_bound": None,
        "bound_proved": None,
    }
    if sub is not None:
        bound = sub.error_bound.item()
        found |= {
            "method": sub.method,
            "why": sub.why,
            "k": kept(sub),
            "ritz_values": sub.ritz_values[: kept(sub)].tolist(),
            "products": sub.products,
            "passes": sub.passes,
            "status": sub.status.name,
            "advice": sub.status.advice,
            "error_bound": bound if math.isfinite(bound) else None,
            "bound_proved": sub.certificate.proved,
        }
    return found | more | {"seconds": {name: round(value, 4) for name, value in stages.seconds.items()}}


def _kind(request: Request, graph: GraphFile) -> str:
    """Return the kind of Laplacian that was asked for, or that is taken where none was."""
    return request.kind or ("generalized" if graph.adjacency.diagonal().any() else "combinatorial")


def finish(request: Request, found: dict[str, Any]) -> None:
    """Print the report, and leave with the exit code that the status asks for."""
    if request.json:
        write_stdout(json.dumps(found) + "\n")
    elif request.to_stdout:
        errors.print(report(request, found), markup=False)
    else:
        write_stdout(report(request, found) + "\n")
    if found["status"] in (None, "CONVERGED"):
        return
    bound = found["error_bound"]
    errors.print(
        f"[yellow]not converged:[/yellow] {found['status']}, the error bound is "
        f"{'infinite' if bound is None else f'{bound:.2g}'}, asked for was {request.tol:g}. {found['advice']}"
    )
    raise typer.Exit(NOT_CONVERGED)


def report(request: Request, found: dict[str, Any]) -> str:
    """Return the report in words."""
    graph, seconds = found["graph"], found["seconds"]
    chosen = "chosen by auto: " if request.method == "auto" else ""
    kept_text = f"k = {found['k']}" if found["k"] is not None else ""
    highest = found["ritz_values"][-1] if found.get("ritz_values") else request.cutoff
    if highest is not None:
        kept_text += f"{', ' if kept_text else ''}frequencies up to {highest:.4g}"
    if found["status"] is None:
        quality = "none: this method filters the signal without a subspace that could be certified"
    else:
        bound = found["error_bound"]
        size = "infinite" if bound is None else f"{bound:.2g}"
        quality = f"{size} ({'proved' if found['bound_proved'] else 'estimated'}), asked for {request.tol:g}"
    spent = f"{found['products']} products with L in {found['passes']} passes" if found["passes"] else "no products"
    others = ", ".join(f"{name} {seconds[name]:.2f} s" for name in seconds if name != "solve")
    lines = {
        "graph": f"{graph['file']}: {graph['nodes']} nodes, {graph['edges']} edges, {graph['kind']} Laplacian",
        "method": f"{found['method']}, {chosen}{found['why']}",
        "kept": kept_text,
        "error bound": quality,
        "status": found["status"] or "",
        "cost": f"{spent}, {seconds['solve']:.2f} s ({others})",
        "output": f"{found['output']['file']}: {found['output']['holds']}",
    }
    return "\n".join(f"{name:<12} {text}" for name, text in lines.items() if text)


def write_stdout(text: str) -> None:
    """Write to standard output, and take it calmly when its reader has gone or there is no space."""
    if sys.stdout is None:
        raise no_output(OSError(errno.EBADF, "it is closed"))
    left = memoryview(text.encode())
    try:
        while left:  # without a buffer (PYTHONUNBUFFERED) a write may end early, and does not say so but by its count
            left = left[sys.stdout.buffer.write(left) :]
        sys.stdout.flush()
    except OSError as error:
        raise no_output(error) from None


def kept(sub: Subspace) -> int:
    """Return how many frequencies a subspace of one graph keeps: none, perhaps, below a low cutoff."""
    return sub.k if sub.kept is None else int(sub.kept)
