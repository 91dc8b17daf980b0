"""krylow: ideal low-pass graph filtering without the eigendecomposition.

Names are loaded when first used, so that ``import krylow`` and the command line start at once.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from krylow import data, losses, metrics, nn, operators, solvers
    from krylow._checks import InputError
    from krylow.api import lowpass, subspace
    from krylow.certificate import Certificate, Status
    from krylow.cuts import Fiedler, Partition, fiedler, partition
    from krylow.distances import effective_resistance
    from krylow.graph import laplacian
    from krylow.nn import load
    from krylow.result import Subspace

__version__ = "0.2.0"

_HOME = {
    "Certificate": "krylow.certificate",
    "Fiedler": "krylow.cuts",
    "InputError": "krylow._checks",
    "Partition": "krylow.cuts",
    "Status": "krylow.certificate",
    "Subspace": "krylow.result",
    "effective_resistance": "krylow.distances",
    "fiedler": "krylow.cuts",
    "laplacian": "krylow.graph",
    "load": "krylow.nn",
    "lowpass": "krylow.api",
    "partition": "krylow.cuts",
    "subspace": "krylow.api",
}
_MODULES = ("data", "losses", "metrics", "nn", "operators", "solvers")

__all__ = [
    "Certificate",
    "Fiedler",
    "InputError",
    "Partition",
    "Status",
    "Subspace",
    "data",
    "effective_resistance",
    "fiedler",
    "laplacian",
    "load",
    "losses",
    "lowpass",
    "metrics",
    "nn",
    "operators",
    "partition",
    "solvers",
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
