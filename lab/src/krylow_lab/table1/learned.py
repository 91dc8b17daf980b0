"""The trained rows: one population a cell, one record a cell."""

from __future__ import annotations

import functools
import itertools
import shutil
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from krylow.data import load_family
from krylow.nn.probes import GaussianProbe, InversePolynomialProbe, Probe, RootProbe
from krylow.nn.unrolled import UnrolledLanczos
from krylow.training import Recipe
from krylow_lab.records import Record, lookup, record_name
from krylow_lab.table1.plan import INIT, TEST_DRAWS
from krylow_lab.training.fit import Fitted, evaluate, fit
from krylow_lab.training.population import Population
from krylow_lab.training.probe import to_eigenbasis
from krylow_lab.training.spectra import Task

KIND = "table1-cell"
#: Unwanted intervals that a root probe may start from, in units of tr(L) / n: tried on the training graphs.
LOWS = tuple(round(0.24 + 0.08 * i, 2) for i in range(12))
HIGHS = (1.6, 1.8, 2.0, 2.4)
#: How many of the best intervals are trained from.
STARTS = 2


@functools.lru_cache(maxsize=4)
def load_task(data: str, seeds: tuple[int, ...], dense: bool = False) -> Task:
    """Return the spectra of a family, one set of graphs or one split a seed."""
    return Task.of([load_family(data, seed=seed, dtype=torch.float64) for seed in seeds], seeds, dense=dense)


def probe_of(config: dict[str, Any], n: int) -> Probe:
    """Return the untrained probe of a cell."""
    if config["net"] == "gammas":
        return GaussianProbe()
    if config["net"] == "learned_cg":
        probe = InversePolynomialProbe(config["degree"], config["power"], config["cg_steps"], "learned_cg")
        if "first" in config:  # the first unconstrained value of the steps
            with torch.no_grad():
                probe.step.fill_(config["first"])
                probe.momentum.fill_(config["first"])
        return probe
    form = config["form"]
    solver, steps = ("krylov", n) if form == "converged" else ("cg", config["cg_steps"])
    return InversePolynomialProbe(config["degree"], config["power"], steps, solver, scaled=form == "scaled")


def run_cell(config: dict[str, Any], folder: str | Path) -> Record:
    """Train and test the population of a cell, or return its record where that exists already.

    An interrupted training goes on from its last epoch.
    """
    known = lookup(folder, KIND, config, None)
    if known is not None:
        return known
    started, clock = datetime.now(UTC), time.perf_counter()
    task = load_task(config["data"], tuple(config["seeds"]))
    # Sharp filters are trained in the eigenbasis, where no component is lost, and measured on the graphs themselves.
    measured = load_task(config["data"], tuple(config["seeds"]), config.get("arithmetic") == "dense")
    nets, members = population(config, task)
    state = Path(folder) / "states" / record_name(KIND, config, None).removesuffix(".json")
    recipe = recipe_of(config)
    fitted = fit(
        nets,
        task,
        recipe,
        origin=[m["origin"] for m in members],
        lr=[m["lr"] for m in members],
        weight=[m["weight"] for m in members],
        folder=state,
        every=5,
    )
    results = {"members": _results(fitted, nets, measured, members, recipe.patience)}
    products = fitted.population.products(task.test[fitted.origin][:, :1])
    record = Record.create(
        KIND,
        config,
        results,
        seed=None,
        started=started,
        wall_seconds=time.perf_counter() - clock,
        products=products,
    )
    record.write(folder)
    shutil.rmtree(state, ignore_errors=True)
    return record


def recipe_of(config: dict[str, Any]) -> Recipe:
    """Return how a cell is trained. Learned steps start so flat that validation says nothing for many epochs."""
    if config["net"] != "learned_cg":
        return Recipe(loss=config["loss"], epochs=config["epochs"])
    epochs = config["epochs"]
    return Recipe(loss=config["loss"], scale=config["scale"], epochs=epochs, patience=epochs)


def population(config: dict[str, Any], task: Task) -> tuple[list[UnrolledLanczos], list[dict[str, Any]]]:
    """Return the untrained networks of a cell and how they differ."""
    k, seeds = config["k"], range(len(task.seeds))
    nets, members = [], []
    if config["net"] == "roots":
        count = config["products"] - 2 * k
        starts = [root_starts(task, k, count, origin) for origin in seeds]
        for lr, rank, origin in itertools.product(config["lrs"], range(STARTS), seeds):
            low, high = starts[origin][rank]
            nets.append(root_network(k, count, low, high))
            members.append({"origin": origin, "lr": lr, "weight": 1.0, "trains": "probe", "interval": [low, high]})
        return nets, members
    if config["net"] == "learned_cg":
        for lr, origin in itertools.product(config["lrs"], seeds):
            nets.append(UnrolledLanczos(k, 2 * k, probe_of(config, task.n), gammas="sigmoid", literal=True).double())
            members.append({"origin": origin, "lr": lr, "weight": 1.0, "trains": "all"})
        return nets, members
    for trains, lr, weight, origin in itertools.product(("probe", "all"), config["lrs"], config["weights"], seeds):
        if trains == "probe" and (config["net"] == "gammas" or (len(config["weights"]) > 1 and weight != 0.1)):
            continue  # nothing to train, or one lambda of many: with the gammas at 1 they hardly differ
        init = INIT if trains == "all" else 0.0  # from exactly 0 the gammas stay at 1
        nets.append(UnrolledLanczos(k, 2 * k, probe_of(config, task.n), init=init, literal=True).double())
        members.append({"origin": origin, "lr": lr, "weight": weight, "trains": trains})
    return nets, members


def root_network(k: int, count: int, low: float, high: float) -> UnrolledLanczos:
    """Return a root probe for 2 k vectors that stay orthonormal, as those of thick restart do."""
    return UnrolledLanczos(k, 2 * k, RootProbe(count, low, high), init=0.0, reorthogonalize=True).double()


def root_starts(task: Task, k: int, count: int, origin: int) -> list[tuple[float, float]]:
    """Return the intervals whose Chebyshev roots do best on a seed's training graphs, the best first."""
    train, z = task.train[origin], task.draw("train", 1)[0, origin]
    errors = []
    for low in LOWS:
        part = Population([root_network(k, count, low, high) for high in HIGHS])
        with torch.no_grad():
            errors.append(part.errors(train.expand(len(HIGHS)), z.expand(len(HIGHS), *z.shape)).mean(-1))
    best = torch.cat(errors).argsort()[:STARTS].tolist()
    return [(LOWS[i // len(HIGHS)], HIGHS[i % len(HIGHS)]) for i in best]


def _results(
    fitted: Fitted, nets: Sequence[UnrolledLanczos], task: Task, members: Sequence[dict[str, Any]], patience: int
) -> list[dict[str, Any]]:
    origin = fitted.origin
    first, place = _untrained(nets, members)
    begun = origin[first]
    start = Population([to_eigenbasis(nets[i]) for i in first])
    errors, ceilings = evaluate(fitted.population, task, origin, draws=TEST_DRAWS)
    untrained, first_ceilings = (t[place] for t in evaluate(start, task, begun, draws=TEST_DRAWS))
    validation = evaluate(fitted.population, task, origin, draws=2, part="validation")[0].mean(-1)
    before = evaluate(start, task, begun, draws=2, part="validation")[0].mean(-1)[place]
    results = []
    for c, member in enumerate(members):
        net = fitted.population.member(c)
        epochs = min(len(fitted.train_curve), int(fitted.best_epoch[c]) + patience)
        results.append(
            {
                **member,
                "seed": task.seeds[member["origin"]],
                "validation": digits(validation[c]),
                "best_epoch": int(fitted.best_epoch[c]),
                "test": digits(errors[c]),
                "ceiling": digits(ceilings[c].mean()),
                "untrained_validation": digits(before[c]),
                "untrained_test": digits(untrained[c]),
                "untrained_ceiling": digits(first_ceilings[c].mean()),
                "parameters": {name: digits(p.detach(), 12) for name, p in net.named_parameters()},
                "train_curve": digits(fitted.train_curve[:epochs, c], 4),
                "validation_curve": digits(fitted.validation_curve[: epochs + 1, c], 4),
            }
        )
    return results


def _untrained(nets: Sequence[UnrolledLanczos], members: Sequence[dict[str, Any]]) -> tuple[list[int], list[int]]:
    """Return one member of each untrained network and seed, and for every member the place of its own among them."""
    places: dict[Any, int] = {}
    first: list[int] = []
    place = []
    for c, (net, member) in enumerate(zip(nets, members, strict=True)):
        key = (member["origin"], *(tuple(parameter.flatten().tolist()) for parameter in net.parameters()))
        if key not in places:
            places[key] = len(first)
            first.append(c)
        place.append(places[key])
    return first, place


def digits(values: Tensor, count: int = 6) -> Any:
    """Return a tensor as plain numbers of so many significant digits, which keeps records small."""

    def short(x: Any) -> Any:
        return [short(item) for item in x] if isinstance(x, list) else float(f"{x:.{count}g}")

    return short(values.tolist())
