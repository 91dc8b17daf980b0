"""The paper's probe where the spectrum is known: the same numbers for a fraction of the work."""

from __future__ import annotations

import torch
from torch import Tensor

from krylow.nn.probes import InversePolynomialProbe
from krylow.nn.unrolled import UnrolledLanczos
from krylow.operators import DiagonalOperator, Operator
from krylow.start.probe import response
from krylow.training.kernels import diagonal_cg


class EigenbasisProbe(InversePolynomialProbe):
    r"""The inverse-polynomial probe on a :class:`~krylow.operators.DiagonalOperator`.

    There the polynomial $q(\Lambda)$ is a diagonal too. It is evaluated once instead of by T products in every step of
    the conjugate gradients, and a filter that is solved to convergence, ``solver="krylov"`` with at least n steps,
    is its response times z. ``products`` of the operator grows by what the literal computation would have spent. On any
    other operator it is the literal probe.
    """

    def forward(self, L: Operator, z: Tensor) -> Tensor:
        """Return the start vector ``(*batch, n, 1)``."""
        converged = self.solver == "krylov" and self.cg_steps >= L.n
        if not isinstance(L, DiagonalOperator) or not (converged or self.solver == "cg"):
            return super().forward(L, z)
        a = self.coefficients.to(z.dtype)
        lam = L.eigenvalues
        if self.scaled:
            low, high = L.gershgorin()
            low = low.clamp(max=0)
            lam = (lam - low[..., None]) / (high - low)[..., None]
        if converged:
            L.products += L.n
            L.passes += L.n
            return _unit(response(a, self.power)(lam)[..., None] * z)
        q = polynomial(a, lam)  # (*batch, n)
        v = z[..., 0]
        for _ in range(self.power):
            v = diagonal_cg(q, v / v.norm(dim=-1, keepdim=True), self.cg_steps)
        L.products += self.power * self.cg_steps * self.degree
        L.passes += self.power * self.cg_steps * self.degree
        return _unit(v[..., None])


def polynomial(a: Tensor, lam: Tensor) -> Tensor:
    r"""Return $q(\lambda) = 1 + \sum_t a_t \lambda^t$ by Horner's rule."""
    q = torch.zeros_like(lam)
    for t in range(a.shape[-1] - 1, -1, -1):
        q = (q + a[..., t, None]) * lam
    return 1 + q


def to_eigenbasis(net: UnrolledLanczos) -> UnrolledLanczos:
    """Return a network with the same parameters that is fast on known spectra."""
    return _with_probe(net, EigenbasisProbe)


def to_literal(net: UnrolledLanczos) -> UnrolledLanczos:
    """Return a network with the same parameters that is fit for every operator, to be saved and shipped."""
    return _with_probe(net, InversePolynomialProbe)


def _with_probe(net: UnrolledLanczos, kind: type[InversePolynomialProbe]) -> UnrolledLanczos:
    if not isinstance(net.probe, InversePolynomialProbe):
        return net
    p = net.probe
    probe = kind(p.degree, p.power, p.cg_steps, p.solver, p.scaled)
    twin = UnrolledLanczos(net.k, net.m, probe, reorthogonalize=net.reorthogonalize).to(net.upsilon1.dtype)
    twin.load_state_dict(net.state_dict())
    return twin


def _unit(v: Tensor) -> Tensor:
    return v / v.norm(dim=-2, keepdim=True)
