r"""The true subspaces, to a normalised squared error of 1e-10 by their residuals, and the k at which to cut.

The grid's eigenvectors are known. The others are computed by ARPACK or primme in double precision (on the inverse where
a factorisation is cheap), and then judged: with residuals r and the gap at k, the error is at most
$\|r\|^2 / (k \, \mathrm{gap}^2)$ by Davis and Kahan, provided that none of the lowest eigenvalues was missed: a solver
that then finds a lower one would show as an error of 1 / k of every other solver, which no record has.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse

from krylow._checks import InputError
from krylow_lab.large import graphs

#: Largest error of a reference.
ACCURACY = 1e-10
#: Families on which a sparse factorisation is cheap, and those whose largest degrees want a diagonal preconditioner.
FACTORISED, WIDE = ("knn2d", "road"), ("powerlaw",)


@dataclass(frozen=True)
class Reference:
    """A graph with its lowest eigenpairs, and the numbers of frequencies to ask for."""

    L: Any  # csr_array
    values: Any  # (s,) ascending; s is one more than the largest k
    vectors: Any  # (n, s)
    ks: tuple[int, ...]  # where the largest relative gaps are, one in each window of the family
    errors: tuple[float, ...]  # bounds of the reference's own normalised squared error at each of ks

    def gap(self, k: int) -> float:
        """Return the gap between the k-th eigenvalue and the next."""
        return float(self.values[k] - self.values[k - 1])


def prepare(folder: Path, family: str, n: int, seed: int, *, most: int | None = None) -> tuple[Path, Reference]:
    """Return a graph with its reference, from the file in ``folder`` or made now and written there.

    ``most`` leaves out the windows that begin beyond it, whose references are dear on the largest graphs.
    """
    tag = "" if most is None else f"-to{most}"
    path = folder / f"{family}-{n}-{seed}{tag}.npz"
    if not path.is_file():
        folder.mkdir(parents=True, exist_ok=True)
        made = compute(graphs.make(family, n, seed), family, n, most)
        partial = path.with_suffix(".part.npz")
        L = made.L
        np.savez(
            partial,
            data=L.data,
            indices=L.indices,
            indptr=L.indptr,
            values=made.values,
            vectors=made.vectors,
            ks=made.ks,
            errors=made.errors,
        )
        partial.replace(path)
    return path, load(path)


def load(path: Path) -> Reference:
    """Read what :func:`prepare` wrote."""
    with np.load(path, allow_pickle=False) as file:
        n = len(file["indptr"]) - 1
        L = scipy.sparse.csr_array((file["data"], file["indices"], file["indptr"]), shape=(n, n))
        ks, errors = tuple(int(k) for k in file["ks"]), tuple(float(e) for e in file["errors"])
        return Reference(L, file["values"], file["vectors"], ks, errors)


def compute(L: Any, family: str, n: int, most: int | None = None) -> Reference:
    """Return the reference of a graph, or raise where it is not as accurate as it must be."""
    windows = [window for window in graphs.FAMILIES[family].windows if most is None or window[0] <= most]
    count = max(high for _, high in windows) + 1
    if family == "grid":
        values, vectors = grid_eigenpairs(*graphs.grid(n), count)
    else:
        values, vectors = _eigenpairs(L, count, family)
    ks = tuple(_widest(values, low, high) for low, high in windows)
    last = max(ks)
    values, vectors = values[: last + 1], vectors[:, : last + 1]
    errors = tuple(_error(L, values, vectors, k) for k in ks)
    if max(errors) > ACCURACY:
        raise InputError(f"the reference of {family} at n={n} must be right to {ACCURACY}, got {errors} at k={ks}.")
    return Reference(L, values, vectors, ks, errors)


def grid_eigenpairs(rows: int, columns: int, count: int) -> tuple[Any, Any]:
    r"""Return a grid's lowest eigenpairs: $4 \sin^2(\pi i / 2a) + 4 \sin^2(\pi j / 2b)$ and products of cosines."""
    lam_a, lam_b = (4 * np.sin(np.pi * np.arange(s) / (2 * s)) ** 2 for s in (rows, columns))
    order = np.argsort(np.add.outer(lam_a, lam_b).ravel(), kind="stable")[:count]
    i, j = order // columns, order % columns
    a, b = (np.cos(np.pi * np.outer(np.arange(s) + 0.5, f) / s) for s, f in ((rows, i), (columns, j)))
    vectors = (a[:, None, :] * b[None, :, :]).reshape(rows * columns, count)
    return lam_a[i] + lam_b[j], vectors / np.linalg.norm(vectors, axis=0)


def _eigenpairs(L: Any, count: int, family: str) -> tuple[Any, Any]:
    """Return the lowest eigenpairs in double precision; two more are computed than are kept, since the last may lag."""
    from scipy.sparse.linalg import LinearOperator, eigsh, splu

    n, wanted = L.shape[0], count + 2
    start = np.random.default_rng(1).standard_normal(n)
    if family in FACTORISED:
        shift = 1e-6 * float(L.diagonal().mean())
        factor = splu(
            (L + shift * scipy.sparse.eye_array(n)).tocsc(),
            permc_spec="MMD_AT_PLUS_A",
            diag_pivot_thresh=0.0,
            options={"SymmetricMode": True},
        )
        inverse = LinearOperator(L.shape, matvec=factor.solve, dtype=np.float64)
        _, X = eigsh(L, wanted, sigma=-shift, OPinv=inverse, v0=start, tol=1e-13, ncv=2 * count + 20)
    elif family in WIDE:
        from primme import eigsh as davidson

        weight = 1 / L.diagonal()
        jacobi = LinearOperator(L.shape, matvec=lambda x: weight * x.ravel(), dtype=np.float64)
        _, X = davidson(L, wanted, which="SA", v0=start[:, None], OPinv=jacobi, tol=1e-12)
    else:
        high = 2 * float(L.diagonal().max())
        flipped = (high * scipy.sparse.eye_array(n) - L).tocsr()
        _, X = eigsh(flipped, wanted, which="LA", v0=start, tol=1e-12, ncv=2 * count + 40, maxiter=100_000)
    X, _ = np.linalg.qr(X)
    theta, Y = np.linalg.eigh(X.T @ (L @ X))
    return theta[:count], (X @ Y)[:, :count]


def _widest(values: Any, low: int, high: int) -> int:
    """Return the k of a window with the largest gap relative to the eigenvalue above it."""
    ks = np.arange(low, high + 1)
    return int(ks[np.argmax(1 - values[ks - 1] / values[ks])])


def _error(L: Any, values: Any, vectors: Any, k: int) -> float:
    X = vectors[:, :k]
    residual = np.linalg.norm(L @ X - X * values[:k])
    skew = np.linalg.norm(X.T @ X - np.eye(k))
    return float((residual / (values[k] - values[k - 1])) ** 2 / k + skew**2)
