"""``krylow info``: what a report of a problem needs, and what could still be installed."""

from __future__ import annotations

import json
import re
from importlib import metadata
from typing import Annotated, Any

import typer

from krylow import _native
from krylow._machine import install_line
from krylow.cli.app import app, console, messages

#: The extras that a user may want; the others are for working on krylow itself.
WANTED = ("pyg", "sklearn", "plot", "cluster")


@app.command()
def info(
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")] = False,
) -> None:
    """Show versions, threads, devices, kernels, folders, and which extras are missing."""
    with messages():
        found = _collect()
        if as_json:
            typer.echo(json.dumps(found))
            return
        lines = {
            "versions": ", ".join(f"{name} {version}" for name, version in found["versions"].items()),
            "processor": f"{found['machine']['cpu']}, {found['machine']['cores']} cores, "
            f"{found['machine']['memory_gib']} GiB",
            "threads": f"{found['threads']['torch']} in torch (OMP_NUM_THREADS sets them)",
            "devices": ", ".join(found["devices"]),
            "kernels": "; ".join(f"{name}: {by}" for name, by in found["kernels"].items()),
            "data folder": found["folders"]["data"] or "none (KRYLOW_DATA names one)",
            "downloads": found["folders"]["cache"],
            "networks": ", ".join(found["networks"]) or "none",
        }
        rows = [*lines.items()]
        for extra, absent in found["missing_extras"].items():
            rows.append(("missing", f"{', '.join(absent)}: {install_line(extra)}"))
        width = max(len(name) for name, _ in rows) + 2
        for name, text in rows:
            console.print(f"{name:<{width}}{text}", markup=False, highlight=False, soft_wrap=True)


def _collect() -> dict[str, Any]:
    """Return everything that ``krylow info`` shows."""
    import torch

    from krylow._machine import machine, versions
    from krylow.data.tudataset import cache_folder, data_folder
    from krylow.nn.unrolled import SHIPPED

    folder = data_folder()
    return {
        "versions": versions(),
        "machine": machine(),
        "threads": {"torch": torch.get_num_threads()},
        "devices": ["cpu", *(f"cuda:{i}" for i in range(torch.cuda.device_count()))]
        + (["mps"] if torch.backends.mps.is_available() else []),
        "kernels": {"processor": f"compiled, level {_native.level()} of the instruction set", "other devices": "torch"},
        "folders": {"data": None if folder is None else str(folder), "cache": str(cache_folder())},
        "networks": sorted(path.stem for path in SHIPPED.glob("*.safetensors")),
        "missing_extras": _missing_extras(),
    }


def _missing_extras() -> dict[str, list[str]]:
    """Return the packages that are not installed, by the extra that brings them."""
    missing: dict[str, list[str]] = {}
    for requirement in metadata.requires("krylow") or []:
        fit = re.match(r"([A-Za-z0-9._-]+).*;\s*extra\s*==\s*['\"]([^'\"]+)['\"]", requirement)
        if fit is None or fit[2] not in WANTED or fit[1].lower() == "krylow":
            continue
        try:
            metadata.version(fit[1])
        except metadata.PackageNotFoundError:
            missing.setdefault(fit[2], []).append(fit[1])
    return missing
