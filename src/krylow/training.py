"""Training of one network on one family of graphs: a plain loop, resumed where it was interrupted."""

from __future__ import annotations

import csv
import hashlib
import io
import json
import math
import zlib
from collections.abc import Callable
from dataclasses import asdict, dataclass
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save as to_bytes
from torch import Tensor

from krylow import _checks
from krylow._checks import InputError
from krylow.data import GraphFamily
from krylow.graph import laplacian
from krylow.io.atomic import write_whole
from krylow.losses import theory_loss
from krylow.metrics import krylov_ceiling, subspace_error
from krylow.nn import UnrolledLanczos
from krylow.operators import Operator

LOSSES = ("subspace", "theory", "theory_mean")
FORMAT = "krylow-training-4"


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """How to train.

    Attributes
    ----------
    loss
        "subspace", the normalised squared subspace error; "theory", the paper's J_theory; or "theory_mean", the same
        with means for its sums.
    lr, weight
        Adam's learning rate, and lambda of J_theory.
    scale
        The loss is multiplied by it, which matters through ``clip`` only.
    epochs, batch_size
        As in the paper.
    clip
        Largest gradient norm.
    patience
        Epochs without a better validation error before training stops.
    draws
        Random vectors a graph in validation, the same in every epoch.
    """

    loss: str = "subspace"
    lr: float = 3e-3
    weight: float = 0.1
    scale: float = 1.0
    epochs: int = 50
    batch_size: int = 4
    clip: float = 1.0
    patience: int = 20
    draws: int = 2

    def __post_init__(self) -> None:
        _checks.choice(self.loss, LOSSES, "loss")
        _checks.positive(self.lr, "lr")
        for name in ("epochs", "batch_size", "patience", "draws"):
            _checks.count(getattr(self, name), name)


@dataclass(frozen=True)
class Trained:
    """A trained network.

    Attributes
    ----------
    net
        With the parameters of its best epoch.
    card
        Data, loss, seed, errors and cost, as plain values.
    train_curve, validation_curve
        Mean loss of each epoch; validation error before the first epoch and after each.
    """

    net: UnrolledLanczos
    card: dict[str, Any]
    train_curve: list[float]
    validation_curve: list[float]


def generator(seed: int, purpose: str, step: int = 0) -> torch.Generator:
    """Return the generator of one purpose and step of a seed: a resumed run draws what the first would have drawn.

    >>> a, b = (torch.rand(1, generator=generator(0, "train", epoch)) for epoch in (3, 3))
    >>> bool(a == b)
    True
    """
    words = np.random.SeedSequence([seed, zlib.crc32(purpose.encode()), step]).generate_state(2)
    return torch.Generator().manual_seed(int(words[0]) << 31 | int(words[1]) >> 1)


def train_network(
    net: UnrolledLanczos,
    family: GraphFamily,
    recipe: Recipe,
    *,
    seed: int = 0,
    folder: str | PathLike[str] | None = None,
    callback: Callable[[int, float, float], None] | None = None,
) -> Trained:
    """Train ``net`` on the family's training graphs, keep its best epoch on the validation graphs, and test it once.

    Every graph gets a fresh Gaussian vector in every epoch; those of validation and test are fixed by the seed.

    Parameters
    ----------
    net
        The network, with its first parameters; it is trained in place, in its own dtype.
    family
        Graphs of one size, split in three.
    recipe
        Loss, learning rate, epochs and the rest.
    seed
        Of all random vectors.
    folder
        Where the state, the curves and the network are kept; a training that was interrupted there goes on. None:
        nowhere.
    callback
        Called after every epoch with its number, its mean loss and its validation error.
    """
    if net.m > family.n or net.k > family.n // 2:
        raise InputError(
            f"k must be at most n / 2 = {family.n // 2} and m at most n = {family.n} for {family.name!r}, "
            f"got k={net.k}, m={net.m}."
        )
    train, validation, test = (_Graphs.of(W, net) for W in (family.train, family.validation, family.test))
    settings = {"net": net.config(), "data": [family.name, *train.L.shape], "recipe": asdict(recipe), "seed": seed}
    state = _State(net, recipe)
    path = None if folder is None else Path(folder) / "state.safetensors"
    if path is not None and path.is_file():
        state.load(path, settings)
    if not state.validation:
        state.append(_mean_error(net, validation, recipe.draws, generator(seed, "validation")))
    while state.epoch < recipe.epochs and state.epoch - state.best_epoch < recipe.patience:
        loss = _epoch(net, train, recipe, state.optimizer, generator(seed, "train", state.epoch))
        state.train.append(loss)
        state.append(_mean_error(net, validation, recipe.draws, generator(seed, "validation")))
        if path is not None:
            state.save(path, settings)
        if callback is not None:
            callback(state.epoch, loss, state.validation[-1])
    net.load_state_dict(state.best)
    card = {
        "data": family.name,
        "graphs": list(family.counts),
        "nodes": family.n,
        "loss": recipe.loss,
        "weight": None if recipe.loss == "subspace" else recipe.weight,
        "lr": recipe.lr,
        "epochs": recipe.epochs,
        "best_epoch": state.best_epoch,
        "seed": seed,
        "untrained_validation_error": round(state.validation[0], 6),
        "validation_error": round(state.best_error, 6),
        "basis_vectors": net.m,
        **_tested(net, test, generator(seed, "test")),
    }
    if path is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path.with_name("curves.csv"), _curves(state))
        net.save(path.with_name("network.safetensors"), card=card)
    return Trained(net, card, state.train, state.validation)


@dataclass(frozen=True)
class _Graphs:
    """Laplacians of batch shape ``(graphs,)`` and their exact subspaces ``(graphs, n, k)``."""

    L: Operator
    U: Tensor

    @classmethod
    def of(cls, W: Tensor, net: UnrolledLanczos) -> _Graphs:
        L = laplacian(W.to(net.upsilon1.dtype))
        return cls(L, torch.linalg.eigh(L.to_dense().double())[1][..., : net.k].to(L.dtype))

    def draw(self, source: torch.Generator) -> Tensor:
        """Return a Gaussian vector a graph, ``(graphs, n, 1)``."""
        return torch.randn(*self.L.batch_shape, self.L.n, 1, dtype=torch.float64, generator=source).to(self.L.dtype)


def _epoch(
    net: UnrolledLanczos, graphs: _Graphs, recipe: Recipe, optimizer: torch.optim.Optimizer, source: torch.Generator
) -> float:
    """Take one step a batch, over all graphs in a random order, and return the mean loss."""
    count = len(graphs.U)
    order = torch.randperm(count, generator=source)
    z = graphs.draw(source)
    total = 0.0
    for part in order.split(recipe.batch_size):
        L, U = graphs.L[part], graphs.U[part]
        if recipe.loss == "subspace":
            losses = subspace_error(net(L, z=z[part]).basis, U)
        else:
            reduction = "mean" if recipe.loss == "theory_mean" else "sum"
            losses = theory_loss(net.krylov(L, z=z[part]), recipe.weight, reduction=reduction)
        loss = recipe.scale * losses.mean()
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(net.parameters(), recipe.clip)
        optimizer.step()
        total += float(loss.detach()) * len(part)
    return total / count


@torch.no_grad()
def _mean_error(net: UnrolledLanczos, graphs: _Graphs, draws: int, source: torch.Generator) -> float:
    errors = [subspace_error(net(graphs.L, z=graphs.draw(source)).basis, graphs.U).mean() for _ in range(draws)]
    mean = float(torch.stack(errors).mean())
    return mean if math.isfinite(mean) else math.inf


@torch.no_grad()
def _tested(net: UnrolledLanczos, graphs: _Graphs, source: torch.Generator, draws: int = 5) -> dict[str, Any]:
    """Return the error on the test graphs, the least error of any vectors in the same Krylov spaces, and the cost."""
    errors, ceilings, products = [], [], 0
    for _ in range(draws):
        z = graphs.draw(source)
        found = net(graphs.L, z=z)
        errors.append(subspace_error(found.basis, graphs.U).mean())
        ceilings.append(krylov_ceiling(net.krylov(graphs.L, z=z).V, graphs.U).mean())
        products = found.products
    return {
        "test_error": round(float(torch.stack(errors).mean()), 6),
        "krylov_ceiling": round(float(torch.stack(ceilings).mean()), 6),
        "products": products,
    }


def _curves(state: _State) -> str:
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(["epoch", "train_loss", "validation_error"])
    writer.writerows(zip(range(len(state.validation)), ["", *state.train], state.validation, strict=True))
    return out.getvalue()


class _State:
    """All that a resumed training needs: parameters, Adam's moments, the best epoch and the curves."""

    def __init__(self, net: UnrolledLanczos, recipe: Recipe) -> None:
        self.net = net
        self.optimizer = torch.optim.Adam(net.parameters(), recipe.lr)
        self.best: dict[str, Tensor] = {}
        self.best_error = math.inf
        self.best_epoch = 0
        self.train: list[float] = []
        self.validation: list[float] = []

    @property
    def epoch(self) -> int:
        return len(self.train)

    def append(self, error: float) -> None:
        """Close an epoch: keep its parameters if they are the best."""
        self.validation.append(error)
        if error < self.best_error or not self.best:
            self.best = {name: value.detach().clone() for name, value in self.net.state_dict().items()}
            self.best_error, self.best_epoch = error, self.epoch

    def save(self, path: Path, settings: dict[str, Any]) -> None:
        progress = {name: getattr(self, name) for name in ("best_error", "best_epoch", "train", "validation")}
        save_state(path, {"net": self.net.state_dict(), "best": self.best}, self.optimizer, settings, progress)

    def load(self, path: Path, settings: dict[str, Any]) -> None:
        tensors, progress = load_state(path, self.optimizer, settings)
        self.net.load_state_dict(tensors["net"])
        self.best = tensors["best"]
        self.best_error, self.best_epoch = progress["best_error"], progress["best_epoch"]
        self.train, self.validation = progress["train"], progress["validation"]


def save_state(
    path: Path,
    tensors: dict[str, dict[str, Tensor]],
    optimizer: torch.optim.Optimizer,
    settings: dict[str, Any],
    progress: dict[str, Any],
) -> None:
    """Write the state of a training, whole or not at all: tensors by part and name, and plain values.

    Only a training with the same ``settings``, plain values too, resumes it. Its sha256 is part of it: what a disk or
    a hand has changed is not resumed.
    """
    moments = {str(i): entry for i, entry in optimizer.state_dict()["state"].items()}
    flat = {f"{part}.{name}": value for part, named in tensors.items() for name, value in named.items()}
    flat |= {f"adam.{i}.{name}": torch.as_tensor(x) for i, entry in moments.items() for name, x in entry.items()}
    flat = {name: value.detach().contiguous() for name, value in flat.items()}
    header = {"format": FORMAT, "settings": json.dumps(settings), "progress": json.dumps(progress)}
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, to_bytes(flat, metadata=header | {"sha256": _digest(flat, header)}))


def _digest(flat: dict[str, Tensor], header: dict[str, str]) -> str:
    content = [to_bytes(flat), header["settings"].encode(), header["progress"].encode()]
    return hashlib.sha256(b"\0".join(content)).hexdigest()


def load_state(
    path: Path, optimizer: torch.optim.Optimizer, settings: dict[str, Any]
) -> tuple[dict[str, dict[str, Tensor]], dict[str, Any]]:
    """Return the tensors and the progress of a saved state, and put its moments into the optimizer."""
    try:
        with safe_open(path, framework="pt") as file:
            header = file.metadata() or {}
            flat = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118 (not a dict)
        if header.get("format") != FORMAT:
            raise InputError(f"{path} must be a training state ({FORMAT}), got {header.get('format')!r}: remove it.")
        if header["sha256"] != _digest(flat, header):
            raise InputError(f"{path} is damaged, its sha256 is another: remove it to start anew.")
        before, progress = json.loads(header["settings"]), json.loads(header["progress"])
    except (SafetensorError, OSError, KeyError, RecursionError, json.JSONDecodeError) as error:
        raise InputError(f"{path} is not a whole state ({error}): remove it to start anew.") from error
    if before != json.loads(json.dumps(settings)):
        raise InputError(f"{path} is the state of a run with other settings: remove it, or choose another folder.")
    tensors: dict[str, dict[str, Tensor]] = {}
    moments: dict[int, dict[str, Tensor]] = {}
    for key, value in flat.items():
        part, _, name = key.partition(".")
        if part == "adam":
            number, _, name = name.partition(".")
            moments.setdefault(int(number), {})[name] = value
        else:
            tensors.setdefault(part, {})[name] = value
    optimizer.load_state_dict({**optimizer.state_dict(), "state": moments})
    return tensors, progress
