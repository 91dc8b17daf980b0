"""The records a page is made of: found in files and folders, each once, with the name it is cited by."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from krylow._checks import InputError
from krylow_lab.records import Record, find


@dataclass(frozen=True)
class Source:
    """A record and where it was found."""

    record: Record
    name: str  # its file, relative to the working folder or, outside of that, with its folder alone

    @property
    def config(self) -> dict[str, Any]:
        """What was asked for."""
        return self.record.config

    @property
    def results(self) -> dict[str, Any]:
        """What came out."""
        return self.record.results


def gather(paths: Iterable[str | os.PathLike[str]]) -> list[Source]:
    """Return the records of files and folders, ordered by name; of several copies the newest.

    In a folder, files that are not named as records are ignored; a file that is named by itself has to be one.
    """
    places = [Path(path) for path in paths]
    newest: dict[str, Source] = {}
    for path in places:
        try:
            found = _in_folder(path) if path.is_dir() else [Source(Record.read(path), _name(path))]
        except FileNotFoundError as error:
            message = f"{path} does not exist: give records (JSON files) or folders of them, such as results."
            raise InputError(message) from error
        except OSError as error:
            raise InputError(f"{error.filename or path} cannot be read ({error.strerror}).") from error
        for source in found:
            known = newest.get(source.record.file_name)
            if known is None or known.record.started < source.record.started:
                newest[source.record.file_name] = source
    if not newest:
        where = ", ".join(map(str, places)) or "nothing"
        raise InputError(f"there are no records in {where}: `krylow reproduce table1` makes some.")
    return sorted(newest.values(), key=lambda source: source.name)


def of_kind(sources: Sequence[Source], kind: str) -> list[Source]:
    """Return the records of one experiment."""
    return [source for source in sources if source.record.kind == kind]


def _in_folder(folder: Path) -> list[Source]:
    def fail(error: OSError) -> None:
        raise error

    found = []
    for place, folders, _ in os.walk(folder, onerror=fail):
        folders.sort()
        found += [Source(record, _name(Path(place) / record.file_name)) for record in find(place)]
    return found


def _name(path: Path) -> str:
    path = path.absolute()
    if path.is_relative_to(Path.cwd()):
        return path.relative_to(Path.cwd()).as_posix()
    return f"{path.parent.name}/{path.name}"
