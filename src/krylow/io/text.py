"""Lines and fields of tables and edge lists, in the dialects that people have them in.

Separators are tabs, semicolons, commas or spaces; lines that start with ``#`` or ``%`` are comments.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator

from krylow._checks import InputError

#: Characters that are split into lines together: as objects of their own, lines take many times the file.
PIECE = 1 << 20
COMMENTS = ("#", "%")


def separator(line: str) -> str | None:
    """Return the separator of a line of a table: a tab, semicolon or comma, in this order, or None for spaces."""
    return next((mark for mark in ("\t", ";", ",") if mark in line), None)


def content(text: str) -> Iterator[str]:
    """Give the lines that are neither blank nor comments."""
    return (line for line in _lines(text) if line[:1].isalnum() or _says_something(line))


def _lines(text: str) -> Iterator[str]:
    start = 0
    while start < len(text):
        end = text.find("\n", start + PIECE) + 1 or len(text)
        yield from text[start:end].splitlines()
        start = end


def _says_something(line: str) -> bool:
    return bool(line.strip()) and not line.lstrip().startswith(COMMENTS)


def fields(line: str, mark: str | None, what: str) -> list[str]:
    """Split one line of the file ``what``, without the spaces and quotes around its fields."""
    if mark is None and '"' not in line:
        return line.split()
    line = line.strip(" ") if mark else line.strip()
    try:
        parts = next(csv.reader([line], delimiter=mark or " ", skipinitialspace=True))
    except csv.Error as error:
        raise InputError(f"{what} must hold lines of numbers and names, got {shown(line)}: {error}.") from None
    return [part.strip() for part in parts if part or mark is not None]


def is_number(text: str) -> bool:
    """Tell whether a field is a number."""
    try:
        float(text)
    except ValueError:
        return False
    return True


def shown(line: str) -> str:
    """Return a line as messages quote it."""
    return repr(line if len(line) <= 60 else line[:57] + "...")


def malformed(
    text: str, mark: str | None, columns: int, wanted: str, what: str, *, numbers: Iterable[int] = ()
) -> InputError:
    """Return the error that names the first line that does not fit.

    Parameters
    ----------
    text, mark, columns
        The whole file, its separator, and the number of fields that a line must have.
    wanted, what
        What a line must hold, and how messages call the file.
    numbers
        Which fields must be numbers, but in a first line that is names alone.
    """
    seen = False
    for number, line in enumerate(_lines(text), 1):
        if not _says_something(line):
            continue
        parts = fields(line, mark, what)
        names = not seen and not any(map(is_number, parts))
        if len(parts) != columns or not all(parts) or not (names or all(is_number(parts[i]) for i in numbers)):
            return InputError(f"{what} must hold {wanted} on every line, got {shown(line)} on line {number}.")
        seen = True
    return InputError(f"{what} must hold {wanted} on every line, which it does not.")
