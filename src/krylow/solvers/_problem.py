"""What every solver is asked, and what is done around those of one large graph.

Around them: the null space is read off where it suffices, the nodes are put in an order in which neighbours are near in
memory, libraries run on one thread, products are counted for the operator, and all of it is undone at the end.
"""

from __future__ import annotations

import math
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import ClassVar

import torch
from torch import Tensor

from krylow import _checks
from krylow._checks import InputError
from krylow._floor import PROOF_LIMIT
from krylow._memory import empty
from krylow._random import gaussian
from krylow._reduce import seeded
from krylow._threads import sharing
from krylow.autodiff.implicit import Adjoint, attach_gradient
from krylow.autodiff.projector import orthonormalize
from krylow.certificate import Status
from krylow.krylov.ritz import Evidence, Ritz
from krylow.linalg.components import NullSpace
from krylow.linalg.perturbation import by_construction
from krylow.operators import FunctionOperator, Operator, SparseOperator
from krylow.operators.ordering import grouped_if_it_pays, reordered_if_it_pays
from krylow.profile import GraphProfile
from krylow.result import Subspace, from_pairs
from krylow.solvers._filter import block_width
from krylow.solvers._warm import Warm, checked_start, refine_start

#: Solvers of small graphs stop at this part of tol by their own estimate, so that the certificate, which is stricter,
#: agrees.
SAFETY = 0.25


@dataclass(frozen=True)
class Progress:
    """One look at a run, after a sweep.

    Attributes
    ----------
    passes, products
        Sweeps over L and products with one vector so far.
    bound
        Estimate of the normalised squared subspace error at this point; infinite while nothing is known of it.
    seconds
        Since the run began.
    remaining
        Seconds to go if the error goes on falling as it did in the last sweep; None while that is not known.
    stage
        What is done where it is no sweep, such as a proof and its estimated price.
    """

    passes: int
    products: int
    bound: float
    seconds: float
    remaining: float | None
    stage: str = ""


Callback = Callable[[Progress], None]


class Watch:
    """Calls back after every sweep, with the counts of L since it was made, on the way to an error of ``tol``."""

    def __init__(self, L: Operator, tol: float, callback: Callback | None) -> None:
        self._L, self._tol, self._callback = L, tol, callback
        self._start = self._before = time.perf_counter()
        self._passes, self._products = L.passes, L.products
        self._bound = math.inf

    def report(self, bound: float) -> None:
        """Say that a sweep has ended with an estimated error of ``bound``."""
        if self._callback is None:
            return
        now, remaining = time.perf_counter(), None
        if bound <= self._tol:
            remaining = 0.0
        elif bound < self._bound < math.inf:
            sweeps = math.log(bound / self._tol) / math.log(self._bound / bound)
            remaining = sweeps * (now - self._before)
        self._before, self._bound = now, bound
        passes, products = self._L.passes - self._passes, self._L.products - self._products
        self._callback(Progress(passes, products, bound, now - self._start, remaining))


@dataclass(frozen=True)
class Problem:
    """The lowest frequencies of an operator, and what may be spent on them.

    Attributes
    ----------
    operator
        L, or a batch.
    k
        Wanted frequencies; with a cutoff an estimate of their number.
    profile
        What is known of the graph.
    tol
        Normalised squared subspace error asked for.
    generator
        Where randomness comes from; None: a fixed seed.
    max_products
        Most products with L; None: the solver's own limit.
    callback
        Called after every sweep.
    cutoff
        If all frequencies up to this one are wanted.
    start
        A warm start ``(*batch, n, s)``; None: a random one.
    following
        What is known of the frequency behind a warm start of k vectors, ``(*batch,)``.
    worth
        Products that the method has taken from a random start of such a graph; None: that is not known. An earlier
        answer that takes as many is given up.
    prove
        Whether the answer will be proved, or refuted.
    null, communities
        Of a large graph, in the order of its operator: the null vectors that are known, and the community of each node
        where the order is by these.
    """

    operator: Operator
    k: int
    profile: GraphProfile
    tol: float = 1e-3
    generator: torch.Generator | None = None
    max_products: int | None = None
    callback: Callback | None = None
    cutoff: float | None = None
    start: Tensor | None = None
    following: Tensor | None = None
    worth: int | None = None
    prove: bool = False
    null: NullSpace | None = None
    communities: Tensor | None = None

    def watch(self, safety: float = 1.0) -> Watch:
        """Return what reports progress towards that part of tol."""
        return Watch(self.operator, safety * self.tol, self.callback)

    def seeded(self) -> torch.Generator:
        """Return the generator, or one with a fixed seed."""
        return self.generator or seeded(0, self.operator.device)

    def is_large(self, beyond: int = PROOF_LIMIT) -> bool:
        """Return whether L is one graph of more nodes than that, of which k is a small part."""
        L = self.operator
        return not L.batch_shape and L.n > beyond and 4 * self.k <= L.n

    def null_vector(self) -> Tensor:
        """Return a vector ``(n,)`` that L maps to zero wherever that is known of one, nowhere zero itself."""
        null, L = self.null, self.operator
        if null is None or not null.count or null.vector.stride(0) == 0:  # ones, which take no memory
            return torch.ones(1, dtype=torch.float64, device=L.device).expand(L.rows)
        vector = null.vector * L.n**0.5
        return vector if null.count == null.components else vector.masked_fill_(vector == 0, 1.0)


class Solver(ABC):
    """A method with its settings."""

    #: What it is called in ``method=``.
    name: ClassVar[str]
    #: Whether its block on a large graph is cut at a frequency, so that a cutoff needs no k.
    takes_cutoff: ClassVar[bool] = False
    #: Whether a warm start joins its first block.
    takes_start: ClassVar[bool] = False
    #: Whether it iterates until the tolerance, so that an earlier answer may replace the iteration.
    iterates: ClassVar[bool] = False

    def __post_init__(self) -> None:
        """Check the settings that are numbers, and keep them as plain ones."""
        for setting in fields(self):  # type: ignore[arg-type]  # every solver is a dataclass
            value, kind = getattr(self, setting.name), str(setting.type)
            if kind.startswith("int") and value is not None:
                value = _checks.count(value, setting.name, int(kind != "int"))
            elif kind == "float":
                value = _checks.positive(value, setting.name)
            object.__setattr__(self, setting.name, value)  # the dataclasses are frozen

    @abstractmethod
    def solve(self, problem: Problem) -> Ritz:
        """Return the lowest Ritz pairs, the k wanted ones first."""

    @abstractmethod
    def describe(self, problem: Problem) -> str:
        """Return what it does, in words."""

    def subspace(self, problem: Problem) -> Subspace:
        """Return the answer without the name of the method; no gradient passes through the iteration.

        A warm start may have missed an eigenvector: where the certificate does not confirm its answer, a random start
        follows.
        """
        L = problem.operator
        why = self.describe(problem)
        before = L.products, L.passes
        with torch.no_grad():
            warm = self._warm(problem, why)
            pairs = warm or self.solve(problem)
            if warm is None and self.takes_start and problem.start is not None and not pairs.interrupted:
                found = replace(from_pairs(L, problem.k, pairs, (0, 0), why), tol=problem.tol)
                if found.status not in (Status.CONVERGED, Status.NO_GAP):
                    pairs = self.solve(replace(problem, start=None))
        why = f"{why}; {pairs.how}" if pairs.how else why
        found = from_pairs(L, problem.k, pairs, (L.products - before[0], L.passes - before[1]), why)
        cold = problem.worth if warm is not None else None
        return replace(found, basis=self.attach(problem, found.basis, found.ritz_values, pairs), cold=cold)

    def _warm(self, problem: Problem, why: str) -> Ritz | None:
        """Return the pairs of an earlier answer, refined, where a proof confirms them or will, or a check does."""
        L, start, following, most = problem.operator, problem.start, problem.following, problem.worth or Warm.most
        if not self.iterates or start is None or following is None:
            return None
        if L.n <= PROOF_LIMIT and not isinstance(L, FunctionOperator):
            pairs = refine_start(L, start, following, SAFETY * problem.tol, most)
            if pairs is None:
                return None
            found = replace(from_pairs(L, problem.k, pairs, (0, 0), why), tol=problem.tol)
            return pairs if found.status == Status.CONVERGED else None
        if problem.prove:
            return refine_start(L, start, following, SAFETY * problem.tol, most)
        null = problem.profile.null_space
        read_off = null is not None and null.lowest and null.count >= problem.k
        if not isinstance(L, SparseOperator) or not problem.is_large() or read_off or problem.max_products is not None:
            return None
        pairs = checked_start(L, start, float(following), problem.tol, most)
        return pairs and pairs.to(L.dtype)

    def attach(self, problem: Problem, basis: Tensor, theta: Tensor, pairs: Ritz | None = None) -> Tensor:
        """Return a basis with the implicit gradient of its span, if one is wanted.

        ``pairs`` may have guard vectors behind the k wanted ones.
        """
        from krylow.solvers._adjoint import LargeAdjoint  # which is given the problem

        L = problem.operator
        if not (torch.is_grad_enabled() and L.requires_grad):
            return basis
        adjoint: Adjoint | None = None
        if isinstance(L, SparseOperator) and L.device.type == "cpu" and problem.is_large():
            adjoint = LargeAdjoint(problem, pairs, factorised=self.name == "shift_invert")
        return attach_gradient(L, basis, theta, adjoint, tol=problem.tol)


@sharing()
def solve_large(problem: Problem, solve: Callable[[Problem], Ritz], *, grouped: bool = False) -> Ritz:
    """Solve for one large graph in an order that is near in memory; read off a null space that suffices.

    ``grouped`` says whether communities are looked for where there is no near order.
    """
    A, profile, null = problem.operator, problem.profile, problem.profile.null_space
    if null is not None and null.lowest and null.count >= problem.k:
        return null_answer(A, null, problem.k)
    other = None
    if isinstance(A, SparseOperator):
        other = reordered_if_it_pays(A.detach(), lambda: profile.search)
        if other is None and grouped:
            other = grouped_if_it_pays(A.detach())
    if other is None:
        return solve(replace(problem, null=null)).to(A.dtype)
    moved, start = null and null.reordered(other.order), problem.start
    start = None if start is None else start[other.order.long()]
    B = other.operator.counting_for(A)
    pairs = solve(replace(problem, operator=B, null=moved, communities=other.communities, start=start))
    return replace(pairs, X=other.back(pairs.X.contiguous())).to(A.dtype)


def null_answer(L: Operator, null: NullSpace, k: int) -> Ritz:
    """Return k null vectors of a graph of at least k components: they are the lowest, and need no iteration."""
    zero = torch.zeros(k, dtype=L.dtype, device=L.device)
    evidence = Evidence(
        error=L.n * torch.finfo(L.dtype).eps ** 2,
        floor=0.0,
        well_defined=k if null.count == k else 0,
        residuals=zero.to(torch.float64),
        proved=by_construction(L),
        restored=True,
    )
    return Ritz(zero, null.basis(k, L.dtype), zero, evidence=evidence)


def width_of_block(problem: Problem, block: int | None, *, guards: int | None = None, line: int = 16) -> int:
    """Return the columns of a block with guard vectors: ``block`` where that is given."""
    k, n = problem.k, problem.operator.n
    if block is not None and block <= k:
        raise InputError(f"the block's width m must be more than k = {k}, got {block}.")
    return block_width(k, n, guards=guards, line=line) if block is None else min(block, n)


def warmed(problem: Problem, X: Tensor) -> Tensor:
    """Put a warm start in the first columns of a random block ``(*batch, n, s)``, at most k and s - 1 of them.

    Guard vectors converge only to what the start lacks, which may be far below the cut. So it is used where the
    certificate, which sees that, is a proof.
    """
    L = problem.operator
    if problem.start is not None and L.n <= PROOF_LIMIT and not isinstance(L, FunctionOperator):
        Q = orthonormalize(problem.start.to(X))[..., : min(problem.k, X.shape[-1] - 1)]
        live = torch.linalg.vector_norm(Q, dim=-2, keepdim=True) > 0
        columns = X[..., : Q.shape[-1]]
        columns.copy_(torch.where(live, X.shape[-2] ** 0.5 * Q, columns))
    return X


def start_vectors(problem: Problem, columns: int, *, random: float = 0.01) -> Tensor:
    """Return random vectors ``(*batch, n, columns)``; with a warm start nearly in its span, but for a random part."""
    L, source = problem.operator, problem.seeded()
    Z = gaussian(L, columns, generator=source)
    if problem.start is None:
        return Z
    Q = orthonormalize(problem.start.to(Z))
    mix = torch.randn(Q.shape[-1], columns, dtype=Z.dtype, device=Z.device, generator=source)
    return Q @ mix * (L.n / Q.shape[-1]) ** 0.5 + random * Z


def random_block(problem: Problem, width: int) -> Tensor:
    """Return a random block in float32, in huge pages: a filter that starts from it overwrites it."""
    L = problem.operator
    buffer = empty(L.rows, width, dtype=torch.float32, device=L.device)
    return gaussian(L, width, generator=problem.generator, out=buffer)


def sparse_copy(L: Operator) -> SparseOperator:
    """Return a dense operator of one graph as a sparse one, without a gradient."""
    matrix = L.detach().to_scipy()
    parts = (torch.from_numpy(part) for part in (matrix.indptr, matrix.indices, matrix.data))
    return SparseOperator(*parts, psd=L.psd)
