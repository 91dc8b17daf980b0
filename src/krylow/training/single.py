"""Train one network on one family, and keep it as a file that says what it is."""

from __future__ import annotations

from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

import torch

from krylow import _checks
from krylow._checks import InputError
from krylow.data import GraphFamily
from krylow.nn.unrolled import UnrolledLanczos
from krylow.training.eigenbasis import to_literal
from krylow.training.fit import Fitted, evaluate, fit, write_curves
from krylow.training.loop import Recipe
from krylow.training.spectra import Task


@dataclass(frozen=True)
class Trained:
    """One trained network.

    Attributes
    ----------
    net
        Fit for every operator, with the parameters of the best epoch.
    card
        Data, loss, seed, errors and cost, as plain values.
    fitted
        The curves.
    """

    net: UnrolledLanczos
    card: dict[str, Any]
    fitted: Fitted


def train_network(
    net: UnrolledLanczos,
    family: GraphFamily,
    recipe: Recipe,
    *,
    lr: float = 3e-3,
    weight: float = 0.1,
    seed: int = 0,
    folder: str | PathLike[str] | None = None,
    progress: bool = False,
) -> Trained:
    """Train ``net`` on the family's training graphs, keep its best epoch on the validation graphs, and test it once.

    Parameters
    ----------
    net
        The network, with its first parameters; its probe may be any.
    family
        Graphs of one size, split in three.
    recipe
        Loss, epochs and the rest.
    lr, weight, seed
        Learning rate, lambda of the theory loss, and the seed of all random vectors.
    folder
        Where state, curves and the network are kept; a training that was interrupted there goes on. None: nowhere.
    progress
        Whether to show a progress bar.
    """
    _checks.positive(lr, "lr")
    if net.m > family.n or net.k > family.n // 2:
        raise InputError(
            f"k must be at most n / 2 = {family.n // 2} and m at most n = {family.n} for {family.name!r}, "
            f"got k={net.k}, m={net.m}."
        )
    task = Task.of([family], [seed])
    fitted = fit([net], task, recipe, origin=[0], lr=[lr], weight=[weight], folder=folder, progress=progress)
    errors, ceilings = evaluate(fitted.population, task, torch.tensor([0]))
    best = to_literal(fitted.population.member(0))
    card = {
        "data": family.name,
        "graphs": list(family.counts),
        "nodes": family.n,
        "loss": recipe.loss,
        "weight": None if recipe.loss == "subspace" else weight,
        "lr": lr,
        "epochs": recipe.epochs,
        "best_epoch": int(fitted.best_epoch[0]),
        "seed": seed,
        "untrained_validation_error": round(float(fitted.validation_curve[0, 0]), 6),
        "validation_error": round(float(fitted.validation_error[0]), 6),
        "test_error": round(float(errors.mean()), 6),
        "krylov_ceiling": round(float(ceilings.mean()), 6),
        "products": fitted.population.products(task.test[:, :1]),
        "basis_vectors": net.m,
    }
    if folder is not None:
        Path(folder).mkdir(parents=True, exist_ok=True)
        write_curves(fitted, Path(folder) / "curves.csv")
        best.save(Path(folder) / "network.safetensors", card=card)
    return Trained(best, card, fitted)
