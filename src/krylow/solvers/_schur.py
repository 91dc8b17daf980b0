r"""Ritz pairs of one sparse graph from Lanczos on the inverse of its Schur complement, with a bound of their error.

Lanczos runs on $S^{-1} M$ (:mod:`krylow.linalg.elimination`), whose largest eigenvalues $\nu$ are nearly $1 / \lambda$
of the lowest frequencies. With r the residual of the pair $(\nu, y)$ and E the extension to the eliminated nodes T,

$$L^{-1} E y - \nu E y = E r + \begin{pmatrix} L_{TT}^{-1} (E y)_T \\ 0 \end{pmatrix},
\qquad \rho \le \|r\|_M + \|L_{TT}^{-1}\| .$$

Where that residual is small enough, E y is the answer; else block inverse iteration on the whole graph measures $\rho$
and improves the vectors. With $\phi$ above all dropped eigenvalues of the inverse (Davis and Kahan),

$$\text{error} \le \frac1k \sum_{i \le k} \frac{\rho_i^2}{(\nu_i - \phi)^2} .$$

Residuals of the inverse overestimate a component at high frequencies by the relative gap alone, those of L by many
orders. The number of negative pivots of $L - \sigma I$ is that of eigenvalues below $\sigma$ (Sylvester's law of
inertia): if it is as expected, none was missed and $\phi = 1 / \sigma$ is proved; else as many further starting vectors
are added. Where a second factor is too dear, another random start has to reproduce all values.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy.linalg
import torch
from scipy.sparse import csr_array

from krylow._memory import arrays
from krylow.krylov.ritz import Evidence, Ritz
from krylow.linalg.components import NullSpace
from krylow.linalg.elimination import Factor, SchurComplement
from krylow.linalg.perturbation import restored
from krylow.linalg.row_blocks import exact_gram, orthonormalize_
from krylow.operators import SparseOperator
from krylow.solvers._inverse_lanczos import InverseLanczos


@dataclass(frozen=True)
class SchurSettings:
    """Numerical settings of the iteration."""

    slow: float = 0.05  #: wanted frequencies may be at most this part of a piece's lowest one
    aim: float = 0.05  #: part of the error asked for that Lanczos stops at
    refined: float = 0.4  #: part of the error asked for that an extension or a block inverse iteration stops at
    refinements: int = 6  #: most steps of block inverse iteration
    worthwhile: float = 0.5  #: part of the error that such a step has to leave at most
    cuts: tuple[float, ...] = (0.7, 0.3)  #: where in the gap the eigenvalues are counted
    starts: int = 16  #: starting vectors that the basis has space for from the beginning
    unrestarted: int = 500  #: nodes up to which the basis may grow to the whole space, without restarts
    probe: int = 16  #: products after another start, which is to find what those before it have missed
    same: float = 1e-3  #: values after another start are the same if they differ by less, relatively,
    same_in_gap: float = 0.1  #: and by less than this part of the gap
    rounding: float = 64.0  #: rounding of $\nu$ in eps $\|L\| \nu^2$
    least_rounding: float = 16.0  #: and in eps $\nu_1$


@dataclass
class InverseProblem:
    """The lowest frequencies of a graph of which a Schur complement is factorised."""

    schur: SchurComplement
    factor: Factor
    k: int
    null: np.ndarray  #: (n, d) null vectors, deflated; the lowest frequencies
    norm: float
    tol: float
    products: int  #: of the inverse with a vector that may still be made
    settings: SchurSettings

    @property
    def wanted(self) -> int:
        """Pairs besides the null vectors."""
        return self.k - self.null.shape[1]

    def rounding(self, values: np.ndarray) -> float:
        """Return the rounding of the last wanted value of the inverse."""
        last = float(values[self.wanted - 1])
        most = self.settings.rounding * self.norm * last**2 + self.settings.least_rounding * float(values[0])
        return float(np.finfo(np.float64).eps) * most

    def error(self, values: np.ndarray, residuals: np.ndarray, ceiling: float) -> float:
        """Return the bound of the error, given a number above all values that are dropped."""
        gaps = values[: self.wanted] - ceiling
        if not gaps[-1] > 0:
            return math.inf
        rounding = self.rounding(values) / float(gaps[-1])
        return min(1.0, float(((residuals[: self.wanted] / gaps) ** 2).sum()) / self.k + rounding**2)


@dataclass(frozen=True)
class Found:
    """Ritz pairs and their error bound.

    Attributes
    ----------
    values, residuals
        ``(wanted + 1,)`` of the inverse, largest first, of X or of vectors that X improves.
    frequencies
        ``(wanted + 1,)`` of L + shift I, ascending.
    error
        The bound.
    well_defined
        The largest number of wanted vectors after which a gap shows.
    X
        ``(n, k)`` the null vectors and the wanted ones.
    residuals_of_L
        ``(wanted,)``; None: not known.
    floor
        Below it L + shift I has the wanted frequencies and no other, by inertia; None: not proved.
    """

    values: np.ndarray
    residuals: np.ndarray
    frequencies: np.ndarray
    error: float
    well_defined: int
    X: np.ndarray
    residuals_of_L: np.ndarray | None = None
    floor: float | None = None


def grounded(schur: SchurComplement, null: NullSpace | None) -> Any:
    """Return S with one node of each component that has a null vector grounded: definite, the same solutions."""
    if null is None or null.count == 0:
        return schur.S
    component, first = np.unique(null.labels.cpu().numpy()[schur.nodes], return_index=True)
    data, rows, columns = schur.S.data.copy(), schur.S.indptr, schur.S.indices
    added = max(float(schur.S.diagonal().mean()), np.finfo(np.float64).tiny)
    for node in first[component < null.count]:
        row = slice(rows[node], rows[node + 1])
        data[row][columns[row] == node] += added
    return csr_array((data, columns, rows), shape=schur.S.shape)


def lowest_pairs(problem: InverseProblem, size: int, rng: np.random.Generator) -> Found | None:
    """Return the lowest pairs from a basis of ``size`` vectors; None where the pieces are too slow for them."""
    schur, wanted, settings = problem.schur, problem.wanted, problem.settings
    if schur.nodes.size <= problem.k:
        return None
    size = max(size, wanted + 2 * settings.starts)
    lanczos = _lanczos(problem, size if schur.nodes.size > settings.unrestarted else schur.nodes.size, rng)
    starts, least, before = 1, 0, np.zeros(wanted)
    while True:
        values, Y, residuals = _iterate(lanczos, problem, least)
        if schur.M is not None and (values.size <= wanted or schur.piece > settings.slow * values[wanted - 1]):
            return None
        found = _on_whole_graph(problem, lanczos.advanced(Y[:, : wanted + 1]), values, residuals)
        if found is None:
            return None
        if problem.factor.counts:
            missed, found = _counted(problem, found)
        else:
            missed = int((np.abs(values[:wanted] - before) > _same(problem, values)).any())
            before = values[:wanted].copy()
        if not missed:
            return found
        missed = min(missed, wanted + 2 - starts)
        if missed <= 0 or problem.products <= 0:
            return replace(found, error=math.inf, well_defined=wanted)
        lanczos.widen(wanted + 2 * (lanczos.waiting + missed))
        lanczos.start(missed)
        starts, least = starts + missed, settings.probe + 2 * lanczos.waiting


def _lanczos(problem: InverseProblem, size: int, rng: np.random.Generator) -> InverseLanczos:
    """Return the recurrence on S^-1 M without the null vectors, with its first starting vector."""
    schur, factor, wanted = problem.schur, problem.factor, problem.wanted
    null = np.ascontiguousarray(problem.null[schur.nodes].T)
    images = null if schur.M is None else (schur.M @ null.T).T

    def product(image: np.ndarray) -> np.ndarray:
        z = factor.solve(image)
        return z - null.T @ (images @ z)

    lanczos = InverseLanczos(product, schur.M, null, size, wanted + (size - wanted) // 3, rng)
    lanczos.start()
    return lanczos


def _iterate(lanczos: InverseLanczos, problem: InverseProblem, least: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Advance, by ``least`` steps or more, until the pairs are good enough, and return them as ``ritz`` does."""
    wanted = problem.wanted
    steps = max(1, least, wanted + 2 - lanczos.expanded)
    while True:
        for _ in range(steps):
            going = problem.products > 0 and lanczos.advance()
            problem.products -= going
            if not going:
                return lanczos.ritz()
        values, Y, residuals = lanczos.ritz()
        steps = max(1, wanted // 8)
        if values.size <= wanted:
            continue
        error = problem.error(values, residuals, float(values[wanted] + residuals[wanted]))
        if error <= problem.settings.aim * problem.tol or residuals[: wanted + 1].max() <= problem.rounding(values):
            return values, Y, residuals


def _same(problem: InverseProblem, values: np.ndarray) -> np.ndarray:
    """Return by how much each wanted value may differ after another start that has found nothing new."""
    wanted, settings = problem.wanted, problem.settings
    gap = float(values[wanted - 1] - values[wanted]) if values.size > wanted else math.inf
    same = settings.same * values[:wanted]
    return np.minimum(same, settings.same_in_gap * gap) if gap > problem.rounding(values) else same


def _judged(problem: InverseProblem, values: np.ndarray, residuals: np.ndarray, X: np.ndarray) -> Found:
    """Return pairs, with the bound of their error."""
    wanted = problem.wanted
    values, residuals = values[: wanted + 1], residuals[: wanted + 1]
    rounding = problem.rounding(values)
    noise = rounding + residuals**2 / values
    shows = values[:-1] - values[1:] > noise[:-1] + noise[1:]
    settled = max(residuals.max(), rounding) <= 1e-4 * values[wanted]  # else no gap may show where there is one
    well_defined = int(np.flatnonzero(np.append(True, shows))[-1]) if settled else wanted
    error = problem.error(values, residuals, float(values[wanted] + residuals[wanted]))
    return Found(values, residuals, 1 / values, error, well_defined, X)


def _on_whole_graph(problem: InverseProblem, Y: np.ndarray, values: np.ndarray, residuals: np.ndarray) -> Found | None:
    """Return the vectors on the whole graph: their extension where that is good enough, else improved; None: neither.

    ``values`` and ``residuals`` are those of the vectors of which Y spans the products with the inverse.
    """
    schur, wanted = problem.schur, problem.wanted
    if schur.M is None:
        return _judged(problem, values, residuals, schur.extend(Y[:, :wanted], problem.null))
    # The error of E y is at most s = (|r| + b) / (nu_k - nu_{k+1}), b the bound of the inverse's norm; L^-1 reduces it
    # by nu_{k+1} / nu_k, and E K y is L^-1 E y but for b: with b / nu_k that is no more than s.
    for bound in (lambda: schur.inverse_bound, lambda: schur.inverse_norm):
        found = _judged(problem, values, residuals[: wanted + 1] + bound(), Y)
        if found.error <= problem.settings.refined * problem.tol:
            return _extended(problem, found)
    return _refined(problem, schur.extend(Y, np.empty((len(problem.null), 0))), values)


def _extended(problem: InverseProblem, found: Found) -> Found:
    """Return vectors of the Schur complement on the whole graph, with their frequencies and residuals of L."""
    schur, wanted, Y = problem.schur, problem.wanted, found.X
    SY = schur.S @ Y  # L E y, which is zero on the eliminated nodes
    theta = np.einsum("ij,ij->j", Y, SY)
    squares = np.maximum(0, np.einsum("ij,ij->j", SY, SY) - theta**2)
    theta[wanted] = 1 / found.values[wanted]
    X = schur.extend(Y[:, :wanted], problem.null)
    return replace(found, X=X, frequencies=theta, residuals_of_L=np.sqrt(squares[:wanted]))


def _refined(problem: InverseProblem, X: np.ndarray, values: np.ndarray) -> Found | None:
    """Improve vectors of the whole graph by block inverse iteration; None where that is not enough."""
    settings, null, wanted = problem.settings, problem.null, problem.wanted
    scale, last = values[: X.shape[1]], math.inf
    for _ in range(settings.refinements):
        Z = problem.schur.solve(problem.factor, X)
        problem.products -= X.shape[1]
        inner, gram = _gram_matrices(X, Z, null, scale)
        inverse = (inner * scale + (inner * scale).T) / 2  # L^-1 in the basis X
        nu, V = np.linalg.eigh(inverse)
        nu, V = nu[::-1], V[:, ::-1]
        outside = gram * np.outer(scale, scale) - inverse @ inverse
        residuals = np.sqrt(np.maximum(0, np.einsum("ij,ij->j", V, outside @ V)))
        stiffness = (inner.T / scale + inner / scale[:, None]) / 2  # L in the basis Z
        theta, W = scipy.linalg.eigh(stiffness, gram)
        found = _judged(problem, nu, residuals, Z)
        if found.error <= settings.refined * problem.tol:
            # L Z is X over the scale: no product is needed for the residuals of L
            squares = ((W / scale[:, None]) ** 2).sum(0) - 2 * theta * (W * (stiffness @ W)).sum(0) + theta**2
            (answer,) = arrays(((len(X), problem.k), np.float64))
            answer[:, : null.shape[1]] = null
            np.matmul(Z, W[:, :wanted], out=answer[:, null.shape[1] :])
            return replace(found, X=answer, frequencies=theta, residuals_of_L=np.sqrt(np.maximum(0, squares))[:wanted])
        if found.error > settings.worthwhile * last:
            return None
        X, scale, last = Z @ W, 1 / theta, found.error
    return None


def _gram_matrices(X: np.ndarray, Z: np.ndarray, null: np.ndarray, scale: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Remove null vectors from Z, scale its columns, and return X^T Z and Z^T Z; by row blocks that fit a cache."""
    inner, gram = np.zeros((2, Z.shape[1], Z.shape[1]))
    along, rows = null.T @ Z, max(1, (1 << 16) // Z.shape[1])
    for part in (slice(start, start + rows) for start in range(0, len(Z), rows)):
        z = Z[part]
        z -= null[part] @ along
        z /= scale  # columns of length 1, about
        inner += X[part].T @ z
        gram += z.T @ z
    return inner, gram


def _counted(problem: InverseProblem, found: Found) -> tuple[int, Found]:
    """Return how many frequencies below the gap were missed, by inertia, and the pairs with the bound this proves."""
    last, schur = found.well_defined, problem.schur
    if last == 0:
        return 0, found
    # Reciprocals of the inverse's values: Rayleigh quotients of L are spoilt by small components at high frequencies.
    low, high = (1 / float(value) for value in found.values[last - 1 : last + 1])
    expected, missed = last + problem.null.shape[1], 0
    for cut in problem.settings.cuts:
        sigma, margin = low + cut * (high - low), min(cut, 1 - cut) * (high - low)
        count = schur.below(problem.factor, sigma - schur.shift)
        if count is None or not count.rounding < margin:
            continue
        missed = max(0, count.below - expected)
        if count.below == expected:
            if last < problem.wanted:
                return 0, found
            error = problem.error(found.values, found.residuals, 1 / sigma)
            return 0, replace(found, error=error, floor=sigma - count.proof if count.proof < margin else None)
    return missed, replace(found, error=math.inf)


def ritz_pairs(L: SparseOperator, problem: InverseProblem, found: Found) -> Ritz:
    """Return the Ritz pairs in L's dtype, with the evidence for them; k products where the residuals are not known."""
    wanted, shift, X = problem.wanted, problem.schur.shift, torch.from_numpy(found.X)
    # What elimination puts back is orthonormal to the rounding of the inverse, which weights of all sizes make large.
    off = exact_gram(X) - torch.eye(X.shape[1], dtype=X.dtype)
    if float(off.abs().max()) > 16 * torch.finfo(X.dtype).eps:
        X = orthonormalize_(X)
    following = float(found.frequencies[wanted]) - shift
    if found.residuals_of_L is not None:
        zero = np.zeros(problem.k - wanted)
        parts = found.frequencies[:wanted], found.residuals_of_L
        theta, residuals = (torch.from_numpy(np.concatenate([zero, part])) for part in parts)
    else:
        D = restored(L).counting_for(L)
        X = X.to(D.device)
        LX = D @ X
        theta, W = torch.linalg.eigh(X.mT @ LX)  # X is orthonormal
        X, LX = X @ W, LX @ W
        residuals = torch.linalg.vector_norm(LX.sub_(X * theta), dim=0)
    floor = following if found.floor is None else found.floor - shift
    well_defined = found.well_defined + problem.k - wanted
    proved = found.floor is not None
    evidence = Evidence(found.error, floor, well_defined, residuals, proved=proved, restored=True)
    last = theta.new_tensor([max(following, float(theta[-1]))])
    return Ritz(
        theta=torch.cat([theta, last]).to(L.values),
        X=X.to(L.values),
        residuals=torch.nn.functional.pad(residuals, (0, 1), value=torch.inf).to(L.values),
        evidence=evidence,
    )
