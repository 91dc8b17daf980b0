r"""Proofs on request: ``subspace(..., prove=True)``.

That no eigenvector was missed is a statement about $\lambda_{k+1}$, and takes the first of these that is affordable:

1. **Sparse factor.** At most k eigenvalues lie below $\sigma > \theta_k$, counted by the inertia of a sparse $L D
   L^\top$ of $L - \sigma I$ whose rounding cannot change the count (:mod:`krylow.linalg.inertia`).
2. **Dense factor.** The same by LAPACK, up to :attr:`ProofSettings.dense` nodes; every graph of a batch.
3. **Check.** A second, independent random block Z outside the answer X goes through a Chebyshev polynomial with $p(\mu)
   = 1$ that is small above $\mu$. If X had missed an eigenvector of a value below $\mu$, every column of p(L) Z would
   have a component along it of at least a standard normal number's size: the probability that all columns are as short
   as they are is at most $\prod_j \sqrt{2 / \pi} \, \|p(L) z_j\|$. That is no theorem: the answer is *checked*.

With a count, what is below $\sigma$ is known, and the error is bounded by Davis and Kahan's argument for the inverse,
with $(L - \sigma I) Y = X - R$, any symmetric negative definite H with eigenpairs $(\nu_i, q_i)$, and $E = Y - X H$:

$$\frac1k \|(I - \hat U \hat U^\top) U_k\|_F^2 \le \frac1k \sum_{i \le k} \left( \frac{\|E q_i\|}{|\nu_i|} + \|R q_i\|
\right)^2$$

since $(\lambda - \sigma)(v^\top X H + v^\top E) = v^\top X - v^\top R$ for a dropped eigenpair $(\lambda, v)$. What a
count or a block finds missing is added to the answer, which is then proved again; where that does not help, the status
says so. An answer is CONVERGED only if that is proved or checked.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from krylow._floor import Inside
from krylow.autodiff.implicit import attach_gradient
from krylow.certificate import LEAST_BOUND, Certificate, Status
from krylow.linalg.inertia import DenseCounter, EigenvalueCounter, SparseCounter
from krylow.linalg.perturbation import by_construction, entry_error, restored
from krylow.operators import FunctionOperator, SparseOperator
from krylow.proof.block import check
from krylow.proof.counts import Answer, Proven, prove_by_counts, ritz_answer
from krylow.proof.shared import ProofSettings, Shown, Tell, extends, inside_of, next_of, replaced, report
from krylow.result import Subspace
from krylow.solvers._problem import Problem

__all__ = ["ProofSettings", "prove"]


def prove(found: Subspace, problem: Problem, settings: ProofSettings) -> Subspace:
    """Return the answer with a certificate that is proved or checked, or not CONVERGED; ``why`` says how.

    Parameters
    ----------
    found
        Any solver's answer.
    problem
        What was asked: its profile and its callback, which is told the price before a proof begins.
    settings
        What it may cost.
    """
    told: list[str] = []

    def tell(text: str) -> None:
        told.append(text)
        report(problem, found, text)

    try:
        with torch.no_grad():
            answer, proof = _proved(found, problem, settings, tell)
    except KeyboardInterrupt:
        found = replace(found, interrupted=True)
        answer, proof = found, _unproved(found.certificate)
        told.append("interrupted")
    if answer is not found and torch.is_grad_enabled() and answer.operator.requires_grad:
        answer = replace(answer, basis=attach_gradient(answer.operator, answer.basis, answer.ritz_values))
    return replace(answer, proof=proof, why="; ".join(filter(None, (found.why, *told))))


def _proved(found: Subspace, problem: Problem, settings: ProofSettings, tell: Tell) -> tuple[Subspace, Certificate]:
    """Return the answer, perhaps with what it had missed, and its certificate."""
    null, L = problem.profile.null_space, found.operator
    if found.evidence is not None and found.evidence.proved and null is not None and null.lowest and by_construction(L):
        rest = null.remove(found.basis.detach().double())
        if null.count >= found.k and float(torch.linalg.matrix_norm(rest)) <= 8 * torch.finfo(L.dtype).eps * found.k:
            tell(f"proved by the components of the graph, of which {null.count} have a null vector")
            return found, replace(found.certificate, proved=True)
    inside = inside_of(found, found.basis.detach())
    following = next_of(found, inside)
    counters = _counters(found, problem, settings, tell)
    if counters is not None:
        shown = _count(found, inside, following, counters, settings)
        complete = inside.everything & ~inside.missing
        if bool(((shown.codes >= 0) | shown.floor.isfinite() | complete).all()):
            tell(f"proved: {shown.how}")
            return _certified(found, shown, proved=True)
        tell(f"not proved: {shown.how}")
        if L.batch_shape:
            return _certified(found, shown, proved=False)
        inside, following = shown.inside, next_of(found, shown.inside)
    shown = check(found, problem, inside, following, settings, tell)
    return _certified(found, shown, proved=False)


Counters = list[tuple[tuple[int, ...], Tensor | slice, EigenvalueCounter]]


def _counters(found: Subspace, problem: Problem, settings: ProofSettings, tell: Tell) -> Counters | None:
    """Return each graph's place in the batch, its nodes and what counts its eigenvalues; None where it is dear."""
    L, n = found.operator, found.operator.n
    if isinstance(L, FunctionOperator):
        return None
    A = restored(L)
    dense_work = n**3 / 3
    if isinstance(L, SparseOperator):
        entries = problem.profile.fill.entries
        # A dense factor's multiplications are several times faster.
        most = settings.max_work if n > settings.dense else min(settings.max_work, dense_work / 4)
        if entries <= settings.max_fill and (n <= 64 or entries**2 / n <= most):
            sparse = SparseCounter(A.to_scipy())
            if n <= 64 or (sparse.entries <= settings.max_fill and sparse.work <= most):
                price = f"{sparse.entries:.2g} entries, {sparse.work:.1g} multiplications a count"
                tell(f"proof by the inertia of a sparse factor of {price}")
                return [((), slice(None), sparse)]
    if n > settings.dense:
        return None
    graphs = L.batch_shape.numel()
    price = f"{n} nodes, {dense_work:.1g} multiplications a count" + (f", of {graphs} graphs" if L.batch_shape else "")
    tell(f"proof by the inertia of a dense factor of {price}")
    dense, counters = A.to_dense().cpu().numpy(), Counters()
    for place in np.ndindex(*L.batch_shape):
        nodes = slice(None) if L.mask is None else L.mask[place].nonzero()[:, 0].cpu()
        matrix = dense[place] if L.mask is None else dense[place][nodes][:, nodes]
        counters.append((place, nodes, DenseCounter(np.ascontiguousarray(matrix))))
    return counters


def _count(found: Subspace, inside: Inside, following: Tensor, counters: Counters, settings: ProofSettings) -> Shown:
    """Return what counts of eigenvalues show of each graph."""
    floor, error = torch.full_like(inside.theta_k, torch.inf), torch.full_like(inside.theta_k, torch.inf)
    codes, how = torch.full_like(found.operator.sizes, -1), "nothing was dropped"
    for place, nodes, counter in counters:
        if bool(inside.missing[place]):
            floor[place], how = -torch.inf, "columns are missing"
            continue
        if bool(inside.everything[place]):
            error[place] = 0.0
            continue
        live = ~inside.absent[place]
        X = inside.X[place][nodes][:, live].cpu().numpy()
        theta, residuals = (part[place][live].cpu().numpy() for part in (inside.theta, inside.residuals))
        given = Answer(theta, X, residuals, float(following[place]))
        proven, answer = _graph_proof(counter, given, found, settings)
        floor[place], error[place], how = proven.floor, proven.error, proven.how
        codes[place] = -1 if proven.status is None else int(proven.status)
        added = replaced(X, answer.X)
        if added:
            how = f"{how}; {added} of {found.k} vectors had been missing and were found by inverse iteration"
            inside = inside_of(found, torch.from_numpy(answer.X).to(inside.X))
    return Shown(inside, floor, error, codes, how)


def _graph_proof(
    counter: EigenvalueCounter, answer: Answer, found: Subspace, settings: ProofSettings
) -> tuple[Proven, Answer]:
    """Return the proof of one graph's answer, to which what the counts find missing is added where it may be."""
    for left in reversed(range(settings.rounds + 1)):
        proven = prove_by_counts(counter, answer, found.cutoff, extend=extends(found) and left > 0)
        if proven.missing is None:
            break
        larger = ritz_answer(counter, np.concatenate([answer.X, proven.missing], axis=1), answer.theta.size)
        answer = larger if replaced(answer.X, larger.X) else answer._replace(following=larger.following)
    return proven, answer


def _certified(found: Subspace, shown: Shown, *, proved: bool) -> tuple[Subspace, Certificate]:
    """Return the answer with the certificate of what was shown; what was not shown is not CONVERGED."""
    inside, L = shown.inside, found.operator
    answer = found
    if _replaced_by(found, inside):
        theta, X = inside.theta.to(found.ritz_values), inside.X.to(found.basis)
        answer = replace(found, basis=X, ritz_values=theta, following=None, following_residual=None, evidence=None)
    base = _unproved(found.certificate) if answer is found and not proved else None
    floor = shown.floor.masked_fill(inside.everything, torch.inf)
    is_shown = floor.isfinite() | inside.everything
    error = (shown.error + LEAST_BOUND).sqrt() + entry_error(L, inside.theta, floor) if proved else shown.error
    error = error.square() if proved else error
    error = error.masked_fill(~is_shown | inside.missing, torch.inf)
    codes = torch.full_like(L.sizes, int(Status.MAX_STEPS))
    codes[is_shown & (error <= max(found.tol, LEAST_BOUND))] = int(Status.CONVERGED)
    codes = torch.where(shown.codes >= 0, shown.codes, codes)
    codes[inside.missing] = int(Status.BREAKDOWN)
    well_defined = torch.where(is_shown, inside.kept, torch.zeros_like(inside.kept))
    seen = (is_shown & ~inside.missing) | (shown.codes >= 0)
    if base is not None:
        codes = torch.where(seen, codes, base.statuses)
        error = torch.where(is_shown, error, base.error_bound.to(error))
        floor = torch.where(is_shown, floor, base.floor.to(floor))
        well_defined = torch.where(is_shown, well_defined, base.well_defined)
    error = error.masked_fill(codes == int(Status.MISSED), torch.inf)
    dtype, every = inside.dtype, bool(seen.all())
    return answer, Certificate(
        inside.residuals.to(dtype),
        floor.to(dtype),
        error.to(dtype),
        codes,
        proved and every,
        well_defined,
        checked=every and not proved,
    )


def _replaced_by(found: Subspace, inside: Inside) -> bool:
    """Return whether the vectors of a proof are others than those of the answer."""
    basis = found.basis.detach().double()
    return not found.operator.batch_shape and replaced(basis.cpu().numpy(), inside.X.cpu().numpy()) > 0


def _unproved(certificate: Certificate) -> Certificate:
    """Return a certificate that is not CONVERGED where no proof confirms it."""
    codes = certificate.statuses.clone()
    codes[codes == int(Status.CONVERGED)] = int(Status.MAX_STEPS)
    return replace(certificate, statuses=codes, proved=False)
