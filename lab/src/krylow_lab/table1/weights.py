"""Networks to ship: the paper's network and the learned roots of each column, each with a card that says what it is."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch

from krylow._checks import InputError
from krylow.nn.probes import InversePolynomialProbe
from krylow.nn.unrolled import UnrolledLanczos
from krylow_lab.records import Record, find
from krylow_lab.table1.assemble import KIND
from krylow_lab.table1.learned import root_network

#: Products of the learned roots that are shipped, in multiples of k.
ROOT_BUDGET = 4


def export(records: str | Path, target: str | Path) -> list[Path]:
    """Write two networks for every column among the records of a folder; the full grid's column before the reduced."""
    best: dict[tuple[str, int], Record] = {}
    for record in sorted(find(records, kind=KIND), key=lambda r: r.config["grid"], reverse=True):
        best[record.config["data"], record.config["k"]] = record
    Path(target).mkdir(parents=True, exist_ok=True)
    written = []
    for (data, k), record in sorted(best.items()):
        for prefix, make in MAKERS.items():
            net, card = make(record)
            path = Path(target) / f"{prefix}{data.lower()}-k{k}.safetensors"
            net.save(path, card=card)
            written.append(path)
    return written


def network(record: Record) -> tuple[UnrolledLanczos, dict[str, Any]]:
    """Return the full network trained on the subspace error, of the seed with the best validation error, and its card.

    The probe is the paper's, of L as it is, by truncated conjugate gradients: evaluate it in float64.
    """
    row = _row(record.results["rows"], "7", form="literal")
    seed = _best(row)
    settings, k = row["settings"][seed], record.config["k"]
    probe = InversePolynomialProbe(settings["degree"], settings["power"], settings["cg_steps"], "cg", scaled=False)
    net = UnrolledLanczos(k, 2 * k, probe, literal=True).double()
    parameters = {name: torch.tensor(p, dtype=torch.float64) for name, p in row["parameters"][seed].items()}
    net.load_state_dict(parameters)
    return net, {**_card(record, row, seed), "krylov_ceiling_all_seeds": row["ceiling"]}


def roots(record: Record) -> tuple[UnrolledLanczos, dict[str, Any]]:
    """Return the root probe for ``ROOT_BUDGET`` k products, of the seed with the best validation error, and its card.

    It is for graphs of the distribution that it was trained on: on others thick restart does better.
    """
    k = record.config["k"]
    row = _row(record.results["rows"], "12", budget=ROOT_BUDGET * k, name="root probe")
    seed = _best(row)
    net = root_network(k, (ROOT_BUDGET - 2) * k, *row["settings"][seed]["interval"])
    parameters = {name: torch.tensor(p, dtype=torch.float64) for name, p in row["parameters"][seed].items()}
    net.load_state_dict(parameters)
    return net, _card(record, row, seed)


#: What is shipped of a column, by the beginning of its name.
MAKERS = {"": network, "roots-": roots}


def _best(row: dict[str, Any]) -> int:
    return min(range(len(row["settings"])), key=lambda s: row["settings"][s]["validation"])


def _card(record: Record, row: dict[str, Any], seed: int) -> dict[str, Any]:
    return {
        "data": record.config["data"],
        "loss": "subspace",
        "seed": record.config["seeds"][seed],
        "seeds": record.config["seeds"],
        "grid": record.config["grid"],
        "settings": row["settings"][seed],
        "test_error": sum(row["errors"][seed]) / len(row["errors"][seed]),
        "test_error_all_seeds": [row["mean"], row["std"]],
        "products": row["products"][seed],
        "basis_vectors": row["vectors"],
        "dtype": "float64",
        "record": record.file_name,
    }


def _row(rows: Iterable[dict[str, Any]], number: str, **entries: Any) -> dict[str, Any]:
    for row in rows:
        if row["row"] == number and all(row.get(key) == value for key, value in entries.items()):
            return row
    raise InputError(f"the record holds no row {number} with {entries}: train it first.")
