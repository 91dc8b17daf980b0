"""Writing files so that they appear whole or not at all."""

from __future__ import annotations

import contextlib
import os
import secrets
from pathlib import Path


def write_whole(path: str | os.PathLike[str], data: bytes | str) -> Path:
    """Write ``data`` to ``path`` such that a reader sees the old file or the new one, never a part of either.

    The data goes to a hidden file in the same folder, is flushed to the disk, and takes the place of ``path`` in one
    step. Whatever interrupts the writing leaves ``path`` as it was.

    Parameters
    ----------
    path
        The file to write, in a folder that exists. A symbolic link is followed.
    data
        Its content. Text is written as UTF-8, line ends as they are.

    Returns
    -------
    Path
        ``path``.
    """
    target = Path(os.path.realpath(path))
    # Not tempfile: its files are private to the user, and a result is to get the permissions any other file gets.
    partial = target.with_name(f".{target.name}.{secrets.token_hex(6)}.tmp")
    try:
        with open(partial, "xb") as file:
            file.write(data.encode() if isinstance(data, str) else data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(partial, target)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise
    _sync_folder(target.parent)
    return Path(path)


def _sync_folder(folder: Path) -> None:
    """Make the new name survive a power cut, on the systems where a folder can be flushed."""
    with contextlib.suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
