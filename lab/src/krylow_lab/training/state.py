"""The state of a run as one safetensors file: written whole, read when it is resumed, never executed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save as to_bytes
from torch import Tensor

from krylow._checks import InputError
from krylow.io import atomic as _files
from krylow_lab.training.loop import Training

FORMAT = "krylow-training-state-2"


def save_state(training: Training, path: Path, asked: dict[str, Any]) -> None:
    """Write parameters, Adam's moments, the best epochs and the curves, whole or not at all.

    ``asked`` is what the run was asked for, as plain JSON values: only a run that asks for the same resumes it.
    """
    tensors: dict[str, Tensor] = {
        "best_error": training.best_error,
        "best_epoch": training.best_epoch,
        "validation_curve": torch.stack(training.validation_curve),
        "train_curve": torch.stack(training.train_curve),
    }
    for i, parameter in enumerate(training.population.stacked):
        tensors |= {f"parameter.{i}": parameter.detach(), f"best.{i}": training.best[i]}
        moments = training.optimizer.state.get(parameter, {})  # empty for a parameter without gradient
        tensors |= {f"adam.{i}.{name}": value for name, value in moments.items()}
    header = {"format": FORMAT, "asked": json.dumps(asked, sort_keys=True)}
    path.parent.mkdir(parents=True, exist_ok=True)
    _files.write_whole(path, to_bytes({key: value.contiguous() for key, value in tensors.items()}, metadata=header))


def load_state(training: Training, path: Path, asked: dict[str, Any]) -> None:
    """Put a saved state into ``training``."""
    try:
        with safe_open(path, framework="pt") as file:
            header = file.metadata() or {}
            tensors = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118 (not a dict)
        if header.get("format") != FORMAT:
            raise InputError(f"{path} must be a training state ({FORMAT}), got {header.get('format')!r}: remove it.")
        before = json.loads(header["asked"])
    except (SafetensorError, OSError, KeyError, json.JSONDecodeError, RecursionError) as error:
        raise InputError(f"{path} is not a whole state ({error}): remove it to start anew.") from error
    if before != json.loads(json.dumps(asked)):
        raise InputError(f"{path} is the state of a run with other settings: remove it, or choose another folder.")
    training.best_error, training.best_epoch = tensors["best_error"], tensors["best_epoch"]
    training.validation_curve = list(tensors["validation_curve"])
    training.train_curve = list(tensors["train_curve"])
    with torch.no_grad():
        for i, parameter in enumerate(training.population.stacked):
            parameter.copy_(tensors[f"parameter.{i}"])
            training.best[i].copy_(tensors[f"best.{i}"])
            prefix = f"adam.{i}."
            moments = {key.removeprefix(prefix): t for key, t in tensors.items() if key.startswith(prefix)}
            if moments:
                training.optimizer.state[parameter] = moments
