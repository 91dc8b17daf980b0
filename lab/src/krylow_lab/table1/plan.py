"""What the experiment consists of: the paper's numbers, its grid, and the cells that are trained one by one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

from krylow import _checks
from krylow._checks import InputError

#: The paper's Table 1: (data, k) -> standard Lanczos, unrolled Lanczos.
PAPER = {
    ("sbm", 6): (0.542560, 0.439004),
    ("sbm", 8): (0.503438, 0.423422),
    ("sbm", 10): (0.480293, 0.367661),
    ("PROTEINS", 6): (0.638954, 0.358199),
    ("PROTEINS", 8): (0.553640, 0.472659),
    ("PROTEINS", 10): (0.481555, 0.433804),
}
DATA = ("sbm", "PROTEINS")
KS = (6, 8, 10)
#: Budgets of products, in multiples of k, at which the methods are compared.
BUDGETS = (3, 4, 6, 8)
#: First value of every upsilon that is trained; from exactly 0 the gammas do not move.
INIT = 0.03
#: Random vectors a test graph.
TEST_DRAWS = 5

#: How the probe is computed. "literal": the paper's equation, of L as it is, by truncated conjugate gradients.
#: "converged": the same solved exactly. "scaled": of L over its Gershgorin bound, truncated likewise.
FORMS = ("literal", "converged", "scaled")


@dataclass(frozen=True)
class Grid:
    """The settings that are tried; a probe's are triples (power p, conjugate-gradient steps, degree T)."""

    name: str
    probes: dict[str, tuple[tuple[int, int, int], ...]]  # for each form
    lrs: tuple[float, ...]
    weights: tuple[float, ...]  # the lambdas of J_theory
    root_lrs: tuple[float, ...]
    epochs: int
    learned: tuple[tuple[int, int, int], ...] = ((6, 10, 7),)  # of the probe with learned steps
    learned_lrs: tuple[float, ...] = (1e-3, 3e-3, 1e-2)  # those of the paper, and a larger one


def _paper_grid() -> dict[str, tuple[tuple[int, int, int], ...]]:
    powers, steps, degrees = (3, 4, 5, 6), (10, 20, 30), (7, 9, 11)
    # Where conjugate gradients converge, how many steps they are given makes no difference: 10 stand for all.
    few = tuple(product(powers, (10,), degrees))
    return {"literal": tuple(product(powers, steps, degrees)), "converged": few, "scaled": few}


FULL = Grid("full", _paper_grid(), (1e-3, 3e-3), (0.01, 0.1, 1.0), (3e-3, 1e-2), 50)
REDUCED = Grid(
    "reduced",
    {"literal": ((6, 30, 7),), "converged": ((3, 10, 7),), "scaled": ((6, 10, 7),)},
    (3e-3,),
    (0.1,),
    (1e-2,),
    30,
    learned_lrs=(3e-3, 1e-2),
)
GRIDS = {grid.name: grid for grid in (REDUCED, FULL)}


def cells(data: str, k: int, seeds: Sequence[int], grid: Grid) -> Iterator[dict[str, Any]]:
    """Yield the configuration of every training of one column of the table: each a population and a record."""
    base = {"data": data, "k": k, "seeds": list(seeds), "grid": grid.name, "epochs": grid.epochs}
    for roots in BUDGETS:
        setting = {
            "products": roots * k,
            "loss": "subspace",
            "lrs": grid.root_lrs,
            "arithmetic": "dense",
            "roots": "implicit",
        }
        yield {**base, "net": "roots", **setting}
    for loss in ("subspace", "theory"):
        yield {**base, "net": "gammas", "loss": loss, **_rates(grid, loss)}
    yield from learned_cells(data, k, seeds, grid)
    for form in reversed(FORMS):
        for power, steps, degree in grid.probes[form]:
            for loss in ("subspace", "theory"):
                setting = {"form": form, "power": power, "cg_steps": steps, "degree": degree}
                if form == "converged":  # so sharp that its errors have to be measured in dense arithmetic
                    setting["arithmetic"] = "dense"
                yield {**base, "net": "probe", **setting, "loss": loss, **_rates(grid, loss)}


def learned_cells(data: str, k: int, seeds: Sequence[int], grid: Grid) -> Iterator[dict[str, Any]]:
    """Yield the configurations of the trainings with learned steps of conjugate gradients, on the theory loss alone."""
    base = {"data": data, "k": k, "seeds": list(seeds), "grid": grid.name, "epochs": grid.epochs}
    for power, steps, degree in grid.learned:
        setting = {"power": power, "cg_steps": steps, "degree": degree, "loss": "theory_mean", "scale": 0.01}
        rates = {"lrs": grid.learned_lrs, "weights": (1.0,)}
        yield {**base, "net": "learned_cg", **setting, **rates, "arithmetic": "dense"}


def _rates(grid: Grid, loss: str) -> dict[str, Any]:
    return {"lrs": grid.lrs, "weights": grid.weights if loss == "theory" else (1.0,)}


def check(data: str, ks: Sequence[int], seeds: int, n: int) -> None:
    """Refuse what cannot be measured: 2 k steps need a graph of more than 2 k nodes."""
    _checks.count(seeds, "seeds")
    for k in ks:
        _checks.count(k, "k")
        if 2 * k > n:
            raise InputError(f"k must be at most n / 2 = {n // 2} for {data!r} (m = 2 k steps on {n} nodes), got {k}.")
