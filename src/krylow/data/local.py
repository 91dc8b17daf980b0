"""Where data lies on this machine: the user's own folder first, then a cache for what is downloaded.

=====================  ==========================================================================================
``$KRYLOW_DATA``       a folder of data sets, one sub-folder each; read first, never written to
``$XDG_CACHE_HOME``    downloads go to its sub-folder ``krylow`` (``~/.cache/krylow`` where it is not set)
=====================  ==========================================================================================
"""

from __future__ import annotations

import os
from pathlib import Path

from krylow._checks import InputError

#: The environment variable that names the folder of local data.
VARIABLE = "KRYLOW_DATA"


class DataNotFoundError(FileNotFoundError):
    """Raised where data is neither local nor can be fetched, with the files expected, the folder and what to do."""


def data_folder() -> Path | None:
    """Return the folder that ``KRYLOW_DATA`` names, or None where it is not set."""
    value = os.environ.get(VARIABLE, "")
    if not value:
        return None
    folder = Path(value).expanduser()
    if not folder.is_dir():
        raise InputError(
            f"{VARIABLE} must name a folder of data sets, got {value!r}, which is none: correct or unset it."
        )
    return folder


def cache_folder() -> Path:
    """Return the folder that downloads are kept in; it need not exist yet."""
    base = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(base) if base else Path.home() / ".cache") / "krylow"


def find_folder(name: str, files: tuple[str, ...]) -> Path | None:
    """Return the folder that holds all ``files`` of the data set ``name``, the user's before the cache's, or None."""
    roots = [root for root in (data_folder(), cache_folder()) if root is not None]
    for root in roots:
        for folder in (root / name, root / name / "raw"):  # flat, or as PyG lays it out
            if all((folder / file).is_file() for file in files):
                return folder
    return None
