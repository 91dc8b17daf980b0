r"""Laplacians that are no real symmetric matrix, and the one that is: $L = T^{-1} S T$.

Every function of L is that of S in other coordinates, $g(L) = T^{-1} g(S) T$. So methods work on the core S alone.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

import torch
from torch import Tensor

from krylow import _checks
from krylow._checks import InputError
from krylow.operators.base import Operator

COMPLEX = {torch.float32: torch.complex64, torch.float64: torch.complex128}


class SimilarOperator(Operator):
    """A matrix that is similar to a real symmetric one, its ``core``.

    Parameters
    ----------
    core
        The symmetric operator; its products count for this one, too.
    n
        Number of nodes.
    dtype
        Of this one's blocks.
    """

    #: What it is called in messages, and how many real dimensions of the core one of this matrix is.
    name = ""
    real = 1

    def __init__(self, core: Operator, n: int, dtype: torch.dtype, mask: Tensor | None = None) -> None:
        super().__init__(tuple(core.batch_shape), n, core.dtype, core.device, mask=mask, psd=core.psd)
        self.dtype = dtype
        self.core = core.counting_for(self)

    @abstractmethod
    def lift(self, X: Tensor) -> Tensor:
        """Return T X, a block of the core."""

    @abstractmethod
    def lower(self, Y: Tensor) -> Tensor:
        """Return T^-1 Y, a block of this matrix."""

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """The tensors of the core."""
        return self.core.tensors

    def _multiply(self, X: Tensor) -> Tensor:
        return self.lower(self.core._multiply(self.lift(X)))

    def gershgorin(self) -> tuple[Tensor, Tensor]:
        """Return the bounds of the core, whose spectrum is the same."""
        return self.core.gershgorin()


class RandomWalkOperator(SimilarOperator):
    r"""The random-walk Laplacian $I - D^{-1} W = D^{-1/2} \bar L D^{1/2}$ of the normalized one $\bar L$.

    Parameters
    ----------
    core
        The normalized Laplacian.
    root
        ``(*batch, n)`` positive roots of the degrees, 1 for isolated nodes.

    >>> import krylow as kl
    >>> kl.laplacian([[0.0, 1, 0], [1, 0, 1], [0, 1, 0]], "random_walk").to_dense()
    tensor([[ 1.0000, -1.0000,  0.0000],
            [-0.5000,  1.0000, -0.5000],
            [ 0.0000, -1.0000,  1.0000]], dtype=torch.float64)
    """

    name = "random-walk"

    def __init__(self, core: Operator, root: Tensor) -> None:
        super().__init__(core, core.n, core.dtype, core.mask)
        self.root = root

    def lift(self, X: Tensor) -> Tensor:
        """Return $D^{1/2} X$."""
        return self.root[..., None] * X

    def lower(self, Y: Tensor) -> Tensor:
        """Return $D^{-1/2} Y$."""
        return Y / self.root[..., None]

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """The tensors of the core, and the roots."""
        return (*self.core.tensors, self.root)

    def diagonal(self) -> Tensor:
        """Return the diagonal, ``(*batch, n)``, which is the core's."""
        return self.core.diagonal()

    def detach(self) -> RandomWalkOperator:
        """Return the same operator without a gradient."""
        return RandomWalkOperator(self.core.detach(), self.root.detach())

    def _to(self, dtype: torch.dtype, device: torch.device) -> RandomWalkOperator:
        return RandomWalkOperator(self.core.to(dtype, device), self.root.to(device, dtype))

    def _items(self, places: Tensor) -> RandomWalkOperator:
        core, root = self.core._items(places), self.root.reshape(-1, self.n)[places]
        return RandomWalkOperator(core, root[..., : core.n])

    def to_scipy(self) -> Any:
        """Return a ``scipy.sparse.csr_array`` of one graph."""
        from scipy.sparse import diags_array

        self._no_batch("to_scipy()")
        root = self.root.detach().cpu().numpy()
        return (diags_array(1 / root) @ self.core.to_scipy() @ diags_array(root)).tocsr()


class MagneticOperator(SimilarOperator):
    r"""A complex Hermitian matrix $A + i B$ by the real symmetric one of twice the size.

    $$\begin{pmatrix} A & -B \\ B & A \end{pmatrix} \begin{pmatrix} \mathrm{Re}\, x \\ \mathrm{Im}\, x \end{pmatrix}$$

    has every eigenvalue twice, with eigenvectors u and i u. A product with a complex vector counts one.

    Parameters
    ----------
    core
        The real matrix, ``(*batch, 2 n, 2 n)``.
    """

    name = "magnetic"
    real = 2

    def __init__(self, core: Operator) -> None:
        super().__init__(core, core.n // 2, COMPLEX[core.dtype])

    def lift(self, X: Tensor) -> Tensor:
        """Return the real and the imaginary parts, one below the other."""
        return torch.cat([X.real, X.imag if X.is_complex() else torch.zeros_like(X)], dim=-2)

    def lower(self, Y: Tensor) -> Tensor:
        """Return the complex block of real and imaginary parts."""
        return torch.complex(Y[..., : self.n, :], Y[..., self.n :, :])

    def __matmul__(self, X: Any) -> Any:
        """Multiply a real or complex block ``(*batch, n, s)`` or vector ``(n,)``; the answer is complex."""
        block = _checks.numbers(X, "a block").to(self.device, self.dtype)
        if block.ndim == 1 and not self.batch_shape:
            product = (self @ block[:, None])[:, 0]
        else:
            self._count(block)
            product = self._multiply(block)
        return product if isinstance(X, Tensor) else product.detach().cpu().numpy()

    def diagonal(self) -> Tensor:
        """Return the diagonal, ``(*batch, n)``, real numbers in the complex dtype."""
        return self.core.diagonal()[..., : self.n].to(self.dtype)

    def detach(self) -> MagneticOperator:
        """Return the same operator without a gradient."""
        return MagneticOperator(self.core.detach())

    def to(self, *target: Any, dtype: torch.dtype | None = None, device: Any = None) -> Operator:
        """Return the same operator in the complex dtype of another real one (float32, float64), or elsewhere."""
        core = self.core.to(*target, dtype=dtype, device=device)
        return self if core is self.core else MagneticOperator(core)

    def _items(self, places: Tensor) -> MagneticOperator:
        return MagneticOperator(self.core._items(places))

    def to_scipy(self) -> Any:
        """Return a complex ``scipy.sparse.csr_array`` of one graph."""
        self._no_batch("to_scipy()")
        C, n = self.core.to_scipy(), self.n
        return (C[:n, :n] + 1j * C[n:, :n]).tocsr()


def refuse_similar(L: Any) -> None:
    """Refuse an operator that is no real symmetric matrix where one is needed."""
    if isinstance(L, SimilarOperator):
        raise InputError(
            f"this takes a real symmetric Laplacian, got a {L.name} one, which subspace(), lowpass(), filter() and "
            'diffusion_distance() take: pass kl.laplacian(W), or kind="normalized".'
        )
