"""Networks as files: parameters in safetensors, configuration and card as JSON in its header. Nothing is executed."""

from __future__ import annotations

import json
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from safetensors import SafetensorError, safe_open
from safetensors.torch import save as to_bytes

from krylow import _files
from krylow._checks import InputError
from krylow.nn.probes import GaussianProbe, InversePolynomialProbe
from krylow.nn.root_probe import RootProbe

if TYPE_CHECKING:
    from krylow.nn.unrolled import UnrolledLanczos

FORMAT = "krylow-unrolled-lanczos-1"
#: The starts that a file may name: a file chooses among these, and nothing else is looked up.
PROBES = {probe.__name__: probe for probe in (GaussianProbe, InversePolynomialProbe, RootProbe)}
SHIPPED = Path(__file__).parent.parent / "weights"


def save(net: UnrolledLanczos, path: str | PathLike[str], *, card: dict[str, Any] | None = None) -> None:
    """Write ``net`` to ``path``, whole or not at all."""
    header = {"format": FORMAT, "config": json.dumps(net.config()), "card": json.dumps(card or {})}
    tensors = {name: tensor.detach().contiguous() for name, tensor in net.state_dict().items()}
    _files.write_whole(path, to_bytes(tensors, metadata=header))


def load(name: str | PathLike[str]) -> UnrolledLanczos:
    """Return a trained network, by the name of one that is shipped or by the path of a saved one.

    The card (data, loss, seeds, test error, products) is at ``net.card``.
    """
    from krylow.nn.unrolled import UnrolledLanczos

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
        probe_config = dict(config["probe"])
        probe = PROBES[probe_config.pop("type")](**probe_config)
        options = {"reorthogonalize": bool(config.get("reorthogonalize", False))}
        net = UnrolledLanczos(config["k"], config["m"], probe, **options, gammas=config.get("gammas", "square"))
        net.to(tensors["upsilon1"].dtype)
        net.load_state_dict(tensors)
        net.card = json.loads(header.get("card", "{}"))
    except (KeyError, TypeError, RuntimeError, ValueError) as error:
        raise InputError(f"{path} holds a configuration that does not fit its parameters: {error}") from error
    return net


def _find(name: str | PathLike[str]) -> Path:
    shipped = {p.stem: p for p in sorted(SHIPPED.glob("*.safetensors"))}
    if str(name) in shipped:
        return shipped[str(name)]
    path = Path(name)
    if not path.is_file():
        known = ", ".join(shipped) or "none"
        raise InputError(f"no trained network and no file is called {str(name)!r}. Shipped networks: {known}.")
    return path
