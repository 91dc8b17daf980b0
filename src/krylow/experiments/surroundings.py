"""What a measurement was made with: the code's commit, the packages' versions, the machine."""

from __future__ import annotations

import functools
import os
import platform
import subprocess
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch

PACKAGES = ("krylow", "torch", "numpy", "scipy")


@functools.cache
def code() -> tuple[str | None, bool | None]:
    """Return the git commit of the package's source and whether the source differs from it.

    ``(None, None)`` outside a checkout, and for a package that is installed inside somebody else's: the commit counts
    only where this very file is tracked. Asked once a process, as near as can be to when the code was loaded.
    """
    here = Path(__file__).resolve()
    package = here.parents[1]
    if _git(here.parent, "ls-files", "--error-unmatch", here.name) is None:
        return None, None
    commit = _git(here.parent, "rev-parse", "HEAD")
    changes = _git(here.parent, "status", "--porcelain", "--", str(package))
    return commit, None if changes is None else changes != ""


def _git(folder: Path, *arguments: str) -> str | None:
    """Return what git prints, or None where there is no git, no checkout or an error."""
    # A hook sets GIT_DIR and its like, which would point at the hook's repository instead of the package's.
    environment = {key: value for key, value in os.environ.items() if not key.startswith("GIT_")}
    try:
        done = subprocess.run(
            ["git", *arguments], cwd=folder, env=environment, capture_output=True, text=True, timeout=30, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()


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
    """Return what decides the speed, and nothing that tells whose machine it is: no host name, no user, no path."""
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
