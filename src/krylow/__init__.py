"""krylow: ideal low-pass graph filtering without the eigendecomposition.

Names are loaded when first used, so that ``import krylow`` and the command line start at once.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from krylow import data, losses, metrics, nn, operators
    from krylow._checks import InputError
    from krylow.certify import Certificate, Status, Subspace
    from krylow.graph import laplacian
    from krylow.methods import lowpass, subspace
    from krylow.nn import load

__version__ = "0.1.0"

_HOME = {
    "Certificate": "krylow.certify",
    "InputError": "krylow._checks",
    "Status": "krylow.certify",
    "Subspace": "krylow.certify",
    "laplacian": "krylow.graph",
    "load": "krylow.nn",
    "lowpass": "krylow.methods",
    "subspace": "krylow.methods",
}
_MODULES = ("data", "losses", "metrics", "nn", "operators")

__all__ = [
    "Certificate",
    "InputError",
    "Status",
    "Subspace",
    "data",
    "laplacian",
    "load",
    "losses",
    "lowpass",
    "metrics",
    "nn",
    "operators",
    "subspace",
]


def __getattr__(name: str) -> Any:
    if name in _HOME:
        value = getattr(import_module(_HOME[name]), name)
    elif name in _MODULES:
        value = import_module(f"krylow.{name}")
    else:
        raise AttributeError(f"module 'krylow' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
