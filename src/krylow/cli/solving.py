"""The steps of ``krylow filter`` and ``krylow subspace``: options, graph, Laplacian, subspace, report."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from krylow.cli.app import NOT_CONVERGED, Stages, errors, write_stdout

if TYPE_CHECKING:
    import torch

    from krylow.io.graphs import GraphFile
    from krylow.operators import Operator
    from krylow.result import Subspace
    from krylow.solvers._problem import Progress

#: What ``--kind`` takes in addition to the kinds of :func:`krylow.laplacian`.
GIVEN = "given"

GraphArgument = Annotated[
    Path,
    typer.Argument(
        metavar="GRAPH",
        help="The graph: a matrix .mtx, .npz, .npy, .mat; edges .csv, .tsv, .txt, .parquet; .graphml, .gexf, .gml, "
        ".net, .graph (METIS), .col and .gr (DIMACS), .pt (PyG), a folder of OGB; .gz too.",
        show_default=False,
    ),
]
KOption = Annotated[int | None, typer.Option("-k", "--k", help="How many of the lowest frequencies to keep.")]
CutoffOption = Annotated[
    float | None, typer.Option(help="Instead of -k: keep every frequency (eigenvalue of L) up to this one.")
]
TolOption = Annotated[float, typer.Option(help="Normalised squared error of the subspace that is asked for.")]
KindOption = Annotated[
    str | None,
    typer.Option(
        help="Laplacian: combinatorial, generalized, normalized or random_walk; given: the file holds a Laplacian "
        "itself. Default: combinatorial, or generalized where there are self-loops."
    ),
]
StepsOption = Annotated[
    int | None,
    typer.Option("-m", "--m", help="Steps of lanczos, unrolled and the signal's methods; size of the block or basis."),
]
MaxProductsOption = Annotated[
    int | None, typer.Option(help="Most products with L of the methods that iterate until tol.")
]
WeightsOption = Annotated[
    str | None,
    typer.Option(help="A trained network for method unrolled: its name, such as sbm-k6, or its file. Sets -k."),
]
SeedOption = Annotated[
    int | None, typer.Option(help="Of all random vectors. Without it, too, equal calls give equal answers.")
]
DeviceOption = Annotated[str, typer.Option(help="cpu, cuda, cuda:1, ...")]
NodesOption = Annotated[
    int | None,
    typer.Option(help="Number of nodes of an edge list of whole numbers, where some nodes have no edge.", min=1),
]
AddUpOption = Annotated[
    bool,
    typer.Option(
        "--add-up", help="Add up the weights of an edge that is listed several times, which else must be equal."
    ),
]
SourceOption = Annotated[
    str | None,
    typer.Option(help="The column of a table of edges that has their first nodes: its name, or its position from 0."),
]
TargetOption = Annotated[str | None, typer.Option(help="The column of their second nodes.")]
WeightOption = Annotated[
    str | None,
    typer.Option(help="What holds the weights: a column, an attribute of the edges, or a matrix of a .mat."),
]
DirectedOption = Annotated[
    str,
    typer.Option(
        help="What an edge is worth whose two directions have different weights: mean, max or sum, where a missing one "
        "weighs 0; error: they must agree."
    ),
]
MaxSizeOption = Annotated[
    str | None,
    typer.Option(
        help="The most memory that reading a file may take, such as 4G. Default: 64M, or ten times the file, which may "
        "unpack to 20 times its size."
    ),
]
EXIT_CODES = (
    "Exit codes: 0 done, 2 bad input, 3 written but the error bound is above tol, 4 standard output "
    "could not be written, 130 interrupted."
)
ProveOption = Annotated[
    bool,
    typer.Option(
        "--prove",
        help="Prove the answer by a factorisation, or check it by a second random block where that is too dear; the "
        "progress says the price before.",
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")]


@dataclass(frozen=True)
class Request:
    """The options of one run, as they were given."""

    graph: Path
    out: str
    k: int | None
    cutoff: float | None
    method: str
    tol: float
    kind: str | None
    m: int | None
    max_products: int | None
    weights: str | None
    seed: int | None
    device: str
    nodes: int | None
    add_up: bool
    json: bool
    max_size: str | None
    source: str | None = None
    target: str | None = None
    weight: str | None = None
    directed: str = "error"
    prove: bool = False

    @property
    def to_stdout(self) -> bool:
        """Whether the answer itself goes to standard output."""
        return self.out == "-"

    def check(self, methods: tuple[str, ...], inputs: tuple[Path, ...], outputs: tuple[str, ...] | None = None) -> None:
        """Refuse what cannot work before anything is read or computed; ``outputs`` are suffixes other than signals'."""
        from krylow import _checks
        from krylow._checks import InputError
        from krylow.graph import KINDS
        from krylow.io.files import check_output, size_of, suffix
        from krylow.io.signals import SIGNALS

        if self.k is not None and self.cutoff is not None:
            raise InputError(f"give either -k or --cutoff, got -k {self.k} and --cutoff {self.cutoff:g}.")
        if self.k is None and self.cutoff is None and self.weights is None:
            raise InputError("give -k (how many frequencies to keep) or --cutoff (the largest one), got neither.")
        _checks.choice(self.method, ("auto", *methods), "--method")
        if self.weights is not None and self.method not in ("auto", "unrolled"):
            raise InputError(f"--weights are for --method unrolled, got --method {self.method}.")
        if self.kind is not None:
            _checks.choice(self.kind.replace("ised", "ized"), (*KINDS, "random_walk", GIVEN), "--kind")
        _checks.positive(self.tol, "--tol")
        size_of(self.max_size, "--max-size")
        _device(self.device)
        if self.to_stdout:
            if self.json:
                raise InputError("give either --json or -o -, which both need standard output.")
            return
        suffix(Path(self.out), outputs or SIGNALS, "the output")
        check_output(self.out)
        for path in inputs:
            if os.path.realpath(path) == os.path.realpath(self.out):
                raise InputError(f"the output must not be one of the inputs, got {self.out!r}.")


def _device(name: str) -> torch.device:
    """Return the device of that name, or refuse one that torch cannot use here."""
    import torch

    from krylow._checks import InputError

    try:
        device = torch.device(name)
        torch.ones(1, device=device).item()
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        reason = str(error).strip().splitlines()[0].rstrip(".")
        raise InputError(f"--device must be one that torch can use here, got {name!r} ({reason}).") from None
    return device


def read(request: Request, num_nodes: int | None) -> GraphFile:
    """Read the graph; ``num_nodes`` counts the nodes of an edge list where ``--nodes`` does not."""
    from krylow.io.graphs import read_graph

    return read_graph(
        request.graph,
        num_nodes=num_nodes if request.nodes is None else request.nodes,
        add_up=request.add_up,
        max_size=request.max_size,
        source=request.source,
        target=request.target,
        weight=request.weight,
        directed=request.directed,
    )


def build(request: Request, graph: GraphFile, dtype: Any) -> Operator:
    """Return the Laplacian that ``--kind`` names, on the device; dense where a small graph has many edges."""
    import torch

    from krylow import _checks
    from krylow._checks import InputError
    from krylow.graph import as_operator, laplacian

    W = graph.adjacency.astype(dtype)
    matrix: Any = W
    device = _device(request.device)
    if graph.n <= 4096 and 4 * W.nnz > graph.n**2:
        matrix = torch.from_numpy(W.toarray()).to(device)
    elif device.type != "cpu":
        coo = W.tocoo()
        places = torch.stack([torch.from_numpy(i.astype("int64")) for i in (coo.row, coo.col)])
        matrix = torch.sparse_coo_tensor(places, torch.from_numpy(coo.data), W.shape).to(device)
    if request.kind == GIVEN:
        return as_operator(matrix)
    off = W.copy()
    off.setdiag(0)
    try:
        _checks.not_a_laplacian(*(torch.from_numpy(part) for part in (W.diagonal(), off.data, W.sum(1))))
    except InputError:
        raise InputError(f"{request.graph.name} holds a Laplacian already: say so by --kind {GIVEN}.") from None
    return laplacian(matrix, request.kind)


def solve(request: Request, L: Operator, stages: Stages) -> Subspace:
    """Return the subspace that is asked for, with its certificate computed."""
    import krylow as kl

    k, network = request.k, None
    if request.weights is not None:
        network = kl.load(request.weights).to(L.dtype).to(L.device)
        k = network.k if k is None and request.cutoff is None else k
    with stages("solve", "iterating") as move:
        sub = kl.subspace(
            L,
            k,
            cutoff=request.cutoff,
            method=request.method,
            tol=request.tol,
            m=request.m,
            seed=request.seed,
            weights=network,
            max_products=request.max_products,
            callback=_Bar(move, request.tol),
            prove=request.prove,
        )
    again = " of the best so far; Ctrl-C again leaves without it" if sub.interrupted else ""
    with stages("bound", f"bounding the error{again}"):
        sub.certificate  # noqa: B018 (computed when it is first asked for, and kept)
    return sub


@dataclass
class _Bar:
    """Shows the progress of an iteration: the part of the decades from its first error to tol."""

    move: Callable[[float, str], None]
    tol: float
    first: float | None = None
    part: float = 0.0

    def __call__(self, now: Progress) -> None:
        if now.stage:
            self.move(self.part, now.stage + ("" if now.remaining is None else f", {now.remaining:.0f} s left"))
            return
        error = min(max(now.bound, 1e-300), 1.0)
        self.first = error if self.first is None else max(self.first, error)
        if self.first > self.tol:
            part = math.log(self.first / error) / math.log(self.first / self.tol)
            self.part = max(self.part, min(part, 1.0))  # never back
        remaining = "" if now.remaining is None else f", {now.remaining:.0f} s left"
        self.move(self.part, f"{now.passes} passes, error {error:.1g}{remaining}")


def kind_of(request: Request, graph: GraphFile) -> str:
    """Return the name of the Laplacian that :func:`build` makes."""
    return request.kind or ("generalized" if graph.adjacency.diagonal().any() else "combinatorial")


def describe(request: Request, graph: GraphFile, stages: Stages, sub: Subspace | None, **more: Any) -> dict[str, Any]:
    """Return all that is known of a run, as ``--json`` prints it. A bound that is infinite is null."""
    import krylow

    found: dict[str, Any] = {
        "krylow": krylow.__version__,
        "graph": {"file": str(request.graph), "nodes": graph.n, "edges": graph.edges, "kind": kind_of(request, graph)},
        "tol": request.tol,
        "cutoff": request.cutoff,
        "seed": request.seed,
        "device": request.device,
        "status": None,
        "advice": None,
        "error_bound": None,
        "bound_proved": None,
        "certificate": None,
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
            "certificate": sub.certificate.kind,
        }
    return found | more | {"seconds": {name: round(value, 4) for name, value in stages.seconds.items()}}


def finish(request: Request, found: dict[str, Any]) -> None:
    """Print the report, and leave with the exit code that the status asks for."""
    if request.json:
        write_stdout(json.dumps(found) + "\n")
    elif request.to_stdout:
        errors.print(_report(request, found), markup=False)
    else:
        write_stdout(_report(request, found) + "\n")
    if found["status"] in (None, "CONVERGED"):
        return
    errors.print(
        f"[yellow]not converged:[/yellow] {found['status']} ({found['certificate']}), the error bound is "
        f"{_bound(found)}, asked for was {request.tol:g}. {found['advice']}"
    )
    raise typer.Exit(NOT_CONVERGED)


def _report(request: Request, found: dict[str, Any]) -> str:
    graph, seconds = found["graph"], found["seconds"]
    chosen = "chosen by auto: " if request.method == "auto" else ""
    highest = found["ritz_values"][-1] if found.get("ritz_values") else request.cutoff
    limits = [f"k = {found['k']}"] if found["k"] is not None else []
    limits += [f"frequencies up to {highest:.4g}"] if highest is not None else []
    quality = "none: this method filters the signal without a subspace that could be certified"
    if found["status"] is not None:
        quality = f"{_bound(found)} ({found['certificate']}), asked for {request.tol:g}"
    cost = f"{found['products']} products with L in {found['passes']} passes" if found["passes"] else "no products"
    others = ", ".join(f"{name} {seconds[name]:.2f} s" for name in seconds if name != "solve")
    lines = {
        "graph": f"{graph['file']}: {graph['nodes']} nodes, {graph['edges']} edges, {graph['kind']} Laplacian",
        "method": f"{found['method']}, {chosen}{found['why']}",
        "kept": ", ".join(limits),
        "error bound": quality,
        "status": found["status"] and f"{found['status']} ({found['certificate']})",
        "cost": f"{cost}, {seconds['solve']:.2f} s ({others})",
        "output": f"{found['output']['file']}: {found['output']['holds']}",
    }
    return "\n".join(f"{name:<12} {text}" for name, text in lines.items() if text)


def _bound(found: dict[str, Any]) -> str:
    return "infinite" if found["error_bound"] is None else f"{found['error_bound']:.2g}"


def kept(sub: Subspace) -> int:
    """Return how many frequencies a subspace of one graph keeps: none, perhaps, below a low cutoff."""
    return sub.k if sub.kept is None else int(sub.kept)
