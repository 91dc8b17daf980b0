"""How a missing extra is installed, said the same way everywhere."""

from __future__ import annotations


def install_line(extra: str) -> str:
    """Return what to do to get an extra. The package is on no index yet, so that a clone has to be there.

    >>> install_line("pyg")
    "pip install '.[pyg]' in a clone of krylow"
    """
    return f"pip install '.[{extra}]' in a clone of krylow"
