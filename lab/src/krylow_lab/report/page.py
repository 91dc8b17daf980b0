"""The page as one HTML file: sections, their footnotes, and everything a browser needs inside."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import jinja2
import plotly.offline
from markupsafe import Markup

import krylow
from krylow._checks import InputError
from krylow_lab import provenance
from krylow_lab.report.blocks import Missing, Section, charts
from krylow_lab.report.sections import SECTIONS
from krylow_lab.report.sources import Source


def render(sources: Sequence[Source]) -> str:
    """Return the page of some records as HTML."""
    parts = [_made(make, sources) for make in SECTIONS]
    sections = [part for part in parts if isinstance(part, Section)]
    if not any(section.sources for section in sections):
        kinds = ", ".join(sorted({source.record.kind for source in sources}))
        raise InputError(
            f"the records hold nothing that the page shows (kinds: {kinds}): `krylow reproduce table1` makes records "
            "that it does."
        )
    cited = list(dict.fromkeys(source.name for section in sections for source in section.sources))
    by_name = {source.name: source for source in sources}
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("krylow_lab.report", "."), autoescape=True, undefined=jinja2.StrictUndefined,
        trim_blocks=True, lstrip_blocks=True,
    )  # fmt: skip
    commit, dirty = provenance.code()
    return environment.get_template("template.html").render(
        sections=sections,
        missing=[part for part in parts if isinstance(part, Missing)],
        numbers={name: number for number, name in enumerate(cited, start=1)},
        footnotes=[_footnote(by_name[name]) for name in cited],
        machines=list(dict.fromkeys(_machine(by_name[name]) for name in cited)),
        charts={chart.name: _data(chart) for section in sections for chart in charts(section.blocks)},
        plotly=Markup(plotly.offline.get_plotlyjs()),  # its own file, no text of a user
        made={
            "when": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
            "version": krylow.__version__,
            "commit": _commit(commit, dirty),
        },
    )


def _made(make: Any, sources: Sequence[Source]) -> Section | Missing | None:
    """Return what a section's function makes, or say which records do not hold what it needs."""
    try:
        made: Section | Missing | None = make(sources)
    except InputError:
        raise
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError, RuntimeError) as error:
        what = f"{make.__module__.rpartition('.')[2]}.{make.__name__}"
        raise InputError(
            f"a record does not hold what the page draws of its kind ({what}: {type(error).__name__} {error}): it was "
            "written by another version; measure it again, or leave it out."
        ) from error
    return made


def _data(chart: Any) -> dict[str, Any]:
    variants = [{"choice": variant.choice, **variant.figure} for variant in chart.variants]
    return {"choices": chart.choices, "variants": variants}


def _footnote(source: Source) -> dict[str, str]:
    record = source.record
    seeds = record.config.get("seeds", record.seed)
    return {
        "file": source.name,
        "seeds": "no seed"
        if seeds is None
        else f"seeds {_listed(seeds)}"
        if isinstance(seeds, list)
        else f"seed {seeds}",
        "commit": _commit(record.commit, record.dirty),
        "started": record.started.replace("T", " ").replace("+00:00", " UTC"),
        "seconds": f"{record.wall_seconds:.0f} s" if record.wall_seconds >= 1 else f"{record.wall_seconds:.2g} s",
        "machine": _machine(source),
    }


def _machine(source: Source) -> str:
    machine = source.record.machine
    threads = f"{machine.get('threads')} thread{'' if machine.get('threads') == 1 else 's'}"
    packages = ", ".join(f"{name} {version}" for name, version in source.record.versions.items() if version)
    return (
        f"{machine.get('cpu')}, {machine.get('cores')} cores, {threads}, {machine.get('memory_gib')} GiB, "
        f"{machine.get('system')}; {packages}"
    )


def _listed(seeds: Sequence[int]) -> str:
    if len(seeds) > 2 and list(seeds) == list(range(seeds[0], seeds[0] + len(seeds))):
        return f"{seeds[0]}-{seeds[-1]}"
    return ", ".join(map(str, seeds))


def _commit(commit: str | None, dirty: bool | None) -> str:
    return f"commit {commit[:7]}{' with changes' if dirty else ''}" if commit else "no commit"
