"""Many networks of one shape, run as one: their parameters stacked, every operation broadcast over them."""

from __future__ import annotations

import copy
from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.func import functional_call

from krylow._checks import InputError
from krylow.krylov.lanczos import Krylov
from krylow.krylov.ritz import ritz
from krylow.metrics import krylov_ceiling, subspace_error
from krylow.nn.unrolled import UnrolledLanczos
from krylow.operators import Operator
from krylow_lab.training.spectra import Spectra


class Population(nn.Module):
    """C networks of equal shape, whose parameters of shape ``(*d,)`` are stacked to ``(C, 1, *d)``.

    On an operator of batch shape ``(C, B)`` member c sees graphs ``[c, :]``. Every operation is elementwise over the
    members, so that each computes what it would compute alone.
    """

    def __init__(self, nets: Sequence[UnrolledLanczos]) -> None:
        super().__init__()
        configs = [_shape(net) for net in nets]
        if any(config != configs[0] for config in configs):
            raise InputError(f"the members of a population must have one shape, got {configs[0]} and others.")
        self.k, self.m = nets[0].k, nets[0].m
        self.names = [name for name, _ in nets[0].named_parameters()]
        members = [dict(net.named_parameters()) for net in nets]
        stacked = [torch.stack([member[name].detach() for member in members])[:, None] for name in self.names]
        self.stacked = nn.ParameterList([nn.Parameter(tensor.clone()) for tensor in stacked])  # (C, 1, *d) each
        # In a tuple, so that the template's own parameters are not taken for this module's.
        self._template = (_Recurrence(copy.deepcopy(nets[0]).requires_grad_(False)),)

    def __len__(self) -> int:
        return self.stacked[0].shape[0]

    def krylov(self, L: Operator, z: Tensor, members: Tensor | None = None) -> Krylov:
        """Return bases and coefficients, ``(C, B, ...)``, for random vectors ``(C, B, n, 1)``.

        ``members`` are the ``(C,)`` indices of those that are asked for; None: all.
        """
        chosen = self.stacked if members is None else [tensor[members] for tensor in self.stacked]
        parameters = {f"net.{name}": tensor for name, tensor in zip(self.names, chosen, strict=True)}
        return functional_call(self._template[0], parameters, (L, z))

    def errors(self, spectra: Spectra, z: Tensor, members: Tensor | None = None) -> Tensor:
        """Return the subspace errors ``(C, B)`` on spectra of batch shape ``(C, B)``, with a gradient."""
        basis = ritz(self.krylov(spectra.operator(), z, members), self.k)[1]
        return subspace_error(basis, spectra.target(self.k).expand(*basis.shape))

    @torch.no_grad()
    def measure(self, spectra: Spectra, z: Tensor) -> tuple[Tensor, Tensor]:
        """Return the errors, and the least errors that any extraction from the same bases could have, ``(C, B)``."""
        krylov = self.krylov(spectra.operator(), z)
        basis = ritz(krylov, self.k)[1]
        target = spectra.target(self.k).expand(*basis.shape)
        return subspace_error(basis, target), krylov_ceiling(krylov.V, target)

    def products(self, spectra: Spectra) -> int:
        """Return the products that a member spends on one graph, as its own operator counts them."""
        L = spectra.operator()
        with torch.no_grad():
            self.krylov(L, torch.ones(*L.batch_shape, L.n, 1, dtype=L.dtype))
        return L.products

    def member(self, c: int) -> UnrolledLanczos:
        """Return a copy of member c as a network of its own."""
        net = copy.deepcopy(self._template[0].net)
        net.load_state_dict({name: tensor[c, 0] for name, tensor in zip(self.names, self.stacked, strict=True)})
        return net.requires_grad_(True)


class _Recurrence(nn.Module):
    """What ``functional_call`` can call: the recurrence as a forward pass."""

    def __init__(self, net: UnrolledLanczos) -> None:
        super().__init__()
        self.net = net

    def forward(self, L: Operator, z: Tensor) -> Krylov:
        return self.net.krylov(L, z=z)


def _shape(net: UnrolledLanczos) -> dict[str, object]:
    """Return what members must agree on: everything but the parameters and what they started from."""
    config = net.config()
    return {**config, "probe": {key: value for key, value in config["probe"].items() if key not in ("low", "high")}}
