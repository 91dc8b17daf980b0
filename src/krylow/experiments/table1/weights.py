"""Networks to ship: the paper's network of each column, as a small file with a card that says what it is."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch

from krylow._checks import InputError
from krylow.experiments.records import Record, find
from krylow.experiments.table1.assemble import KIND
from krylow.nn.probes import InversePolynomialProbe
from krylow.nn.unrolled import UnrolledLanczos


def export(records: str | Path, target: str | Path) -> list[Path]:
    """Write a network for every column among the records of a folder; the full grid's column before the reduced."""
    best: dict[tuple[str, int], Record] = {}
    for record in sorted(find(records, kind=KIND), key=lambda r: r.config["grid"], reverse=True):
        best[record.config["data"], record.config["k"]] = record
    Path(target).mkdir(parents=True, exist_ok=True)
    written = []
    for (data, k), record in sorted(best.items()):
        net, card = network(record)
        path = Path(target) / f"{data.lower()}-k{k}.safetensors"
        net.save(path, card=card)
        written.append(path)
    return written


def network(record: Record) -> tuple[UnrolledLanczos, dict[str, Any]]:
    """Return the full network trained on the subspace error, of the seed with the best validation error, and its card.

    The probe is the paper's, of L as it is, by truncated conjugate gradients: evaluate it in float64.
    """
    row = _row(record.results["rows"])
    seed = min(range(len(row["settings"])), key=lambda s: row["settings"][s]["validation"])
    settings, k = row["settings"][seed], record.config["k"]
    probe = InversePolynomialProbe(settings["degree"], settings["power"], settings["cg_steps"], "cg", scaled=False)
    net = UnrolledLanczos(k, 2 * k, probe).double()
    parameters = {name: torch.tensor(p, dtype=torch.float64) for name, p in row["parameters"][seed].items()}
    net.load_state_dict(parameters)
    card = {
        "data": record.config["data"],
        "loss": "subspace",
        "seed": record.config["seeds"][seed],
        "seeds": record.config["seeds"],
        "grid": record.config["grid"],
        "settings": settings,
        "test_error": sum(row["errors"][seed]) / len(row["errors"][seed]),
        "test_error_all_seeds": [row["mean"], row["std"]],
        "krylov_ceiling_all_seeds": row["ceiling"],
        "products": row["products"][seed],
        "basis_vectors": row["vectors"],
        "dtype": "float64",
        "record": record.file_name,
    }
    return net, card


def _row(rows: Iterable[dict[str, Any]]) -> dict[str, Any]:
    for row in rows:
        if row["row"] == "7" and row["form"] == "literal":
            return row
    raise InputError("the record holds no full network with the paper's probe (row 7): train it first.")
