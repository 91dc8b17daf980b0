"""Time against size: every method from small graphs to large ones, and attention beside PyTorch's own."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from krylow_lab.report import figures as f
from krylow_lab.report.blocks import Chart, Missing, Section, Text, Variant
from krylow_lab.report.sources import Source, of_kind

#: The name of a case: family, nodes, then graphs in the batch or frequencies kept, where they are not the only ones.
_CASE = re.compile(r"(?P<family>.+) n=(?P<n>\d+)(?: x(?P<graphs>\d+))?(?: k=(?P<k>\d+))?")
#: The status of a method that does not take a case, whose time says nothing.
REFUSED = "refused"


def crossover(sources: Sequence[Source]) -> Section | Missing:
    """Return the seconds of every method against the number of nodes."""
    title = "Time against the size of the graph"
    found = of_kind(sources, "crossover")
    if not found:
        return Missing(title, "python benchmarks/crossover.py --out results/crossover")
    source = max(found, key=lambda source: source.record.started)
    given = source.config["k"]
    least = min(given) if isinstance(given, list) else given  # what a case keeps whose name does not say it
    cases: dict[tuple[str, int], dict[str, list[tuple[int, float, str]]]] = {}
    for name, case in source.results.items():
        match = _CASE.fullmatch(name)
        if match is None:
            raise ValueError(f"{name!r} is no case of this benchmark")
        curves = cases.setdefault((match["family"], int(match["k"] or least)), {})
        for method, seconds in case["seconds"].items():
            points = curves.setdefault(method, [])
            if case["status"][method] != REFUSED:
                points.append((int(match["n"]), seconds / int(match["graphs"] or 1), case["status"][method]))
    place = {family: i for i, (family, _) in reversed(list(enumerate(cases)))}  # a family stays where it first is
    ordered = sorted(cases.items(), key=lambda item: place[item[0][0]])
    variants = [Variant({"graphs": family, "K": str(k)}, _by_nodes(curves)) for (family, k), curves in ordered]
    intro = (
        "Seconds a graph for the K lowest frequencies, asked for to an error of 1e-3, "
        "float64, one thread, every method at its defaults; dense graphs in batches, sparse ones alone."
    )
    chart = Chart("crossover", variants, "Hover for the certificate's word on each answer.")
    return Section("crossover", title, [Text(intro), chart], [source])


def _by_nodes(curves: dict[str, list[tuple[int, float, str]]]) -> dict[str, Any]:
    hover = "<b>%{fullData.name}</b>, %{x} nodes<br>%{y:.3s}s a graph<br>%{customdata}"
    traces = []
    for (method, points), color in zip(curves.items(), f.CYCLE, strict=False):
        if points:
            n, seconds, status = zip(*points, strict=True)
            traces.append(f.curve(method, n, seconds, color, hover, customdata=status))
    nodes = {n for points in curves.values() for n, _, _ in points}
    marks = {"tickvals": sorted(nodes), "ticktext": [f"{n:g}" for n in sorted(nodes)]}
    return f.figure(traces, x="nodes", y="seconds a graph", log="xy", xaxis=marks)


def attention(sources: Sequence[Source]) -> Section | Missing:
    """Return the time and memory of low-pass attention against the number of tokens."""
    title = "Low-pass attention beside MultiheadAttention"
    found = of_kind(sources, "attention")
    if not found:
        return Missing(title, "python benchmarks/attention.py --out results/attention")
    source = max(found, key=lambda source: source.record.started)
    config = source.config
    quantities = {
        "seconds, forward and backward": ("seconds forward, ", "seconds backward, "),
        "megabytes, forward and backward": ("megabytes, ",),
    }
    variants = [
        Variant({"quantity": name}, _by_tokens(source, name, prefixes)) for name, prefixes in quantities.items()
    ]
    intro = (
        f"One module on a batch of {config['batch']} sequences, {config['embed']} channels, {config['heads']} heads, "
        f"K = {config['k']}, m = {config['m']}; medians of repeats in which the modules take turns, one thread."
    )
    return Section("attention", title, [Text(intro), Chart("attention", variants)], [source])


def _by_tokens(source: Source, quantity: str, prefixes: tuple[str, ...]) -> dict[str, Any]:
    tokens = {name: int(name.removeprefix("n=")) for name in source.results}
    first = next(iter(source.results.values()))
    modules = [name.removeprefix(prefixes[0]) for name in first if name.startswith(prefixes[0])]
    traces = []
    for module, color in zip(modules, f.CYCLE, strict=False):
        peer = module.startswith("Multihead")
        y = [sum(source.results[name][prefix + module] for prefix in prefixes) for name in tokens]
        line = {"dash": "dot" if "weights" in module else "solid"}
        title, color = (module, f.PAPER) if peer else (f"low-pass: {module}", color)
        hover = "<b>%{fullData.name}</b><br>%{x} tokens: %{y:.3g}"
        traces.append(f.curve(title, list(tokens.values()), y, color, hover, uid=module, line=line))
    ticks = {"tickvals": list(tokens.values())}
    return f.figure(traces, x="tokens", y=quantity, log="xy", xaxis=ticks)
