"""Networks as files: parameters in safetensors, configuration and card as JSON in its header. Nothing is executed."""

from __future__ import annotations

import json
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save as to_bytes
from torch import Tensor

from krylow._checks import InputError
from krylow.io import atomic as _files
from krylow.nn.probes import GaussianProbe, InversePolynomialProbe
from krylow.nn.root_probe import RootProbe

if TYPE_CHECKING:
    from krylow.nn.unrolled import UnrolledLanczos

FORMAT = "krylow-unrolled-lanczos-1"
#: The starts that a file may name: a file chooses among these, and nothing else is looked up.
PROBES = {probe.__name__: probe for probe in (GaussianProbe, InversePolynomialProbe, RootProbe)}
#: The options of a network that are numbers of parameters.
LENGTHS = ("m", "degree", "count")
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
    from krylow.nn.unrolled import UnrolledLanczos

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
