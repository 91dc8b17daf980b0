"""The commit of the code that a measurement was made with."""

from __future__ import annotations

import functools
import os
import subprocess
from pathlib import Path


@functools.cache
def code() -> tuple[str | None, bool | None]:
    """Return the git commit of laboratory and library and whether the source differs from it.

    ``(None, None)`` outside a checkout, and for a package that is installed inside somebody else's: the commit counts
    only where this very file is tracked. Asked once a process, as near as can be to when the code was loaded.
    """
    here = Path(__file__).resolve()
    sources = [str(folder) for folder in (here.parents[1], here.parents[3] / "src") if folder.is_dir()]
    if _git(here.parent, "ls-files", "--error-unmatch", here.name) is None:
        return None, None
    commit = _git(here.parent, "rev-parse", "HEAD")
    changes = _git(here.parent, "status", "--porcelain", "--", *sources)
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
