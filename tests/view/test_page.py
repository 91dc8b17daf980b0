"""The page of a graph: its numbers by numpy, what it refuses, and all of it in a headless Chromium."""

import base64
import json
import re
import shutil

import numpy as np
import pytest
import scipy.sparse
import torch
from typer.testing import CliRunner

import krylow as kl
from krylow.cli import app
from krylow.plot.layout import layout
from krylow.testing import block_diagonal, cycle, path, random_graph
from krylow.view import Picture, page

runner = CliRunner()


def data_of(html):
    return json.loads(re.search(r'<script type="application/json" id="data">(.*?)</script>', html, re.DOTALL)[1])


def unpacked(packed):
    return np.frombuffer(base64.b64decode(packed["bytes"]), "<i2") * packed["scale"]


@pytest.fixture(scope="module")
def graph():
    W = random_graph(40, 0.2, seed=3).numpy()
    lam, U = np.linalg.eigh(np.diag(W.sum(1)) - W)
    return W, lam, U


def test_the_page_holds_the_frequencies_and_what_the_filter_needs(graph):
    W, lam, U = graph
    x = np.random.default_rng(0).standard_normal((40, 2)) * [1, 50]
    html = page(
        kl.subspace(kl.laplacian(W), 9), Picture(signals=x, columns=["a", "b"], nodes=[f"n{i}" for i in range(40)])
    )
    data = data_of(html)
    assert np.allclose(data["values"], lam[:9], atol=1e-5)
    assert data["names"][3] == "n3"
    V = np.stack([unpacked(column) for column in data["basis"]], axis=1)
    assert np.allclose(V @ V.T, U[:, :9] @ U[:, :9].T, atol=1e-3)
    for j, signal in enumerate(data["signals"]):
        assert signal["name"] == "ab"[j]
        assert np.allclose(unpacked(signal["values"]), x[:, j], atol=abs(x[:, j]).max() / 30000)
        assert np.isclose(signal["energy"], x[:, j] @ x[:, j])
        assert np.allclose(
            V[:, :4] @ signal["coefficients"][:4], U[:, :4] @ (U[:, :4].T @ x[:, j]), atol=1e-3 * abs(x).max()
        )
    assert "proved" in data["certificate"]["title"]
    x, y = (np.array(data["density"][axis]) for axis in "xy")
    step = np.diff(x)
    assert np.isclose((step * (y[1:] + y[:-1]) / 2).sum(), 1, atol=0.05)
    below = np.interp(lam[19], x[1:], np.cumsum(step * (y[1:] + y[:-1]) / 2))
    assert np.isclose(below, 0.5, atol=0.1)
    assert data["text"]["drawn"].startswith("All nodes and edges")


def test_of_a_large_graph_a_part_is_drawn_and_the_page_says_so():
    n = 3000
    ring = scipy.sparse.diags_array([np.ones(n - 1), np.ones(n - 1)], offsets=[1, -1]).tocsr()
    html = page(kl.subspace(kl.laplacian(ring), 4, method="shift_invert"), Picture(most_nodes=500, most_edges=800))
    data = data_of(html)
    assert data["n"] == n
    assert len(unpacked(data["basis"][0])) == len(data["names"]) == 500
    assert len(base64.b64decode(data["edges"])) == 800 * 8
    assert "500 of 3,000 nodes and 800 of 2,999 edges" in data["text"]["drawn"]
    assert "made up" in data["text"]["signalNote"]
    assert len(html) < 100_000


def test_own_coordinates_are_kept_up_to_scale(graph):
    W, _, _ = graph
    places = np.random.default_rng(1).random((40, 2)) * [10, 4] - 3
    data = data_of(page(kl.subspace(kl.laplacian(W), 3), Picture(positions=places)))
    drawn = np.frombuffer(base64.b64decode(data["points"]), "<u2").reshape(-1, 2).astype(float)
    scale = (drawn.max(0) - drawn.min(0)) / (places.max(0) - places.min(0))
    assert np.allclose(scale, scale[0], rtol=1e-3)
    assert np.corrcoef(drawn[:, 1], places[:, 1])[0, 1] > 0.9999
    assert "own coordinates" in data["text"]["drawn"]


def test_text_of_a_file_is_no_html(graph):
    evil = "</script><img src=x onerror=alert(1)>"
    html = page(kl.subspace(kl.laplacian(graph[0]), 3), Picture(title=evil, nodes=[evil] * 40))
    assert evil not in html
    assert data_of(html)["text"]["title"] == evil


def test_a_gap_is_told_and_an_error_too():
    groups = block_diagonal(*(random_graph(12, 0.9, seed=i) for i in range(3))).numpy()
    groups[0, 12] = groups[12, 0] = groups[13, 24] = groups[24, 13] = 0.1
    said = data_of(page(kl.subspace(kl.laplacian(groups), 8)))
    assert "after frequency 3" in " ".join(said["certificate"]["sentences"])
    assert said["start"] == 3
    wrong = kl.subspace(kl.laplacian(random_graph(60, 0.2, seed=1)), 8, method="lanczos", m=9)
    said = data_of(page(wrong))["certificate"]
    assert not said["good"]
    assert wrong.status.advice in said["sentences"]


@pytest.mark.parametrize(
    ("picture", "words"),
    [
        (Picture(positions=np.zeros((39, 2))), "positions must be"),
        (Picture(positions=np.full((40, 2), np.nan)), "finite"),
        (Picture(signals=np.zeros(39)), "a row for each node"),
        (Picture(signals=np.zeros((40, 0))), "a row for each node"),
    ],
)
def test_what_does_not_fit_is_refused(graph, picture, words):
    with pytest.raises(kl.InputError, match=words):
        page(kl.subspace(kl.laplacian(graph[0]), 3), picture)


def test_a_batch_is_refused(graph):
    with pytest.raises(kl.InputError, match="one graph"):
        page(kl.subspace(kl.laplacian(torch.from_numpy(np.stack([graph[0]] * 2))), 3))


def test_layout_of_a_cycle_is_a_circle_and_of_a_grid_a_square():
    X = layout(cycle(40).numpy())
    assert np.ptp(np.linalg.norm(X - X.mean(0), axis=1)) < 0.02
    side = 8
    grid = np.kron(np.eye(side), path(side).numpy()) + np.kron(path(side).numpy(), np.eye(side))
    X = layout(grid)
    i, j = np.nonzero(np.triu(grid))
    lengths = np.linalg.norm(X[i] - X[j], axis=1)
    assert lengths.max() < 1.5 * lengths.min()


@pytest.mark.parametrize("n", [1, 2, 3, 1500])
def test_layouts_are_finite_for_any_graph(n):
    W = random_graph(n, min(1, 1.2 / n), seed=n).numpy()  # many components
    X = layout(W)
    assert X.shape == (n, 2)
    assert np.isfinite(X).all()
    assert len(np.unique(X.round(9), axis=0)) == n


def test_the_command(tmp_path, monkeypatch, graph):
    monkeypatch.chdir(tmp_path)
    W, _, _ = graph
    scipy.sparse.save_npz("g.npz", scipy.sparse.csr_array(W))
    i, j = np.nonzero(np.triu(W))
    (tmp_path / "g.csv").write_text("".join(f"v{a},v{b}\n" for a, b in zip(i, j, strict=True)))
    rng = np.random.default_rng(0)
    places, heat = rng.random((40, 2)), rng.random(40)
    order = rng.permutation(40)
    rows = (f"v{v},{places[v, 0]:.6f},{places[v, 1]:.6f},{heat[v]:.6f}\n" for v in order)
    (tmp_path / "x.csv").write_text("node,x,y,heat\n" + "".join(rows))
    result = runner.invoke(app, ["view", "g.csv", "x.csv", "-o", "page.html", "-k", "5"])
    assert result.exit_code == 0, result.output
    assert "page.html: page" in result.output
    data = data_of((tmp_path / "page.html").read_text())
    assert [signal["name"] for signal in data["signals"]] == ["heat"]
    number = [int(name[1:]) for name in data["names"]]
    assert np.allclose(unpacked(data["signals"][0]["values"]), heat[number], atol=1e-4)
    drawn = np.frombuffer(base64.b64decode(data["points"]), "<u2").reshape(-1, 2)
    assert np.corrcoef(drawn[:, 0], places[number, 0])[0, 1] > 0.9999

    np.save("places.npy", places)
    result = runner.invoke(app, ["view", "g.npz", "--coordinates", "places.npy", "-o", "page.html", "-k", "99"])
    assert result.exit_code == 0, result.output
    assert len(data_of((tmp_path / "page.html").read_text())["values"]) == 40
    for arguments, words in (
        (["g.npz", "-o", "page.csv"], "page.csv"),
        (["g.npz", "places.npy", "--coordinates", "g.npz", "-o", "p.html"], "g.npz"),
        (["missing.npz", "-o", "p.html"], "missing.npz"),
    ):
        result = runner.invoke(app, ["view", *arguments])
        assert result.exit_code == 2, result.output
        assert words in result.output
        assert not (tmp_path / "p.html").exists()


@pytest.mark.parametrize("kind", ["graphml", "gexf", "gml", "npz"])
def test_coordinates_of_the_graphs_own_file(tmp_path, kind):
    networkx = pytest.importorskip("networkx")
    G = networkx.random_geometric_graph(40, 0.4, seed=1)
    places = np.array([G.nodes[v].pop("pos") for v in G])
    path = tmp_path / f"g.{kind}"
    if kind == "npz":
        index = np.array(list(G.edges)).T
        np.savez(path, edge_index=np.concatenate([index, index[::-1]], axis=1), num_nodes=40, pos=places)
    else:
        for v in G:
            x, y = map(float, places[v])
            if kind == "gexf":
                G.nodes[v]["viz"] = {"position": {"x": x, "y": y, "z": 0.0}}
            else:
                G.nodes[v].update(x=x, y=y) if kind == "graphml" else G.nodes[v].update(graphics={"x": x, "y": y})
        getattr(networkx, f"write_{kind}")(G, path)
    result = runner.invoke(app, ["view", str(path), "-o", str(tmp_path / "p.html"), "-k", "3"])
    assert result.exit_code == 0, result.output
    data = data_of((tmp_path / "p.html").read_text())
    drawn = np.frombuffer(base64.b64decode(data["points"]), "<u2").reshape(-1, 2)
    number = [int(name) for name in data["names"]]
    assert np.corrcoef(drawn[:, 0], places[number, 0])[0, 1] > 0.9999
    assert np.corrcoef(drawn[:, 1], places[number, 1])[0, 1] > 0.9999


# In a browser.

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
DRIVER = shutil.which("chromedriver")
FLAGS = ("--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run")
QUIET = ("--disable-background-networking", "--disable-component-update", "--disable-sync")


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    webdriver = pytest.importorskip("selenium.webdriver", reason="selenium is not installed: pip install '.[dev]'")
    if not (CHROMIUM and DRIVER):
        pytest.skip("no Chromium with its driver is installed (Debian: chromium chromium-driver)")
    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    for flag in (*FLAGS, *QUIET, f"--user-data-dir={tmp_path_factory.mktemp('profile')}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(DRIVER))
    yield driver
    driver.quit()


@pytest.fixture
def opened(browser, graph, tmp_path):
    W, lam, U = graph
    x = np.random.default_rng(0).standard_normal((40, 2))
    sub = kl.subspace(kl.laplacian(W), 12)
    (tmp_path / "page.html").write_text(page(sub, Picture(title="a <b>graph</b>", signals=x)), encoding="utf-8")

    def at(width, scheme):
        size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 500}
        browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        media = {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", media)
        browser.get((tmp_path / "page.html").as_uri())
        return browser, x, lam, U

    return at


def text(browser, selector):
    return browser.find_element("css selector", selector).text


def move(browser, slider, value):
    script = (
        "const s = document.querySelector(arguments[0]); s.value = arguments[1]; s.dispatchEvent(new Event('input'))"
    )
    browser.execute_script(script, slider, value)


def drawn_values(browser, canvas):
    return np.array(browser.execute_script(f"return Array.from(document.querySelector('{canvas}').shown.x)"))


def test_sliders_filter_the_signal(opened):
    browser, x, lam, U = opened(1280, "light")
    assert text(browser, "h1") == "a <b>graph</b>"
    assert np.allclose(drawn_values(browser, "#before"), x[:, 0], atol=1e-3)
    for k in (1, 7, 12):
        move(browser, "#k", k)
        y = U[:, :k] @ (U[:, :k].T @ x[:, 0])
        assert np.allclose(drawn_values(browser, "#after"), y, atol=2e-3)
        share = 100 * (y @ y) / (x[:, 0] @ x[:, 0])
        assert f"{share:.1f} %" in text(browser, "#effect")
        assert text(browser, "output[for=k]") == f"{k} of 12"
        assert len(browser.find_elements("css selector", "#values .kept")) == k
    most = 1.02 * lam[11]
    cutoff = 500 * most / 1000
    move(browser, "#cutoff", 500)
    kept = int((lam <= cutoff).sum())
    assert text(browser, "output[for=k]") == f"{kept} of 12"
    move(browser, "#cutoff", 0)
    assert abs(drawn_values(browser, "#after")).max() <= abs(x).max()
    browser.execute_script(
        "const s = document.querySelector('select'); s.value = 1; s.dispatchEvent(new Event('change'))"
    )
    assert np.allclose(drawn_values(browser, "#before"), x[:, 1], atol=1e-3)
    first = text(browser, ".grid figcaption")
    browser.find_element("css selector", "#later").click()
    assert text(browser, ".grid figcaption") != first


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
def test_every_picture_is_drawn_on_every_screen_without_an_error_or_a_request(opened, width, scheme):
    browser = opened(width, scheme)[0]
    colors = """return [...document.querySelectorAll('canvas')].map(c => new Set(
        new Uint32Array(c.getContext('2d').getImageData(0, 0, c.width, c.height).data.buffer)).size)"""
    assert min(browser.execute_script(colors)) > 5
    wide = "const d = document.documentElement; return [d.scrollWidth, d.clientWidth]"
    scroll, client = browser.execute_script(wide)
    assert scroll <= client
    cut = """return [...document.querySelectorAll('text, figcaption, button, output')].filter(t => {
        const b = t.getBoundingClientRect(); return b.width && (b.left < 0 || b.right > window.innerWidth) }).length"""
    assert browser.execute_script(cut) == 0
    assert [entry for entry in browser.get_log("browser") if entry["level"] in ("SEVERE", "WARNING")] == []
    events = [json.loads(entry["message"])["message"] for entry in browser.get_log("performance")]
    asked = [e["params"]["request"]["url"] for e in events if e["method"] == "Network.requestWillBeSent"]
    assert any(url.startswith("file:") for url in asked)  # the log works
    assert [url for url in asked if url.startswith(("http", "ws", "ftp"))] == []
