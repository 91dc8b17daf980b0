"""Responses and banks: agreement with PyGSP, frame identities, adaptation, the spectral density."""

import logging

import numpy as np
import pytest
import torch

import krylow as kl
from krylow import responses as r
from krylow.testing import cycle, grid, random_graph

F64 = torch.float64
TIGHT = {
    "meyer": r.Meyer(5),
    "itersine": r.Itersine(5),
    "itersine, overlap 4": r.Itersine(7, overlap=4),
    "hann": r.Hann(5),
    "hann, overlap 5": r.Hann(8, overlap=5),
    "half-cosine": r.HalfCosine(6),
}
FRAMES = TIGHT | {"mexican hat": r.MexicanHat(5), "several": r.FilterBank([r.Heat(1.0), r.HighPass(0.5, width=0.5)])}


def randn(*shape, seed=0):
    return torch.randn(*shape, dtype=F64, generator=torch.Generator().manual_seed(seed))


@pytest.fixture(scope="module")
def sensor():
    """A graph of PyGSP, its filters, and the same graph here."""
    graphs = pytest.importorskip("pygsp.graphs")
    filters = pytest.importorskip("pygsp.filters")
    logging.getLogger("pygsp").setLevel(logging.ERROR)
    G = graphs.Sensor(80, seed=3)
    G.compute_fourier_basis()
    return G, filters, kl.laplacian(G.W)


def pairs(G, f):
    """Every filter of PyGSP that has a name here, beside ours."""
    end = float(G.lmax)
    return {
        "heat": (f.Heat(G, 7.0), r.Heat(7.0 / end)),
        "heat at several scales": (f.Heat(G, [1.0, 20.0]), [r.Heat(1.0 / end), r.Heat(20.0 / end)]),
        "rectangular": (f.Rectangular(G, band_max=0.31), r.LowPass(0.31 * end)),
        "rectangular band": (f.Rectangular(G, 0.21, 0.63), r.BandPass(0.21 * end, 0.63 * end)),
        "expwin": (f.Expwin(G, band_max=0.4), r.LowPass(0.4 * end, width=end)),
        "expwin band": (f.Expwin(G, 0.2, 0.6), r.BandPass(0.2 * end, 0.6 * end, width=end)),
        "mexican hat": (f.MexicanHat(G, 5), r.MexicanHat(5, lmax=end)),
        "mexican hat, normalized": (
            f.MexicanHat(G, 4, lpfactor=10, normalize=True),
            r.MexicanHat(4, lmax=end, lpfactor=10, normalize=True),
        ),
        "mexican hat, scales": (
            f.MexicanHat(G, 3, scales=[4.0, 0.5]),
            r.MexicanHat(3, lmax=end, scales=[4.0, 0.5]),
        ),
        "meyer": (f.Meyer(G, 6), r.Meyer(6, lmax=end)),
        "itersine": (f.Itersine(G, 6), r.Itersine(6, lmax=end)),
        "itersine, overlap 4": (f.Itersine(G, 8, overlap=4), r.Itersine(8, lmax=end, overlap=4)),
        "half-cosine": (f.HalfCosine(G, 6), r.HalfCosine(6, lmax=end)),
    }


NAMES = [
    "heat",
    "heat at several scales",
    "rectangular",
    "rectangular band",
    "expwin",
    "expwin band",
    "mexican hat",
    "mexican hat, normalized",
    "mexican hat, scales",
    "meyer",
    "itersine",
    "itersine, overlap 4",
    "half-cosine",
]


@pytest.mark.parametrize("name", NAMES)
def test_values_and_signals_agree_with_pygsp(sensor, name):
    G, filters, L = sensor
    theirs, ours = pairs(G, filters)[name]
    ours = r.FilterBank(ours) if isinstance(ours, list) else ours
    lam = np.linspace(0, G.lmax * (1 - 1e-12), 301)
    values = np.asarray(ours(lam))
    np.testing.assert_allclose(values.T if values.ndim > 1 else values[None], theirs.evaluate(lam), atol=1e-9)
    x = np.random.default_rng(0).normal(size=(G.N, 7))  # no number of filters: PyGSP would synthesize
    wanted = theirs.filter(x, method="exact")
    for method in ("auto", "exact", "lanczos"):
        np.testing.assert_allclose(
            kl.filter(L, x, ours, method=method), wanted, atol=1e-8 if method == "exact" else 1e-4
        )


@pytest.mark.parametrize("name", ["heat", "mexican hat", "meyer", "itersine", "half-cosine", "expwin"])
def test_a_series_is_as_close_as_pygsps(sensor, name):
    """PyGSP knows the largest eigenvalue here, and the interval to it; ours ends at a bound."""
    G, filters, L = sensor
    theirs, ours = pairs(G, filters)[name]
    x = np.random.default_rng(0).normal(size=(G.N, 2))
    exact = theirs.filter(x, method="exact")
    for order in (20, 60):
        other = np.abs(theirs.filter(x, method="chebyshev", order=order) - exact).max()
        found = np.abs(kl.filter(L, x, ours, method="chebyshev", degree=int(1.3 * order)) - exact).max()
        assert found <= 10 * other + 1e-12


FOREIGN = ["Abspline", "Expwin", "Held", "Papadakis", "Rectangular", "Regular", "Simoncelli", "SimpleTight", "Wave"]


@pytest.mark.parametrize("name", FOREIGN)
def test_every_other_filter_of_pygsp_is_a_function(sensor, name):
    G, filters, L = sensor
    theirs = getattr(filters, name)(G)
    x = np.random.default_rng(1).normal(size=(G.N, 5))
    wanted = theirs.filter(x, method="exact")
    found = kl.filter(L, x, lambda lam: torch.from_numpy(theirs.evaluate(lam.clamp(min=0).numpy())).movedim(0, -1))
    np.testing.assert_allclose(found.reshape(wanted.shape), wanted, atol=1e-5)


def test_synthesis_agrees_with_pygsp(sensor):
    G, filters, L = sensor
    c = np.random.default_rng(2).normal(size=(G.N, 3, 5))
    wanted = filters.MexicanHat(G, 5).synthesize(c, method="exact")
    found = r.MexicanHat(5, lmax=float(G.lmax)).adjoint(L, c, method="exact")
    np.testing.assert_allclose(found, wanted, atol=1e-9)


# Frames ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["exact", "chebyshev"])
@pytest.mark.parametrize("name", list(FRAMES))
def test_synthesis_undoes_analysis(name, method):
    bank, x = FRAMES[name], randn(30, 2)
    L = kl.laplacian(random_graph(30, 0.3, seed=1))
    c = bank.analyze(L, x, method=method)
    torch.testing.assert_close(bank.synthesize(L, c, method=method), x, rtol=0, atol=1e-4)
    torch.testing.assert_close(bank.synthesize(L, c[:, 0], method=method), x[:, 0], rtol=0, atol=1e-4)


@pytest.mark.parametrize("name", list(FRAMES))
def test_the_adjoint_is_the_adjoint(name):
    bank, x = FRAMES[name], randn(25, 2)
    L = kl.laplacian(random_graph(25, 0.3, seed=2))
    c = bank.analyze(L, x)
    other = randn(*c.shape, seed=4)
    for method in ("exact", "chebyshev"):
        assert float((bank.adjoint(L, other, method=method) * x).sum()) == pytest.approx(
            float((c * other).sum()), abs=1e-4
        )


@pytest.mark.parametrize("adapted", [False, True])
@pytest.mark.parametrize("kind", [r.Meyer, r.Itersine, r.Hann, r.HalfCosine])
def test_tight_frames_keep_energy(kind, adapted):
    bank = kind(6, adapted=adapted)
    L = kl.laplacian(grid(8, 9))
    low, high = bank.frame_bounds(L)
    assert high - low < 1e-9
    assert low == pytest.approx(9 / 8 if kind is r.HalfCosine else 1.0)
    x = randn(72, 3)
    c = bank.analyze(L, x)
    torch.testing.assert_close(c.square().sum((0, 2)), low * x.square().sum(0), rtol=1e-5, atol=0)


def test_bounds_of_a_frame_hold_for_every_signal():
    L = kl.laplacian(random_graph(20, 0.4, seed=3))
    bank = r.MexicanHat(4)
    low, high = bank.frame_bounds(L)
    c = bank.analyze(L, torch.eye(20, dtype=F64), method="exact")
    energy = torch.linalg.svdvals(c.movedim(-1, 0).reshape(-1, 20)).square()
    assert low * (1 - 1e-9) <= float(energy.min())
    assert float(energy.max()) <= high * (1 + 1e-4)
    at = bank.on(L).frame_bounds(torch.linalg.eigvalsh(L.to_dense()))
    assert at == pytest.approx((float(energy.min()), float(energy.max())))


def test_a_bank_that_is_no_frame_is_not_undone():
    L = kl.laplacian(cycle(8))
    bank = r.FilterBank([r.LowPass(1.0, width=0.5)])
    with pytest.raises(kl.InputError, match="frame bounds 0"):
        bank.synthesize(L, randn(8, 1))


def test_adapted_filters_are_for_as_many_frequencies():
    """On a star all frequencies but two are 1: only the warp spreads them over filters by their number."""
    L = kl.laplacian(grid(15, 20))
    lam = torch.linalg.eigvalsh(L.to_dense())

    def shares(bank):
        return bank.on(L).evaluate(lam).square().sum(0)[1:-1] / 300  # the outermost are halves

    plain, adapted = shares(r.Itersine(8)), shares(r.Itersine(8, adapted=True))
    assert float(adapted.std()) < 0.4 * float(plain.std())


def test_the_bank_of_a_batch_is_that_of_each_graph():
    graphs = [cycle(9), random_graph(9, 0.6, seed=1)]
    L = kl.laplacian(torch.stack(graphs))
    x = randn(2, 9, 2)
    for adapted in (False, True):
        bank = r.MexicanHat(3, adapted=adapted)
        found = bank.analyze(L, x, method="exact")
        for i, W in enumerate(graphs):
            torch.testing.assert_close(found[i], bank.analyze(kl.laplacian(W), x[i], method="exact"), rtol=0, atol=1e-9)
        torch.testing.assert_close(bank.synthesize(L, found), x, rtol=0, atol=1e-5)


# The spectral density --------------------------------------------------------------------------------------------


def test_density_counts_eigenvalues():
    L = kl.laplacian(grid(6, 7))  # 42 nodes: the trace is exact
    lam = torch.linalg.eigvalsh(L.to_dense())
    found = kl.spectral_density(L, degree=300, points=4000)
    step = found.grid[1] - found.grid[0]
    assert float(found.density.sum() * step) == pytest.approx(1.0, abs=1e-3)
    assert float(found.density.min()) >= 0
    at = torch.linspace(0.2, 7.7, 25, dtype=F64)
    counts = (lam[None] <= at[:, None]).double().mean(-1)
    near = (lam[None] - at[:, None]).abs().amin(-1) < 0.08
    torch.testing.assert_close(found.cdf(at)[~near], counts[~near], rtol=0, atol=0.01)
    assert bool((found.cdf(found.grid).diff() >= -1e-12).all())


def test_density_of_a_large_graph_is_close_and_repeats():
    L = kl.laplacian(grid(30, 40))
    lam = torch.linalg.eigvalsh(L.to_dense())
    found, again = kl.spectral_density(L), kl.spectral_density(L)
    assert torch.equal(found.density, again.density)
    at = torch.linspace(0.5, 7.5, 15, dtype=F64)
    torch.testing.assert_close(found.cdf(at), (lam[None] <= at[:, None]).double().mean(-1), rtol=0, atol=0.03)
    other = kl.spectral_density(L, seed=5)
    assert not torch.equal(found.density, other.density)


def test_density_of_a_batch():
    graphs = torch.stack([cycle(12), random_graph(12, 0.5, seed=1)])
    found = kl.spectral_density(kl.laplacian(graphs), points=50)
    assert found.grid.shape == found.density.shape == (2, 50)
    alone = kl.spectral_density(kl.laplacian(graphs[1]), points=50)
    torch.testing.assert_close(found.density[1], alone.density)


# Parameters ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "make",
    [
        lambda: r.Heat(-1.0),
        lambda: r.Heat("much"),
        lambda: r.Heat(torch.ones(3)),
        lambda: r.Tikhonov(float("nan")),
        lambda: r.Gaussian(0.0),
        lambda: r.LowPass(float("inf")),
        lambda: r.LowPass(1.0, width=-0.1),
        lambda: r.BandPass(2.0, 1.0),
        lambda: r.Rational([]),
        lambda: r.Rational([1.0], [0.0]),
        lambda: r.Meyer(1),
        lambda: r.Itersine(6, overlap=1),
        lambda: r.Hann(6, overlap=2),
        lambda: r.HalfCosine(2),
        lambda: r.MexicanHat(3, scales=[1.0]),
        lambda: r.MexicanHat(3, lmax=0.0),
        lambda: r.FilterBank([]),
        lambda: r.Meyer(3)([0.0, 1.0]),
        lambda: r.Meyer(3, lmax=2.0, adapted=True)([0.0, 1.0]),
    ],
)
def test_bad_parameters_are_refused(make):
    with pytest.raises(kl.InputError):
        make()
