"""The page as one HTML file: text, numbers and packed arrays, in the template that draws them."""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

import numpy as np
import torch

import krylow
from krylow import _checks
from krylow._checks import InputError
from krylow.certificate import Status
from krylow.density import spectral_density
from krylow.operators import Operator
from krylow.plot.drawing import drawing, without_rounding
from krylow.result import Subspace

#: Signals of a file that the page can show.
MOST_SIGNALS = 12
LARGEST_INT16, LARGEST_UINT16 = 32767, 65535


@dataclass(frozen=True)
class Picture:
    """What a page shows beside the answer, and how much of it.

    Attributes
    ----------
    title, kind
        The graph's name, and the kind of its Laplacian.
    positions
        ``(n, 2)`` coordinates of the nodes. None: a spectral layout.
    signals, columns
        ``(n,)`` or ``(n, c)`` signals and their names. None: a made-up one.
    nodes
        Names of the nodes. None: their numbers.
    most_nodes, most_edges
        Of more, so many are drawn, chosen at random by ``seed``.
    """

    title: str = "graph"
    kind: str = "combinatorial"
    positions: Any = None
    signals: Any = None
    columns: list[str] | None = None
    nodes: Any = None
    most_nodes: int = 4000
    most_edges: int = 12000
    seed: int = 0


def page(sub: Subspace, picture: Picture | None = None) -> str:
    """Return the HTML page of one graph, its low-frequency subspace and some signals.

    Parameters
    ----------
    sub
        The lowest frequencies of one graph whose entries are known.
    picture
        What else is shown.
    """
    picture = Picture() if picture is None else picture
    L = sub.operator
    if L.batch_shape:
        raise InputError(f"a page shows one graph, got a batch of {tuple(L.batch_shape)}: take one by L[i].")
    kept = sub.k if sub.kept is None else int(sub.kept)
    if kept == 0:
        raise InputError("a page needs at least one frequency, got none below the cutoff: raise it.")
    basis, values = (part.detach().cpu().double().numpy()[..., :kept] for part in (sub.basis, sub.ritz_values))
    basis = basis * np.where(basis.sum(axis=0) < 0, -1, 1)
    values = without_rounding(values, L)
    limits = {"most_nodes": picture.most_nodes, "most_edges": picture.most_edges}
    shown = drawing(L, picture.positions, seed=picture.seed, **limits)
    nodes, positions = shown.nodes, _whole(shown.positions)
    names = [str(i) for i in (nodes if picture.nodes is None else np.asarray(picture.nodes)[nodes])]
    signals, note = _signals(picture, basis, _gap(values) or max(1, kept // 4))
    edges = f"{shown.num_edges:,} edge{'' if shown.num_edges == 1 else 's'}"
    data = {
        "n": L.n,
        "points": _bytes(positions[nodes]),
        "edges": _bytes(positions[shown.edges]),
        "values": [float(f"{value:.6g}") for value in values],
        "basis": [_packed(column) for column in basis[nodes].T],
        "names": names,
        "signals": [_signal(name, x, basis, nodes) for name, x in signals],
        "start": _start(values, L.n),
        "density": _density(L, picture.seed),
        "certificate": certificate_in_words(sub),
        "text": {
            "title": picture.title,
            "facts": f"{L.n:,} nodes, {edges}, {picture.kind} Laplacian",
            "signalNote": note,
            "density": "Where all frequencies lie: an estimate by the kernel polynomial method. Dashed: the cutoff.",
            "drawn": shown.in_words + ("" if shown.whole else " All numbers are of the whole graph."),
            "made": f"Made by krylow view, krylow {krylow.__version__}. Nothing on this page is loaded from a network.",
        },
    }
    text = {"STYLE": _asset("page.css"), "SCRIPT": _asset("page.js"), "DATA": _json(data)}
    html = _asset("page.html")
    for place, content in text.items():
        html = html.replace(f"/*{place}*/", content, 1)
    return html


def certificate_in_words(sub: Subspace) -> dict[str, Any]:
    """Return a title, whether it is good, and sentences: what was found, how surely, and at what cost."""
    status, bound = sub.status, float(sub.error_bound)
    many = sub.k if sub.kept is None else int(sub.kept)
    names = f"the {many} lowest frequencies" if many > 1 else "the lowest frequency"
    proved = "This is proved." if sub.certificate.proved else "This is an estimate, not a proof."
    sentences = []
    if np.isfinite(bound):
        right = "up to rounding" if bound < 1e-14 else f"up to a squared error of {bound:.2g} (0 is perfect, 1 useless)"
        sentences.append(f"The space of {names} is right {right}; asked for was {sub.tol:.2g}. {proved}")
    if status is not Status.CONVERGED:
        sentences.append(status.advice)
    cost = f"{sub.products:,} products of the Laplacian with a vector" if sub.products else "no products"
    sentences.append(f"Method: {sub.method}. Why: {sub.why}. Cost: {cost}.")
    gap = _gap(sub.ritz_values.detach().cpu().double().numpy()[:many])
    if gap:
        sentences.append(
            f"The largest gap is after frequency {gap}: a graph of {gap} groups with few edges between them looks so."
        )
    good = status is Status.CONVERGED
    title = f"{status}, {'proved' if sub.certificate.proved else 'by an estimate'}"
    return {"title": title, "good": good, "sentences": sentences}


def _gap(values: np.ndarray) -> int:
    """Return after how many frequencies there is a gap that stands out, 0 if none does."""
    if len(values) < 4:
        return 0
    gaps = np.diff(values[1:])
    place = int(np.argmax(gaps))
    others = np.delete(gaps, place)
    return place + 2 if gaps[place] > 2 * others.max() and gaps[place] > 0.3 * values[place + 2] else 0


def _start(values: np.ndarray, n: int) -> int:
    """Return how many frequencies the filter keeps when the page opens."""
    return _gap(values) or max(1, min(len(values) // 2, n // 2))


def _whole(positions: np.ndarray) -> np.ndarray:
    """Return coordinates as whole numbers up to 65535, both axes alike."""
    low, high = positions.min(axis=0), positions.max(axis=0)
    width = max(float((high - low).max()), np.finfo(float).tiny)
    return np.rint(((positions - (low + high) / 2) / width + 0.5) * LARGEST_UINT16)


def _signals(picture: Picture, basis: np.ndarray, few: int) -> tuple[list[Any], str | None]:
    """Return names and signals, and what has to be said of them; one that is made up has ``few`` frequencies."""
    n = len(basis)
    if picture.signals is None:
        source = np.random.default_rng(picture.seed)
        smooth = np.sqrt(n / few) * basis[:, :few] @ source.standard_normal(few)
        x = smooth + 0.6 * source.standard_normal(n)
        return [("example", x)], "No signal was given: this one is made up, a few low frequencies plus noise."
    x = _checks.numbers(picture.signals, "signals").detach().cpu().to(torch.float64).numpy()
    x = x[:, None] if x.ndim == 1 else x
    if x.ndim != 2 or x.shape[0] != n or x.shape[1] == 0:
        raise InputError(f"signals must be ({n},) or ({n}, c), a row for each node, got shape {x.shape}.")
    names = picture.columns or [f"signal {i + 1}" for i in range(x.shape[1])]
    note = None if x.shape[1] <= MOST_SIGNALS else f"The first {MOST_SIGNALS} of {x.shape[1]} signals can be chosen."
    return [(str(names[i]), x[:, i]) for i in range(min(x.shape[1], MOST_SIGNALS))], note


def _signal(name: str, x: np.ndarray, basis: np.ndarray, nodes: np.ndarray) -> dict[str, Any]:
    coefficients = basis.T @ x
    low, high = (float(f"{value:.4g}") for value in (x.min(), x.max()))
    return {
        "name": name,
        "low": low,
        "high": high,
        "energy": float(x @ x),
        "coefficients": [float(f"{c:.6g}") for c in coefficients],
        "values": _packed(x[nodes]),
    }


def _packed(x: np.ndarray) -> dict[str, Any]:
    """Return an array as 16-bit whole numbers in base64, and what they are multiples of."""
    scale = float(np.abs(x).max()) / LARGEST_INT16 if x.size else 0.0
    whole = np.rint(x / scale) if scale > 0 else np.zeros_like(x)
    return {"bytes": base64.b64encode(whole.astype("<i2").tobytes()).decode(), "scale": scale}


def _bytes(x: np.ndarray) -> str:
    return base64.b64encode(x.astype("<u2").tobytes()).decode()


def _json(data: dict[str, Any]) -> str:
    """Return JSON that cannot end the element it stands in."""
    return json.dumps(data, allow_nan=False).replace("<", "\\u003c")


def _asset(name: str) -> str:
    return files("krylow.view").joinpath(name).read_text(encoding="utf-8")


def _density(L: Operator, seed: int) -> dict[str, list[float]]:
    """Return the density of the whole spectrum."""
    found = spectral_density(L, seed=seed)
    grid, density = (part.detach().cpu().double().numpy() for part in (found.grid, found.density))
    there = grid >= min(0.0, float(L.gershgorin()[0]))
    x, y = ([float(f"{v:.4g}") for v in part[there]] for part in (grid, density))
    return {"x": x, "y": y}
