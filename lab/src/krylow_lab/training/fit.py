"""Train a population, from the start or from where it was interrupted."""

from __future__ import annotations

import csv
import io
import logging
import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

import torch
from lightning.pytorch import Callback, Trainer
from lightning.pytorch.callbacks import RichProgressBar
from torch import Tensor

from krylow import _files
from krylow.nn.unrolled import UnrolledLanczos
from krylow_lab.training.eigenbasis import to_eigenbasis
from krylow_lab.training.loop import Members, PopulationTraining, Recipe
from krylow_lab.training.population import Population
from krylow_lab.training.spectra import Spectra, Task
from krylow_lab.training.state import KeepState, RestoreMoments, load_state

STATE_FILE = "state.safetensors"


@dataclass(frozen=True)
class Fitted:
    """A trained population.

    Attributes
    ----------
    population
        With each member's parameters of its best epoch.
    members
        What differs between them.
    validation_error, best_epoch
        ``(C,)`` at the best epoch; epoch 0 is the untrained network.
    validation_curve
        ``(epochs + 1, C)``, beginning with the untrained network; NaN after a member has stopped.
    train_curve
        ``(epochs, C)`` losses; NaN after a member has stopped.
    """

    population: Population
    members: Members
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
    progress: bool = False,
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
        Epochs between two writings of the state.
    progress
        Whether to show a progress bar.
    """
    weight = [1.0] * len(nets) if weight is None else weight
    members = Members(
        torch.tensor(origin), torch.tensor(lr, dtype=torch.float64), torch.tensor(weight, dtype=torch.float64)
    )
    training = PopulationTraining(Population([to_eigenbasis(net.double()) for net in nets]), task, members, recipe)
    callbacks: list[Callback] = [RichProgressBar()] if progress else []
    if folder is not None:
        asked = _asked(nets, task, recipe, origin, lr, weight)
        path = Path(folder) / STATE_FILE
        if path.is_file():
            callbacks.append(RestoreMoments(load_state(training, path, asked)))
        callbacks.append(KeepState(path, asked, every))
    if training.finished < recipe.epochs and not (training.finished and bool(training.stopped.all())):
        _run(training, callbacks, recipe.epochs - training.finished, progress)
    return _fitted(training)


def evaluate(
    population: Population, task: Task, origin: Tensor, *, draws: int = 5, part: str = "test"
) -> tuple[Tensor, Tensor]:
    """Return the members' errors on the test graphs and their Krylov ceilings, ``(C, graphs)``, means over the draws.

    The random vectors of a seed are the same for every network and method: comparisons are paired. A seed's members are
    measured together on its graphs: what does not depend on them, as a probe's Krylov sequence, is computed once.
    """
    part_spectra: Spectra = getattr(task, part)
    z = part_spectra.rotate(task.draw(part, draws))  # (draws, S, graphs, n, 1)
    out = torch.empty(2, len(origin), z.shape[2], dtype=z.dtype)
    for seed in origin.unique().tolist():
        members = (origin == seed).nonzero()[:, 0]
        measured = [torch.stack(population.measure(part_spectra[seed], z[i, seed], members)) for i in range(draws)]
        out[:, members] = torch.stack(measured).mean(0)
    return out[0], out[1]


def curves_csv(fitted: Fitted) -> str:
    """Return the curves as CSV: epoch, member, train_loss, validation_error."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(["epoch", "member", "train_loss", "validation_error"])
    for epoch, errors in enumerate(fitted.validation_curve.tolist()):
        losses = fitted.train_curve[epoch - 1].tolist() if epoch else [""] * len(errors)
        for member, (loss, error) in enumerate(zip(losses, errors, strict=True)):
            if epoch == 0 or not (math.isnan(loss) and math.isnan(error)):  # else it has stopped
                writer.writerow([epoch, member, loss, error])
    return out.getvalue()


def write_curves(fitted: Fitted, path: str | PathLike[str]) -> Path:
    """Write the curves to a CSV file, whole or not at all."""
    return _files.write_whole(path, curves_csv(fitted))


def _run(training: PopulationTraining, callbacks: list[Callback], epochs: int, progress: bool) -> None:
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", module="lightning")
        trainer = Trainer(
            accelerator="cpu",
            max_epochs=epochs,
            callbacks=callbacks,
            logger=False,
            enable_checkpointing=False,
            enable_model_summary=False,
            enable_progress_bar=progress,
            num_sanity_val_steps=0,
        )
        trainer.fit(training)
    if trainer.interrupted:  # Lightning swallows Ctrl-C; whoever called has to know
        raise KeyboardInterrupt


def _fitted(training: PopulationTraining) -> Fitted:
    population = training.population
    with torch.no_grad():
        for parameter, best in zip(population.stacked, training.best, strict=True):
            parameter.copy_(best)
    return Fitted(
        population,
        training.members,
        training.best_error,
        training.best_epoch,
        torch.stack(training.validation_curve),
        torch.stack(training.train_curve),
    )


def _asked(
    nets: Sequence[UnrolledLanczos],
    task: Task,
    recipe: Recipe,
    origin: Sequence[int],
    lr: Sequence[float],
    weight: Sequence[float],
) -> dict[str, Any]:
    return {
        "nets": [net.config() for net in nets],
        "task": [task.name, list(task.seeds), *task.train.eigenvalues.shape],
        "recipe": vars(recipe),
        "origin": list(origin),
        "lr": list(lr),
        "weight": list(weight),
    }
