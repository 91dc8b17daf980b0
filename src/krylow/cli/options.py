"""The options that ``krylow filter`` and ``krylow subspace`` share, and their checks."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    import torch

#: What ``--kind`` takes beside the kinds of :func:`krylow.laplacian`.
GIVEN = "given"

GraphArgument = Annotated[
    Path,
    typer.Argument(
        metavar="GRAPH",
        help="The graph: .mtx, .npz (scipy sparse), .npy, .graphml, or an edge list .csv, .tsv, .txt; .gz too.",
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
        help="Laplacian: combinatorial, generalized or normalized; given: the file holds a Laplacian itself. Default: "
        "combinatorial, or generalized where there are self-loops."
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
    max_size: str | None = None

    @property
    def to_stdout(self) -> bool:
        """Whether the answer itself goes to standard output."""
        return self.out == "-"

    def check(self, methods: tuple[str, ...], inputs: tuple[Path, ...]) -> None:
        """Refuse what cannot work before anything is read or computed."""
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
            _checks.choice(self.kind.replace("ised", "ized"), (*KINDS, GIVEN), "--kind")
        _checks.positive(self.tol, "--tol")
        size_of(self.max_size, "--max-size")
        device_of(self.device)
        if self.to_stdout:
            if self.json:
                raise InputError("give either --json or -o -, which both need standard output.")
            return
        suffix(Path(self.out), SIGNALS, "the output")
        check_output(self.out)
        for path in inputs:
            if os.path.realpath(path) == os.path.realpath(self.out):
                raise InputError(f"the output must not be one of the inputs, got {self.out!r}.")


def device_of(name: str) -> torch.device:
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
