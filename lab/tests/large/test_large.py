"""The large benchmark: graphs, references, tuning and races, on graphs small enough to decompose."""

import json
import math
from dataclasses import replace
from datetime import UTC, datetime

import numpy as np
import pytest
from scipy.sparse.csgraph import connected_components

from krylow._checks import InputError
from krylow_lab.large import graphs, race, reference, tune
from krylow_lab.large.assemble import assemble, growth
from krylow_lab.large.render import draw, markdown, peers_markdown
from krylow_lab.large.run import Plan, _best, measure
from krylow_lab.large.solvers import PEERS, SOLVERS, Problem
from krylow_lab.large.worker import OverLimitError, Worker
from krylow_lab.records import Record, find


@pytest.mark.parametrize("family", graphs.FAMILIES)
def test_graphs_are_connected_laplacians_of_about_the_size_asked_for(family):
    L = graphs.make(family, 3000, 0)
    assert 0.95 * 3000 <= L.shape[0] <= 1.05 * 3000
    assert abs(L - L.T).nnz == 0
    assert np.abs(L.sum(1)).max() == 0
    assert L.diagonal().min() >= 1
    assert set(np.unique((L - np.diag(L.diagonal())).ravel())) == {-1.0, 0.0}
    assert connected_components(L, directed=False)[0] == 1
    again, other = graphs.make(family, 3000, 0), graphs.make(family, 3000, 1)
    assert (again != L).nnz == 0
    assert family == "grid" or other.shape != L.shape or (other != L).nnz > 0


def test_families_are_what_they_are_called():
    degree = {family: graphs.make(family, 4000, 0).diagonal() for family in graphs.FAMILIES}
    assert degree["grid"].max() == 4
    assert degree["road"].mean() < 2.6
    assert (degree["road"] == 2).mean() > 0.5
    assert degree["knn2d"].min() >= graphs.NEIGHBOURS
    assert degree["powerlaw"].max() > 20 * np.median(degree["powerlaw"])
    assert degree["smallworld"].mean() == pytest.approx(graphs.RING, rel=0.01)
    assert degree["sbm20"].mean() == pytest.approx(graphs.INSIDE + graphs.BETWEEN, rel=0.1)


def test_a_small_world_is_the_ring_but_for_the_rewired_edges():
    n = 4000
    L = graphs.make("smallworld", n, 0).tocoo()
    span = np.abs(L.row - L.col)
    near = np.minimum(span, n - span) <= graphs.RING // 2
    edges = span > 0
    assert near[edges].mean() == pytest.approx(1 - graphs.REWIRED, abs=0.02)


@pytest.mark.parametrize("family", ["knn3d", "grid", "road", "sbm20", "smallworld"])
def test_references_agree_with_a_full_decomposition(family):
    made = reference.compute(graphs.make(family, 1500, 0), family, 1500)
    values, vectors = np.linalg.eigh(made.L.toarray())
    np.testing.assert_allclose(made.values, values[: len(made.values)], atol=1e-9)
    for k, error in zip(made.ks, made.errors, strict=True):
        assert error <= reference.ACCURACY
        missed = vectors[:, :k] - made.vectors[:, :k] @ (made.vectors[:, :k].T @ vectors[:, :k])
        assert np.linalg.norm(missed) ** 2 / k < 1e-10
        assert made.gap(k) == pytest.approx(values[k] - values[k - 1], rel=1e-5)


def test_k_is_where_the_relative_gap_is_widest():
    made = reference.compute(graphs.make("sbm20", 1500, 0), "sbm20", 1500)
    assert made.ks == (20,)
    assert made.values[19] < 0.5 * made.values[20]


def test_references_are_read_back_and_not_made_again(tmp_path, monkeypatch):
    path, made = reference.prepare(tmp_path, "grid", 1500, 0)
    monkeypatch.setattr(reference, "compute", lambda *_: pytest.fail("made again"))
    again, read = reference.prepare(tmp_path, "grid", 1500, 0)
    assert (again, read.ks) == (path, made.ks)
    np.testing.assert_array_equal(read.vectors, made.vectors)
    assert (read.L != made.L).nnz == 0


@pytest.mark.parametrize("solver", [name for name in SOLVERS if name not in ("pygsp", "krylow-multilevel")])
def test_every_solver_finds_the_subspace_of_a_grid(solver):
    package = SOLVERS[solver].package
    if package is not None:
        pytest.importorskip(package)
    L = graphs.make("grid", 1500, 0)
    values, vectors = np.linalg.eigh(L.toarray())
    k = 11
    answer = SOLVERS[solver].run(Problem(L, k, float(values[k - 1]), float(values[k])), 1e-3, 3)
    basis = answer.basis.basis.numpy() if solver.startswith("krylow") else answer.basis
    assert answer.success
    assert basis.shape == (L.shape[0], k)
    Q, _ = np.linalg.qr(basis.astype(float))
    missed = vectors[:, :k] - Q @ (Q.T @ vectors[:, :k])
    assert np.linalg.norm(missed) ** 2 / k < 1e-3


def test_a_worker_measures_and_is_stopped_at_its_limit(tmp_path):
    path, made = reference.prepare(tmp_path, "grid", 1500, 0)
    with Worker(path, made.ks[0], 1) as worker:
        run = worker.run("shift-mmd", 0.1, 0, 60.0)
        assert run["error"] < 1e-3
        assert run["success"]
        assert run["seconds"] > 0
        assert 0 <= run["peak_mib"] < 1000
        assert "failed" in worker.run("no such solver", 1.0, 0, 60.0)
        with pytest.raises(OverLimitError):
            worker.run("lobpcg", 1e-9, 0, 0.01)
        assert worker.run("shift-mmd", 0.1, 0, 60.0)["error"] == pytest.approx(run["error"], rel=1e-3)


def run_of(setting, error, cpu, seed=0, success=True):
    return {"setting": setting, "error": error, "cpu_seconds": cpu, "seed": seed, "success": success}


def test_cheapest_wants_three_right_runs_of_three():
    lucky = [run_of(0.3, error, 1.0) for error in (1e-4, 1e-4, 1e-2)]
    right = [run_of(0.1, 1e-5, cpu) for cpu in (2.0, 3.0, 2.5)]
    assert tune.cheapest(lucky, 1e-3) is None
    assert tune.cheapest(lucky[:2], 1e-3) is None
    assert tune.cheapest(lucky + right, 1e-3) == (0.1, 2.5)
    assert tune.cheapest(lucky + right, 1e-6) is None


def test_silent_failures_are_claims_far_from_what_their_tolerance_implies():
    runs = [run_of(1.0, 0.5, 1), run_of(0.1, 0.02, 1), run_of(0.1, 0.2, 1), run_of(0.1, 0.2, 1, success=False)]
    assert tune.silent_failures(runs) == (1, 2)


class Scripted:
    """A worker whose answers are known."""

    threads = 1

    def __init__(self, answer):
        self.answer, self.calls = answer, []

    def run(self, solver, setting, seed, limit):
        self.calls.append((solver, setting, seed, limit))
        return self.answer(solver, setting, seed)


def test_a_peer_climbs_until_it_is_right_and_no_further(tmp_path):
    worker = Scripted(lambda solver, setting, seed: {"error": setting**2, "cpu_seconds": 1.0, "success": True})
    best = {}
    case = tune.Case("grid", 1000, 11)
    record = tune.tune(tmp_path, worker, case, "eigsh64", (1e-3,), best, tune.Limit(), None)
    assert [(setting, seed) for _, setting, seed, _ in worker.calls] == [
        (1.0, 0), (0.3, 0), (0.1, 0), (0.03, 0), (0.03, 1), (0.03, 2),
    ]  # fmt: skip
    assert best == {1e-3: 1.0}
    again = Scripted(lambda *_: pytest.fail("measured again"))
    assert tune.tune(tmp_path, again, case, "eigsh64", (1e-3,), {}, tune.Limit(), None).results == record.results


def test_a_hopeless_or_late_peer_is_left(tmp_path):
    slow = Scripted(lambda *_: {"error": 1e-9, "cpu_seconds": 50.0, "success": True})
    case = tune.Case("grid", 1000, 11)
    tune.tune(tmp_path, slow, case, "primme", (1e-3,), {1e-3: 1.0}, tune.Limit(), None)
    assert len(slow.calls) == 1
    assert slow.calls[0][-1] == 10 * 1.0 + 60

    def late(*_):
        raise OverLimitError

    record = tune.tune(tmp_path, Scripted(late), case, "lobpcg", (1e-3,), {1e-3: 1.0}, tune.Limit(), None)
    assert record.results["runs"] == [{"setting": 1.0, "seed": 0, "more_than": 70.0}]


def test_a_race_runs_in_turns_and_judges_each_solver(tmp_path):
    def answer(solver, setting, seed):
        ours = {"status": "CONVERGED", "certificate_seconds": 0.1, "method": "chebyshev", "passes": 9}
        found = {"seconds": 9.0, "peak_mib": 2.0, "success": True}
        if solver == "krylow":
            return {**found, **ours, "cpu_seconds": 1.0 + seed - 100, "error": 1e-2 if seed == 101 else 2e-2}
        return {**found, "cpu_seconds": 5.0, "error": 1e-4}

    worker = Scripted(answer)
    case = tune.Case("grid", 1000, 11)
    race.race(tmp_path / "cells", worker, case, 1e-3, ("krylow",), {"primme": 0.1}, 3, tune.Limit())
    assert [call[0] for call in worker.calls] == ["krylow", "primme"] * 3
    assert len({call[2] for call in worker.calls}) == 3
    record = assemble(tmp_path, tmp_path / "cells", 0)
    (row,) = record.results["rows"]
    assert row["best_peer"] == "primme"
    assert row["ratio"] == 2.5
    assert not row["solvers"]["krylow"]["right"]
    assert row["solvers"]["krylow"]["false_claims"] == 2  # errors of 2e-2, beyond ten times what was asked for
    assert record.results["false claims of krylow"] == 2
    assert "| 2.5 |" in markdown(record)
    assert "error 2e-02" in markdown(record)


def test_a_peer_that_is_wrong_in_a_race_races_again_one_rung_further(tmp_path):
    ours = {"status": "CONVERGED", "certificate_seconds": 0.1, "method": "chebyshev", "passes": 9}

    def answer(solver, setting, seed):
        found = {"seconds": 9.0, "cpu_seconds": 1.0, "peak_mib": 2.0, "success": True, "error": 1e-5}
        if solver == "krylow":
            return {**found, **ours}
        return {**found, "error": 4e-2} if (setting, seed) == (0.1, 101) else {**found, "cpu_seconds": 3.0 - setting}

    worker = Scripted(answer)
    case = tune.Case("grid", 1000, 11)
    race.race(tmp_path / "cells", worker, case, 1e-3, ("krylow",), {"primme": 0.1, "lobpcg": 0.03}, 2, tune.Limit())
    settings = [call[1] for call in worker.calls if call[0] == "primme"]
    assert settings == [0.1, 0.1, 0.03, 0.03]
    assert [call[1] for call in worker.calls if call[0] == "lobpcg"] == [0.03] * 4
    record = assemble(tmp_path, tmp_path / "cells", 0)
    (row,) = record.results["rows"]
    assert row["ratio"] == pytest.approx(2.97)
    assert row["wrong"] == [{"solver": "primme", "setting": 0.1, "error": 4e-2, "success": True}]
    assert "raced again at the next one: primme 1." in peers_markdown(record)


def test_growth_is_seconds_a_node_over_those_of_the_smallest():
    rows = [
        {"family": "grid", "n": n, "k": k, "tol": 1e-3, "threads": 1, "solvers": {"krylow": {"cpu_seconds": s}}}
        for n, k, s in ((1000, 11, 1.0), (10000, 12, 15.0), (1000, 50, 1.0))
    ]
    assert growth(rows) == {"grid 0 tol=1e-03": {"1000": 1.0, "10000": 1.5}}


def test_measuring_is_resumed_and_rendered(tmp_path, monkeypatch):
    plan = Plan(
        sizes=(1200,), families=("sbm20",), tols=(1e-3,), threads=(1,), repeats=1, peers=("eigsh64", "shift-mmd")
    )
    record = measure(tmp_path, plan)
    (row,) = record.results["rows"]
    assert row["best_peer"] in plan.peers
    assert row["solvers"]["krylow"]["right"]
    assert math.isfinite(row["ratio"])
    assert {peer["solver"] for peer in record.results["peers"]} == set(plan.peers)
    monkeypatch.setattr(Worker, "run", lambda *_: pytest.fail("measured again"))
    again = measure(tmp_path, plan)
    assert again.results == record.results
    assert "SBM, 20 blocks" in markdown(again)
    assert "Silent failures" in peers_markdown(again)
    picture = draw(again, tmp_path / "large.svg").read_text()
    assert picture.startswith("<?xml")
    assert len(find(tmp_path, kind="large")) == 1
    json.dumps(again.results)


def test_a_former_record_tells_settings_and_completes_the_races(tmp_path):
    plan = Plan(sizes=(1200,), families=("sbm20",), tols=(1e-3,), threads=(1,), repeats=1, peers=("eigsh64",), best=1)
    first = measure(tmp_path / "first", plan)
    (row,) = first.results["rows"]
    larger, folder = replace(plan, sizes=(1500,)), tmp_path / "second"
    record = measure(folder, larger, stage="race", former=tmp_path / "first" / first.file_name)
    old, new = record.results["rows"]
    assert (old, new["n"]) == (row, 1500)
    assert new["best_peer"] == "eigsh64"  # which nobody tuned there
    assert record.results["peers"] == first.results["peers"]
    again = measure(folder, replace(larger, sizes=(1200,), repeats=2), stage="race", former=folder / record.file_name)
    assert [(found["n"], found["repeats"]) for found in again.results["rows"]] == [(1200, 2), (1500, 1)]
    with pytest.raises(InputError, match="former record"):
        measure(folder, plan, former=next((folder / "cells").iterdir()))
    for missing in (folder, folder / "none.json"):
        with pytest.raises(InputError, match="no such file"):
            measure(folder, plan, former=missing)


def test_a_race_on_a_slower_machine_does_not_make_another_peer_the_best(tmp_path):
    def tuned(solver, seconds):
        return {**case.config, "solver": solver, "cheapest": {"1e-03": {"setting": 0.1, "cpu_seconds": seconds}}}

    def best(**raced):
        solvers = {name: {"setting": 0.03, "cpu_seconds": seconds, "right": True} for name, seconds in raced.items()}
        rows = [{**case.config, "tol": 1e-3, "threads": 1, "solvers": solvers}]
        results = {"rows": rows, "peers": [tuned("eigsh64", 1.0), tuned("lobpcg", 2.0), tuned("primme", 3.0)]}
        former = Record.create("large", {}, results, seed=0, started=datetime.now(UTC), wall_seconds=0.0)
        return _best(tmp_path, case, 1e-3, Plan(best=1), former)

    case = tune.Case("grid", 1000, 11)
    assert best(eigsh64=2.5) == {"eigsh64": 0.03}
    assert best(eigsh64=9.0, lobpcg=5.0) == {"lobpcg": 0.03}  # 3.6 and 2 on the clock of the tuning


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"families": ("torus",)}, "family must be one of"),
        ({"peers": ("magic",)}, "solver must be one of"),
        ({"sizes": (10,)}, "at least 1000"),
        ({"tols": (2.0,)}, "tol must be between"),
    ],
)
def test_bad_plans_are_refused(change, message, tmp_path):
    with pytest.raises(InputError, match=message):
        measure(tmp_path, Plan(**{"peers": ("eigsh64",), **change}))


def test_a_missing_peer_is_named_with_its_extra(tmp_path, monkeypatch):
    import importlib.util

    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(InputError, match=r"\./lab\[peers\]"):
        measure(tmp_path, Plan(peers=("primme",)))
    assert PEERS["primme"].package == "primme"
