"""What is installed and on what machine: versions, processor, and how a missing extra is installed."""

from __future__ import annotations

import functools
import os
import platform
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

PACKAGES = ("krylow", "torch", "numpy", "scipy")


def versions() -> dict[str, str | None]:
    """Return the versions of Python and of the packages that decide the numbers."""
    found: dict[str, str | None] = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = None
    return found


def machine() -> dict[str, Any]:
    """Return what decides the speed, and nothing that shows whose machine it is: no host name, no user, no path."""
    import torch

    return {
        "cpu": _cpu_name(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "memory_gib": _memory_gib(),
        "gpu": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
        "system": f"{platform.system()} {platform.machine()}",
    }


@functools.cache
def _cpu_name() -> str | None:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or None


def _memory_gib() -> float | None:
    try:
        return round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1)
    except (AttributeError, OSError, ValueError):
        return None


def install_line(extra: str) -> str:
    """Return what to do to get an extra. The package is on no index yet, so that a clone has to be there.

    >>> install_line("pyg")
    "pip install '.[pyg]' in a clone of krylow"
    """
    return f"pip install '.[{extra}]' in a clone of krylow"
