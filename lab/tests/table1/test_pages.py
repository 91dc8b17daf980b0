"""What the pages say of Table 1 is what the records hold."""

import importlib.util
from pathlib import Path

import pytest

from krylow_lab.records import find
from krylow_lab.table1 import PAPER
from krylow_lab.table1.assemble import KIND

ROOT = Path(__file__).parents[3]
COLUMNS = [(data, k) for data in ("sbm", "PROTEINS") for k in (6, 8, 10)]


@pytest.fixture(scope="module")
def tables():
    spec = importlib.util.spec_from_file_location("table1_tables", ROOT / "benchmarks" / "table1_tables.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def page(name):
    return (ROOT / name).read_text(encoding="utf-8")


@pytest.mark.parametrize(("data", "k"), COLUMNS)
def test_learned_steps_are_in_every_column_with_their_cost(data, k):
    (record,) = find(ROOT / "results" / "table1", kind=KIND, data=data, k=k, grid="full")
    assert record.config["seeds"] == [0, 1, 2, 3, 4]
    rows = {row["name"]: row for row in record.results["rows"] if row["row"] == "13"}
    assert len(rows) == 3
    for row in rows.values():
        assert row["products"] == [6 * (10 - 1) * 7 + 2 * k] * 5
        assert len(row["errors"]) == 5
    untrained = rows["learned steps, untrained"]["mean"]
    assert untrained == pytest.approx(PAPER[data, k][0], abs=0.02)  # the paper's "standard Lanczos"


def test_pages_show_the_tables_of_the_records(tables):
    assert tables.headlines() in page("docs/table1.md")
    assert tables.all_rows() in page("docs/table1.md")
    learned = page("docs/what-is-learned.md")
    for data in ("sbm", "PROTEINS"):
        assert tables.apart(data) in learned
        assert tables.roots(data) in learned
    assert tables.starts() in learned


def test_learned_roots_are_shown_outside_their_family(tables):
    name = "docs/what-is-learned.md"
    text = " ".join(page(name).split())
    assert tables.transfer() in page(name)
    assert "on graphs of the training distribution" in text.lower()
