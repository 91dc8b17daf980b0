import json
import re
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest
from typer.testing import CliRunner

from krylow.cli import app
from krylow_lab.commands.reproduce import _write_page
from krylow_lab.records import Record

pytest.importorskip("plotly", reason="the report needs plotly: pip install ./lab")
runner = CliRunner()


@pytest.fixture
def record(tmp_path):
    made = Record.create("batch", {"k": 8}, {"ratio": 3.0}, seed=0, started=datetime.now(UTC), wall_seconds=1)
    return made.write(tmp_path / "results")


def said(result):
    return " ".join(result.output.split())


def test_the_page_is_written_and_its_place_said(record, tmp_path):
    out = tmp_path / "page.html"
    result = runner.invoke(app, ["report", str(record.parent), str(record), "-o", str(out)])
    assert result.exit_code == 0, result.output
    assert "report:" in result.output
    assert record.name in out.read_text(encoding="utf-8")


def test_the_repositorys_own_records_make_a_page(tmp_path):
    results = Path(__file__).parents[3] / "results"
    if not results.is_dir():
        pytest.skip("the records are in a checkout alone")
    out = tmp_path / "page.html"
    result = runner.invoke(app, ["report", str(results), "-o", str(out)])
    assert result.exit_code == 0, result.output
    charts = re.search(r'id="charts"[^>]*>(.*?)</script>', out.read_text(encoding="utf-8"), re.DOTALL)[1]
    [record] = (json.loads(path.read_text()) for path in (results / "crossover").glob("*.json"))
    shown = {
        (variant["choice"]["graphs"], int(variant["choice"]["K"]), trace["name"], n): seconds
        for variant in json.loads(charts)["crossover"]["variants"]
        for trace in variant["data"]
        for n, seconds in zip(trace["x"], trace["y"], strict=True)
    }
    measured = record["results"]["sparse grid n=300 k=40"]
    for method, seconds in measured["seconds"].items():
        if measured["status"][method] == "refused":
            assert ("sparse grid", 40, method, 300) not in shown
        else:
            assert shown["sparse grid", 40, method, 300] == seconds


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("empty", "there are no records in"),
        ("missing", "does not exist"),
        ("foreign.json", "must be a record of format"),
        ("broken.json", "not whole JSON"),
        ("only_foreign", "there are no records in"),
    ],
)
def test_what_is_no_record_gets_one_line_and_exit_code_2(given, message, tmp_path):
    (tmp_path / "empty").mkdir()
    (tmp_path / "only_foreign").mkdir()
    (tmp_path / "only_foreign" / "package.json").write_text('{"name": "x"}')
    (tmp_path / "foreign.json").write_text('{"name": "x"}')
    (tmp_path / "broken.json").write_text('{"name": ')
    out = tmp_path / "page.html"
    result = runner.invoke(app, ["report", str(tmp_path / given), "-o", str(out)])
    assert result.exit_code == 2
    assert message in said(result)
    assert "Traceback" not in result.output
    assert len(result.output.strip().splitlines()) == 1
    assert not out.exists()


def test_a_page_that_cannot_be_written(record, tmp_path):
    result = runner.invoke(app, ["report", str(record), "-o", str(tmp_path / "no" / "page.html")])
    assert result.exit_code == 2
    assert "does not exist: make it" in said(result)
    result = runner.invoke(app, ["report", str(record), "-o", str(record / "page.html")])
    assert result.exit_code == 2
    assert "Traceback" not in result.output


def test_without_records_the_usage_is_shown():
    assert runner.invoke(app, ["report"]).exit_code == 2


def test_missing_packages_are_named(record, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "jinja2", None)
    for name in [name for name in sys.modules if name.startswith("krylow_lab.report.")]:
        monkeypatch.delitem(sys.modules, name)
    result = runner.invoke(app, ["report", str(record), "-o", str(tmp_path / "page.html")])
    assert result.exit_code == 2
    assert "pip install './lab'" in said(result)


def test_a_reproduction_ends_with_the_page_of_its_records(record, capsys):
    _write_page(record.parent, [record])
    assert record.name in (record.parent / "report.html").read_text(encoding="utf-8")
    assert "report.html" in capsys.readouterr().out


def test_a_reproduction_without_the_extra_says_how_to_get_it(record, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "jinja2", None)
    for name in [name for name in sys.modules if name.startswith("krylow_lab.report.")]:
        monkeypatch.delitem(sys.modules, name)
    _write_page(record.parent, [record])
    assert "pip install './lab'" in " ".join(capsys.readouterr().out.split())
    assert not (record.parent / "report.html").exists()
