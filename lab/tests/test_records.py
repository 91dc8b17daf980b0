import json
import math
import os
import platform
from collections import OrderedDict
from datetime import UTC, datetime, timedelta, timezone

import numpy as np
import pytest

from krylow._checks import InputError
from krylow_lab.records import Record, RecordError, find, lookup, record_name

CONFIG = {"family": "sbm", "k": 6, "lr": 1e-3, "roots": [0.5, 1.5], "probe": {"degree": 7}}


def make(kind="table1", config=CONFIG, seed=0, results=None, **options):
    options = {"started": datetime(2025, 1, 2, 3, 4, 5, tzinfo=UTC), "wall_seconds": 1.5, "products": 48} | options
    return Record.create(kind, config, {"error": 0.25} if results is None else results, seed=seed, **options)


def test_a_record_comes_back_as_it_was(tmp_path):
    record = make(results={"error": 0.1, "curve": [1.0, 0.5], "status": "CONVERGED", "none": None, "β": {"x": True}})
    path = record.write(tmp_path / "deep" / "folder")
    assert Record.read(path) == record
    assert path.name == record.file_name == record_name("table1", CONFIG, 0)


def test_what_a_record_holds():
    record = make()
    assert (record.kind, record.config, record.seed, record.products) == ("table1", CONFIG, 0, 48)
    assert (record.started, record.wall_seconds) == ("2025-01-02T03:04:05+00:00", 1.5)
    assert record.versions.keys() >= {"krylow", "torch", "numpy", "scipy", "python"}
    assert record.machine.keys() >= {"cpu", "cores", "memory_gib"}
    assert (record.commit is None) == (record.dirty is None)


def test_a_record_tells_nothing_about_whose_machine_it_was():
    text = json.dumps(make().machine)
    for private in (platform.node(), os.path.expanduser("~"), os.getcwd()):
        assert len(private) < 3 or private not in text


def test_times_are_told_in_utc():
    east = timezone(timedelta(hours=2))
    assert make(started=datetime(2025, 1, 1, 1, tzinfo=east)).started == "2024-12-31T23:00:00+00:00"
    with pytest.raises(InputError, match="started must carry its time zone"):
        make(started=datetime(2025, 1, 1))


def test_the_file_is_strict_json_and_keeps_what_is_not_finite(tmp_path):
    path = make(results={"loss": [math.nan, math.inf, -math.inf, 1.0]}).write(tmp_path)

    def refuse(word):
        raise AssertionError(word)

    json.loads(path.read_text(), parse_constant=refuse)
    nan, *rest = Record.read(path).results["loss"]
    assert math.isnan(nan)
    assert rest == [math.inf, -math.inf, 1.0]


def test_a_later_change_of_the_config_does_not_reach_the_record():
    config = {"roots": [1, 2]}
    record = make(config=config)
    config["roots"].append(3)
    assert record.config == {"roots": [1, 2]}


def test_the_name_is_the_same_for_every_spelling():
    name = record_name("a", {"x": 1, "y": [1.0, 2.5], "z": {"u": 1, "v": None}}, 0)
    assert name == record_name("a", OrderedDict(z={"v": None, "u": 1.0}, y=(1, 2.5), x=1.0), 0)
    assert name.startswith("a-")
    assert name.endswith(".json")


def test_the_name_is_the_same_tomorrow():
    # A name that changed would orphan every record that exists: this literal is part of the format.
    assert record_name("table1", {"k": 6, "lr": 0.001}, 0) == "table1-62e23651a2bf261b.json"


@pytest.mark.parametrize(
    ("kind", "config", "seed"),
    [
        ("b", {"x": 1}, 0),
        ("a", {"x": 2}, 0),
        ("a", {"x": 1, "y": None}, 0),
        ("a", {"x": "1"}, 0),
        ("a", {"x": True}, 0),
        ("a", {"x": 1}, 1),
        ("a", {"x": 1}, None),
    ],
)
def test_the_name_tells_everything_else_apart(kind, config, seed):
    assert record_name(kind, config, seed) != record_name("a", {"x": 1}, 0)


def test_an_interrupted_run_continues_where_it_was(tmp_path):
    grid = [({"k": k}, seed) for k in (6, 8) for seed in range(3)]
    measured = []

    def run(stop_after):
        for config, seed in grid:
            if lookup(tmp_path, "grid", config, seed) is None:
                if len(measured) == stop_after:
                    raise KeyboardInterrupt
                measured.append((config, seed))
                make("grid", config, seed).write(tmp_path)

    with pytest.raises(KeyboardInterrupt):
        run(stop_after=4)
    run(stop_after=None)
    run(stop_after=None)
    assert measured == grid
    assert len(find(tmp_path)) == 6


def test_find_by_kind_seed_and_config(tmp_path):
    for k in (6, 8):
        for seed in (0, 1):
            make("grid", {"k": k, "roots": [1, 2]}, seed).write(tmp_path)
    make("other", {"depth": 1}, None).write(tmp_path)
    (tmp_path / "notes.json").write_text("{}")
    assert len(find(tmp_path)) == 5
    assert [(r.config["k"], r.seed) for r in find(tmp_path, kind="grid", k=6.0, seed=1)] == [(6, 1)]
    assert len(find(tmp_path, kind="grid", roots=(1, 2))) == 4
    assert find(tmp_path, k=7) == []
    assert len(find(tmp_path, depth=1)) == 1
    assert [r.file_name for r in find(tmp_path)] == sorted(r.file_name for r in find(tmp_path))


def test_find_in_nothing_and_find_with_a_misspelling(tmp_path):
    assert find(tmp_path / "none", k=6) == []
    make().write(tmp_path)
    with pytest.raises(InputError, match=r"no record has \['kk'\] in its config, which has \['family', 'k'"):
        find(tmp_path, kk=6)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda text: text[: len(text) // 2], "is damaged, not whole JSON"),
        (lambda text: "", "is damaged, not whole JSON"),
        (lambda text: "[1, 2]", "must be a record of format 'krylow-record-1', got no format"),
        (lambda text: '{"loss": 1}', "got no format: another program's"),
        (lambda text: text.replace("record-1", "record-9"), "got format 'krylow-record-9'"),
        (lambda text: text.replace('"products"', '"produce"'), r"lacks \['products'\] and has \['produce'\] beside"),
        (lambda text: text.replace('"seed": 0', '"seed": "x"'), "is damaged: seed must be an integer"),
        (lambda text: text.replace('"kind": "table1"', '"kind": [1]'), "is damaged"),
    ],
)
def test_damaged_and_foreign_files(tmp_path, damage, message):
    path = make().write(tmp_path)
    path.write_text(damage(path.read_text()))
    with pytest.raises(RecordError, match=message) as caught:
        Record.read(path)
    assert path.name in str(caught.value)
    with pytest.raises(RecordError):
        find(tmp_path)


def test_a_field_that_is_no_object(tmp_path):
    path = make().write(tmp_path)
    content = json.loads(path.read_text()) | {"results": 3}
    path.write_text(json.dumps(content))
    with pytest.raises(RecordError, match="results must be an object, got 3"):
        Record.read(path)


def test_a_missing_file(tmp_path):
    with pytest.raises(FileNotFoundError):
        Record.read(tmp_path / "none.json")
    assert lookup(tmp_path, "table1", CONFIG, 0) is None


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"kind": "Table 1"}, "kind must be made of lower-case letters"),
        ({"seed": 0.5}, "seed must be an integer or None, got 0.5"),
        ({"config": {"a": {"b": [0, math.inf]}}}, r"config\['a'\]\['b'\]\[1\] must be finite, got inf"),
        ({"config": {1: 2}}, "config must have text for keys, got 1"),
        ({"results": {"x": np.float64(1.0)}}, r"results\['x'\] must be text, number.*got float64.*\.item\(\)"),
        ({"results": {"x": np.ones(2)}}, r"got ndarray: convert arrays with .tolist\(\)"),
    ],
)
def test_bad_input(options, message):
    with pytest.raises(InputError, match=message):
        make(**options)
