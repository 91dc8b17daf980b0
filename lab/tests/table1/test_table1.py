import pytest
import torch

import krylow as kl
from krylow._checks import InputError
from krylow.data import sbm, split_family
from krylow_lab.records import Record, find
from krylow_lab.table1 import FULL, REDUCED, classical, learned, render_markdown, run
from krylow_lab.table1.pictures import draw_all
from krylow_lab.table1.plan import Grid, cells, check
from krylow_lab.table1.render import lines, paired_text, rich_table
from krylow_lab.table1.weights import export

TINY = Grid(
    "reduced",
    {"literal": ((2, 3, 2),), "converged": ((2, 3, 2),), "scaled": ((2, 3, 2),)},
    (1e-2,),
    (0.1,),
    (1e-2,),
    2,
    learned=((2, 3, 2),),
)


def family(name, seed=0, dtype=None):
    source = torch.Generator().manual_seed(seed)
    return split_family(name, sbm(10, 20, 3, 0.6, 0.1, generator=source, dtype=dtype), generator=source)


@pytest.fixture(autouse=True)
def tiny(monkeypatch):
    monkeypatch.setattr(learned, "load_family", family)
    monkeypatch.setattr(learned, "LOWS", (0.4, 0.8))
    monkeypatch.setattr(learned, "HIGHS", (2.0,))
    learned.load_task.cache_clear()
    yield
    learned.load_task.cache_clear()


@pytest.fixture
def record(tmp_path):
    (found,) = run.reproduce(tmp_path, ["sbm"], [2], 2, TINY, workers=1)
    return found


def test_every_row_is_there_and_every_row_has_its_cost(record):
    rows = record.results["rows"]
    assert {row["row"] for row in rows} == {"2", "3", "4", "5", "6", "7", "9", "10", "11", "12", "13"}
    for row in rows:
        assert 0 <= row["mean"] <= 1
        assert len(row["products"]) == len(row["errors"]) == 2  # seeds
        assert all(len(errors) == 2 for errors in row["errors"])  # test graphs
        assert row["mean"] == pytest.approx(torch.tensor(row["errors"]).mean().item(), abs=1e-3)
        if "budget" in row and row["row"] != "11":
            assert all(p == row["budget"] for p in row["products"])
    by_form = {row["form"]: row["products"] for row in rows if row["row"] == "7"}
    assert by_form["literal"] == by_form["scaled"] == [2 * 3 * 2 + 4] * 2
    assert all(4 < p <= 24 for p in by_form["converged"])
    assert all(row["truncation"] < 0.05 for row in rows if row.get("form") == "scaled")


def test_members_are_chosen_on_validation(tmp_path, record):
    cells_found = find(tmp_path / "cells", kind=learned.KIND, net="roots")
    for row in (r for r in record.results["rows"] if r["row"] == "12" and "parameters" in r):
        (cell,) = (c for c in cells_found if c.config["products"] == row["budget"])
        for origin, settings in enumerate(row["settings"]):
            own = [m["validation"] for m in cell.results["members"] if m["origin"] == origin]
            assert settings["validation"] == min(own)


def test_the_grid_is_told_setting_by_setting(tmp_path, record):
    scan = record.results["scan"]
    assert [(s["form"], s["power"], s["cg_steps"], s["degree"]) for s in scan] == [
        (form, 2, 3, 2) for form in ("converged", "literal", "scaled")
    ]
    rows = record.results["rows"]
    for setting in scan:  # one setting a form: its untrained row is the scan's, its trained one the better of two
        own = [row for row in rows if row.get("form") == setting["form"]]
        (untrained,) = (row["mean"] for row in own if row["row"] == "3")
        assert setting["untrained"] == pytest.approx(untrained, abs=1e-3)
        best = [
            min((row for row in own if row["row"] in ("6", "7")), key=lambda r: r["settings"][seed]["validation"])
            for seed in range(2)
        ]
        errors = [torch.tensor(row["errors"][seed]).mean().item() for seed, row in enumerate(best)]
        assert setting["trained"] == pytest.approx(sum(errors) / 2, abs=1e-3)


def test_learned_steps_at_the_papers_and_at_larger_learning_rates(record):
    learned_rows = [row for row in record.results["rows"] if row["row"] == "13"]
    assert [row["products"] for row in learned_rows] == [[2 * (3 - 1) * 2 + 4] * 2] * 3
    untrained, narrow, wide = learned_rows
    standard = next(row for row in record.results["rows"] if row["row"] == "2")
    assert untrained["mean"] == pytest.approx(standard["mean"], abs=0.05)  # its start is z
    assert all(w["validation"] <= n["validation"] for w, n in zip(wide["settings"], narrow["settings"], strict=True))


def test_other_seeds_are_other_columns(tmp_path):
    folder = tmp_path / "other"
    only = Grid("reduced", dict.fromkeys(("literal", "converged", "scaled"), ()), (1e-2,), (0.1,), (1e-2,), 1)
    (found,) = run.reproduce(folder, ["sbm"], [2], 2, only, workers=1, seed_base=7)
    assert found.config["seeds"] == [7, 8]
    with pytest.raises(InputError, match="seed_base must be at least 0"):
        run.reproduce(folder, ["sbm"], [2], 2, only, seed_base=-1)


def test_the_second_run_trains_nothing(tmp_path, record, monkeypatch):
    def fail(*args, **kwargs):
        raise AssertionError("trained again")

    monkeypatch.setattr(learned, "fit", fail)
    (again,) = run.reproduce(tmp_path, ["sbm"], [2], 2, TINY, workers=1)
    assert again.results["rows"] == record.results["rows"]


def test_an_interrupted_run_goes_on(tmp_path, record, monkeypatch):
    part = tmp_path / "part"
    done = []

    def few(config, folder):
        if len(done) == 3:
            raise KeyboardInterrupt
        done.append(config)
        return learned.run_cell(config, folder)

    monkeypatch.setattr(run, "run_cell", few)
    with pytest.raises(KeyboardInterrupt):
        run.reproduce(part, ["sbm"], [2], 2, TINY, workers=1)
    assert len(find(part / "cells")) == 3
    monkeypatch.setattr(run, "run_cell", learned.run_cell)
    (resumed,) = run.reproduce(part, ["sbm"], [2], 2, TINY, workers=1)
    assert resumed.results["rows"] == record.results["rows"]


def test_the_table_shows_the_paper_products_and_vectors(record):
    paper = Record(**{**vars(record), "config": {**record.config, "k": 6}})
    text = render_markdown([paper])
    assert "| 1 | the paper: unrolled Lanczos | 0.439 |" in text
    assert record.config["grid"] in text
    shown = lines(paper)
    assert [line["row"] for line in shown] == sorted((line["row"] for line in shown), key=int)
    assert all(line["products"] and line["vectors"] for line in shown)
    assert any(line["row"] == "8" for line in shown)
    assert rich_table(paper).row_count == len(shown)
    assert "root probe minus thick restart" in paired_text(record)


def test_columns_stand_side_by_side(record):
    other = Record(**{**vars(record), "config": {**record.config, "k": 3}})
    text = render_markdown([other, record])
    assert "K = 2: error | products | K = 3: error | products" in text
    widths = {line.count("|") for line in text.splitlines() if line.startswith("| ")}
    assert widths == {7}


def test_pictures_are_written_from_the_record_alone(record, tmp_path):
    files = draw_all(record, tmp_path / "pictures")
    assert len(files) == 10
    assert all(file.stat().st_size > 2000 for file in files)


def test_shipped_networks_do_on_dense_graphs_what_the_record_says(record, tmp_path):
    paths = export(tmp_path, tmp_path / "weights")
    assert [path.name for path in paths] == ["sbm-k2.safetensors", "roots-sbm-k2.safetensors"]
    assert all(path.stat().st_size < 5000 for path in paths)
    path = paths[0]
    net = kl.load(path)
    row = next(r for r in record.results["rows"] if r["row"] == "7" and r["form"] == "literal")
    seed = record.config["seeds"].index(net.card["seed"])
    assert row["settings"][seed]["validation"] == min(s["validation"] for s in row["settings"])
    L = kl.laplacian(family("sbm", net.card["seed"], torch.float64).test)
    U = torch.linalg.eigh(L.to_dense())[1]
    z = learned.load_task("sbm", (0, 1)).draw("test", 5)[:, seed]
    errors = torch.stack([kl.metrics.subspace_error(net(L, z=U @ z[i]).basis, U[..., :2]) for i in range(5)]).mean(0)
    assert errors.tolist() == pytest.approx(row["errors"][seed], rel=1e-3)
    assert net.card["products"] == L.products // 5


def test_the_floor_is_below_thick_restart_and_more_products_are_better():
    task = learned.load_task("sbm", (0,))
    errors = [classical.restarted(task, 2, p)["errors"].mean() for p in (6, 8, 12)]
    assert errors == sorted(errors, reverse=True)
    assert classical.floor(task, 2, 12)["errors"].mean() <= errors[-1] + 1e-6
    assert classical.filtered(task, 2, 16)["errors"].mean() < classical.filtered(task, 2, 6)["errors"].mean()


def test_the_full_grid_is_the_papers():
    found = list(cells("sbm", 6, range(5), FULL))
    literal = [c for c in found if c["net"] == "probe" and c["form"] == "literal"]
    assert len({(c["power"], c["cg_steps"], c["degree"]) for c in literal}) == 36
    assert {c["loss"] for c in literal} == {"theory", "subspace"}
    assert len(list(cells("sbm", 6, range(5), REDUCED))) == 13


def test_too_large_k_is_refused():
    with pytest.raises(InputError, match="at most n / 2 = 10"):
        check("sbm", [6, 11], 5, 20)
