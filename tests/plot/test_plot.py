"""Pictures hold the numbers that they show, and notebooks get tables."""

import sys

import numpy as np
import pytest
import scipy.sparse
import torch

import krylow as kl
from krylow.testing import cycle, random_graph

matplotlib = pytest.importorskip("matplotlib", reason="pictures need matplotlib: pip install '.[plot]'")
matplotlib.use("Agg")
plt = pytest.importorskip("matplotlib.pyplot")


@pytest.fixture(autouse=True)
def closed():
    yield
    plt.close("all")


def test_a_signal_is_drawn_at_its_coordinates():
    W = random_graph(30, 0.2, seed=1).numpy()
    rng = np.random.default_rng(0)
    x, places = rng.standard_normal(30), rng.random((30, 2))
    axes = kl.plot.signal(kl.laplacian(W), x, positions=places)
    points = axes.collections[0]
    assert np.allclose(points.get_offsets(), places)
    assert np.allclose(points.get_array(), x)
    assert points.get_clim() == (-abs(x).max(), abs(x).max())  # zero is the colour in the middle
    ends = axes.lines[0].get_xydata().reshape(-1, 3, 2)
    assert len(ends) == np.count_nonzero(np.triu(W, 1))
    there = kl.plot.signal(kl.laplacian(W), abs(x), axes=axes, limits=(0, 5), cmap="magma")
    assert there is axes
    assert axes.collections[1].get_clim() == (0, 5)
    assert "magma" in axes.collections[1].get_cmap().name


def test_of_a_large_graph_a_part_is_drawn_and_said():
    n = 20_000
    line = scipy.sparse.diags_array([np.ones(n - 1), np.ones(n - 1)], offsets=[1, -1]).tocsr()
    places = np.stack([np.arange(n), np.zeros(n)], axis=1)
    axes = kl.plot.signal(kl.laplacian(line), np.arange(n), positions=places)
    assert len(axes.collections[0].get_offsets()) == 4000
    assert "4,000 of 20,000 nodes" in axes.get_xlabel()
    assert np.array_equal(axes.collections[0].get_array(), axes.collections[0].get_offsets()[:, 0])


def test_a_subspace_is_drawn():
    sub = kl.subspace(kl.laplacian(random_graph(30, 0.2, seed=1)), 5)
    figure = sub.plot(most=4)
    spectrum, *pictures = figure.axes
    assert np.allclose(spectrum.lines[0].get_ydata(), sub.ritz_values)
    assert len(pictures) == 4
    second = pictures[1].collections[0].get_array()
    assert np.isclose(abs(second @ sub.basis[:, 1].numpy()), 1)
    W = cycle(30)
    degree = torch.full((30, 1), 2.0, dtype=W.dtype)
    function = kl.operators.FunctionOperator(lambda x: degree * x - W @ x, 30, dtype=W.dtype, bounds=(0.0, 4.0))
    assert len(kl.subspace(function, 3).plot().axes) == 1  # no edges are known


def test_responses_and_banks_are_drawn_over_the_frequencies():
    L = kl.laplacian(random_graph(30, 0.2, seed=1))
    bank = kl.responses.Itersine(5)
    density = kl.spectral_density(L)
    axes = bank.plot(L, density=density)
    *filters, squares = axes.lines
    assert len(filters) == 5
    lam = torch.tensor(filters[0].get_xdata())
    assert np.linalg.eigvalsh(L.to_dense()).max() <= lam[-1] <= L.norm_bound()
    assert np.allclose(filters[2].get_ydata(), bank.on(L).evaluate(lam)[:, 2])
    assert np.ptp(squares.get_ydata()) < 1e-6  # a tight frame
    line = kl.responses.Heat(2.0).plot(3.0).lines[0]
    assert np.allclose(line.get_ydata(), np.exp(-2 * line.get_xdata()))
    assert np.allclose(density.plot().lines[0].get_ydata(), density.density)
    batch = kl.laplacian(torch.stack([random_graph(9, seed=1)] * 2))
    with pytest.raises(kl.InputError, match="one graph"):
        kl.spectral_density(batch).plot()
    with pytest.raises(kl.InputError, match="one graph"):
        bank.plot(batch)


def test_what_cannot_be_drawn_is_refused(monkeypatch):
    L = kl.laplacian(torch.stack([random_graph(9, seed=1)] * 2))
    with pytest.raises(kl.InputError, match="one graph"):
        kl.plot.signal(L, np.zeros(9))
    with pytest.raises(kl.InputError, match="one graph"):
        kl.subspace(L, 2).plot()
    with pytest.raises(kl.InputError, match="a value for each node"):
        kl.plot.signal(L[0], np.zeros(8))
    with pytest.raises(kl.InputError, match="positions"):
        kl.plot.signal(L[0], np.zeros(9), positions=np.zeros((9, 3)))
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(ImportError, match=r"pip install '\.\[plot\]'"):
        kl.plot.signal(L[0], np.zeros(9))


def test_notebooks_show_a_table():
    L = kl.laplacian(random_graph(30, 0.2, seed=1))
    sub = kl.subspace(L, 4)
    assert "not computed yet" in sub._repr_html_()
    assert sub.status is kl.Status.CONVERGED
    text = sub._repr_html_()
    assert "proved" in text
    assert "CONVERGED" in text
    assert "(30, 4)" in text
    assert "<th" in L._repr_html_()
    assert "30" in L._repr_html_()
    batch = kl.laplacian([random_graph(n, seed=1) for n in (5, 9)])
    assert "5 to 9" in batch._repr_html_()
    assert "a batch of (2,)" in batch._repr_html_()
    assert "batch" not in kl.subspace(batch, 2)._repr_html_()
