"""krylow: ideal low-pass graph filtering without the eigendecomposition.

Names are loaded when first used, so that ``import krylow`` and the command line start at once.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from krylow import data, distributed, losses, metrics, nn, operators, plot, responses, solvers
    from krylow._checks import InputError
    from krylow.api import lowpass, subspace
    from krylow.certificate import Certificate, Status
    from krylow.cuts import Fiedler, Partition, fiedler, partition
    from krylow.density import SpectralDensity, spectral_density
    from krylow.distances import diffusion_distance, effective_resistance
    from krylow.encoding import Encoded, encode
    from krylow.filtering import Filtered, filter, filtered
    from krylow.graph import laplacian
    from krylow.nn import load
    from krylow.result import Subspace

__version__ = "0.2.0"

_HOME = {
    "Certificate": "krylow.certificate",
    "Encoded": "krylow.encoding",
    "Fiedler": "krylow.cuts",
    "Filtered": "krylow.filtering",
    "InputError": "krylow._checks",
    "Partition": "krylow.cuts",
    "SpectralDensity": "krylow.density",
    "Status": "krylow.certificate",
    "Subspace": "krylow.result",
    "diffusion_distance": "krylow.distances",
    "effective_resistance": "krylow.distances",
    "encode": "krylow.encoding",
    "fiedler": "krylow.cuts",
    "filter": "krylow.filtering",
    "filtered": "krylow.filtering",
    "laplacian": "krylow.graph",
    "load": "krylow.nn",
    "lowpass": "krylow.api",
    "partition": "krylow.cuts",
    "spectral_density": "krylow.density",
    "subspace": "krylow.api",
}
_MODULES = ("data", "distributed", "losses", "metrics", "nn", "operators", "plot", "responses", "solvers")

__all__ = [
    "Certificate",
    "Encoded",
    "Fiedler",
    "Filtered",
    "InputError",
    "Partition",
    "SpectralDensity",
    "Status",
    "Subspace",
    "data",
    "diffusion_distance",
    "distributed",
    "effective_resistance",
    "encode",
    "fiedler",
    "filter",
    "filtered",
    "laplacian",
    "load",
    "losses",
    "lowpass",
    "metrics",
    "nn",
    "operators",
    "partition",
    "plot",
    "responses",
    "solvers",
    "spectral_density",
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
