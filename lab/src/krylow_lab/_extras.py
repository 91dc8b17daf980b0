"""How a missing package of the laboratory is installed, said the same way everywhere."""

from __future__ import annotations


def install_line(extra: str = "") -> str:
    """Return what to do to get the laboratory, or an extra of it.

    >>> install_line("glove")
    "pip install './lab[glove]' in a clone of krylow"
    """
    return f"pip install './lab{f'[{extra}]' if extra else ''}' in a clone of krylow"
