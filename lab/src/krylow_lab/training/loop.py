"""The training loop: a population as a Lightning module, with a fresh z in every pass and the best epoch kept."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import torch
from lightning.pytorch import LightningModule
from torch import Tensor

from krylow import _checks
from krylow.losses import theory_loss
from krylow_lab.training.adam import PopulationAdam, clip_members
from krylow_lab.training.population import Population
from krylow_lab.training.seeds import generator
from krylow_lab.training.spectra import Spectra, Task

LOSSES = ("subspace", "theory", "theory_mean")


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """How to train.

    Attributes
    ----------
    loss
        "subspace", the normalised squared subspace error; "theory", the paper's J_theory; or "theory_mean", the same
        with means for its sums.
    scale
        The loss is multiplied by it, which matters beside ``clip`` alone.
    epochs, batch_size
        As in the paper.
    clip
        Largest gradient norm of a member.
    patience
        A member stops after this many epochs without a better validation error.
    draws
        Random vectors a graph in validation, the same in every epoch.
    """

    loss: str = "subspace"
    scale: float = 1.0
    epochs: int = 50
    batch_size: int = 4
    clip: float = 1.0
    patience: int = 20
    draws: int = 2

    def __post_init__(self) -> None:
        _checks.choice(self.loss, LOSSES, "loss")
        _checks.count(self.epochs, "epochs")
        _checks.count(self.batch_size, "batch_size")
        _checks.count(self.draws, "draws")


@dataclass(frozen=True)
class Members:
    """What differs between the members of a population beside their first parameters, each ``(C,)``.

    Attributes
    ----------
    origin
        Index of the member's seed in the task.
    lr
        Learning rate.
    weight
        The lambda of J_theory.
    """

    origin: Tensor
    lr: Tensor
    weight: Tensor


class PopulationTraining(LightningModule):
    """Train a population on a task.

    The order of the graphs and the random vectors of an epoch follow from the member's seed and the epoch alone, so
    that a member trains the same in every company, and a resumed run goes on as if it had not been interrupted.
    After training, ``best`` holds the parameters of each member's best epoch; epoch 0 is the untrained network.
    A member that has lost its patience is left out of what follows: its curves are NaN from there on.

    To Lightning an epoch is one step: what it does around a step takes as long as one of these.
    """

    def __init__(self, population: Population, task: Task, members: Members, recipe: Recipe) -> None:
        super().__init__()
        self.automatic_optimization = False
        self.population, self.task, self.members, self.recipe = population, task, members, recipe
        count = len(population)
        self.finished = 0  # epochs
        self.best = [parameter.detach().clone() for parameter in population.stacked]
        self.best_error = torch.full((count,), torch.inf, dtype=torch.float64)
        self.best_epoch = torch.zeros(count, dtype=torch.int64)
        self.train_curve: list[Tensor] = []  # one (C,) an epoch
        self.validation_curve: list[Tensor] = []  # one (C,) an epoch, and one before the first
        self._validation_z = task.validation.rotate(task.draw("validation", recipe.draws))

    @property
    def stopped(self) -> Tensor:
        """``(C,)``: which members have lost their patience."""
        return self.finished - self.best_epoch >= self.recipe.patience

    # What Lightning calls, in the order in which it calls it.

    def configure_optimizers(self) -> PopulationAdam:
        """Return Adam with a learning rate a member."""
        return PopulationAdam(self.population.stacked, self.members.lr)

    def train_dataloader(self) -> Iterable[int]:
        """Return one step an epoch, which goes over all the batches."""
        return range(1)

    def val_dataloader(self) -> Iterable[int]:
        """Return the numbers of the validation draws."""
        return range(self.recipe.draws)

    def on_fit_start(self) -> None:
        """Measure the untrained members."""
        if not self.validation_curve:
            with torch.no_grad():
                self._note(torch.stack([self._validate(draw) for draw in self.val_dataloader()]).mean(0))

    def on_train_epoch_start(self) -> None:
        """Draw the order of the graphs and a fresh z for each."""
        graphs, n = self.task.train.eigenvalues.shape[1:]
        orders, vectors = [], []
        for seed in self.task.seeds:
            source = generator(seed, "train", self.finished)
            orders.append(torch.randperm(graphs, generator=source))
            vectors.append(torch.randn(graphs, n, 1, dtype=torch.float64, generator=source))
        self._order, self._z = torch.stack(orders), torch.stack(vectors)  # (S, graphs), (S, graphs, n, 1)

    def training_step(self, batch: int, batch_idx: int) -> None:
        """Take a step of each member that still trains, for every batch of graphs in the order of the epoch."""
        optimizer = self.optimizers(use_pl_optimizer=False)
        assert isinstance(optimizer, PopulationAdam)
        members = (~self.stopped).nonzero()[:, 0]
        origin = self.members.origin[members]
        rows = torch.arange(len(self.task.seeds))[:, None]
        losses = torch.full((len(self.population),), torch.nan, dtype=torch.float64)
        losses[members] = 0.0
        for start in range(0, self._order.shape[1], self.recipe.batch_size):
            part = slice(start, start + self.recipe.batch_size)
            order = self._order[:, part]
            spectra = self.task.train[rows, order][origin]  # (C, B)
            loss = self._loss(spectra, self._z[:, part][origin], members).mean(-1)
            optimizer.zero_grad()
            loss.sum().backward()
            clip_members(self.population.stacked, self.recipe.clip)
            optimizer.step()
            losses[members] += loss.detach() * order.shape[1]
        self.train_curve.append(losses / self._order.shape[1])

    def on_validation_epoch_start(self) -> None:
        """Forget the last epoch's errors."""
        self._errors: list[Tensor] = []

    def validation_step(self, batch: int, batch_idx: int) -> None:
        """Measure the members with one of the fixed random vectors."""
        self._errors.append(self._validate(batch))

    def on_validation_epoch_end(self) -> None:
        """Close the epoch: keep what is best, stop when all members have lost their patience."""
        error = torch.stack(self._errors).mean(0)
        self.finished += 1
        self._note(error)
        if bool(self.stopped.all()):
            self.trainer.should_stop = True

    # The mathematics.

    def _loss(self, spectra: Spectra, z: Tensor, members: Tensor) -> Tensor:
        """Return the losses of some members, ``(C, B)``."""
        if self.recipe.loss == "subspace":
            return self.recipe.scale * self.population.errors(spectra, z, members)
        krylov = self.population.krylov(spectra.operator(), z, members)
        reduction = "mean" if self.recipe.loss == "theory_mean" else "sum"
        return self.recipe.scale * theory_loss(krylov, self.members.weight[members, None], reduction=reduction)

    def _validate(self, draw: int) -> Tensor:
        """Return the mean errors over the validation graphs, ``(C,)``, NaN for members that have stopped."""
        members = (~self.stopped).nonzero()[:, 0]
        origin = self.members.origin[members]
        errors = self.population.errors(self.task.validation[origin], self._validation_z[draw][origin], members)
        out = torch.full((len(self.population),), torch.nan, dtype=torch.float64)
        out[members] = errors.mean(-1)
        return out

    def _note(self, error: Tensor) -> None:
        stopped = self.stopped_before()
        error = torch.where(torch.isfinite(error) | stopped, error, torch.full_like(error, torch.inf))
        self.validation_curve.append(error)
        better = (error < self.best_error) & ~stopped
        self.best_error = torch.where(better, error, self.best_error)
        self.best_epoch = torch.where(better, self.finished, self.best_epoch)
        for best, parameter in zip(self.best, self.population.stacked, strict=True):
            chosen = better.reshape(-1, *[1] * (best.ndim - 1))
            best.copy_(torch.where(chosen, parameter.detach(), best))

    def stopped_before(self) -> Tensor:
        """``(C,)``: which members had stopped before the epoch that just ended."""
        return self.finished - 1 - self.best_epoch >= self.recipe.patience
