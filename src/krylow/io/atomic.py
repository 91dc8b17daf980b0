"""Writing files so that they appear whole or not at all, and leave nothing else behind."""

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

#: How unfinished files are called; not by their target, whose name may be as long as a name can be.
PREFIX, SUFFIX = ".krylow-", ".tmp"


def write_whole(path: str | os.PathLike[str], data: bytes | str) -> Path:
    """Write ``data`` to ``path`` such that a reader sees the old file or the new one, never a part of either.

    The data goes to a hidden file in the same folder, is flushed to the disk, and takes the place of ``path`` in one
    step. Whatever interrupts the writing leaves ``path`` as it was. A process that is killed cannot remove its hidden
    file: the next write into the folder does, since the lock that a living writer holds is free then.

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
    if target.exists() and not target.is_file() and not target.is_dir():
        return _write_through(target, path, data)
    try:
        remove_abandoned(target.parent)
        with _unfinished(target.parent) as (file, partial):
            file.write(data.encode() if isinstance(data, str) else data)
            file.flush()
            os.fsync(file.fileno())
            if fcntl is None:  # pragma: no cover (Windows renames no open file)
                file.close()
            os.replace(partial, target)
    except OSError as error:
        if error.filename is None or PREFIX in str(error.filename):  # what the user knows is the target
            error.filename, error.filename2 = str(path), None
        raise
    _sync_folder(target.parent)
    return Path(path)


def _write_through(target: Path, path: str | os.PathLike[str], data: bytes | str) -> Path:
    """Write to a device or a pipe, whose place no file may take."""
    try:
        with open(target, "wb") as file:
            file.write(data.encode() if isinstance(data, str) else data)
    except OSError as error:
        error.filename = str(path)
        raise
    return Path(path)


def check_folder(folder: str | os.PathLike[str]) -> None:
    """Raise the ``OSError`` of a folder in which no file can be written."""
    with _unfinished(Path(folder)):
        pass


def remove_abandoned(folder: Path) -> None:
    """Remove the unfinished files of writers that were killed."""
    if fcntl is None:  # pragma: no cover (no lock tells the dead from the living)
        return
    with contextlib.suppress(OSError):
        names = [name for name in os.listdir(folder) if name.startswith(PREFIX) and name.endswith(SUFFIX)]
        for name in names:
            with contextlib.suppress(OSError), open(folder / name, "rb") as file:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)  # an error while its writer lives
                (folder / name).unlink()


@contextlib.contextmanager
def _unfinished(folder: Path) -> Iterator[tuple[BinaryIO, Path]]:
    """Open a hidden file that is locked, and removed unless it is renamed."""
    while True:
        # Not tempfile: its files are private to the user, and a result is to get the permissions any other file gets.
        partial = folder / f"{PREFIX}{secrets.token_hex(8)}{SUFFIX}"
        try:
            with open(partial, "xb") as file:
                if _locked(file):
                    yield file, partial
                    return
        finally:
            partial.unlink(missing_ok=True)


def _locked(file: BinaryIO) -> bool:
    """Lock a new file, and tell whether it is still there: another writer may have taken it for an abandoned one."""
    if fcntl is not None:
        with contextlib.suppress(OSError):  # a file system without locks: nobody else gets one either
            fcntl.flock(file, fcntl.LOCK_EX)
        return os.fstat(file.fileno()).st_nlink > 0
    return True  # pragma: no cover


def _sync_folder(folder: Path) -> None:
    """Make the new name survive a power cut, on the systems where a folder can be flushed."""
    with contextlib.suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
