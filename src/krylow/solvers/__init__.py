"""The solvers: one method a file, each with its settings."""

from typing import Any

from krylow._checks import InputError, choice
from krylow.solvers._problem import Problem, Progress, Solver
from krylow.solvers.chebyshev import Chebyshev
from krylow.solvers.davidson import Davidson
from krylow.solvers.exact import Exact
from krylow.solvers.lanczos import Lanczos
from krylow.solvers.lobpcg import LOBPCG
from krylow.solvers.multigrid import Multilevel
from krylow.solvers.shift_invert import ShiftInvert
from krylow.solvers.thick_restart import ThickRestart
from krylow.solvers.unrolled import Unrolled

__all__ = [
    "LOBPCG",
    "Chebyshev",
    "Davidson",
    "Exact",
    "Lanczos",
    "Multilevel",
    "Problem",
    "Progress",
    "ShiftInvert",
    "Solver",
    "ThickRestart",
    "Unrolled",
]

#: The methods by name.
METHODS = (
    "exact",
    "lanczos",
    "unrolled",
    "thick_restart",
    "chebyshev",
    "multilevel",
    "davidson",
    "lobpcg",
    "shift_invert",
)


def solver_of(method: Any, m: int | None = None, weights: Any = None) -> Solver:
    """Return the solver of a method's name, with the settings that ``m`` and ``weights`` are shorthands for."""
    if isinstance(method, Solver):
        if m is not None or weights is not None:
            raise InputError(f"m and weights are settings of the solver, got them beside {method!r}.")
        return method
    name = choice(method, METHODS, "method")
    if weights is not None and name != "unrolled":
        raise InputError(f'weights are for method="unrolled", got method={method!r}.')
    made: dict[str, Solver] = {
        "exact": Exact(),
        "lanczos": Lanczos(m),
        "unrolled": Unrolled(weights, m),
        "thick_restart": ThickRestart(m),
        "chebyshev": Chebyshev(m),
        "multilevel": Multilevel(m),
        "davidson": Davidson(m),
        "lobpcg": LOBPCG(m),
        "shift_invert": ShiftInvert(m),
    }
    return made[name]
