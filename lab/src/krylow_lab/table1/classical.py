"""The rows without training: Lanczos, thick restart and Chebyshev, on the same graphs with the same random vectors.

Where a method has a knob (vectors kept at a restart, width and interval of a filter), it is chosen for each seed on
that seed's validation graphs, as the trained rows are.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from krylow.krylov.chebyshev import chebyshev_filter
from krylow.krylov.lanczos import lanczos
from krylow.krylov.restart import Restart, thick_restart
from krylow.krylov.ritz import ritz, rotate
from krylow.metrics import krylov_ceiling, subspace_error
from krylow.operators import Operator
from krylow.training import generator
from krylow_lab.table1.plan import TEST_DRAWS
from krylow_lab.training.spectra import Spectra, Task

#: Lower ends of the interval that a Chebyshev filter damps, in units of tr(L) / n.
LOWS = (0.4, 0.55, 0.7, 0.85, 1.0)
#: A filter of more sweeps than one orthonormalises the block in between.
SWEEPS = (1, 2, 4, 8, 16)
#: Budgets of more than this many times k are large: few of the knobs' positions are tried.
LARGE = 10

Method = Callable[[Operator, Tensor], Tensor]


def standard(task: Task, k: int) -> dict[str, Any]:
    """Measure 2 k steps of classical Lanczos, not reorthogonalised, from a random vector."""

    def run(L: Operator, z: Tensor) -> Tensor:
        return ritz(lanczos(L, z, 2 * k), k)[1]

    z = task.test.rotate(task.draw("test", TEST_DRAWS))
    target = task.test.target(k)
    ceilings = [krylov_ceiling(V, target.expand(*V.shape[:-1], k)) for V in _bases(task.test, z, 2 * k)]
    ceiling = torch.stack(ceilings).mean(0).mean(-1)  # (S,)
    return {"errors": _errors(task, "test", k, run), "products": 2 * k, "vectors": 2 * k, "ceiling": ceiling}


def restarted(task: Task, k: int, products: int) -> dict[str, Any]:
    """Measure thick-restart Lanczos in a basis of 2 k vectors."""

    def method(keep: int) -> Method:
        def run(L: Operator, z: Tensor) -> Tensor:
            found = thick_restart(L, z, k, Restart(2 * k, products, keep=keep, recheck=False))
            return found.X[..., :k]

        return run

    # Past some hundred products it has converged whatever it keeps, and trying them all takes minutes.
    keeps = (k, k + 1, k + k // 3, k + k // 2) if products <= LARGE * k else (k + k // 3,)
    errors, chosen = _tuned(task, k, {keep: method(keep) for keep in keeps})
    return {"errors": errors, "products": products, "vectors": 2 * k, "settings": [{"keep": keep} for keep in chosen]}


def floor(task: Task, k: int, products: int) -> dict[str, Any]:
    """Measure Lanczos with as many vectors as products: no polynomial method can do much better."""
    m = min(products, task.n)

    def run(L: Operator, z: Tensor) -> Tensor:
        return ritz(lanczos(L, z, m, reorthogonalize=True), k)[1]

    return {"errors": _errors(task, "test", k, run), "products": m, "vectors": m}


def filtered(task: Task, k: int, products: int) -> dict[str, Any]:
    """Measure Chebyshev-filtered subspace iteration with a block of at most 2 k vectors."""
    options = {}
    small = products <= LARGE * k
    widths, sweepings, lows = ((k, 2 * k), SWEEPS, LOWS) if small else ((2 * k,), (16,), (0.7,))
    for width, sweeps, low in itertools.product(widths, sweepings, lows):
        degree = products // (width * sweeps) - 1  # one product a column is for the Rayleigh-Ritz step
        if degree >= 1 and (sweeps == 1 or degree >= 3):
            options[width, sweeps, low] = _filter(width, sweeps, low, degree)
    errors, chosen = _tuned(task, k, options, width=2 * k)
    settings = [dict(zip(("width", "sweeps", "low"), choice, strict=True)) for choice in chosen]
    return {"errors": errors, "products": products, "vectors": max(s["width"] for s in settings), "settings": settings}


def _filter(width: int, sweeps: int, low: float, degree: int) -> Method:
    def run(L: Operator, Z: Tensor) -> Tensor:
        X = Z[..., :width]
        cut, high = low * L.diagonal().mean(-1), L.gershgorin()[1]
        for _ in range(sweeps):
            X = rotate(L, chebyshev_filter(L, X, degree, cut, high, torch.zeros_like(cut))).X
        return X

    return run


def _tuned(task: Task, k: int, options: dict[Any, Method], width: int = 1) -> tuple[Tensor, list[Any]]:
    """Return each seed's test errors ``(S, graphs)`` under the option that is best on its validation graphs."""
    keys = list(options)
    if len(keys) == 1:
        return _errors(task, "test", k, options[keys[0]], width, 1), keys * len(task.seeds)
    validation = torch.stack([_errors(task, "validation", k, options[key], width, 2).mean(-1) for key in keys])
    chosen = [keys[i] for i in validation.argmin(0).tolist()]
    errors = {key: _errors(task, "test", k, options[key], width) for key in set(chosen)}
    return torch.stack([errors[key][s] for s, key in enumerate(chosen)]), chosen


def _errors(task: Task, part: str, k: int, method: Method, width: int = 1, draws: int = TEST_DRAWS) -> Tensor:
    """Return the errors of a method, ``(S, graphs)``, mean over the draws."""
    spectra: Spectra = getattr(task, part)
    z = spectra.rotate(task.draw(part, draws) if width == 1 else _blocks(task.seeds, spectra, part, draws, width))
    target = spectra.target(k)
    with torch.no_grad():
        bases = (method(spectra.operator(), z[i])[..., :k] for i in range(draws))
        return torch.stack([subspace_error(basis, target.expand(*basis.shape)) for basis in bases]).mean(0)


def _bases(spectra: Spectra, z: Tensor, m: int) -> list[Tensor]:
    with torch.no_grad():
        return [lanczos(spectra.operator(), z[i], m).V for i in range(len(z))]


def _blocks(seeds: Sequence[int], spectra: Spectra, part: str, draws: int, width: int) -> Tensor:
    graphs, n = spectra.eigenvalues.shape[1:]
    blocks = [
        torch.randn(draws, graphs, n, width, dtype=torch.float64, generator=generator(seed, f"{part}-blocks"))
        for seed in seeds
    ]
    return torch.stack(blocks, dim=1)
