import csv
from datetime import UTC, datetime
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest
import torch
from scipy import stats

from krylow._checks import InputError
from krylow.data import DataNotFoundError
from krylow_lab.records import Record, find
from krylow_lab.table2 import assemble, corpus, gain, plan, run, search, train
from krylow_lab.table2.baselines import counted
from krylow_lab.table2.choice import quick_tables, tables
from krylow_lab.table2.classifier import parameter_count
from krylow_lab.table2.compare import paired
from krylow_lab.table2.corpus import load_corpus
from krylow_lab.table2.model import ByteDropout, build, delicate
from krylow_lab.table2.plan import PAPER, PROTOCOL_A, PROTOCOL_B, QUICK, Protocol, Rung, candidates
from krylow_lab.table2.render import lines, notes, render_markdown, render_side_by_side, rich_table

DATA = {"name": "synthetic", "lengths": [3, 4], "words": 12}
TINY = Protocol("B", ("unrolled", "attention"), (Rung(3, 1), Rung(2, 2)), draws=3)


#: A basis smaller than the different words of a pair, on a graph with more than matching words in it.
GAMMAS_ACT = {"m": 4, "distance": 2.0}


@pytest.fixture(autouse=True)
def tiny(monkeypatch):
    monkeypatch.setattr(corpus, "SYNTHETIC_SIZES", (96, 32))
    corpus._load.cache_clear()
    real = plan._recipe
    monkeypatch.setattr(plan, "_recipe", lambda row, data: {**real(row, data), "embed_dim": 16, "ffn_dim": 16})
    draw = plan._drawn
    monkeypatch.setattr(plan, "_drawn", lambda *args: {**draw(*args), "epochs": 2})
    yield
    corpus._load.cache_clear()


@pytest.fixture
def setting():
    return {**plan._recipe("unrolled", "synthetic"), "epochs": 3, "dropout": 0.2, "m": 6}


@pytest.fixture
def record(tmp_path):
    (found,) = run.reproduce(tmp_path, [(DATA, TINY)], 2, workers=1)
    return found


def test_every_row_is_scored_for_every_seed(record):
    rows = {row["row"]: row for row in record.results["rows"]}
    assert set(rows) == {*TINY.rows, "majority", "overlap"}
    for row in rows.values():
        assert len(row["accuracies"]) == len(row["f1s"]) == len(row["validations"]) == 2
        assert row["accuracy"] == pytest.approx(np.mean(row["accuracies"]), abs=1e-3)
        assert row["accuracy_std"] == pytest.approx(np.std(row["accuracies"], ddof=1), abs=1e-3)
    assert {pair["row"] for pair in record.results["paired"]} == set(rows) - {"unrolled"}
    assert record.results["missing"] == []


def test_the_setting_with_the_best_validation_wins(tmp_path, record):
    for row in record.results["rows"]:
        if "tried" in row:
            twice = [each for each in row["tried"] if len(each["validation"]) == 2]
            assert len(row["tried"]) == 3
            assert len(twice) == 2
            best = max(np.mean(each["validation"]) for each in twice)
            chosen = next(each for each in row["tried"] if each["setting"] == row["setting"])
            assert np.mean(chosen["validation"]) == pytest.approx(best)
    assert record.results["cells"] == len(find(tmp_path / "cells")) == 2 * (3 + 2)


def test_the_second_run_trains_nothing_and_an_interrupted_one_goes_on(tmp_path, record, monkeypatch):
    done = []

    def few(*args):
        if len(done) == 4:
            raise KeyboardInterrupt
        done.append(args)
        return train.run_cell(*args)

    monkeypatch.setattr(run, "run_cell", few)
    with pytest.raises(KeyboardInterrupt):
        run.reproduce(tmp_path / "part", [(DATA, TINY)], 2, workers=1)
    part = assemble.assemble(tmp_path / "part", DATA, TINY, 2)
    assert "attention" in part.results["missing"]
    assert "Not all trained yet" in " ".join(notes(part))
    monkeypatch.setattr(run, "run_cell", train.run_cell)
    (resumed,) = run.reproduce(tmp_path / "part", [(DATA, TINY)], 2, workers=1)
    keep = ("row", "accuracies", "f1s", "validations")
    picked = [[{k: row[k] for k in keep} for row in r.results["rows"]] for r in (resumed, record)]
    assert picked[0] == picked[1]
    monkeypatch.setattr(run, "run_cell", None)
    run.reproduce(tmp_path, [(DATA, TINY)], 2, workers=1)


def test_a_cell_resumed_between_epochs_has_the_numbers_it_would_have_had(tmp_path, setting, monkeypatch):
    whole = train.run_cell(DATA, setting, 1, tmp_path / "whole")
    monkeypatch.setattr(train, "KEPT_EVERY", -1.0)
    epochs = []
    real = train._Training._train_epoch

    def interrupted(self, epoch):
        if epoch == 2 and not epochs:
            epochs.append(epoch)
            raise KeyboardInterrupt
        return real(self, epoch)

    monkeypatch.setattr(train._Training, "_train_epoch", interrupted)
    with pytest.raises(KeyboardInterrupt):
        train.run_cell(DATA, setting, 1, tmp_path / "cut")
    (state,) = (tmp_path / "cut" / "states").iterdir()
    resumed = train.run_cell(DATA, setting, 1, tmp_path / "cut")
    assert resumed.results == whole.results
    assert not state.exists()
    logs = [next((tmp_path / part / "logs").iterdir()).read_text() for part in ("whole", "cut")]
    assert logs[0] == logs[1]


def test_loss_and_gradient_norms_are_logged(tmp_path, setting, monkeypatch):
    monkeypatch.setattr(train, "LOGGED", 1)
    train.run_cell(DATA, {**setting, **GAMMAS_ACT}, 0, tmp_path)
    with open(next((tmp_path / "logs").iterdir()), newline="") as file:
        log = list(csv.DictReader(file))
    assert [int(line["step"]) for line in log] == list(range(1, 3 * 3 + 1))  # 82 pairs in batches of 32
    assert all(float(line["loss"]) > 0 and float(line["gradient_norm"]) > 0 for line in log)
    assert any(float(line["gamma_gradient_norm"]) > 0 for line in log)
    rates = [float(line["lr"]) for line in log]
    assert max(rates) <= setting["lr"]
    assert rates[-1] < rates[2]


def test_gammas_can_learn_slower(tmp_path, setting):
    moved = {}
    for rate in (1.0, 0.01):
        training = train._Training(DATA, {**setting, **GAMMAS_ACT, "gamma_rate": rate}, 0, tmp_path, "cell")
        training.run()
        gammas, rest = training.groups
        moved[rate] = float(torch.cat([p.detach() - 0.01 for p in gammas]).norm())
        assert all(float(p.grad.norm()) <= train.CLIP * 1.01 for p in rest if p.grad is not None)
    assert 0 < moved[0.01] < 0.1 * moved[1.0]


def test_dev_decides_nothing(tmp_path, setting, monkeypatch):
    first = train.run_cell(DATA, setting, 0, tmp_path / "a")
    loaded = load_corpus(DATA, tmp_path)
    flipped = corpus.Corpus(
        loaded.train,
        corpus.Pairs(*(getattr(loaded.dev, n) for n in ("tokens", "segments", "padding")), 1 - loaded.dev.labels, 15),
        loaded.max_tokens,
        loaded.source,
        None,
    )
    monkeypatch.setattr(train, "load_corpus", lambda data, folder: flipped)
    second = train.run_cell(DATA, setting, 0, tmp_path / "b")
    for name in ("best_epoch", "validation", "epochs", "dev_predictions"):
        assert first.results[name] == second.results[name]
    assert first.results["accuracy"] == pytest.approx(100 - second.results["accuracy"])


def test_splits_are_disjoint_and_of_the_seed():
    loaded = load_corpus(DATA, Path())
    fit, held = loaded.split(0)
    assert (len(fit), len(held)) == (82, 14)
    lines_of = lambda pairs: sorted(map(tuple, torch.cat([pairs.tokens, pairs.labels[:, None]], 1).tolist()))  # noqa: E731
    assert sorted(lines_of(fit) + lines_of(held)) == lines_of(loaded.train)
    assert lines_of(loaded.split(1)[1]) != lines_of(held)


def test_rows_start_alike_in_what_they_share(tmp_path):
    loaded = load_corpus(DATA, tmp_path)
    models = [build(plan._recipe(row, "synthetic"), loaded, 0) for row in ("unrolled", "attention", "none")]
    for model in models[1:]:
        assert torch.equal(model.embedding.token.weight, models[0].embedding.token.weight)
        assert torch.equal(model.classify.weight, models[0].classify.weight)
    gammas, rest = delicate(models[0])
    assert {tuple(p.shape) for p in gammas} == {(20,)}
    assert len(gammas) + len(rest) == len(list(models[0].parameters()))


@pytest.mark.parametrize("protocol", [PROTOCOL_A, PROTOCOL_B, plan.PROTOCOL_R])
def test_parameter_counts_are_within_five_percent_for_a_real_vocabulary(protocol, monkeypatch):
    monkeypatch.undo()
    pairs = corpus.token_pairs(4, words=7997)
    loaded = corpus.Corpus(pairs, pairs, 64, "", None)
    counts = [
        parameter_count(build(setting, loaded, 0))
        for row in protocol.rows
        for setting in candidates(protocol, row, "mrpc")
    ]
    assert max(counts) <= 1.05 * min(counts)


def test_protocol_a_is_the_papers(monkeypatch):
    monkeypatch.undo()
    for row in PROTOCOL_A.rows:
        found = candidates(PROTOCOL_A, row, "mrpc")
        assert {(s["lr"], s["epochs"], s["schedule"]) for s in found} == {(1e-4, 10, "constant")}
        if row in plan.IN_A_BASIS:
            assert [(s["m"], s["k"], s["kind"]) for s in found] == [(m, m // 2, "combinatorial") for m in (15, 20, 25)]
    assert PAPER["mrpc"]["attention"] == (68.38, 81.22)


def test_rows_are_tuned_with_equal_care(monkeypatch):
    monkeypatch.undo()
    shared = ("lr", "schedule", "epochs", "dropout", "embeddings")
    draws = {row: candidates(PROTOCOL_B, row, "mrpc", vectors=True) for row in PROTOCOL_B.rows}
    for found in draws.values():
        assert len(found) == PROTOCOL_B.draws
        assert [[s[n] for n in shared] for s in found] == [[s[n] for n in shared] for s in draws["unrolled"]]
    assert any(s["embeddings"] == "vectors" for s in draws["none"])
    assert all(s["embeddings"] == "scratch" for s in candidates(PROTOCOL_B, "none", "synthetic", vectors=True))


def test_long_data_are_searched_on_a_part_and_trained_on_the_whole(tmp_path):
    data, first = {"name": "qnli"}, search.search(PROTOCOL_B, "none", {"name": "qnli"}, 3, tmp_path, False)
    assert [(cell.data, cell.seed) for cell in first.missing] == [({"name": "qnli", "limit": 6000}, 0)] * 4
    for number, cell in enumerate(first.missing):
        results = {"validation": (0.6, 0.8, 0.7, 0.5)[number], "validation_loss": 1.0}
        config = {"data": cell.data, "setting": cell.setting}
        record = Record.create(train.KIND, config, results, seed=0, started=datetime.now(UTC), wall_seconds=1.0)
        record.write(tmp_path / "cells")
    second = search.search(PROTOCOL_B, "none", data, 3, tmp_path, False)
    assert [(cell.data, cell.seed) for cell in second.missing] == [(data, seed) for seed in range(3)]
    assert {str(cell.setting) for cell in second.missing} == {str(first.missing[1].setting)}
    assert second.tried[1] == {"setting": first.missing[1].setting, "data": first.missing[0].data, "validation": [0.8]}


def test_overlap_solves_the_synthetic_task_and_the_majority_does_not(monkeypatch):
    monkeypatch.setattr(corpus, "SYNTHETIC_SIZES", (512, 256))
    corpus._load.cache_clear()
    loaded = load_corpus({"name": "synthetic"}, Path())
    assert counted("overlap", loaded, 0)["accuracy"] > 95
    assert counted("majority", loaded, 0)["accuracy"] == pytest.approx(50, abs=1)


def test_scores_are_those_of_scikit_learn():
    metrics = pytest.importorskip("sklearn.metrics")
    found, labels = (torch.randint(0, 2, (50,), generator=torch.Generator().manual_seed(i)) for i in (0, 1))
    got = train.scores(found, labels)
    assert got["accuracy"] == pytest.approx(100 * metrics.accuracy_score(labels.numpy(), found.numpy()))
    assert got["f1"] == pytest.approx(100 * metrics.f1_score(labels.numpy(), found.numpy()))
    assert train.scores(torch.zeros(3).long(), torch.zeros(3).long())["f1"] == 0


def test_paired_tests_agree_with_scipy_and_see_a_difference():
    draw = np.random.default_rng(0)
    ours, theirs = draw.random((5, 300)) < 0.8, draw.random((5, 300)) < 0.7
    test = paired(ours, theirs)
    expected = stats.ttest_rel(100 * ours.mean(1), 100 * theirs.mean(1))
    assert test["seeds_p"] == pytest.approx(expected.pvalue, rel=1e-3)
    assert test["difference"] == pytest.approx(100 * (ours.mean() - theirs.mean()), rel=1e-3)
    assert test["bootstrap_95"][0] > 0
    a, b = ours.mean(0) > 0.5, theirs.mean(0) > 0.5
    assert test["mcnemar"] == [int((a & ~b).sum()), int((b & ~a).sum())]
    assert test["mcnemar_p"] == pytest.approx(
        stats.binomtest(test["mcnemar"][0], sum(test["mcnemar"])).pvalue, rel=1e-3
    )
    same = paired(ours, ours)
    assert (same["difference"], same["bootstrap_p"], same["mcnemar_p"], same["seeds_p"]) == (0, 1, 1, None)


def test_byte_dropout_drops_its_share_and_keeps_the_mean():
    torch.manual_seed(0)
    layer = ByteDropout(0.25)
    y = layer(torch.ones(1000, 101))
    assert float((y == 0).double().mean()) == pytest.approx(0.25, abs=0.01)
    assert float(y.mean()) == pytest.approx(1, abs=0.01)
    layer.eval()
    assert torch.equal(layer(y), y)


def test_the_table_shows_the_paper_and_what_it_was_trained_on(record):
    shown = lines(record)
    assert rich_table(record).row_count == len(shown) == 4
    mrpc = type(record)(**{**vars(record), "config": {**record.config, "data": {"name": "mrpc"}}})
    text = render_markdown([mrpc])
    assert "69.6 / 81.8" in text
    assert record.results["source"] in text
    side = render_side_by_side([mrpc, record])
    assert "*the paper, MRPC*" in side
    assert {line.count("|") for line in side.splitlines()} == {5}


def test_what_can_be_asked_for(tmp_path, monkeypatch):
    assert [(d["name"], p.name) for d, p in tables("all", "A")] == [(name, "A") for name in plan.DATA]
    assert len(tables("mrpc", "all")) == 2
    assert [len(candidates(p, "exact", "qnli")) for _, p in tables("qnli", "R")] == [1]
    with pytest.raises(InputError, match="data must be one of"):
        tables("sst2", "A")
    with pytest.raises(InputError, match="protocol must be one of"):
        tables("mrpc", "C")
    monkeypatch.setenv("KRYLOW_DATA", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    asked, remarks = quick_tables()
    assert asked == [({"name": "synthetic"}, QUICK)]
    assert "MRPC is left out" in remarks[0]
    monkeypatch.setattr("krylow_lab.text.glue._fetch", lambda name, split, layout: _raise())
    with pytest.raises(DataNotFoundError):
        run.reproduce(tmp_path, tables("qnli", "A"), 1)
    with pytest.raises(InputError, match="no options but 'limit'"):
        load_corpus({"name": "mrpc", "lengths": [1, 2]}, tmp_path)


def _raise():
    raise DataNotFoundError("none")


def test_searches_are_a_function_of_the_cells(tmp_path):
    first = search.search(TINY, "none", DATA, 2, tmp_path, False)
    assert [(cell.seed, cell.setting["row"]) for cell in first.missing] == [(0, "none")] * 3


def test_the_gain_compares_each_filter_with_its_graph_alone(tmp_path, monkeypatch):
    few = (("the recipe", (None,), ("unrolled", "kernel", "lanczos")), ("noise on tokens", (0.5,), ("exact", "kernel")))
    monkeypatch.setattr(gain, "CASES", few)
    monkeypatch.setattr(gain, "EPOCHS", 1)
    found = gain.measure(tmp_path, 2, workers=1)
    first, second = found.results["cases"]
    assert [(t["row"], t["against"]) for t in first["paired"]] == [
        ("lanczos", "kernel"),
        ("unrolled", "kernel"),
        ("unrolled", "lanczos"),
    ]
    assert [row["row"] for row in second["rows"]] == ["exact", "kernel"]
    assert found.results["missing"] == 0
    text = gain.render_markdown(found)
    assert "noise on tokens: standard deviation 0.5" in text
    assert found.file_name in text
    assert gain.assemble(tmp_path, 2).results["cases"] == found.results["cases"]


def test_on_a_graph_that_joins_equal_tokens_the_graph_alone_is_the_filter(tmp_path):
    """There W has blocks of ones, and D^-1 W is the projector on the frequency 0."""
    table = gain.operators("synthetic", tmp_path)
    near, far = table[1], table[-1]
    assert far["graph_alone"] < 1e-3 < 0.1 < near["graph_alone"]
    distinct = [len(set(line.tolist()) - {0}) for line in load_corpus({"name": "synthetic"}, tmp_path).dev.tokens[:32]]
    assert far["kept"] == pytest.approx(np.mean(distinct), abs=1e-3)
    assert "| synthetic | 32 |" in gain.render_operators(_with(table))


def _with(table):
    class Found:
        results: ClassVar = {"operators": {"synthetic": table}}

    return Found()


def test_noise_is_the_same_for_every_row_at_rest(tmp_path):
    loaded = load_corpus(DATA, tmp_path)
    noisy = [build({**plan._recipe(row, "synthetic"), "noise": 1.0}, loaded, 0) for row in ("kernel", "none")]
    plain = build(plan._recipe("none", "synthetic"), loaded, 0)
    tokens = loaded.dev.tokens[:4]
    seen = [model.eval().embedding.token(tokens) for model in noisy]
    assert torch.equal(seen[0], seen[1])
    assert float((seen[0] - plain.embedding.token(tokens)).std()) == pytest.approx(1, abs=0.2)
