"""The state of a run as one safetensors file: written after every epoch, read when it is resumed, never executed."""

from __future__ import annotations

import json
from os import PathLike
from pathlib import Path
from typing import Any

import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from safetensors import SafetensorError, safe_open
from safetensors.torch import save as to_bytes
from torch import Tensor

from krylow import _files
from krylow._checks import InputError
from krylow_lab.training.adam import PopulationAdam
from krylow_lab.training.loop import PopulationTraining

FORMAT = "krylow-training-state-1"


class KeepState(Callback):
    """Write the state of a :class:`PopulationTraining` after every ``every`` epochs.

    Parameters
    ----------
    path
        The file.
    asked
        What was asked for, as plain JSON values: a run resumes only what was started with the same.
    every
        Epochs between two writings; the last one is always written.
    """

    def __init__(self, path: str | PathLike[str], asked: dict[str, Any], every: int = 1) -> None:
        self.path, self.asked, self.every = Path(path), asked, every

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Write the state of the epoch that validation has just closed."""
        assert isinstance(pl_module, PopulationTraining)
        if pl_module.finished % self.every == 0:
            save_state(pl_module, trainer.optimizers[0], self.path, self.asked)

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Write the last state."""
        assert isinstance(pl_module, PopulationTraining)
        save_state(pl_module, trainer.optimizers[0], self.path, self.asked)


def save_state(training: PopulationTraining, optimizer: Any, path: Path, asked: dict[str, Any]) -> None:
    """Write parameters, Adam's moments, the best epoch and the curves, whole or not at all."""
    tensors: dict[str, Tensor] = {"best_error": training.best_error, "best_epoch": training.best_epoch}
    tensors["validation_curve"] = torch.stack(training.validation_curve)
    if training.train_curve:
        tensors["train_curve"] = torch.stack(training.train_curve)
    step = 0
    for i, parameter in enumerate(training.population.stacked):
        tensors[f"parameter.{i}"], tensors[f"best.{i}"] = parameter.detach(), training.best[i]
        moments = optimizer.state.get(parameter, {})
        if moments:
            step = moments["step"]
            tensors[f"mean.{i}"], tensors[f"square.{i}"] = moments["mean"], moments["square"]
    header = {
        "format": FORMAT,
        "finished": str(training.finished),
        "step": str(step),
        "asked": json.dumps(asked, sort_keys=True),
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    _files.write_whole(path, to_bytes({key: value.contiguous() for key, value in tensors.items()}, metadata=header))


def load_state(training: PopulationTraining, path: Path, asked: dict[str, Any]) -> dict[int, dict[str, Any]]:
    """Put a saved state into ``training``; return Adam's moments by the parameter's number."""
    try:
        with safe_open(path, framework="pt") as file:
            header = file.metadata() or {}
            tensors = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118 (not a dict)
    except (SafetensorError, OSError) as error:
        raise InputError(f"{path} is not a whole state ({error}): remove it to start anew.") from error
    if header.get("format") != FORMAT:
        raise InputError(f"{path} must be a training state ({FORMAT}), got {header.get('format')!r}: remove it.")
    try:
        before = json.loads(header["asked"])
    except (KeyError, ValueError, RecursionError) as error:
        raise InputError(f"{path} is not a whole state ({error}): remove it to start anew.") from error
    if before != json.loads(json.dumps(asked)):
        raise InputError(f"{path} is the state of a run with other settings: remove it, or choose another folder.")
    training.finished = int(header["finished"])
    training.best_error, training.best_epoch = tensors["best_error"], tensors["best_epoch"]
    training.validation_curve = list(tensors["validation_curve"])
    training.train_curve = list(tensors["train_curve"]) if "train_curve" in tensors else []
    moments: dict[int, dict[str, Any]] = {}
    with torch.no_grad():
        for i, parameter in enumerate(training.population.stacked):
            parameter.copy_(tensors[f"parameter.{i}"])
            training.best[i].copy_(tensors[f"best.{i}"])
            if f"mean.{i}" in tensors:
                moments[i] = {
                    "step": int(header["step"]),
                    "mean": tensors[f"mean.{i}"],
                    "square": tensors[f"square.{i}"],
                }
    return moments


class RestoreMoments(Callback):
    """Hand Adam's moments back once Lightning has made the optimizer."""

    def __init__(self, moments: dict[int, dict[str, Any]]) -> None:
        self.moments = moments

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Put the moments where the optimizer keeps them."""
        optimizer = trainer.optimizers[0]
        assert isinstance(optimizer, PopulationAdam)
        assert isinstance(pl_module, PopulationTraining)
        for i, state in self.moments.items():
            optimizer.state[pl_module.population.stacked[i]] = state
