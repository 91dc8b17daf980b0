"""Writing files so that they appear whole or not at all, without leftovers."""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import BinaryIO

fcntl: ModuleType | None  # None on Windows
try:
    import fcntl
except ImportError:  # pragma: no cover
    fcntl = None

#: Names of unfinished files; not made from the target's, which may already have the largest possible length.
PREFIX, SUFFIX = ".krylow-", ".tmp"


def write_whole(path: str | os.PathLike[str], data: bytes | str) -> Path:
    """Write ``data`` to ``path`` such that a reader sees the old file or the new one, never a part of either.

    The data goes to a hidden file in the same folder, is flushed to the disk, and replaces ``path`` in one step. An
    interrupted write leaves ``path`` as it was. The hidden file of a killed process is removed by the next write into
    the folder: its lock, which a running writer holds, is free.

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
    content = data.encode() if isinstance(data, str) else data
    if target.exists() and not target.is_file() and not target.is_dir():
        target.write_bytes(content)  # a device or a pipe, which no file may replace
        return Path(path)
    with whole_file(path) as file:
        file.write(content)
    return Path(path)


@contextlib.contextmanager
def whole_file(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """Open a file that appears at ``path``, as :func:`write_whole` writes it, when the block ends without an error."""
    target = Path(os.path.realpath(path))
    try:
        _remove_abandoned(target.parent)
        with _unfinished(target.parent) as (file, partial):
            yield file
            file.flush()
            os.fsync(file.fileno())
            if fcntl is None:  # pragma: no cover (Windows cannot rename an open file)
                file.close()
            os.replace(partial, target)
    except OSError as error:
        error.filename, error.filename2 = str(path), None  # not the hidden file's
        raise


def check_folder(folder: str | os.PathLike[str]) -> None:
    """Raise the ``OSError`` of a folder in which no file can be written."""
    with _unfinished(Path(folder)):
        pass


def _remove_abandoned(folder: Path) -> None:
    """Remove the unfinished files of killed writers."""
    if fcntl is None:  # pragma: no cover (without locks, running and killed writers look alike)
        return
    with contextlib.suppress(OSError):
        for partial in folder.glob(f"{PREFIX}*{SUFFIX}"):
            with contextlib.suppress(OSError), open(partial, "rb") as file:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)  # an error while its writer runs
                partial.unlink()


@contextlib.contextmanager
def _unfinished(folder: Path) -> Iterator[tuple[BinaryIO, Path]]:
    """Open a hidden file that is locked, and removed unless it is renamed."""
    while True:
        # Not tempfile, whose files are private to the user: a result gets the permissions of any other file.
        partial = folder / f"{PREFIX}{secrets.token_hex(8)}{SUFFIX}"
        try:
            with open(partial, "xb") as file:
                if fcntl is not None:
                    with contextlib.suppress(OSError):  # a file system without locks: no other writer gets one either
                        fcntl.flock(file, fcntl.LOCK_EX)
                # Before it was locked, another writer may have removed it as abandoned.
                if fcntl is None or os.fstat(file.fileno()).st_nlink > 0:
                    yield file, partial
                    return
        finally:
            partial.unlink(missing_ok=True)
