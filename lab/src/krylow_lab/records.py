"""Records: one small JSON file a measurement, from which every table and picture is made.

A record's file name follows from its kind, its configuration and its seed, and a file appears whole or not at all:
a run that was interrupted anywhere asks :func:`lookup` for what exists already, and continues with the rest.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from krylow import _machine
from krylow._checks import InputError
from krylow.io.atomic import write_whole
from krylow_lab import provenance

#: Distinguishes a record from other JSON files, with the version of its layout.
FORMAT = "krylow-record-1"
#: JSON has no words for these; in results they are written as strings, and read back as numbers.
NOT_FINITE = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
_NAME = re.compile(r"[a-z0-9][a-z0-9_-]*-[0-9a-f]{16}\.json")


class RecordError(ValueError):
    """Raised for a file that is not a whole record, with what is wrong and what to do."""


@dataclass(frozen=True, kw_only=True)
class Record:
    """What was measured, with everything needed to measure it again.

    Attributes
    ----------
    kind
        The experiment, in lower-case letters, digits, "-" and "_".
    config
        What was asked for, as plain JSON values: it decides the file name.
    seed
        The seed, or None where nothing is random.
    results
        What came out, as plain JSON values; NaN and infinities are allowed.
    products
        Products with L, or None where they are not the cost.
    started
        When it began, ISO 8601 in UTC.
    wall_seconds
        How long it took.
    commit, dirty
        Git commit of the package's source, and whether the source differed from it; None outside a checkout.
    versions, machine
        Versions of Python and packages; processor, cores, threads, memory.
    """

    kind: str
    config: dict[str, Any]
    seed: int | None
    results: dict[str, Any]
    products: int | None
    started: str
    wall_seconds: float
    commit: str | None
    dirty: bool | None
    versions: dict[str, Any]
    machine: dict[str, Any]

    @classmethod
    def create(
        cls,
        kind: str,
        config: Mapping[str, Any],
        results: Mapping[str, Any],
        *,
        seed: int | None,
        started: datetime,
        wall_seconds: float,
        products: int | None = None,
    ) -> Record:
        """Return a record of something measured just now, by this code on this machine.

        ``started`` is a time with its zone, such as ``datetime.now(UTC)``; ``wall_seconds`` comes from a clock that
        does not jump, such as ``time.perf_counter``.
        """
        record_name(kind, config, seed)  # the checks
        if started.tzinfo is None:
            raise InputError("started must carry its time zone, got a naive datetime: use datetime.now(UTC).")
        commit, dirty = provenance.code()
        return cls(
            kind=kind,
            config=_plain(config, "config"),
            seed=seed,
            results=_plain(results, "results", finite=False),
            products=products,
            started=started.astimezone(UTC).isoformat(timespec="seconds"),
            wall_seconds=round(float(wall_seconds), 6),
            commit=commit,
            dirty=dirty,
            versions=_machine.versions(),
            machine=_machine.machine(),
        )

    @property
    def file_name(self) -> str:
        """The name of the record's file."""
        return record_name(self.kind, self.config, self.seed)

    def write(self, folder: str | os.PathLike[str]) -> Path:
        """Write the record into ``folder``, which is made where it is missing, and return its path."""
        content = {"format": FORMAT, **asdict(self), "results": _encode(self.results)}
        Path(folder).mkdir(parents=True, exist_ok=True)
        return write_whole(Path(folder) / self.file_name, json.dumps(content, indent=1, allow_nan=False) + "\n")

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> Record:
        """Read a record, or say what is wrong with the file."""
        path = Path(path)
        try:
            content = json.loads(path.read_bytes())
        except (ValueError, RecursionError) as error:
            raise RecordError(f"{path} is damaged, not whole JSON ({error}): remove it and run again.") from error
        form = content.pop("format", None) if isinstance(content, dict) else None
        if form != FORMAT:
            came = f"format {form!r}" if form else "no format"
            raise RecordError(
                f"{path} must be a record of format {FORMAT!r}, got {came}: another program's, or version's."
            )
        names = {field.name for field in fields(cls)}
        if content.keys() != names:
            lacks, extra = sorted(names - content.keys()), sorted(content.keys() - names)
            raise RecordError(
                f"{path} is no whole record: it lacks {lacks} and has {extra} beside: remove it and run again."
            )
        for key in ("config", "results", "versions", "machine"):
            if not isinstance(content[key], dict):
                raise RecordError(
                    f"{path} is damaged: {key} must be an object, got {content[key]!r}: remove it and run again."
                )
        try:
            record_name(content["kind"], content["config"], content["seed"])
        except (TypeError, ValueError) as error:
            raise RecordError(f"{path} is damaged: {error} Remove it and run again.") from error
        return cls(**{**content, "results": _decode(content["results"])})


def record_name(kind: str, config: Mapping[str, Any], seed: int | None) -> str:
    """Return the file name of a record, which follows from what was asked for and not from what came out.

    The order of keys, tuples or lists, and 1 or 1.0 make no difference. Commit and versions do not enter: a resumed run
    finds what an older code wrote, and whoever wants it anew removes the file.

    Examples
    --------
    >>> record_name("table1", {"k": 6, "lr": 1e-3}, seed=0) == record_name("table1", {"lr": 0.001, "k": 6.0}, seed=0)
    True
    """
    if not re.fullmatch(r"[a-z0-9][a-z0-9_-]*", kind):
        raise InputError(f"kind must be made of lower-case letters, digits, '-' and '_', got {kind!r}.")
    if seed is not None and (isinstance(seed, bool) or not isinstance(seed, int)):
        raise InputError(f"seed must be an integer or None, got {seed!r}.")
    digest = hashlib.sha256(_canonical([kind, _plain(config, "config"), seed]).encode()).hexdigest()
    return f"{kind}-{digest[:16]}.json"


def lookup(folder: str | os.PathLike[str], kind: str, config: Mapping[str, Any], seed: int | None) -> Record | None:
    """Return the record of exactly this kind, configuration and seed, or None where it is still to be measured."""
    path = Path(folder) / record_name(kind, config, seed)
    return Record.read(path) if path.is_file() else None


def find(
    folder: str | os.PathLike[str], *, kind: str | None = None, seed: int | None = None, **config: Any
) -> list[Record]:
    """Return the records of a folder that have this kind, this seed and these entries in their configuration.

    Ordered by file name; other files are ignored, and a folder that is missing has no records. An entry that no
    record of the kind has is an error, since it is a misspelling more likely than not.
    """
    root = Path(folder)
    paths = sorted(path for path in root.iterdir() if _NAME.fullmatch(path.name)) if root.is_dir() else []
    records = [Record.read(path) for path in paths]
    records = [record for record in records if kind in (None, record.kind)]
    known = {key for record in records for key in record.config}
    if records and not config.keys() <= known:
        raise InputError(f"no record has {sorted(config.keys() - known)} in its config, which has {sorted(known)}.")
    wanted = {key: _canonical(_plain(value, key)) for key, value in config.items()}
    return [
        record
        for record in records
        if seed in (None, record.seed)
        and all(key in record.config and _canonical(record.config[key]) == value for key, value in wanted.items())
    ]


def _canonical(value: Any) -> str:
    """Return one text for all spellings of a plain value."""

    def integral(x: Any) -> Any:
        if isinstance(x, dict):
            return {key: integral(item) for key, item in x.items()}
        if isinstance(x, list):
            return [integral(item) for item in x]
        return int(x) if isinstance(x, float) and x.is_integer() else x

    return json.dumps(integral(value), sort_keys=True, separators=(",", ":"), allow_nan=False)


def _plain(value: Any, what: str, finite: bool = True) -> Any:
    """Check that a value is plain JSON, and return it with lists for tuples and dicts for mappings."""
    if isinstance(value, Mapping):
        for key in value:
            if not isinstance(key, str):
                raise InputError(f"{what} must have text for keys, got {key!r}.")
        return {key: _plain(item, f"{what}[{key!r}]", finite) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item, f"{what}[{i}]", finite) for i, item in enumerate(value)]
    if type(value) not in (str, int, float, bool, type(None)):
        raise InputError(
            f"{what} must be text, number, boolean, None, list or dict, got {type(value).__name__}: "
            "convert arrays with .tolist(), their scalars with .item(), paths and enums with str()."
        )
    if finite and isinstance(value, float) and not math.isfinite(value):
        raise InputError(f"{what} must be finite, got {value}.")
    return value


def _encode(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _encode(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_encode(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return value


def _decode(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _decode(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_decode(item) for item in value]
    return NOT_FINITE.get(value, value) if isinstance(value, str) else value
