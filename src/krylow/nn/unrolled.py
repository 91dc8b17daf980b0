"""The paper's network: a learned probe, m relaxed Lanczos steps, the k lowest Ritz vectors; and networks as files.

A file holds parameters in safetensors, with configuration and card as JSON in its header. Nothing in it is executed.
"""

from __future__ import annotations

import json
from dataclasses import replace
from os import PathLike
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save as to_bytes
from torch import Tensor, nn

from krylow import _checks
from krylow._checks import InputError
from krylow._random import gaussian
from krylow.graph import as_operator, operator_and_note
from krylow.io import atomic
from krylow.krylov.lanczos import Krylov, lanczos
from krylow.krylov.probe import power_of_two, rescaled
from krylow.krylov.relaxed import relaxed_lanczos
from krylow.krylov.restart import implicit_restart
from krylow.krylov.ritz import ritz
from krylow.nn.probes import GaussianProbe, InversePolynomialProbe, Probe, RootProbe
from krylow.operators import DiagonalOperator, Operator
from krylow.result import Subspace

FORMAT = "krylow-unrolled-lanczos-1"
#: The starts that a file may name: a file chooses among these, and nothing else is looked up.
PROBES = {probe.__name__: probe for probe in (GaussianProbe, InversePolynomialProbe, RootProbe)}
#: The options of a network that are numbers of parameters.
LENGTHS = ("m", "degree", "count")
#: The most layers: parameters of far more would only be an allocation that fails.
MOST_STEPS = 10**7
SHIPPED = Path(__file__).parent.parent / "weights"
#: The parametrisations of the gammas, and where each starts.
FIRST_UPSILON = {"square": 0.01, "sigmoid": 7.0}


class UnrolledLanczos(nn.Module):
    r"""The unrolled Lanczos network for the subspace of the k lowest graph frequencies.

    $$v_1 = \mathrm{probe}(L, z), \qquad
    r_j = L v_j - \gamma^{(1)}_j \alpha_j v_j - \gamma^{(2)}_j \beta_{j-1} v_{j-1}, \quad j = 1, \ldots, m,$$

    with $\gamma^{(1)}_j = 1 - (\upsilon^{(1)}_j)^2 \le 1$ and $\gamma^{(2)}_j = 1 + (\upsilon^{(2)}_j)^2 \ge 1$ (or as
    ``gammas`` says), then the k lowest eigenvectors of the relaxed $T_m$, through its symmetric form. At $\upsilon = 0$
    it is classical Lanczos. Costs m products and the probe's.

    The recurrence runs on an orthonormal Krylov basis, and a graph where its correction of the last step is larger than
    L itself takes classical steps (:func:`krylow.krylov.relaxed.relaxed_lanczos`): the error falls with m as classical
    Lanczos's does, up to m = n.

    Parameters
    ----------
    k
        Kept frequencies.
    m
        Layers. None: 2 k, as in the paper.
    probe
        The start; None: :class:`InversePolynomialProbe` with its defaults.
    init
        First value of every $\upsilon$. Their gradient at exactly 0 is 0: start slightly off to train them. None: .01,
        or 7 with ``gammas="sigmoid"``.
    reorthogonalize
        Classical steps with full reorthogonalisation, the gammas held at 1. A start that is filtered well lies nearly
        in a space of k dimensions, where the plain recurrence loses its orthogonality within 2 k steps; the roots of a
        :class:`~krylow.nn.RootProbe` are then applied as shifts of implicit restarts, which needs no such start.
    gammas
        "square", the paper's parametrisation above; or "sigmoid", $\gamma^{(1)}_j = \sigma(\upsilon^{(1)}_j) < 1$ and
        $\gamma^{(2)}_j = 1 + \log(1 + e^{\upsilon^{(2)}_j}) > 1$, which a public code by the paper's first author has.
        There $\upsilon^{(1)}$ starts at ``init`` and $\upsilon^{(2)}$ at its negative: within .001 of 1 at 7.
    literal
        The paper's recurrence on the nodes themselves, as it is written. Beyond about 2 k steps any gamma other than 1
        makes its error grow with m, and so does rounding at 1. Makes no difference with ``reorthogonalize``.

    Shapes
    ------
    The input is an operator, or a symmetric matrix, of shape ``(*batch, n, n)``; the output a
    :class:`~krylow.result.Subspace` with basis ``(*batch, n, k)``, differentiable through its span.

    Examples
    --------
    >>> import krylow as kl
    >>> net = UnrolledLanczos(k=2, m=4)
    >>> net(kl.laplacian(torch.ones(5, 5) - torch.eye(5))).basis.shape
    torch.Size([5, 2])
    """

    def __init__(
        self,
        k: int,
        m: int | None = None,
        probe: Probe | None = None,
        *,
        init: float | None = None,
        reorthogonalize: bool = False,
        gammas: str = "square",
        literal: bool = False,
    ) -> None:
        super().__init__()
        self.k = _checks.count(k, "k")
        self.m = _checks.count(2 * self.k if m is None else m, "m")
        if not self.k <= self.m <= MOST_STEPS:
            raise InputError(f"m must be between k = {self.k} and {MOST_STEPS} steps, got {self.m}.")
        self.probe = InversePolynomialProbe() if probe is None else probe
        if not isinstance(self.probe, Probe):
            raise InputError(f"probe must be a krylow.nn.Probe, got {probe!r}.")
        self.gammas = _checks.choice(gammas, tuple(FIRST_UPSILON), "gammas")
        init = FIRST_UPSILON[gammas] if init is None else _checks.number(init, "init")
        if abs(init) > torch.finfo(torch.get_default_dtype()).max:
            raise InputError(f"init must be a finite number of {torch.get_default_dtype()}, got {init}.")
        self.upsilon1 = nn.Parameter(torch.full((self.m,), init))
        self.upsilon2 = nn.Parameter(torch.full((self.m,), init if gammas == "square" else -init))
        self.reorthogonalize = _checks.flag(reorthogonalize, "reorthogonalize")
        self.literal = _checks.flag(literal, "literal")

    @property
    def gamma1(self) -> Tensor:
        """``(m,)``, at most 1."""
        if self.gammas == "sigmoid":
            return self.upsilon1.sigmoid()
        return 1 - self.upsilon1.square()

    @property
    def gamma2(self) -> Tensor:
        """``(m,)``, at least 1; the first one multiplies nothing."""
        if self.gammas == "sigmoid":
            return 1 + nn.functional.softplus(self.upsilon2)
        return 1 + self.upsilon2.square()

    def krylov(self, L: Any, *, z: Tensor | None = None, generator: torch.Generator | None = None) -> Krylov:
        """Return the basis and coefficients alone, which is all that the theory loss needs.

        Parameters
        ----------
        L
            As in :func:`krylow.subspace`.
        z
            ``(*batch, n, 1)`` random vector. None: Gaussian, from ``generator``.
        generator
            Source of z. None: the same z at every call, so that evaluation is deterministic; pass one to train.
        """
        L = as_operator(L)
        factor = power_of_two(L)
        found = self._krylov(L, factor, z, generator)
        if factor is None:
            return found
        alpha, beta = (x / factor[..., None] for x in (found.alpha, found.beta))
        return replace(found, alpha=alpha, beta=beta, residual=found.residual / factor[..., None, None])

    def _krylov(
        self, L: Operator, factor: Tensor | None, z: Tensor | None, generator: torch.Generator | None
    ) -> Krylov:
        """Return the basis and coefficients of L times ``factor``; None: of L."""
        whole, L = L, L if factor is None else rescaled(L, factor)
        z = gaussian(L, 1, generator=generator) if z is None else z
        z = z if L.mask is None else z * L.mask[..., None]  # a padding node is no part of the graph
        shifts = self.probe.shifts(whole) if self.reorthogonalize and self.m > self.k else None
        if shifts is not None and not isinstance(whole, DiagonalOperator):  # on a diagonal the product loses nothing
            return implicit_restart(L, z, self.k, self.m, shifts if factor is None else factor[..., None] * shifts)
        start = self.probe(L if self.probe.scale_invariant else whole, z)
        if self.reorthogonalize:
            return lanczos(L, start, self.m, reorthogonalize=True)
        gamma1, gamma2 = self.gamma1.to(L.dtype), self.gamma2.to(L.dtype)
        if self.literal:
            return lanczos(L, start, self.m, gamma1=gamma1, gamma2=gamma2)
        return relaxed_lanczos(L, start, self.m, gamma1, gamma2)

    def forward(self, L: Any, *, z: Tensor | None = None, generator: torch.Generator | None = None) -> Subspace:
        """Return the subspace; arguments as in :meth:`krylov`."""
        L, note = operator_and_note(L)
        steps = f"{self.m} relaxed steps from {type(self.probe).__name__}" + ("" if L.psd else _shifted(L))
        factor = power_of_two(L)
        with L.counted_separately():
            products, passes = L.products, L.passes
            theta, basis, _ = ritz(self._krylov(L, factor, z, generator), self.k)
            products, passes = L.products - products, L.passes - passes
        return Subspace(
            basis=basis,
            ritz_values=theta if factor is None else theta / factor[..., None],
            operator=L,
            products=products,
            passes=passes,
            method="unrolled",
            why=f"{note}; {steps}" if note else steps,
            tol=1e-3,
        )

    def config(self) -> dict[str, Any]:
        """Return the arguments that build the same network, for saving."""
        probe = {"type": type(self.probe).__name__, **self.probe.config()}
        options = {"reorthogonalize": self.reorthogonalize, "gammas": self.gammas, "literal": self.literal}
        return {"k": self.k, "m": self.m, **options, "probe": probe}

    def save(self, path: str | PathLike[str], *, card: dict[str, Any] | None = None) -> None:
        """Write the parameters and the configuration to one safetensors file, whole or not at all."""
        header = {"format": FORMAT, "config": json.dumps(self.config()), "card": json.dumps(card or {})}
        tensors = {name: tensor.detach().contiguous() for name, tensor in self.state_dict().items()}
        atomic.write_whole(path, to_bytes(tensors, metadata=header))

    def extra_repr(self) -> str:
        """Return k and m."""
        return f"k={self.k}, m={self.m}"


def _shifted(L: Any) -> str:
    low = 0.0 if _checks.traced() else float(L.gershgorin()[0].detach().min())
    return f"; L may be indefinite, so the probe shifted it by {-low:.3g} (Gershgorin)" if low < 0 else ""


def load(name: str | PathLike[str]) -> UnrolledLanczos:
    """Return a trained network, by the name of one that is shipped or by the path of a saved one.

    The card (data, loss, seeds, test error, products) is at ``net.card``.
    """
    path = _find(name)
    try:
        with safe_open(path, framework="pt") as file:
            header = file.metadata() or {}
            tensors = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118 (not a dict)
    except (SafetensorError, OSError) as error:
        raise InputError(f"{path} is not a whole safetensors file ({error}): save the network again.") from error
    if header.get("format") != FORMAT:
        raise InputError(
            f"{path} must hold a krylow network ({FORMAT}), got format {header.get('format')!r}: "
            "write it with net.save(path)."
        )
    try:
        config = json.loads(header["config"])
        _check_lengths(config, tensors)
        with torch.device("meta"):  # shapes without memory: a few bytes can declare any
            _check_shapes(_build(config), tensors)
        net = _build(config)
        net.to(tensors["upsilon1"].dtype)
        net.load_state_dict(tensors)
        net.card = json.loads(header.get("card", "{}"))
    except (KeyError, TypeError, RuntimeError, ValueError) as error:
        raise InputError(f"{path} holds a configuration that does not fit its parameters: {error}") from error
    bad = [key for key, tensor in tensors.items() if not torch.isfinite(tensor).all()]
    if bad:
        raise InputError(
            f"{path} must hold finite parameters, got NaN or infinite ones in {', '.join(bad)}: train again."
        )
    return net


def _build(config: dict[str, Any]) -> UnrolledLanczos:
    of_probe = dict(config["probe"])
    probe = PROBES[of_probe.pop("type")](**of_probe)
    return UnrolledLanczos(
        config["k"],
        config["m"],
        probe,
        reorthogonalize=config.get("reorthogonalize", False),
        gammas=config.get("gammas", "square"),
        literal=config.get("literal", True),  # what files without the key were written for
    )


def _check_lengths(config: dict[str, Any], tensors: dict[str, Tensor]) -> None:
    """Refuse lengths beyond all that the file holds: to build such a network takes time and memory without end."""
    held = sum(tensor.numel() for tensor in tensors.values())
    for option, value in {"m": config["m"], **dict(config["probe"])}.items():
        if option in LENGTHS and isinstance(value, int) and value > held:
            raise ValueError(f"{option} = {value} where the file holds {held} numbers")


def _check_shapes(net: UnrolledLanczos, tensors: dict[str, Tensor]) -> None:
    for key, tensor in net.state_dict().items():
        if key not in tensors or tensors[key].shape != tensor.shape:
            got = tuple(tensors[key].shape) if key in tensors else "nothing"
            raise ValueError(f"{key} must have shape {tuple(tensor.shape)}, got {got}")


def _find(name: str | PathLike[str]) -> Path:
    shipped = {p.stem: p for p in sorted(SHIPPED.glob("*.safetensors"))}
    if str(name) in shipped:
        return shipped[str(name)]
    path = Path(name)
    if not path.is_file():
        known = ", ".join(shipped) or "none"
        raise InputError(f"no trained network and no file is called {str(name)!r}. Shipped networks: {known}.")
    return path
