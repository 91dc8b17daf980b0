import json
import re
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
import torch

import krylow_lab.report
from krylow._checks import InputError
from krylow_lab.records import find
from krylow_lab.report import write_report
from krylow_lab.report.figures import FLOOR, ticks
from krylow_lab.report.sections.columns import columns
from krylow_lab.report.sections.example import layout
from krylow_lab.report.sources import gather


class Page(HTMLParser):
    """Ids, links, texts by tag, and everything that a browser would load."""

    def __init__(self, text):
        super().__init__()
        self.ids, self.links, self.loads, self.words = set(), [], [], []
        self.script = None
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        attributes = dict(attrs)
        self.script = attributes.get("id", "code") if tag in ("script", "style") else None
        self.ids.add(attributes.get("id"))
        self.loads += [attributes[name] for name in ("src", "srcset", "data", "action") if attributes.get(name)]
        if tag == "link":
            self.loads.append(attributes["href"])
        if tag == "a":
            self.links.append(attributes["href"])

    def handle_endtag(self, tag):
        self.script = None

    def handle_data(self, data):
        if self.script == "charts":
            self.charts = json.loads(data)
        elif self.script is None:
            self.words.append(data)

    @property
    def text(self):
        return " ".join(" ".join(self.words).split())


@pytest.fixture(scope="module")
def page(records):
    return Page(write_report([records], records.parent / "report.html").read_text(encoding="utf-8"))


def trace(chart, name, number=0):
    return next(trace for trace in chart["variants"][number]["data"] if trace.get("meta") == name)


def test_all_sections_are_there_and_every_link_leads_somewhere(page):
    assert {"table1", "error-products", "error-time", "gammas", "responses", "curves", "graph"} <= page.ids
    assert {"crossover", "large", "attention", "other", "missing", "records"} <= page.ids
    assert all(link.startswith("#") and link[1:] in page.ids for link in page.links)


def test_nothing_is_loaded_from_outside(page):
    assert page.loads == ["data:,"]


def test_table_1_stands_beside_the_papers_figures(page):
    for figure in ("0.543", "0.439", "0.639", "0.358"):  # of the paper, K = 6
        assert figure in page.text
    for measured in (
        "0.532 ± 0.053",
        "0.322 ± 0.032",
        "0.154 ± 0.015",
        "1272 products",
        "−0.0100",
        "± 0.0040, 6 graphs",
    ):
        assert measured in page.text


def test_table_2_stands_beside_the_papers_figures(build, records):
    row = {
        "row": "unrolled",
        "name": "Unrolled Lanczos",
        "accuracy": 70.04,
        "accuracy_std": 1.2,
        "f1": 80.5,
        "f1_std": 0.3,
    }
    other = {**row, "row": "none", "name": "no mixing $D^{-1} W$", "accuracy": 68.5}
    pair = {"row": "none", "difference": 1.54, "bootstrap_95": [0.4, 2.6], "bootstrap_p": 0.01}
    results = {
        "rows": [row, other],
        "paired": [pair],
        "missing": [],
        "source": "official train",
        "positive": "paraphrase",
    }
    results |= {"selection": "by validation", "cells": 4, "cell_seconds": 120.0}
    config = {"data": {"name": "mrpc"}, "protocol": "A", "seeds": [0, 1], "vectors": False}
    path = build.record(records.parent / "table2", "table2", config, results)
    page = Page(write_report([records, path], records.parent / "both.html").read_text(encoding="utf-8"))
    assert "table2" in page.ids
    for text in (
        "69.61 / 81.76",
        "70.0 ± 1.2",
        "80.5 ± 0.3",
        "+1.5",
        "+0.4 to +2.6",
        "no mixing D⁻¹ W",
        "by validation",
    ):
        assert text in page.text
    assert "krylow reproduce table2" not in page.text


def test_what_is_missing_names_its_command(page):
    assert "Table 2: sentence pairs: no records were given. krylow reproduce table2 makes them." in page.text


def test_footnotes_name_file_seeds_commit_and_machine(page, records):
    for path in records.rglob("*.json"):
        assert path.name in page.text
    record = gather([records])[0].record
    assert f"commit {record.commit[:7]}" in page.text if record.commit else "no commit" in page.text
    assert "seeds 0, 1" in page.text
    assert "2026-01-02 03:04:05 UTC" in page.text
    assert record.machine["cpu"] in page.text


def test_charts_hold_the_records_numbers(page):
    chart = page.charts["error-products"]
    choices = [variant["choice"] for variant in chart["variants"]]
    assert choices == [{"data": "SBM", "K": "6"}, {"data": "SBM", "K": "8"}, {"data": "PROTEINS", "K": "6"}]
    roots = trace(chart, "root probe", 1)
    assert (roots["x"], roots["y"]) == ([32], [0.1543])
    floor = trace(chart, "Lanczos, a vector a product")
    assert floor["x"] == [24, 36]
    assert floor["y"] == [FLOOR, FLOOR]
    assert floor["customdata"][0][0].startswith("1e-20")
    assert trace(chart, "paper unrolled Lanczos")["y"] == [0.439004] * 2
    assert trace(page.charts["error-time"], "root probe")["x"] == [2e-3]
    assert trace(page.charts["crossover"], "exact")["y"] == [0.1]  # 0.4 s for four graphs
    assert trace(page.charts["attention"], "unrolled")["y"] == pytest.approx([0.3, 0.3])
    assert trace(page.charts["large"], "eigsh")["y"] == [1.0]


def test_gammas_are_one_minus_and_one_plus_a_square(page):
    assert trace(page.charts["gammas"], "full network (theory), literal γ¹")["y"] == [0.99] * 12
    assert trace(page.charts["gammas"], "full network (theory), literal γ²")["y"] == [1.04] * 12


def test_responses_are_those_of_the_formulas(page):
    chart = page.charts["responses"]
    before = trace(chart, "full network (subspace), scaled before")
    lam = np.array(before["x"])
    softplus = np.log(2.0)
    h = (1 + sum(softplus * (lam / 4.0) ** t for t in range(1, 8))) ** -3.0
    np.testing.assert_allclose(before["y"], h, rtol=1e-3)
    after = trace(chart, "root probe, 24 products after")
    rho = 1 + np.arange(12) / 10
    h = np.abs(np.prod(1 - lam[:, None] / 1.5 / rho, axis=1)).clip(1e-9)
    np.testing.assert_allclose(np.log10(after["y"]), np.log10(h), atol=5e-3)


def test_the_filtered_graph_is_the_projection_on_the_exact_lowest_frequencies(page):
    before, after = (page.charts[f"graph-{when}"]["variants"][0]["data"] for when in ("before", "after"))
    x, y = (np.array(chart[1]["marker"]["color"]) for chart in (before, after))
    W = np.zeros((100, 100))
    places = np.stack([before[1]["x"], before[1]["y"]], 1)
    ends = np.stack([before[0]["x"], before[0]["y"]], 1)
    for a, b in zip(ends[0::3].astype(float), ends[1::3].astype(float), strict=True):
        i, j = (int(np.abs(places - end).sum(1).argmin()) for end in (a, b))
        W[i, j] = W[j, i] = 1
    _, U = np.linalg.eigh(np.diag(W.sum(1)) - W)
    np.testing.assert_allclose(y, U[:, :4] @ (U[:, :4].T @ x), atol=2e-3)


def test_the_layout_brings_neighbours_together():
    W = torch.block_diag(*[torch.ones(5, 5)] * 2) - torch.eye(10)
    W[0, 5] = W[5, 0] = 1
    L = torch.diag(W.sum(1)) - W
    places = layout(W, torch.linalg.eigh(L)[1][:, :4])
    distance = torch.cdist(places, places)
    assert distance[:5, :5].max() < distance[1:5, 6:].min()


def test_the_full_grid_stands_for_a_column(build, tmp_path):
    build.table1(tmp_path, grid="full")
    build.table1(tmp_path, grid="reduced")
    (source,) = columns(gather([tmp_path])).values()
    assert source.config["grid"] == "full"


def test_text_of_a_record_is_text_and_not_markup(build, tmp_path):
    evil = "</script><script>alert(1)</script>"
    results = build.table1_results(6)
    results["rows"][0]["name"] = evil
    build.table1(tmp_path, results=results)
    build.record(tmp_path, "batch", {"k": 1}, {evil: evil})
    text = write_report([tmp_path], tmp_path / "report.html").read_text(encoding="utf-8")
    assert evil not in text
    assert evil in Page(text).text


def test_learned_steps_of_the_repositorys_records_are_drawn(tmp_path):
    results = Path(__file__).parents[3] / "results"
    folders = [results / "table1", results / "roots-transfer"]
    page = Page(write_report(folders, tmp_path / "report.html").read_text(encoding="utf-8"))
    (record,) = find(folders[0], kind="table1", data="sbm", k=6, grid="full")
    rows = {row["name"]: row for row in record.results["rows"] if row["row"] == "13"}
    chart = page.charts["error-products"]
    number = [variant["choice"] for variant in chart["variants"]].index({"data": "SBM", "K": "6"})
    assert len(rows) == 3
    for name, row in rows.items():
        assert f"{row['mean']:.3f} ± {row['std']:.3f}" in page.text
        assert trace(chart, name, number)["x"] == [390]
        assert trace(chart, name, number)["y"] == [pytest.approx(row["mean"])]


def test_ticks_are_round_numbers_around_the_values():
    assert ticks([3e-4, 2e-3], "s")["ticktext"] == ["200 µs", "500 µs", "1 ms", "2 ms", "5 ms", "10 ms"]
    assert ticks([7, 8])["ticktext"] == ["5", "10"]


def test_a_record_of_another_shape_is_said_to_be_one(build, tmp_path):
    build.table1(tmp_path, results={"lines": []})
    with pytest.raises(InputError, match="does not hold what the page draws"):
        write_report([tmp_path], tmp_path / "report.html")
    assert not (tmp_path / "report.html").exists()


def test_records_without_anything_to_show(build, tmp_path):
    build.record(tmp_path, "table1-cell", {"k": 1}, {"members": []})
    with pytest.raises(InputError, match="nothing that the page shows"):
        write_report([tmp_path], tmp_path / "report.html")


def test_places_that_cannot_be_written(records, tmp_path, monkeypatch):
    with pytest.raises(InputError, match="does not exist"):
        write_report([records], tmp_path / "no" / "report.html")
    with pytest.raises(InputError, match="must be a file"):
        write_report([records], tmp_path)

    def refuse(path, data):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(krylow_lab.report, "write_whole", refuse)
    with pytest.raises(InputError, match=r"cannot be written \(Permission denied"):
        write_report([records], tmp_path / "report.html")


def test_an_older_page_is_replaced_whole(records, tmp_path):
    path = tmp_path / "report.html"
    path.write_text("old")
    text = write_report([records], path).read_text(encoding="utf-8")
    assert re.match(r"\s*<!DOCTYPE html>", text)
    assert text.rstrip().endswith("</html>")
    assert [p.name for p in tmp_path.iterdir() if p.name.startswith(".")] == []
