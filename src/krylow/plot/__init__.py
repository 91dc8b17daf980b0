"""Pictures for notebooks and papers, by matplotlib: ``pip install '.[plot]'`` in a clone of krylow.

>>> import krylow as kl
>>> path = np.diag(np.ones(9), 1) + np.diag(np.ones(9), -1)
>>> axes = signal(kl.laplacian(path), np.arange(10))
>>> len(axes.collections[0].get_offsets())
10
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from krylow import _checks
from krylow._checks import InputError
from krylow._machine import install_line
from krylow.expansion import spectral_interval
from krylow.graph import as_operator
from krylow.operators import FunctionOperator
from krylow.plot.drawing import Drawing, drawing, without_rounding
from krylow.plot.layout import layout

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from krylow._response import Response
    from krylow.density import SpectralDensity
    from krylow.result import Subspace

__all__ = ["density", "layout", "response", "signal", "subspace"]

EDGE, KEPT = "#8a97a3", "#0b7a58"


def signal(
    L: Any,
    x: Any,
    *,
    positions: Any = None,
    axes: Axes | None = None,
    limits: tuple[float, float] | None = None,
    cmap: str | None = None,
    seed: int = 0,
) -> Axes:
    """Draw a signal on its graph, with a scale of its colours; of a large graph a random part.

    Parameters
    ----------
    L
        As in :func:`krylow.subspace`, one graph whose entries are known.
    x
        ``(n,)`` the value of each node.
    positions
        ``(n, 2)`` coordinates of the nodes. None: :func:`krylow.plot.layout`.
    axes
        Where to draw. None: a new figure.
    limits
        Values of the first and the last colour. None: the least and the largest of x; for both signs symmetric.
    cmap
        A colour map of matplotlib. None: one around zero for values of both signs, else one from low to high.
    seed
        Of the random part and the layout.
    """
    plt = _pyplot()
    L = as_operator(L)
    values = _checks.numbers(x, "x").detach().cpu().double().numpy()
    if values.shape != (L.n,):
        raise InputError(f"x must be ({L.n},), a value for each node, got shape {values.shape}.")
    shown = drawing(L, positions, seed=seed)
    axes = plt.subplots(figsize=(5.5, 4.5), layout="constrained")[1] if axes is None else axes
    points = _draw(axes, shown, values, limits, cmap)
    axes.figure.colorbar(points, ax=axes, shrink=0.75)
    if not shown.whole:
        axes.set_xlabel(shown.in_words.split(". ")[0], fontsize=8, color=EDGE)
    return axes


def subspace(sub: Subspace, *, positions: Any = None, most: int = 6, seed: int = 0) -> Figure:
    """Draw the frequencies of a subspace, and the first of them on the graph if its entries are known.

    Parameters
    ----------
    sub
        The lowest frequencies of one graph.
    positions
        ``(n, 2)`` coordinates of the nodes. None: :func:`krylow.plot.layout`.
    most
        How many are drawn on the graph at most.
    seed
        Of the random part that is drawn of a large graph, and of the layout.
    """
    plt = _pyplot()
    L = sub.operator
    if L.batch_shape:
        raise InputError(f"one graph can be drawn, got a batch of {tuple(L.batch_shape)}.")
    kept = sub.k if sub.kept is None else int(sub.kept)
    values, basis = (part.detach().cpu().double().numpy()[..., :kept] for part in (sub.ritz_values, sub.basis))
    values = without_rounding(values, L)
    count = 0 if isinstance(L, FunctionOperator) else min(kept, max(0, most))
    columns = -(-count // 2)
    figure = plt.figure(figsize=(4 + 2.2 * columns, 4.2), layout="constrained")
    grid = figure.add_gridspec(2, 1 + columns, width_ratios=[1.6] + [1] * columns)
    spectrum = figure.add_subplot(grid[:, 0])
    spectrum.plot(np.arange(1, kept + 1), values, "o", color=KEPT, ms=4 if kept < 60 else 2)
    spectrum.set(xlabel="number i", ylabel="frequency", title=f"{kept} lowest frequencies, {sub.method}")
    spectrum.xaxis.get_major_locator().set_params(integer=True)
    spectrum.grid(alpha=0.3)
    if count == 0:
        return figure
    shown = drawing(L, positions, seed=seed)
    for i in range(count):
        place = figure.add_subplot(grid[i // columns, 1 + i % columns])
        size = float(np.abs(basis[:, i]).max())
        _draw(place, shown, basis[:, i] * (1 if basis[:, i].sum() >= 0 else -1), (-size, size), room=6000)
        place.set_title(f"{i + 1}: {values[i]:.3g}", fontsize=9)
    return figure


def response(g: Response, L: Any, *, density: SpectralDensity | None = None, axes: Axes | None = None) -> Axes:
    """Draw a response, or every filter of a bank, over the frequencies of a graph.

    Parameters
    ----------
    g
        One of :mod:`krylow.responses`.
    L
        The graph, as in :func:`krylow.subspace`; or the largest frequency, a number.
    density
        Of the graph's spectrum, to be drawn behind.
    axes
        Where to draw. None: a new figure.
    """
    plt = _pyplot()
    axes = plt.subplots(figsize=(6, 3.2), layout="constrained")[1] if axes is None else axes
    if isinstance(L, (int, float)):
        most = _checks.positive(L, "the largest frequency")
    else:
        L = as_operator(L)
        if L.batch_shape:
            raise InputError(f"responses are drawn over one graph's frequencies, got a batch {tuple(L.batch_shape)}.")
        g, most = g.on(L), float(spectral_interval(L)[1])
    lam = torch.linspace(0, most, 1001, dtype=torch.float64)
    with torch.no_grad():
        values = g.evaluate(lam.to(g.dtype)).cpu().double()
    if density is not None:
        behind = axes.twinx()
        behind.fill_between(density.grid.cpu(), density.density.detach().cpu(), color=EDGE, alpha=0.25, lw=0)
        behind.set(yticks=[], ylim=(0, None))
    lines = axes.plot(lam, values)
    if values.ndim == 2:
        squares = axes.plot(lam, values.square().sum(-1), color=EDGE, ls="--")
        axes.legend([lines[0], squares[0]], ["filters", "sum of squares"], frameon=False)
    axes.set(xlabel="frequency", ylabel="response", xlim=(0, most), ylim=(min(0.0, float(values.min())), None))
    return axes


def density(found: SpectralDensity, *, axes: Axes | None = None) -> Axes:
    """Draw the density of one graph's spectrum.

    Parameters
    ----------
    found
        What :func:`krylow.spectral_density` returns.
    axes
        Where to draw. None: a new figure.
    """
    plt = _pyplot()
    if found.grid.ndim > 1:
        raise InputError(f"one graph's density can be drawn, got a batch of {tuple(found.grid.shape[:-1])}.")
    axes = plt.subplots(figsize=(6, 3.2), layout="constrained")[1] if axes is None else axes
    grid, values = (part.detach().cpu().double().numpy() for part in (found.grid, found.density))
    axes.fill_between(grid, values, color=KEPT, alpha=0.2, lw=0)
    axes.plot(grid, values, color=KEPT)
    axes.set(xlabel="frequency", ylabel="density", xlim=(grid[0], grid[-1]), ylim=(0, None))
    return axes


def _draw(
    axes: Axes,
    shown: Drawing,
    x: np.ndarray,
    limits: tuple[float, float] | None,
    cmap: str | None = None,
    room: float = 30000,
) -> Any:
    """Draw edges, and nodes coloured by x that together fill some room, and return the nodes."""
    if limits is None:
        size = float(np.abs(x).max())
        limits = (-size, size) if x.min() < 0 < x.max() else (float(x.min()), float(x.max()))
    around_zero = limits[0] < 0 < limits[1]
    lines = np.insert(shown.positions[shown.edges], 2, np.nan, axis=1).reshape(-1, 2)  # one path, a small file
    axes.plot(*lines.T, color=EDGE, lw=0.4 if len(shown.edges) > 500 else 0.8, alpha=0.5, zorder=1)
    across, up = shown.positions[shown.nodes].T
    points = axes.scatter(
        across,
        up,
        c=x[shown.nodes],
        s=max(3.0, min(40.0, room / len(shown.nodes))),
        cmap=cmap or ("coolwarm" if around_zero else "viridis"),
        vmin=limits[0],
        vmax=limits[1],
        lw=0,
        zorder=2,
    )
    axes.set(aspect="equal", xticks=[], yticks=[])
    axes.set_frame_on(False)
    return points


def _pyplot() -> Any:
    try:
        from matplotlib import pyplot
    except ModuleNotFoundError as error:
        raise ImportError(f"pictures need matplotlib, which is missing: {install_line('plot')}") from error
    return pyplot
