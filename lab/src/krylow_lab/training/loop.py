"""The training loop: a population on a task, with fresh random vectors in every epoch and the best epoch kept."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor

from krylow.losses import theory_loss
from krylow.training import Recipe, generator
from krylow_lab.training.population import Population
from krylow_lab.training.spectra import Spectra, Task


class Training:
    """The state of a population's training.

    The order of the graphs and the random vectors of an epoch follow from the member's seed and the epoch alone, so
    that a member trains the same in every company, and a resumed run goes on as if it had not been interrupted.
    A member whose validation error has not improved for ``recipe.patience`` epochs is no longer trained: its
    curves are NaN from there on.

    Parameters
    ----------
    population, task, recipe
        The networks, the spectra, and how to train; ``lr`` and ``weight`` of the recipe are not used.
    origin, lr, weight
        For each member the index of its seed in the task, its learning rate and its lambda of J_theory.

    Attributes
    ----------
    best, best_error, best_epoch
        Parameters, validation error and number of each member's best epoch; epoch 0 is the untrained network.
    train_curve, validation_curve
        A ``(C,)`` an epoch; that of validation begins with the untrained networks.
    """

    def __init__(
        self,
        population: Population,
        task: Task,
        recipe: Recipe,
        *,
        origin: Sequence[int],
        lr: Sequence[float],
        weight: Sequence[float],
    ) -> None:
        self.population, self.task, self.recipe = population, task, recipe
        self.origin = torch.tensor(origin)
        self.lr, self.weight = (torch.tensor(t, dtype=torch.float64) for t in (lr, weight))
        self.optimizer = torch.optim.Adam(population.stacked, lr=1.0)
        self.best = [parameter.detach().clone() for parameter in population.stacked]
        self.best_error = torch.full((len(population),), torch.inf, dtype=torch.float64)
        self.best_epoch = torch.zeros(len(population), dtype=torch.int64)
        self.train_curve: list[Tensor] = []
        self.validation_curve: list[Tensor] = []
        self._validation_z = task.validation.rotate(task.draw("validation", recipe.draws))

    @property
    def epoch(self) -> int:
        """How many epochs are finished."""
        return len(self.train_curve)

    @property
    def active(self) -> Tensor:
        """Indices of the members that still train."""
        return (self.epoch - self.best_epoch < self.recipe.patience).nonzero()[:, 0]

    @property
    def finished(self) -> bool:
        """Whether the last epoch is done, or every member has stopped."""
        return self.epoch >= self.recipe.epochs or len(self.active) == 0

    def start(self) -> None:
        """Measure the untrained members, unless that is done."""
        if not self.validation_curve:
            self._close(self.active)

    def run_epoch(self) -> None:
        """Take one step a batch with every active member, over all graphs in a random order; then validate."""
        members, (order, z) = self.active, self.draw()
        rows, origin = torch.arange(len(self.task.seeds))[:, None], self.origin[members]
        total = torch.zeros(len(members), dtype=torch.float64)
        for part in torch.arange(order.shape[1]).split(self.recipe.batch_size):
            spectra = self.task.train[rows, order[:, part]][origin]  # (C, B)
            loss = self._loss(spectra, z[:, part][origin], members).mean(-1)
            self.optimizer.zero_grad()
            loss.sum().backward()
            clip_members(self.population.stacked, self.recipe.clip)
            self._step()
            total += loss.detach() * len(part)
        self.train_curve.append(self._of_all(members, total / order.shape[1]))
        self._close(members)

    def draw(self) -> tuple[Tensor, Tensor]:
        """Return the order of the training graphs and a Gaussian vector for each: ``(S, graphs)``, ``(..., n, 1)``."""
        graphs, n = self.task.train.eigenvalues.shape[1:]
        orders, vectors = [], []
        for seed in self.task.seeds:
            source = generator(seed, "train", self.epoch)
            orders.append(torch.randperm(graphs, generator=source))
            vectors.append(torch.randn(graphs, n, 1, dtype=torch.float64, generator=source))
        return torch.stack(orders), torch.stack(vectors)

    def _loss(self, spectra: Spectra, z: Tensor, members: Tensor) -> Tensor:
        """Return the losses of some members, ``(C, B)``."""
        if self.recipe.loss == "subspace":
            return self.recipe.scale * self.population.errors(spectra, z, members)
        krylov = self.population.krylov(spectra.operator(), z, members)
        reduction = "mean" if self.recipe.loss == "theory_mean" else "sum"
        return self.recipe.scale * theory_loss(krylov, self.weight[members, None], reduction=reduction)

    @torch.no_grad()
    def _step(self) -> None:
        """Take Adam's step, scaled by each member's learning rate: the optimizer's own is 1."""
        before = [parameter.clone() for parameter in self.population.stacked]
        self.optimizer.step()
        for parameter, old in zip(self.population.stacked, before, strict=True):
            parameter.copy_(torch.lerp(old, parameter, _like(self.lr, parameter)))

    @torch.no_grad()
    def _close(self, members: Tensor) -> None:
        """Validate the members that were trained in this epoch, and keep what is best."""
        origin = self.origin[members]
        spectra = self.task.validation[origin]
        errors = [self.population.errors(spectra, z[origin], members).mean(-1) for z in self._validation_z]
        error = torch.stack(errors).mean(0)
        error = self._of_all(members, torch.where(error.isfinite(), error, torch.inf))
        self.validation_curve.append(error)
        better = error < self.best_error  # not where NaN
        self.best_error = torch.where(better, error, self.best_error)
        self.best_epoch = torch.where(better, self.epoch, self.best_epoch)
        for best, parameter in zip(self.best, self.population.stacked, strict=True):
            best.copy_(torch.where(_like(better, best), parameter, best))

    def _of_all(self, members: Tensor, values: Tensor) -> Tensor:
        """Return the values of some members among all, ``(C,)``, NaN for the others."""
        out = torch.full((len(self.population),), torch.nan, dtype=torch.float64)
        out[members] = values
        return out


def clip_members(parameters: Iterable[Tensor], limit: float) -> None:
    """Scale the gradients of each member to a norm of at most ``limit``; one that is not finite becomes zero."""
    gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
    norms = torch.stack([g.flatten(1).norm(dim=1) for g in gradients]).norm(dim=0)  # (C,)
    scale = (limit / norms.clamp(min=torch.finfo(norms.dtype).tiny)).clamp(max=1)
    for g in gradients:
        g.copy_(torch.where(_like(norms.isfinite(), g), g * _like(scale, g), 0.0))


def _like(values: Tensor, tensor: Tensor) -> Tensor:
    """Return values a member, ``(C,)``, with as many dimensions as the tensor has."""
    return values.reshape(-1, *[1] * (tensor.ndim - 1))
