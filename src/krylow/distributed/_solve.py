"""The subspace of a graph that ranks share."""

from __future__ import annotations

import io
import json
import os
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from functools import cached_property
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from krylow._checks import InputError
from krylow._floor import PROOF_LIMIT
from krylow._reduce import largest, summed
from krylow.distributed._proof import checked
from krylow.distributed._slepc import Slepc
from krylow.io.atomic import write_whole
from krylow.linalg.components import NullSpace, null_space_of
from krylow.operators import Operator
from krylow.operators.distributed import LocalRows
from krylow.operators.partition import DistributedOperator
from krylow.profile import GraphProfile
from krylow.proof import ProofSettings
from krylow.result import Subspace
from krylow.solvers import Chebyshev, Multilevel, Problem, Solver


@dataclass(frozen=True)
class Limits:
    """Where one way of solving becomes better than another."""

    gathered: int = 4096  #: nodes up to which a graph is solved whole by every rank where ranks have no method for it
    geometric: float = 0.1  #: largest level set over the nodes, of a graph with a geometry,
    cut: float = 0.25  #: and the share of the entries that connect ranks


LIMITS = Limits()


@dataclass(frozen=True, repr=False)
class ShardedSubspace(Subspace):
    """A subspace of which each rank holds its rows of the basis; its other attributes are the same on all.

    ``project`` and ``gft`` take this rank's rows of signals. All ranks call them together, and :meth:`gather`, too.
    """

    def gather(self) -> Tensor:
        """Return the whole basis ``(n, k)`` on every rank."""
        L = self.operator
        assert isinstance(L, DistributedOperator)
        return torch.from_numpy(L.ranks.gather(self.basis.detach().numpy()))

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Write a file of rows a rank, ``basis-00000-of-00004.npy`` and so on, and ``subspace.json``, which names them.

        The last is written when all others are there.
        """
        L, place = self.operator, Path(folder)
        assert isinstance(L, DistributedOperator)
        names = [f"basis-{rank:05}-of-{L.ranks.size:05}.npy" for rank in range(L.ranks.size)]
        problem, content = None, io.BytesIO()
        np.save(content, self.basis.detach().numpy())
        try:
            place.mkdir(parents=True, exist_ok=True)
            write_whole(place / names[L.ranks.rank], content.getvalue())
        except OSError as error:
            problem = f"rank {L.ranks.rank} cannot write to {os.fspath(folder)!r}: {error.strerror or error}."
        L.ranks.fail_together(problem)
        starts = L.ranks.gather(np.array([L.start])).tolist()
        if L.ranks.rank == 0:
            about = {
                "nodes": L.n,
                "k": self.k,
                "ritz_values": self.ritz_values.tolist(),
                "method": self.method,
                "why": self.why,
                "status": self.status.name,
                "error_bound": float(self.error_bound) if bool(self.error_bound.isfinite()) else None,
                "tol": self.tol,
                "files": [{"file": name, "first": first} for name, first in zip(names, starts, strict=True)],
            }
            write_whole(place / "subspace.json", json.dumps(about, indent=1) + "\n")
        L.ranks.comm.barrier()


class DistributedProfile(GraphProfile):
    """What is known of a graph that ranks share."""

    operator: LocalRows

    @cached_property
    def null_space(self) -> NullSpace | None:
        """The null vectors that the components show."""
        return null_space_of(self.operator, *self.operator.components())

    @cached_property
    def cut(self) -> float:
        """The share of the entries that connect ranks."""
        L = self.operator
        cut, entries = summed(torch.tensor([float(L.outer.col.numel()), float(L.entries)], dtype=torch.float64))[0]
        return float(cut / max(1.0, float(entries)))

    @cached_property
    def width(self) -> float:
        """The largest level sets of searches on each rank, together, as a share of the nodes."""
        return self.operator.width()

    @cached_property
    def degree_spread(self) -> float:
        """The largest degree over the mean."""
        diagonal = self.operator.diagonal()
        mean = float(summed(diagonal.sum()[None])[0]) / self.operator.n
        most = largest(float(diagonal.max()) if diagonal.numel() else 0.0)[0]
        return most / mean if mean > 0 else 1.0


def choose(profile: DistributedProfile) -> tuple[str, str]:
    """Return the method for a graph that ranks share, and why."""
    if not profile.smooth:
        return (
            "chebyshev",
            "self-loops of different weights confine low frequencies, so that no coarser graph is like it",
        )
    if profile.width <= LIMITS.geometric and profile.cut <= LIMITS.cut:
        return "multilevel", (
            f"level sets of searches on each rank hold {max(profile.width, 1e-3):.1%} of the nodes and "
            f"{profile.cut:.1%} of the entries connect ranks, so that coarser graphs are like it"
        )
    return "chebyshev", f"{profile.cut:.1%} of the entries connect ranks, so that no coarser graph is like it"


def shared_subspace(
    G: DistributedOperator,
    problem: Problem,
    method: str | Solver,
    m: int | None,
    alone: Callable[[Operator], Subspace],
    prove: ProofSettings | None = None,
) -> ShardedSubspace:
    """Return the subspace of a graph that ranks share; ``alone`` solves a small one as one machine does.

    ``problem`` is the one that was asked for, about G; its profile is not looked at.
    """
    if G.n <= PROOF_LIMIT or (G.n <= LIMITS.gathered and 4 * problem.k > G.n):
        return _gathered(G, alone)
    if 4 * problem.k > G.n:
        raise InputError(f"k must be at most a quarter of the {G.n} nodes that ranks share, got {problem.k}.")
    with G.together(), G.counted_separately():
        inner = G.inner.detach().counting_for(G)
        profile = DistributedProfile(inner)
        name, why = choose(profile) if method == "auto" else (method, "asked for")
        solver = _solver(name, m)
        found = solver.subspace(replace(problem, operator=inner, profile=profile))
        certificate, how = found.certificate, ""
        if prove is not None:
            geometric = profile.width <= LIMITS.geometric
            certificate, how = checked(found, inner, geometric, prove)
    spread = f"{G.ranks.size} ranks, {G.notes}" if G.notes else f"{G.ranks.size} ranks"
    parts = {field.name: getattr(found, field.name) for field in fields(found)}
    parts |= {"operator": G, "basis": G.back(found.basis), "tol": problem.tol, "method": solver.name}
    sub = ShardedSubspace(**parts | {"why": "; ".join(filter(None, (why, found.why, spread, how)))})
    sub.__dict__["certificate"] = certificate  # computed by all ranks together
    return sub


def _solver(method: str | Solver, m: int | None) -> Solver:
    """Return the solver of that name, of those that ranks can run."""
    made: dict[str, Solver] = {"chebyshev": Chebyshev(m), "multilevel": Multilevel(m), "slepc": Slepc()}
    if isinstance(method, (Chebyshev, Multilevel, Slepc)):
        return method
    if not isinstance(method, str) or method not in made:
        names = ", ".join(map(repr, ("auto", *made)))
        raise InputError(f"method must be one of {names} for a graph that ranks share, got {method!r}.")
    return made[method]


def _gathered(G: DistributedOperator, alone: Callable[[Operator], Subspace]) -> ShardedSubspace:
    """Return the answer of a small graph: every rank solves all of it, the first one's answer counts."""
    found = alone(G.gathered())
    certificate = G.ranks.agree(found.certificate)
    parts = {field.name: getattr(found, field.name) for field in fields(found) if field.name != "operator"}
    parts = G.ranks.agree(parts) | {"operator": G}
    parts["basis"] = parts["basis"][G.start : G.start + G.rows].contiguous()
    parts["why"] += f"; gathered by each of {G.ranks.size} ranks, since it is small"
    sub = ShardedSubspace(**parts)
    sub.__dict__["certificate"] = certificate
    return sub
