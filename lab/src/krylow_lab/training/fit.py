"""Train a population, from the start or from where it was interrupted, and measure it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from os import PathLike
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from krylow.nn.unrolled import UnrolledLanczos
from krylow.training import Recipe, load_state, save_state
from krylow_lab.training.loop import Training
from krylow_lab.training.population import Population
from krylow_lab.training.probe import to_eigenbasis
from krylow_lab.training.spectra import Spectra, Task

STATE_FILE = "state.safetensors"


@dataclass(frozen=True)
class Fitted:
    """A trained population.

    Attributes
    ----------
    population
        With each member's parameters of its best epoch.
    origin
        ``(C,)`` index of each member's seed in the task.
    validation_error, best_epoch
        ``(C,)`` at the best epoch; epoch 0 is the untrained network.
    validation_curve
        ``(epochs + 1, C)``, beginning with the untrained network; NaN after a member has stopped.
    train_curve
        ``(epochs, C)`` losses; NaN after a member has stopped.
    """

    population: Population
    origin: Tensor
    validation_error: Tensor
    best_epoch: Tensor
    validation_curve: Tensor
    train_curve: Tensor


def fit(
    nets: Sequence[UnrolledLanczos],
    task: Task,
    recipe: Recipe,
    *,
    origin: Sequence[int],
    lr: Sequence[float],
    weight: Sequence[float] | None = None,
    folder: str | PathLike[str] | None = None,
    every: int = 1,
) -> Fitted:
    """Train networks of one shape together.

    Parameters
    ----------
    nets
        The C members, with their first parameters.
    task
        The spectra to train and validate on.
    recipe
        Loss, epochs and the rest.
    origin, lr, weight
        For each member the index of its seed in the task, its learning rate and its lambda of J_theory.
    folder
        Where the state is kept. A state that is there already is continued. None: nowhere.
    every
        Epochs between two writings of the state; the last one is always written.
    """
    members: dict[str, Any] = {"origin": list(origin), "lr": list(lr)}
    members["weight"] = [1.0] * len(nets) if weight is None else list(weight)
    population = Population([to_eigenbasis(net.double()) for net in nets])
    training = Training(population, task, recipe, **members)
    data = [task.name, list(task.seeds), *task.train.eigenvalues.shape]
    asked = {"nets": [net.config() for net in nets], "task": data, "recipe": asdict(recipe), **members}
    path = None if folder is None else Path(folder) / STATE_FILE
    if path is not None and path.is_file():
        _resume(training, path, asked)
    training.start()
    while not training.finished:
        training.run_epoch()
        if path is not None and (training.epoch % every == 0 or training.finished):
            _keep(training, path, asked)
    with torch.no_grad():
        for parameter, best in zip(population.stacked, training.best, strict=True):
            parameter.copy_(best)
    curves = (torch.stack(curve) for curve in (training.validation_curve, training.train_curve))
    return Fitted(population, training.origin, training.best_error, training.best_epoch, *curves)


def _keep(training: Training, path: Path, asked: dict[str, Any]) -> None:
    tensors = {
        "parameter": {str(i): parameter for i, parameter in enumerate(training.population.stacked)},
        "best": {str(i): best for i, best in enumerate(training.best)},
        "error": {"best": training.best_error, "epoch": training.best_epoch},
        "curve": {
            "validation": torch.stack(training.validation_curve),
            "train": torch.stack(training.train_curve),
        },
    }
    save_state(path, tensors, training.optimizer, asked, {})


def _resume(training: Training, path: Path, asked: dict[str, Any]) -> None:
    tensors, _ = load_state(path, training.optimizer, asked)
    training.best_error, training.best_epoch = tensors["error"]["best"], tensors["error"]["epoch"]
    training.validation_curve = list(tensors["curve"]["validation"])
    training.train_curve = list(tensors["curve"]["train"])
    with torch.no_grad():
        for i, parameter in enumerate(training.population.stacked):
            parameter.copy_(tensors["parameter"][str(i)])
            training.best[i].copy_(tensors["best"][str(i)])


def evaluate(
    population: Population, task: Task, origin: Tensor, *, draws: int = 5, part: str = "test"
) -> tuple[Tensor, Tensor]:
    """Return the members' errors on the test graphs and their Krylov ceilings, ``(C, graphs)``, means over the draws.

    The random vectors of a seed are the same for every network and method: comparisons are paired.
    """
    spectra: Spectra = getattr(task, part)
    z = spectra.rotate(task.draw(part, draws))[:, origin]  # (draws, C, graphs, n, 1)
    measured = torch.stack([torch.stack(population.measure(spectra[origin], each)) for each in z]).mean(0)
    return measured[0], measured[1]
