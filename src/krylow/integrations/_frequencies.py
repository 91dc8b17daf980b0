r"""What the integrations share: which vectors of a subspace are shown, and with which signs.

Eigenvectors are unique up to a rotation inside each eigenspace, and single ones up to a sign. The trivial frequency of
a graph is $D^{1/2} 1$ (normalised) or $1$ (combinatorial): where several components share the eigenvalue 0, this vector
is dropped, not an arbitrary one of theirs. The largest entry of a vector is positive.
"""

from __future__ import annotations

import torch
from torch import Tensor

from krylow._machine import install_line
from krylow.certificate import Status
from krylow.linalg.perturbation import davis_kahan
from krylow.result import Subspace


def missing_extra(module: str, package: str, extra: str) -> ImportError:
    """Return the error that says which extra is not installed, and the line that installs it.

    >>> missing_extra("krylow.x", "torch_geometric", "pyg")
    ImportError("krylow.x needs torch_geometric, which is missing: pip install '.[pyg]' in a clone of krylow")
    """
    return ImportError(f"{module} needs {package}, which is missing: {install_line(extra)}")


def fixed_signs(basis: Tensor) -> Tensor:
    """Return the columns of ``basis`` ``(*batch, n, k)``, each with the first of its largest entries positive.

    No convention can be equivariant on a column that a symmetry of the graph maps to its negative: there, the order of
    the nodes decides.

    >>> fixed_signs(torch.tensor([[0.6, -1.0], [-0.8, 0.0]]))
    tensor([[-0.6000,  1.0000],
            [ 0.8000, -0.0000]])
    """
    if basis.shape[-2] == 0:
        return basis
    tie = 1e-2  # entries this close to a column's largest count as equally large, so that rounding does not decide
    rows = basis.mT.contiguous()  # (*batch, k, n): several times faster to search than columns
    size = rows.abs()
    first = (size >= (1 - tie) * size.amax(-1, keepdim=True)).to(torch.uint8).argmax(-1, keepdim=True)
    negative = torch.take_along_dim(rows, first, dim=-1) < 0
    return basis * (1 - 2 * negative.to(basis.dtype)).mT


def zero_frequency(n: int, dtype: torch.dtype) -> float:
    """Return the largest value, in units of the operator's norm, that is the zero of one more component."""
    return 32 * n * torch.finfo(dtype).eps


def without_trivial(basis: Tensor, theta: Tensor, trivial: Tensor, zero: Tensor | float) -> tuple[Tensor, Tensor]:
    r"""Return the lowest frequencies without the trivial one: k - 1 of the k columns, and their values.

    For a connected graph that drops the first column. Where a second value is zero too, the columns are rotated so that
    the trivial vector t itself is dropped, which leaves $\mathrm{span}(U) \cap t^\perp$.

    Parameters
    ----------
    basis, theta
        ``(*batch, n, k)`` orthonormal, and ``(*batch, k)`` ascending.
    trivial
        ``(*batch, n)``, of any length.
    zero
        ``(*batch,)`` or a number: values up to this one count as zero.

    >>> both = torch.eye(2)  # two nodes without an edge: every vector has frequency 0
    >>> without_trivial(both, torch.zeros(2), torch.ones(2), 1e-6)[0].abs()
    tensor([[0.7071],
            [0.7071]])
    """
    kept, values = basis[..., 1:], theta[..., 1:]
    if values.shape[-1] == 0:
        return kept, values
    several = values[..., 0] <= zero  # (*batch,)
    if not bool(several.any()):
        return kept, values
    U, lam = basis[several], theta[several]
    c = U.mT @ trivial[several][..., None]  # (g, k, 1)
    eye = torch.eye(U.shape[-1], dtype=U.dtype, device=U.device).expand(*c.shape[:-2], -1, -1)
    Q = torch.linalg.qr(torch.cat([c, eye], dim=-1)).Q[..., 1:]  # (g, k, k - 1): what is orthogonal to c
    H = Q.mT @ (lam[..., None] * Q)
    rotated, Y = torch.linalg.eigh((H + H.mT) / 2)
    kept, values = kept.clone(), values.clone()
    kept[several], values[several] = U @ (Q @ Y), rotated
    return kept, values


def unconverged(found: Subspace) -> str | None:
    """Return advice where the method's own estimate of its error is above tol, None where it is not.

    The estimate costs k products with L, where the certificate of a graph of a few hundred nodes costs as much as the
    subspace. A missing gap is no failure to converge: it shows in the certificate.
    """
    if found.exact:
        return None
    if found.evidence is not None:  # which costs nothing
        short = found.evidence.error > found.tol and found.evidence.well_defined >= found.k
        return Status.MAX_STEPS.advice if short else None
    if found.following is not None and found.following_residual is not None:
        product = found.operator @ found.basis
        residuals = torch.linalg.vector_norm(product - found.basis * found.ritz_values[..., None, :], dim=-2)
        gaps = (found.following - found.following_residual)[..., None] - found.ritz_values
        if bool((davis_kahan(residuals, gaps) <= found.tol).all()):
            return None
    status = found.status
    return status.advice if status in (Status.MAX_STEPS, Status.BREAKDOWN) else None
