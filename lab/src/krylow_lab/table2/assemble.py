"""From cells to one record a data set and protocol, the shape that tables and the report read.

``results`` of a record of kind "table2":

==============  ======================================================================================================
``rows``        one dict a row of the table, those of the paper's table first
``paired``      one dict a row but "unrolled": the tests of :func:`krylow_lab.table2.compare.paired`, with the
                row's name as ``row``
``missing``     names of the rows whose cells are not all trained yet; the same command continues
``source``      what the numbers were trained and measured on, in words that are shown with them
``positive``    what F1 counts as found
``selection``   how settings and epochs were chosen, in words
``cells``       how many trainings the table rests on, those that were only compared included
``cell_seconds``  wall time of these trainings, summed
==============  ======================================================================================================

A row: ``row`` (short name), ``name``, ``accuracy``, ``accuracy_std``, ``f1``, ``f1_std`` (percent, over the seeds),
``accuracies``, ``f1s``, ``validations`` (one a seed), ``parameters`` of the whole model, ``seconds`` a training, and
for trained rows ``setting``, ``best_epochs``, ``tried`` (every candidate with its validation accuracies), and
``gradient_norm`` and ``gamma_gradient_norm``, the largest logged.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from krylow_lab.records import Record
from krylow_lab.table2.baselines import counted
from krylow_lab.table2.compare import paired
from krylow_lab.table2.corpus import Corpus, load_corpus
from krylow_lab.table2.plan import COUNTED, ROWS, VALIDATION, Protocol
from krylow_lab.table2.search import Outcome, search

KIND = "table2"
#: The row that the others are compared with.
OURS = "unrolled"


def assemble(
    folder: str | Path, data: dict[str, Any], protocol: Protocol, seeds: int, *, vectors: bool = False
) -> Record:
    """Choose among the cells that exist, count the rest, and write the record of one table into ``folder``."""
    folder = Path(folder)
    started, clock = datetime.now(UTC), time.perf_counter()
    corpus = load_corpus(data, folder)
    outcomes = {row: search(protocol, row, data, seeds, folder, vectors) for row in protocol.rows}
    rows, right = [], {}
    for row, outcome in outcomes.items():
        if outcome.cells:
            found = [cell.results for cell in outcome.cells]
            rows.append({**_row(row, found), **_training(outcome)})
            right[row] = _right(found, corpus)
    for row in COUNTED:
        found = [counted(row, corpus, seed) for seed in range(seeds)]
        rows.append(_row(row, found))
        right[row] = _right(found, corpus)
    pairs = [{"row": row, **paired(right[OURS], right[row])} for row in right if row != OURS and OURS in right]
    trained = _all_cells(outcomes, folder)
    results = {
        "rows": rows,
        "paired": pairs,
        "missing": [row for row, outcome in outcomes.items() if outcome.missing],
        "source": corpus.source,
        "positive": {"qnli": "entailment", "mrpc": "paraphrase"}.get(data["name"], "belong together"),
        "selection": _selection(protocol, data["name"], vectors, len(corpus.train)),
        "cells": len(trained),
        "cell_seconds": round(sum(cell.wall_seconds for cell in trained), 1),
    }
    config = {"data": data, "protocol": protocol.name, "seeds": list(range(seeds)), "vectors": vectors}
    record = Record.create(KIND, config, results, seed=None, started=started, wall_seconds=time.perf_counter() - clock)
    record.write(folder)
    return record


def _row(row: str, found: Sequence[dict[str, Any]]) -> dict[str, Any]:
    out: dict[str, Any] = {"row": row, "name": ROWS[row]}
    for name, plural in (("accuracy", "accuracies"), ("f1", "f1s")):
        values = [round(results[name], 3) for results in found]
        out[name] = round(statistics.mean(values), 3)
        out[f"{name}_std"] = round(statistics.stdev(values), 3) if len(values) > 1 else 0.0
        out[plural] = values
    out["validations"] = [round(100 * results["validation"], 3) for results in found]
    out["parameters"] = found[0]["parameters"]
    return out


def _training(outcome: Outcome) -> dict[str, Any]:
    """Return what a trained row has in addition to its scores."""
    results = [cell.results for cell in outcome.cells]
    epochs = [epoch for r in results for epoch in r["epochs"]]
    return {
        "mixing_parameters": results[0]["mixing_parameters"],
        "seconds": round(statistics.mean(cell.wall_seconds for cell in outcome.cells), 1),
        "setting": outcome.cells[0].config["setting"],
        "best_epochs": [r["best_epoch"] for r in results],
        "last_train_loss": round(statistics.mean(r["epochs"][-1]["train_loss"] for r in results), 4),
        "gradient_norm": max(epoch["largest_gradient_norm"] for epoch in epochs),
        "gamma_gradient_norm": max(epoch["largest_gamma_gradient_norm"] for epoch in epochs),
        "tried": [
            {"setting": each["setting"], "validation": [round(100 * v, 2) for v in each["validation"]]}
            for each in outcome.tried
        ],
    }


def _right(found: Sequence[dict[str, Any]], corpus: Corpus) -> np.ndarray:
    """Return ``(seeds, sentences)`` booleans: which answers were right."""
    labels = corpus.dev.labels.numpy()
    return np.stack([np.array([int(c) for c in results["dev_predictions"]]) == labels for results in found])


def _all_cells(outcomes: dict[str, Outcome], folder: Path) -> list[Record]:
    """Return the records of every training that the outcomes rest on."""
    from krylow_lab.table2.search import Cell

    found: dict[str, Record] = {}
    for outcome in outcomes.values():
        tried = [Cell(t["data"], t["setting"], seed) for t in outcome.tried for seed in range(len(t["validation"]))]
        for record in [*outcome.cells, *(cell.record(folder) for cell in tried)]:
            if record is not None:
                found[record.file_name] = record
    return list(found.values())


def _selection(protocol: Protocol, data: str, vectors: bool, train: int) -> str:
    held = round(VALIDATION * train)
    text = (
        f"settings and epochs by accuracy on {held} rows split off the {train} of the training split, another {held} "
        "for each seed (equal accuracies: by loss); nothing on dev"
    )
    if protocol.name == "A":
        return f"{text}; m of 15, 20, 25 by seed 0's validation rows"
    if protocol.name in ("B", "L"):
        first, *more = protocol.rungs_of(data)
        on = "" if first.train_rows is None else f" on {first.train_rows:,} rows"
        rungs = "".join(f", then the best {rung.candidates} with {rung.seeds} seeds" for rung in more)
        words = "word vectors (GloVe 50-d) or none among them" if vectors else "embeddings from scratch"
        return f"{text}; {protocol.draws} settings a row with seed 0{on}{rungs}; {words}"
    return f"{text}; one setting a row"
