import math
from datetime import UTC, datetime
from types import SimpleNamespace

import pytest

from krylow_lab.records import Record

pytest.importorskip("plotly", reason="the report needs plotly: pip install ./lab")
pytest.importorskip("jinja2", reason="the report needs jinja2: pip install ./lab")


def make(folder, kind, config, results, seed=None, started=None):
    started = started or datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
    return Record.create(kind, config, results, seed=seed, started=started, wall_seconds=1.5).write(folder)


def _row(number, name, k, mean, products, **more):
    base = {"row": number, "name": name, "mean": mean, "std": mean / 10, "products": [products] * 2, "vectors": 2 * k}
    return {**base, "errors": [[mean] * 3] * 2, **more}


def _trained(number, name, k, mean, products, probe, loss="subspace", **more):
    settings = [{"loss": loss, "best_epoch": 1, "validation": mean, **more.pop("settings", {})}] * 2
    parameters = [{"upsilon1": [0.1] * (2 * k), "upsilon2": [0.2] * (2 * k), **probe}] * 2
    curves = {"train": [0.5, 0.4], "validation": [0.5, 0.45, 0.4]}
    more |= {"settings": settings, "parameters": parameters, "curves": curves, "ceiling": mean / 2}
    return _row(number, name, k, mean, products, **more)


def table1_results(k):
    probe, setting = {"probe.b": [0.1] * 7}, {"power": 3, "cg_steps": 10, "degree": 7}
    roots, interval = {"probe.log_rho": [math.log(1 + i / 10) for i in range(2 * k)]}, {"interval": [0.5, 2.0]}
    rows = [_row("2", "standard Lanczos, random start", k, 0.5321, 2 * k)]
    for form in ("literal", "converged", "scaled"):
        rows.append(_row("3", f"untrained probe, {form}", k, 0.34, 1260, form=form))
        for number, loss in (("6", "theory"), ("7", "subspace")):
            name = f"full network ({loss}), {form}"
            rows.append(_trained(number, name, k, 0.3217, 1272, probe, loss, settings=setting, form=form))
    rows.append(_trained("5", "gammas only (theory)", k, 0.53, 2 * k, {}, "theory"))
    for budget in (4 * k, 6 * k):
        rows.append(_row("9", "thick-restart Lanczos", k, 0.2, budget, budget=budget))
        rows.append(_row("11", "Lanczos, a vector a product", k, 1e-20, budget, budget=budget))
    rows.append(_trained("12", "root probe", k, 0.1543, 4 * k, roots, settings=interval, budget=4 * k))
    spectrum = {"graph": [0.0, 1.0], "edges": [0.0, 1.0, 2.0, 3.0], "counts": [1, 5, 2]}
    spectrum |= {"mean_degree": 1.5, "gershgorin": 4.0, "lam_k": 0.8, "lam_next": 1.1}
    pair = {"budget": 4 * k, "difference": -0.01, "half_width_95": 0.004, "graphs": 6}
    combinations = {form: [1, 1] for form in ("literal", "converged", "scaled")}
    return {"rows": rows, "paired": [pair], "combinations": combinations, "spectrum": spectrum}


def table1(folder, data="sbm", k=6, grid="reduced", results=None, **more):
    config = {"data": data, "k": k, "seeds": [0, 1], "grid": grid}
    return make(folder, "table1", config, table1_results(k) if results is None else results, **more)


@pytest.fixture
def build():
    """What makes records: of any kind, of Table 1, and the latter's results."""
    return SimpleNamespace(record=make, table1=table1, table1_results=table1_results)


@pytest.fixture(scope="module")
def records(tmp_path_factory):
    """A folder with a record of every kind that has a section."""
    folder = tmp_path_factory.mktemp("given") / "records"
    table1(folder / "table1")
    table1(folder / "table1", k=8)
    table1(folder / "table1", data="PROTEINS", k=6)
    point = {"method": "exact", "trained": False, "setting": "all", "products": 0, "error": 1e-30, "seconds": 1e-3}
    other = {**point, "method": "root probe", "trained": True, "error": 0.2, "products": 24, "seconds": 2e-3}
    points = {"points": [point, other], "graphs": 50, "nodes": 100}
    make(folder / "methods", "methods", {"data": "sbm", "k": 6}, points, seed=0)
    case = {"seconds": {"exact": 0.4, "chebyshev": 0.2}, "status": {"exact": "CONVERGED", "chebyshev": "NO_GAP"}}
    make(folder / "c", "crossover", {"k": 8}, {"dense sbm n=30 x4": case, "sparse grid n=306": case}, seed=0)
    tokens = {"seconds forward, unrolled": 0.1, "seconds backward, unrolled": 0.2, "megabytes, unrolled": 3.0}
    config = {"batch": 2, "embed": 8, "heads": 2, "k": 3, "m": 6}
    make(folder / "a", "attention", config, {"n=64": tokens, "n=128": tokens})
    run = {"seconds": 0.5, "error": 1e-4, "right": True}
    race = {"family": "grid", "n": 1000, "k": 10, "tol": 1e-3, "threads": 1, "best_peer": "eigsh", "ratio": 2.0}
    race["solvers"] = {"krylow": run, "eigsh": {**run, "seconds": 1.0}, "slow": {"more_than": 60}}
    make(folder / "l", "large", {"n": [1000]}, {"rows": [race]}, seed=0)
    make(folder / "b", "batch", {"k": 8}, {"ratio pyg / krylow": 32.5, "graphs with a real gap": 5}, seed=0)
    return folder
