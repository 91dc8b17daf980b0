"""Does the filter gain anything over the graph alone? A few settings in which it could, on the synthetic task.

Every case changes one thing of one recipe, which is the same for all rows and was tuned for none. Half of the words of
a copy are changed, so that accuracies can rise and fall. The record of kind "table2-gain" has ``cases``: each with its
``case`` and ``value``, its ``rows`` (``row``, ``name``, ``accuracy``, ``accuracy_std``, ``accuracies``) and ``paired``:
for "exact", "lanczos" and "unrolled" the tests of :func:`krylow_lab.table2.compare.paired` against "kernel",
the same graph without a filter, and for "unrolled" against "lanczos", the same filter without learned gammas;
and ``operators``, what :func:`operators` says of each data set at hand.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import torch

from krylow.nn.graph_learning import GraphLearning
from krylow.nn.token_filters import Band, KrylovSettings, Relaxation, exact_filter, kernel_filter, krylov_filter
from krylow.training import generator
from krylow_lab.parallel import Report
from krylow_lab.records import Record
from krylow_lab.table2.compare import paired
from krylow_lab.table2.corpus import load_corpus
from krylow_lab.table2.plan import IN_A_BASIS, ON_A_GRAPH, ROWS, candidates
from krylow_lab.table2.plan import QUICK as ONE_RECIPE
from krylow_lab.table2.run import train
from krylow_lab.table2.search import Cell
from krylow_lab.tables import markdown
from krylow_lab.text.glue import find_glue

KIND = "table2-gain"
COMPARED = ("unrolled", "lanczos", "exact", "kernel")
BASE = {"name": "synthetic", "changed": 0.5}
EPOCHS = 4
#: What is changed: case, values, the rows that it concerns.
CASES: tuple[tuple[str, tuple[Any, ...], tuple[str, ...]], ...] = (
    ("the recipe", (None,), COMPARED),
    ("equal tokens not merged", (False,), ("unrolled", "lanczos")),
    ("slower gammas", (0.1, 0.01), ("unrolled", "lanczos")),
    ("basis vectors", (4, 8), ("unrolled", "lanczos")),
    ("noise on tokens", (0.5,), COMPARED),
    ("the same noise, lower cutoff", (0.2,), COMPARED),
    ("smoother graphs", (4.0,), COMPARED),
    ("longer sequences", (24,), COMPARED),
)
#: Of the comparison of operators: width of tokens and features, and mean squared distances at the start.
DIM = 64
DISTANCES = (1.0, 4.0, 8.0, 16.0, 32.0)
#: Distance of the gammas from 1 where training starts: upsilon = 0.01, squared.
START = torch.full((20,), 1e-4)
#: What a value is, in words.
UNITS = {
    "equal tokens not merged": "as the paper has it",
    "slower gammas": "learning rate times {}",
    "basis vectors": "m = {}, not 20",
    "noise on tokens": "standard deviation {} beside embeddings of 1",
    "the same noise, lower cutoff": "{}, not 0.5",
    "smoother graphs": "mean squared distance {} at the start, not 8",
    "longer sequences": "12 to {} words a part, not 6 to 12",
}


def cells(seeds: int) -> Iterator[tuple[str, Any, Cell]]:
    """Yield case, value and cell of everything that is trained."""
    for case, values, rows in CASES:
        for value in values:
            for row in rows:
                data, setting = _changed(case, value, row)
                for seed in range(seeds):
                    yield case, value, Cell(data, setting, seed)


def _changed(case: str, value: Any, row: str) -> tuple[dict[str, Any], dict[str, Any]]:
    data: dict[str, Any] = dict(BASE)
    setting = {**candidates(ONE_RECIPE, row, "synthetic")[0], "epochs": EPOCHS}
    if case == "basis vectors" and row in IN_A_BASIS:
        setting["m"] = value
    elif case == "equal tokens not merged" and row in IN_A_BASIS:
        setting["merge_equal"] = value
    elif case == "slower gammas" and row == "unrolled":
        setting["gamma_rate"] = value
    elif case == "noise on tokens":
        setting["noise"] = value
    elif case == "the same noise, lower cutoff":
        setting["noise"] = 0.5
        setting |= {"cutoff": value} if "cutoff" in setting else {}
    elif case == "smoother graphs" and row in ON_A_GRAPH:
        setting["distance"] = value
    elif case == "longer sequences":
        data |= {"lengths": [value // 2, value], "words": 96}
    return data, setting


def measure(out: str | Path, seeds: int, *, workers: int | None = None, report: Report | None = None) -> Record:
    """Train what is missing, compare, and write the record into ``out``: see :func:`.run.reproduce`."""
    folder = Path(out)
    wanted: list[Cell] = []
    for _, _, cell in cells(seeds):
        if cell not in wanted and cell.record(folder) is None:
            wanted.append(cell)
    notify = report or (lambda done, total, what: None)
    notify(0, len(wanted), "training")
    train(wanted, folder, workers, notify)
    return assemble(folder, seeds)


def assemble(folder: str | Path, seeds: int) -> Record:
    """Compare the cells that exist and write the record; a row of a case counts where all its seeds are trained."""
    folder = Path(folder)
    started, clock = datetime.now(UTC), time.perf_counter()
    found: dict[tuple[str, Any], dict[str, list[Record]]] = {}
    missing = 0
    for case, value, cell in cells(seeds):
        record = cell.record(folder)
        missing += record is None
        own = found.setdefault((case, value), {}).setdefault(cell.setting["row"], [])
        if record is not None:
            own.append(record)
    cases, seconds = [], 0.0
    for (case, value), rows in found.items():
        whole = {row: records for row, records in rows.items() if len(records) == seeds}
        seconds += sum(record.wall_seconds for records in whole.values() for record in records)
        cases.append({"case": case, "value": value, **_compared(whole, folder)})
    results = {"cases": cases, "missing": missing, "cell_seconds": round(seconds, 1)}
    results["operators"] = {name: operators(name, folder) for name in _at_hand()}
    config = {"data": BASE, "epochs": EPOCHS, "seeds": list(range(seeds))}
    record = Record.create(KIND, config, results, seed=None, started=started, wall_seconds=time.perf_counter() - clock)
    record.write(folder)
    return record


def operators(name: str, folder: str | Path, pairs: int = 32) -> list[dict[str, float]]:
    r"""Compare the filters as matrices, on graphs of the first pairs of dev before any training.

    Returns for each mean squared distance at the start: the relative Frobenius distance to the exact filter (normalized
    Laplacian, cutoff .5) of the graph alone, $D^{-1} W$, of Lanczos with m = 20, of the same with the gammas at which
    training starts, of both where equal tokens are not merged, and of doing nothing; and how many frequencies of how
    many are kept.
    """
    some = load_corpus({"name": name}, folder).dev[:pairs]
    real = ~some.padding
    draw = generator(0, "operators")
    tokens = torch.randn(some.vocab_size, DIM, generator=draw)[some.tokens]
    identity = torch.eye(real.shape[1]).expand(*real.shape, -1) * real[..., None]
    band, out = Band(cutoff=0.5), []
    for distance in DISTANCES:
        with torch.no_grad(), torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            graph = GraphLearning(DIM, DIM, distance=distance)(tokens, real)
            exact = exact_filter(graph, identity, band)
            others = {"graph_alone": kernel_filter(graph, identity), "nothing": identity}
            for basis, gammas in (("lanczos", None), ("unrolled", Relaxation(1 - START, 1 + START))):
                for merge, suffix in ((True, ""), (False, "_not_merged")):
                    others[basis + suffix] = krylov_filter(
                        graph, identity, band, KrylovSettings(20, relaxation=gammas, merge_equal=merge)
                    )
        size = torch.linalg.matrix_norm(exact)
        line = {key: float((torch.linalg.matrix_norm(other - exact) / size).mean()) for key, other in others.items()}
        line |= {
            "kept": float(exact.diagonal(dim1=-2, dim2=-1).sum(-1).mean()),
            "tokens": float(real.sum(-1).float().mean()),
        }
        out.append({"distance": distance, **{key: round(value, 4) for key, value in line.items()}})
    return out


def _at_hand() -> list[str]:
    return ["synthetic"] if find_glue("mrpc", "dev") is None else ["synthetic", "mrpc"]


def _compared(rows: dict[str, list[Record]], folder: Path) -> dict[str, Any]:
    lines, right = [], {}
    for row, records in rows.items():
        values = [round(record.results["accuracy"], 3) for record in records]
        std = round(statistics.stdev(values), 3) if len(values) > 1 else 0.0
        mean = round(statistics.mean(values), 3)
        lines.append({"row": row, "name": ROWS[row], "accuracy": mean, "accuracy_std": std, "accuracies": values})
        labels = load_corpus(records[0].config["data"], folder).dev.labels.numpy()
        answers = [[int(c) for c in record.results["dev_predictions"]] for record in records]
        right[row] = np.array(answers) == labels
    pairs = [(row, "kernel") for row in ("exact", "lanczos", "unrolled")] + [("unrolled", "lanczos")]
    tests = [{"row": a, "against": b, **paired(right[a], right[b])} for a, b in pairs if a in right and b in right]
    return {"rows": lines, "paired": tests}


def render_markdown(record: Record) -> str:
    """Return one Markdown table: a line a case, a column a row of the comparison, and the two differences asked for."""
    head = ["setting", *(ROWS[row] for row in COMPARED), "exact minus graph alone", "learned gammas minus gamma = 1"]
    body = []
    for case in record.results["cases"]:
        name = case["case"] if case["value"] is None else f"{case['case']}: {UNITS[case['case']].format(case['value'])}"
        rows = {row["row"]: f"{row['accuracy']:.1f} ± {row['accuracy_std']:.1f}" for row in case["rows"]}
        tests = {(test["row"], test["against"]): test for test in case["paired"]}
        differences = [_interval(tests.get(pair)) for pair in (("exact", "kernel"), ("unrolled", "lanczos"))]
        body.append([name, *(rows.get(row, "") for row in COMPARED), *differences])
    seeds = len(record.config["seeds"])
    about = f"Accuracy, mean and standard deviation of {seeds} seeds; differences with the 95 % interval of a paired "
    return "\n".join([*markdown(head, body), "", f"{about}bootstrap over sentences. Record: `{record.file_name}`."])


def render_operators(record: Record) -> str:
    """Return the comparison of operators as one Markdown table."""
    columns = {
        "graph_alone": "$D^{-1} W$",
        "lanczos": "Lanczos, m = 20",
        "unrolled": "unrolled, first gammas",
        "lanczos_not_merged": "Lanczos, equal tokens not merged",
        "unrolled_not_merged": "unrolled, not merged",
        "nothing": "no mixing",
    }
    body = []
    for name, compared in record.results["operators"].items():
        for line in compared:
            kept = f"{line['kept']:.1f} of {line['tokens']:.1f}"
            body.append([name, f"{line['distance']:g}", kept, *(f"{line[key]:.3f}" for key in columns)])
    return "\n".join(markdown(["data", "distance at the start", "kept frequencies", *columns.values()], body))


def _interval(test: dict[str, Any] | None) -> str:
    if test is None:
        return ""
    low, high = test["bootstrap_95"]
    return f"{test['difference']:+.1f} [{low:+.1f}, {high:+.1f}]"
