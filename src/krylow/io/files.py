"""Files of any kind: their suffixes, reading within a limit of memory, and writing of results."""

from __future__ import annotations

import gzip
import io
import os
import stat
import zipfile
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np

from krylow._checks import InputError
from krylow.io import atomic

#: Limits of memory: multiples of the file's size and of a packed file's, and the bytes that are always allowed.
GROWTH, UNPACKED, FLOOR = 10, 20, 64 << 20


@dataclass(frozen=True)
class Limit:
    """The most memory, ``size`` bytes, that reading the file ``what`` may take: checked before it is allocated."""

    what: str
    size: int

    def check(self, needed: int, why: str) -> None:
        """Refuse a file that needs more."""
        if needed > self.size:
            raise InputError(
                f"{self.what} must not need more memory than its size explains, got {why}: {_in_words(needed)} where "
                f"{_in_words(self.size)} are allowed. If it is meant, allow more (max_size, --max-size)."
            )


def limit_of(what: str, size: int, max_size: int | None, times: int = GROWTH) -> Limit:
    """Return the limit of a file of ``size`` bytes: ``max_size``, else so many times its size."""
    return Limit(what, max(times * size, FLOOR) if max_size is None else max_size)


def size_of(text: str | int | None, what: str = "max_size") -> int | None:
    """Return a number of bytes, given as a number or as text with a unit.

    >>> size_of("1.5k"), size_of(7), size_of("2 GB")
    (1536, 7, 2147483648)
    """
    if text is None:
        return None
    given = str(text).strip().lower().removesuffix("b").removesuffix("i").strip()
    unit = given[-1:] if given[-1:].isalpha() else ""
    try:
        size = float(given.removesuffix(unit)) * {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}[unit]
        if isinstance(text, bool) or not 1 <= size < 2**63:
            raise ValueError
    except (ValueError, KeyError):
        raise InputError(f"{what} must be a number of bytes, such as 500M or 4G, got {text!r}.") from None
    return int(size)


def _in_words(size: int) -> str:
    """Return a number of bytes with a unit.

    >>> _in_words(300), _in_words(3 << 29)
    ('300 bytes', '1.5 GiB')
    """
    if size < 1 << 10:
        return f"{size} bytes"
    unit = min((size.bit_length() - 1) // 10, 5)
    return f"{min(size, 1 << 99) / (1 << 10 * unit):.3g} {'KMGTP'[unit - 1]}iB"


def kind_of(path: Path) -> str:
    """Return the suffix that decides the file's type, in lower case and without ``.gz``."""
    return (path.with_suffix("") if path.suffix.lower() == ".gz" else path).suffix.lower()


def suffix(path: Path, known: tuple[str, ...], what: str) -> str:
    """Return the suffix that decides the file's type, or refuse one that is not known."""
    kind = kind_of(path)
    if kind not in known:
        raise InputError(f"{what} must be a file of type {', '.join(known)}, got {path.name!r}.")
    if path.suffix.lower() == ".gz" and kind in (".npy", ".npz"):
        raise InputError(f"{what} as {kind} must not be gzipped, got {path.name!r}: unpack it first.")
    return kind


def read_bytes(path: Path, max_size: int | None = None) -> bytes:
    """Return a file's content, unpacked where its name ends with ``.gz``.

    Without ``max_size`` a regular file may have any number of bytes, a packed one 20 times its own, and a device or
    pipe, which has no size, 1 GiB.
    """
    try:
        with open(path, "rb") as file:
            status = os.fstat(file.fileno())
            size = status.st_size if stat.S_ISREG(status.st_mode) else 1 << 30
            if path.suffix.lower() == ".gz":
                return _unpacked(file, limit_of(path.name, size, max_size, UNPACKED))
            limit = Limit(path.name, size if max_size is None else max_size)
            limit.check(status.st_size, "a file of so many bytes")
            return _whole(file, limit)
    except OSError as error:
        raise InputError(f"cannot read {str(path)!r}: {error.strerror}.") from None


def _unpacked(file: IO[bytes], limit: Limit) -> bytes:
    try:
        return _whole(gzip.GzipFile(fileobj=file), limit)
    except (OSError, EOFError, zlib.error) as error:
        raise InputError(f"{limit.what} must be a whole gzip file: {error}.") from None


def _whole(file: IO[bytes] | gzip.GzipFile, limit: Limit) -> bytes:
    content = bytearray()
    while piece := file.read(1 << 20):
        content += piece
        if len(content) > limit.size:
            limit.check(len(content), "content of more bytes than that")
    return bytes(content)


def archive_size(content: bytes, what: str, max_size: int | None) -> int:
    """Return the unpacked size of the arrays of an ``.npz`` by its directory, or the size of what is no archive."""
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            size = sum(member.file_size for member in archive.infolist())
    except Exception:  # the reader reports any damage
        return len(content)
    limit_of(what, len(content), max_size, UNPACKED).check(size, "arrays that unpack to more than that")
    return size


def decode(content: bytes, what: str) -> str:
    """Return the text of a file."""
    if b"\0" in content:
        raise InputError(f"{what} must be text (UTF-8), got a NUL character: is it a binary file?")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise InputError(f"{what} must be text (UTF-8), got bytes that are none.") from None


def load(content: bytes) -> Any:
    """Return what ``numpy.load`` makes of a file; no pickle."""
    return np.load(io.BytesIO(content), allow_pickle=False)


def attempt(reader: Callable[[], Any], content: bytes, what: str, wanted: str) -> Any:
    """Run a reader of ``content``, and replace whatever a damaged file makes it raise by one message."""
    try:
        return reader()
    except InputError:
        raise
    except Exception as error:
        found = f"something else ({' '.join(str(error).split())})".rstrip(".") if content.strip() else "an empty file"
        raise InputError(f"{what} must be {wanted}, got {found}.") from None


def check_output(path: str | os.PathLike[str]) -> None:
    """Refuse an output that could not be written, before it is computed."""
    target = Path(os.path.realpath(path))
    if target.is_dir():
        raise InputError(f"the output must be a file, got the folder {str(path)!r}.")
    if not target.parent.is_dir():
        raise InputError(f"the output must go to a folder that exists, got {str(path)!r}: make {target.parent} first.")
    if target.exists() and not target.is_file():  # a device or a pipe, which is not replaced
        return
    try:
        atomic.check_folder(target.parent)
    except OSError as error:
        raise InputError(f"cannot write {str(path)!r}: {error.strerror}.") from None


def write(path: str | os.PathLike[str], content: bytes) -> Path:
    """Write a file whole or not at all, gzipped where its name ends with ``.gz``."""
    zipped = os.fspath(path).lower().endswith(".gz")
    try:
        return atomic.write_whole(path, gzip.compress(content, mtime=0) if zipped else content)
    except OSError as error:
        raise InputError(f"cannot write {str(path)!r}: {error.strerror}.") from None
