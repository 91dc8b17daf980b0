"""How much memory reading a file may take: what it declares is compared with its size before anything is allocated."""

from __future__ import annotations

import os
import stat
import zlib
from dataclasses import dataclass
from gzip import GzipFile
from pathlib import Path
from typing import IO

from krylow._checks import InputError

#: Times the unpacked file that reading may take, and times the packed file that it may unpack to.
GROWTH, UNPACKED = 10, 20
#: Bytes that are always allowed, and the most that is read from what is no regular file and has no size.
FLOOR, STREAM = 64 << 20, 1 << 30
_PIECE = 1 << 20
_UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}


@dataclass(frozen=True)
class Limit:
    """The most memory that one file may take.

    Attributes
    ----------
    what
        How messages call the file.
    size
        Bytes.
    """

    what: str
    size: int

    def check(self, needed: int, why: str) -> None:
        """Refuse a file that needs more."""
        if needed > self.size:
            raise InputError(
                f"{self.what} must not need more memory than its size explains, got {why}: {shown(needed)} where "
                f"{shown(self.size)} are allowed. If it is meant, allow more (max_size, --max-size)."
            )


def limit_of(what: str, unpacked: int, max_size: int | None) -> Limit:
    """Return the limit of a file of so many bytes: ``max_size``, else ten times them."""
    return Limit(what, max(GROWTH * unpacked, FLOOR) if max_size is None else max_size)


def unpacked_limit(what: str, packed: int, max_size: int | None) -> Limit:
    """Return how much a packed file of so many bytes may unpack to: ``max_size``, else 20 times them."""
    return Limit(what, max(UNPACKED * packed, FLOOR) if max_size is None else max_size)


def size_of(text: str | int | None, what: str = "max_size") -> int | None:
    """Return a number of bytes, as a number or as text with a unit.

    >>> size_of("1.5k"), size_of(7), size_of("2 GB")
    (1536, 7, 2147483648)
    """
    if text is None:
        return None
    given = str(text).strip().lower().removesuffix("b").removesuffix("i").strip()
    unit = given[-1:] if given[-1:].isalpha() else ""
    try:
        size = float(given.removesuffix(unit)) * _UNITS[unit]
        if isinstance(text, bool) or not 1 <= size < 2**63:
            raise ValueError
    except (ValueError, KeyError):
        raise InputError(f"{what} must be a number of bytes, such as 500M or 4G, got {text!r}.") from None
    return int(size)


def read_bytes(path: Path, max_size: int | None = None) -> bytes:
    """Return a file's content, unpacked where its name ends with ``.gz``.

    Parameters
    ----------
    path
        The file.
    max_size
        The most bytes that the content may have. None: any number in a regular file, and 20 times a packed one.
    """
    try:
        with open(path, "rb") as file:
            status = os.fstat(file.fileno())
            size = status.st_size if stat.S_ISREG(status.st_mode) else STREAM
            if path.suffix.lower() == ".gz":
                return _unpacked(file, unpacked_limit(path.name, size, max_size))
            limit = Limit(path.name, size if max_size is None else max_size)
            limit.check(status.st_size, "a file of so many bytes")
            return _whole(file, limit)
    except OSError as error:
        raise InputError(f"cannot read {str(path)!r}: {error.strerror}.") from None


def shown(size: int) -> str:
    """Return a number of bytes in words.

    >>> shown(300), shown(3 << 29)
    ('300 bytes', '1.5 GiB')
    """
    if size < 1 << 10:
        return f"{size} bytes"
    unit = min((size.bit_length() - 1) // 10, 5)
    return f"{size / (1 << 10 * unit):.3g} {'KMGTP'[unit - 1]}iB"


def _unpacked(file: IO[bytes], limit: Limit) -> bytes:
    try:
        return _whole(GzipFile(fileobj=file), limit)
    except (OSError, EOFError, zlib.error) as error:
        raise InputError(f"{limit.what} must be a whole gzip file: {error}.") from None


def _whole(file: IO[bytes] | GzipFile, limit: Limit) -> bytes:
    """Read to the end, and stop where there is more than the limit."""
    content = bytearray()
    while piece := file.read(_PIECE):
        content += piece
        if len(content) > limit.size:
            limit.check(len(content), "content of more bytes than that")
    return bytes(content)
