"""The paper's probe where the spectrum is known: its polynomial is evaluated once."""

from __future__ import annotations

from torch import Tensor

from krylow.krylov.cg import conjugate_gradients
from krylow.nn.probes import InversePolynomialProbe
from krylow.nn.unrolled import UnrolledLanczos
from krylow.operators import DiagonalOperator, Operator


class EigenbasisProbe(InversePolynomialProbe):
    r"""The inverse-polynomial probe on a :class:`~krylow.operators.DiagonalOperator`.

    There $q(\Lambda) = I + \sum_t a_t \Lambda^t$ is diagonal: a conjugate-gradient step costs n operations instead of T
    products, and a filter that is solved to convergence (``solver="krylov"`` with at least n steps) or has learned
    steps is its frequency response times z. ``products`` of the operator grows by what the literal computation would
    have taken. On any other operator it is the literal probe.
    """

    def forward(self, L: Operator, z: Tensor) -> Tensor:
        """Return the start vector ``(*batch, n, 1)``."""
        converged = self.solver == "krylov" and self.cg_steps >= L.n
        if not isinstance(L, DiagonalOperator) or (self.solver == "krylov" and not converged):
            return super().forward(L, z)
        lam = L.eigenvalues
        if self.scaled:
            low, high = L.gershgorin()
            low = low.clamp(max=0)
            lam = (lam - low[..., None]) / (high - low)[..., None]
        learned = self.solver == "learned_cg"
        products = L.n if converged else self.power * (self.cg_steps - learned) * self.degree
        L.products += products
        L.passes += products
        if converged or learned:
            return _unit(self.response(lam)[..., None] * z)
        q = lam.new_zeros(())
        for a in self.coefficients.to(z.dtype).flip(-1).unbind(-1):  # Horner's rule
            q = (q + a[..., None]) * lam
        q = 1 + q[..., None]  # (*batch, n, 1)
        v = _unit(z)
        for _ in range(self.power):
            v = _unit(conjugate_gradients(lambda X: q * X, v, steps=self.cg_steps))
        return v


def to_eigenbasis(net: UnrolledLanczos) -> UnrolledLanczos:
    """Return a network with the same parameters that is fast on known spectra."""
    p = net.probe
    if type(p) is not InversePolynomialProbe:
        return net
    probe = EigenbasisProbe(p.degree, p.power, p.cg_steps, p.solver, p.scaled)
    twin = UnrolledLanczos(
        net.k, net.m, probe, reorthogonalize=net.reorthogonalize, gammas=net.gammas, literal=net.literal
    )
    twin.to(net.upsilon1.dtype).load_state_dict(net.state_dict())
    return twin


def _unit(v: Tensor) -> Tensor:
    return v / v.norm(dim=-2, keepdim=True)
