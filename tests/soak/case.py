"""One case of the soak: drawn from a seed, solved, and judged by LAPACK or by a counted inverse."""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import scipy.linalg
import scipy.sparse as sp
import torch
from scipy.sparse.csgraph import connected_components
from scipy.sparse.linalg import ArpackError, LinearOperator, eigsh, splu

import krylow as kl
from krylow.graph import as_operator
from krylow.linalg.fill import estimate_fill
from soak.families import FAMILIES, reweighted
from soak.unseen import UNSEEN

GRAPHS = FAMILIES | UNSEEN

WEIGHTS = ("unit", "unit", "lognormal", "Pareto", "twelve orders")
KINDS = ("combinatorial", "combinatorial", "normalized", "generalized")
METHODS = (
    "exact",
    "lanczos",
    "thick_restart",
    "chebyshev",
    "multilevel",
    "davidson",
    "lobpcg",
    "shift_invert",
    "unrolled",
)
#: The most nodes that a method is asked for by name, where it takes long beyond.
MOST_NODES = {"exact": 2500, "lobpcg": 4000, "thick_restart": 4000, "lanczos": 20_000, "unrolled": 4000}
#: Beyond so many nodes the truth comes from a counted inverse; and the most entries of its factor.
DENSE, MOST_FILL = 3000, 4e6
MOST_K, EPS = 60, np.finfo(float).eps


@dataclass(frozen=True)
class Case:
    """What one seed asks for."""

    seed: int
    family: str
    n: int
    weights: str
    kind: str
    loops: bool
    isolated: int
    dtype: str
    form: str
    method: str
    tol: float
    cut: str


@dataclass(frozen=True)
class Truth:
    """The lowest eigenvalues, the vectors ``(n, s)``, by how much an eigenvalue may be wrong, and a norm."""

    values: np.ndarray
    vectors: np.ndarray
    doubt: float
    norm: float


def draw(seed: int, largest: int = 20_000) -> Case:
    """Return the case of a seed."""
    rng = np.random.default_rng([seed, 2])
    pick = lambda options: str(rng.choice(options))  # noqa: E731
    n = int(np.exp(rng.uniform(0, np.log(largest))))
    method = "auto" if rng.random() < 0.5 else pick(METHODS)
    return Case(
        seed=seed,
        family=pick(list(GRAPHS)),
        n=min(n, MOST_NODES.get(method, n)),
        weights=pick(WEIGHTS),
        kind=pick(KINDS),
        loops=bool(rng.random() < 0.15),
        isolated=int(rng.integers(1, 4)) if rng.random() < 0.15 else 0,
        dtype=pick(["float32", "float64", "float64"]),
        form=pick(["sparse", "sparse", "sparse", "dense", "function"]),
        method=method,
        tol=float(10 ** rng.uniform(-8, -2)) if rng.random() < 0.5 else float(rng.choice([1e-3, 1e-6])),
        cut=pick(["gap", "gap", "tie", "any"]),
    )


def adjacency(case: Case) -> sp.csr_array:
    """Return the weighted adjacency of a case, in float64, its nodes in random order."""
    rng = np.random.default_rng([case.seed, 3])
    W = reweighted(GRAPHS[case.family](max(1, case.n), rng), case.weights, rng)
    if case.isolated:
        W = sp.csr_array(sp.block_diag([W, sp.csr_array((case.isolated, case.isolated))]))
    if case.loops:
        W = W + sp.diags_array((rng.random(W.shape[0]) < 0.1) * rng.uniform(0.1, 2, W.shape[0]))
    order = rng.permutation(W.shape[0])
    return sp.csr_array(sp.csr_array(W)[order][:, order])


def truth_of(A: sp.csr_array, most: int) -> Truth | None:
    """Return the lowest eigenpairs of a Laplacian, or None where they cannot be had in reasonable time."""
    n, norm = A.shape[0], float(abs(A).sum(axis=1).max()) if A.nnz else 0.0
    norm = max(norm, 1e-300)
    if n <= DENSE:
        values, vectors = _dense(A, min(n, most))
        return Truth(values, vectors, 4 * EPS * norm * n**0.5, norm)
    order = np.argsort(label := connected_components(A)[1], kind="stable")
    pieces = np.split(order, np.flatnonzero(np.diff(label[order])) + 1)
    found = []
    for nodes in pieces:  # an inverse has one vector of each eigenspace, so pieces do not share one
        piece = sp.csr_array(A[nodes][:, nodes])
        if nodes.size <= DENSE:
            count = min(nodes.size, most)
            found.append(_dense(piece, count))
            continue
        try:
            pairs = _counted(piece, most, norm)
        except (RuntimeError, MemoryError, ArpackError):  # a singular factor, or no convergence
            return None
        if pairs is None:
            return None
        found.append(pairs)
    # All eigenvalues are known up to where the first piece that has more of them ends.
    sure = min((v[-1] for (v, _), nodes in zip(found, pieces, strict=True) if v.size < nodes.size), default=np.inf)
    lowest = sorted((v, i, j) for i, (values, _) in enumerate(found) for j, v in enumerate(values) if v <= sure)[:most]
    vectors = np.zeros((n, len(lowest)))
    for column, (_, i, j) in enumerate(lowest):
        vectors[pieces[i], column] = found[i][1][:, j]
    return Truth(np.array([v for v, _, _ in lowest]), vectors, 100 * EPS * norm, norm)


def _dense(A: sp.csr_array, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the lowest eigenpairs by LAPACK's partial solver, or the whole one where that has lost orthogonality."""
    values, vectors = scipy.linalg.eigh(A.toarray(), subset_by_index=[0, count - 1])
    if np.abs(vectors.T @ vectors - np.eye(count)).max() > 1e3 * EPS:  # as among many equal eigenvalues
        values, vectors = np.linalg.eigh(A.toarray())
    return values[:count], vectors[:, :count]


def _counted(A: sp.csr_array, most: int, norm: float) -> tuple[np.ndarray, np.ndarray] | None:
    """Return eigenpairs of the inverse up to their widest gap, where an inertia count finds as many below that."""
    n, shift = A.shape[0], norm * 1e-10
    factor = _factor(A, -shift)
    if factor is None:
        return None
    inverse = LinearOperator(A.shape, matvec=factor.solve, dtype=float)
    start = np.random.default_rng(0).standard_normal(n)
    options = {"sigma": -shift, "OPinv": inverse, "ncv": 3 * most, "v0": start, "maxiter": 30}
    values, vectors = eigsh(A, most, tol=0, **options)
    order = np.argsort(values)
    values, vectors = values[order], np.linalg.qr(vectors[:, order])[0]
    below = int(np.argmax(np.diff(values)))
    if not values[below + 1] - values[below] > 1e-9 * norm:
        return None
    counted = _factor(A, 0.5 * (values[below] + values[below + 1]))
    if counted is None or int((counted.U.diagonal() < 0).sum()) != below + 1:
        return None
    return values[: below + 2], vectors[:, : below + 2]


def fill(A: sp.csr_array) -> float:
    """Return about how many entries a factor has."""
    return estimate_fill(as_operator(A)).entries


def _factor(A: sp.csr_array, shift: float) -> Any:
    """Return the LU factors of A - shift I with diagonal pivots, or None where they would not be light."""
    options = {"SymmetricMode": True}
    n = A.shape[0]
    if A.nnz / n > 20 or fill(A) > MOST_FILL:
        return None
    matrix = sp.csc_array(A - shift * sp.eye_array(n))
    factor = splu(matrix, permc_spec="MMD_AT_PLUS_A", diag_pivot_thresh=0.0, options=options)
    return factor if factor.nnz <= MOST_FILL and np.array_equal(factor.perm_r, factor.perm_c) else None


def cut_of(case: Case, truth: Truth, n: int) -> int | None:
    """Return k: at a gap, inside a multiplicity, or anywhere."""
    rng = np.random.default_rng([case.seed, 4])
    most = min(MOST_K, truth.values.size - 1, n)
    if n == 1:
        return 1
    if most < 1:
        return None
    gaps = np.diff(truth.values)[:most]
    if case.cut == "gap":
        wide = np.flatnonzero(gaps > 0.02 * np.abs(truth.values[1 : most + 1]))
        return int(rng.choice(wide)) + 1 if wide.size else int(np.argmax(gaps)) + 1
    ties = np.flatnonzero(gaps <= truth.doubt)
    if case.cut == "tie" and ties.size:
        return int(rng.choice(ties)) + 1
    return int(rng.integers(1, most + 1))


def operator(case: Case, W: sp.csr_array) -> Any:
    """Return the operator that the case asks for."""
    dtype = getattr(torch, case.dtype)
    form = "sparse" if case.form == "dense" and W.shape[0] > DENSE else case.form
    given = torch.from_numpy(W.toarray()) if form == "dense" else W
    L = kl.laplacian(given, case.kind).to(dtype)
    if form != "function":
        return L
    return kl.operators.FunctionOperator(lambda X: L @ X, L.n, dtype=dtype)


def run(seed: int, largest: int = 20_000) -> dict[str, Any]:
    """Return what a seed's case ended in."""
    return solved(draw(seed, largest))


def solved(case: Case) -> dict[str, Any]:
    """Return what a case ended in: "ok", "refused", "not judged" or the kind of failure, with all numbers."""
    torch.set_num_threads(1)
    seed, W = case.seed, adjacency(case)
    n = W.shape[0]
    row: dict[str, Any] = asdict(case) | {"nodes": n}
    A = sp.csr_array(kl.laplacian(W, case.kind).to_scipy())
    begin = time.process_time()
    truth = truth_of(A, MOST_K + 20)
    row["truth seconds"] = time.process_time() - begin
    k = None if truth is None else cut_of(case, truth, n)
    if k is None:  # what can be seen without the truth is judged even so
        truth, k = None, int(np.random.default_rng([seed, 4]).integers(1, min(MOST_K, n) + 1))
    row["k"] = k
    begin = time.process_time()
    try:
        L = operator(case, W)
        sub = kl.subspace(L, k, method=case.method, tol=case.tol, seed=seed, max_products=_budget(case, k))
        answer = sub.basis.detach().double().numpy(), sub.status.name, float(sub.error_bound), sub.certificate.proved
    except kl.InputError as refused:
        allowed = case.method != "auto"
        return row | {"outcome": "refused" if allowed else "refused by auto", "why": str(refused)}
    except Exception as broken:  # whatever it is, it is a failure
        return row | {"outcome": "exception", "why": f"{type(broken).__name__}: {broken}"}
    row |= {"seconds": time.process_time() - begin, "method used": sub.method, "products": sub.products}
    return row | judge(case, truth, k, *answer)


def _budget(case: Case, k: int) -> int | None:
    """Return the most products: of methods that orthogonalise against a long basis few, since these cost the most."""
    if case.form == "function" and case.method == "auto":
        return (400 if case.n <= MOST_NODES["thick_restart"] else 100) * (k + 8)
    each = {"thick_restart": 400, "lobpcg": 400, "chebyshev": 4000, "davidson": 4000, "multilevel": 4000}
    return each[case.method] * (k + 8) if case.method in each else None


def error_of(truth: Truth, k: int, V: np.ndarray, dtype: str) -> dict[str, Any]:
    """Return the error of a basis, the gap at k, what truth and rounding may be off by, and if the gap is known."""
    U, values, eps = truth.vectors[:, :k], truth.values, float(np.finfo(dtype).eps)
    gap = float(values[k] - values[k - 1]) if k < values.size else np.inf
    V = np.linalg.qr(V)[0]
    error = float(((V - U @ (U.T @ V)) ** 2).sum()) / k + (k - V.shape[1]) / k
    known = k * min(1.0, truth.doubt / max(gap, truth.doubt, 1e-300)) ** 2 + (8 * eps) ** 2 * V.shape[0]
    return {"error": error, "gap": gap, "known": float(known), "defined": bool(gap > 20 * truth.doubt)}


def _deviation(V: np.ndarray) -> float:
    """Return how far columns are from orthonormal, as a norm."""
    return float(np.linalg.norm((V.T @ V - np.eye(V.shape[1])).astype(float), 2)) if V.size else 0.0


def judge(
    case: Case, truth: Truth | None, k: int, V: np.ndarray, status: str, bound: float, proved: bool
) -> dict[str, Any]:
    """Return the outcome of an answer: its error against the truth, and what is wrong with what it says of itself."""
    eps = float(np.finfo(case.dtype).eps)
    said: dict[str, Any] = {"status": status, "bound": bound, "proved": proved}
    if not np.isfinite(V).all() or np.isnan(bound):
        return said | {"outcome": "not finite"}
    V = V[:, np.linalg.norm(V, axis=0) > 0]
    off = _deviation(V)
    if off > 100 * eps:  # sums of equal numbers, as of a null vector's, are off by more in double precision
        off = _deviation(V.astype(np.longdouble))
    if off > 100 * eps:
        return said | {"outcome": "not orthonormal", "off": off / eps}
    if status == "CONVERGED" and V.shape[1] < k:
        return said | {"outcome": "columns missing"}
    if truth is None:
        return said | {"outcome": "not judged"}
    said |= error_of(truth, k, V, case.dtype)
    error, gap, known = said["error"], said["gap"], said["known"]
    if k >= V.shape[0]:
        return said | {"outcome": "ok"}
    seen = max(0.05 * abs(truth.values[k]), 80 * eps * truth.norm * V.shape[0] ** 0.5)  # above what rounding hides
    if not said["defined"]:
        exact_tie = gap <= truth.doubt and case.weights == "unit"
        return said | {"outcome": "converged at a tie" if status == "CONVERGED" and exact_tie else "ok"}
    if status == "CONVERGED":
        if error > 10 * case.tol + known:
            return said | {"outcome": "false claim"}
        if error > bound + known + 1e-14 and proved:
            return said | {"outcome": "proved bound violated"}
        if error > case.tol + known:
            return said | {"outcome": "above tol"}
        if error > bound + known + 1e-14:
            return said | {"outcome": "above bound"}
    if status == "NO_GAP" and gap > seen and case.method != "lanczos" and case.tol > 100 * eps:
        return said | {"outcome": "gap not seen"}
    return said | {"outcome": "ok"}
