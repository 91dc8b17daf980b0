"""The paper's network as a method: a learned probe and relaxed Lanczos steps with learned factors."""

from __future__ import annotations

from dataclasses import dataclass, replace
from os import PathLike
from typing import Any, ClassVar

import torch

from krylow._checks import InputError
from krylow.krylov.ritz import Ritz
from krylow.result import Subspace
from krylow.solvers._problem import Problem, Solver


@dataclass(frozen=True)
class Unrolled(Solver):
    """Unrolled Lanczos (:class:`krylow.nn.UnrolledLanczos`): a fixed number of relaxed steps, which only report.

    Parameters
    ----------
    weights
        A trained network, its name or its file (see :func:`krylow.load`). None: an untrained one.
    m
        Steps of an untrained network; a trained one has its own number.
    """

    name: ClassVar[str] = "unrolled"
    weights: Any = None
    m: int | None = None

    def describe(self, problem: Problem) -> str:
        """Return nothing: the network says it."""
        return ""

    def solve(self, problem: Problem) -> Ritz:
        """Return the k lowest Ritz pairs of the relaxed recurrence."""
        found = self.subspace(problem)
        return Ritz(found.ritz_values, found.basis, torch.full_like(found.ritz_values, torch.inf))

    def subspace(self, problem: Problem) -> Subspace:
        """Return the k lowest Ritz vectors of the relaxed recurrence, differentiable through it."""
        from krylow import nn

        net, k = self.weights, problem.k
        if net is None:
            found = nn.UnrolledLanczos(k, self.m)(problem.operator, generator=problem.generator)
            return replace(found, why=f"an untrained network, since no weights were given; {found.why}")
        if isinstance(net, (str, PathLike)):
            net = nn.load(net)
        if not isinstance(net, nn.UnrolledLanczos):
            raise InputError(
                f"weights must be a network (krylow.nn.UnrolledLanczos), its name or its file, "
                f"got {type(net).__name__}."
            )
        if (net.k, net.m) != (k, self.m or net.m):
            raise InputError(f"the network was trained for k={net.k}, m={net.m}, got k={k}, m={self.m}.")
        return net(problem.operator, generator=problem.generator)
