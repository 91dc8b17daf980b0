"""The paper's network where the spectrum is known: the same numbers for a fraction of the work."""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import Tensor

from krylow.nn.probes import InversePolynomialProbe, Probe
from krylow.nn.unrolled import UnrolledLanczos
from krylow.operators import DiagonalOperator, Operator
from krylow.refine.lanczos import Krylov
from krylow.start.probe import learned_response, response
from krylow_lab.training.kernels import diagonal_probe, unit
from krylow_lab.training.recurrence import diagonal_lanczos


class EigenbasisProbe(InversePolynomialProbe):
    r"""The inverse-polynomial probe on a :class:`~krylow.operators.DiagonalOperator`.

    There the polynomial $q(\Lambda)$ is a diagonal too. It is evaluated once instead of by T products in every step of
    the conjugate gradients, and a filter that is solved to convergence, ``solver="krylov"`` with at least n steps,
    is its response times z, as is one with learned steps. ``products`` of the operator grows by what the literal
    computation would have spent. On any other operator it is the literal probe.
    """

    def forward(self, L: Operator, z: Tensor) -> Tensor:
        """Return the start vector ``(*batch, n, 1)``."""
        converged = self.solver == "krylov" and self.cg_steps >= L.n
        if not isinstance(L, DiagonalOperator) or not (converged or self.solver in ("cg", "learned_cg")):
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
            return unit(response(a, self.power)(lam) * z[..., 0])[..., None]
        learned = self.solver == "learned_cg"
        products = self.power * (self.cg_steps - learned) * self.degree
        L.products += products
        L.passes += products
        if learned:
            h = learned_response(a, *(t.to(z.dtype) for t in self.learned_steps))(lam)
            return unit(h * z[..., 0])[..., None]
        return diagonal_probe(a, lam, z[..., 0], self.power, self.cg_steps)[..., None]


class EigenbasisLanczos(UnrolledLanczos):
    """The network whose recurrence is compiled where the operator is a :class:`~krylow.operators.DiagonalOperator`."""

    def krylov(self, L: Any, *, z: Tensor | None = None, generator: torch.Generator | None = None) -> Krylov:
        """Return the basis and coefficients."""
        if z is None or self.reorthogonalize or not isinstance(L, DiagonalOperator):
            return super().krylov(L, z=z, generator=generator)
        return diagonal_lanczos(L, self.probe(L, z), self.m, self.gamma1, self.gamma2)


def to_eigenbasis(net: UnrolledLanczos) -> UnrolledLanczos:
    """Return a network with the same parameters that is fast on known spectra."""
    return _twin(net, EigenbasisLanczos, EigenbasisProbe)


def to_literal(net: UnrolledLanczos) -> UnrolledLanczos:
    """Return a network with the same parameters that is fit for every operator, to be saved and shipped."""
    return _twin(net, UnrolledLanczos, InversePolynomialProbe)


def _twin(net: UnrolledLanczos, network: type[UnrolledLanczos], kind: type[InversePolynomialProbe]) -> UnrolledLanczos:
    p = net.probe
    if isinstance(p, InversePolynomialProbe):
        probe: Probe = kind(p.degree, p.power, p.cg_steps, p.solver, p.scaled)
    else:
        probe = copy.deepcopy(p)
    twin = network(net.k, net.m, probe, reorthogonalize=net.reorthogonalize, gammas=net.gammas).to(net.upsilon1.dtype)
    twin.load_state_dict(net.state_dict())
    return twin
