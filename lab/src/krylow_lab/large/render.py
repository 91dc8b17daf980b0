"""The benchmark's tables in Markdown and its picture, from the record alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from krylow_lab.large.graphs import FAMILIES
from krylow_lab.large.race import clock
from krylow_lab.large.solvers import OURS, SOLVERS
from krylow_lab.records import Record


def markdown(record: Record, *, n: int | None = None, threads: int | None = None) -> str:
    """Return the races as a table, all or those of one n or number of threads, one row a graph, k and threads.

    Times are the processor's on one thread and the clock's on several. Where a peer is faster, the ratio is below 1 and
    set in bold, as a loss to be seen; where the peer was wrong with new seeds, its error is shown and the ratio is in
    parentheses.
    """
    wanted = {key: value for key, value in (("n", n), ("threads", threads)) if value is not None}
    rows = [row for row in record.results["rows"] if all(row[key] == value for key, value in wanted.items())]
    tols = sorted({row["tol"] for row in rows}, reverse=True)
    heads = [f"error {_power(tol)}: krylow, s (certified) | best peer, s | ratio | MiB, ours / peer's" for tol in tols]
    lines = ["| graph | n | K | threads | " + " | ".join(heads) + " |", "|" + " --- |" * (4 + 4 * len(tols))]
    for key in dict.fromkeys((row["family"], row["n"], row["k"], row["threads"]) for row in rows):
        family, size, k, used = key
        those = {r["tol"]: r for r in rows if (r["family"], r["n"], r["k"], r["threads"]) == key}
        cells = [_cells(those[tol]) if tol in those else " | | | " for tol in tols]
        lines.append(f"| {FAMILIES[family].title} | {_power(size)} | {k} | {used} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _cells(row: dict[str, Any]) -> str:
    """Return ours, the best peer's, their ratio and memory."""
    time = clock(row["threads"])
    ours = row["solvers"].get("krylow", {})
    if "seconds" in ours:
        certified = ours[time] + ours["certificate_seconds"]
        mark = f", {len(ours['raised'])} of {row['repeats']} raised" if ours["raised"] else ""
        mark += f", error {ours['error']:.0e}" if ours["error"] > row["tol"] else ""
        status = "" if ours["status"] == ["CONVERGED"] else f", {'/'.join(ours['status'])}"
        first = f"{_seconds(ours[time])} ({_seconds(certified)}{mark}{status})"
    else:
        first = _why_not(ours)
    best, ratio, wrong = row["best_peer"], row["ratio"], ""
    if best is None:  # no peer was right at the setting that was right when it was tuned
        done = {name: found[time] for name, found in row["solvers"].items() if name not in OURS and time in found}
        if not done:
            return f"{first} | {_no_peer(row)} | | "
        best = min(done, key=lambda name: done[name])
        wrong = f", error {row['solvers'][best]['error']:.0e}"
        ratio = done[best] / ours[time] if time in ours else None
    peer = row["solvers"][best]
    shown = "" if ratio is None else f"{ratio:.2g}" if ratio < 10 else f"{ratio:.0f}"
    shown = f"**{shown}**" if ratio is not None and ratio < 1 else shown
    shown = f"({shown})" if wrong else shown
    memory = f"{ours['peak_mib']:.0f} / {peer['peak_mib']:.0f}" if "peak_mib" in ours else ""
    return f"{first} | {SOLVERS[best].title} {_seconds(peer[time])}{wrong} | {shown} | {memory}"


def _no_peer(row: dict[str, Any]) -> str:
    slow = [found["more_than"] for name, found in row["solvers"].items() if name not in OURS and "more_than" in found]
    return f"more than {max(slow):.0f}" if slow else "none tuned"


def _why_not(found: dict[str, Any]) -> str:
    return f"more than {found['more_than']:.0f}" if "more_than" in found else found.get("failed") or "not run"


def peers_markdown(record: Record) -> str:
    """Return what every peer needed at its cheapest right setting, and how often it was silently wrong."""
    tunings = record.results["peers"]
    tols = list(tunings[0]["cheapest"]) if tunings else []
    names = [name for name in SOLVERS if any(t["solver"] == name for t in tunings) and name != "pygsp"]
    tables = []
    for tol in tols:
        lines = [f"Error {_power(float(tol))}, processor seconds:", ""]
        lines += ["| graph | n | K | " + " | ".join(SOLVERS[name].title for name in names) + " |"]
        lines += ["|" + " --- |" * (3 + len(names))]
        order = list(FAMILIES)
        for key in sorted({(order.index(t["family"]), t["n"], t["k"]) for t in tunings}):
            family, n, k = order[key[0]], key[1], key[2]
            those = {t["solver"]: t for t in tunings if (t["family"], t["n"], t["k"]) == (family, n, k)}
            times = [
                t["cheapest"][tol]["cpu_seconds"] for t in those.values() if t["cheapest"][tol] and t["solver"] in names
            ]
            cells = [_tuned(those.get(name), tol, min(times, default=0.0)) for name in names]
            lines.append(f"| {FAMILIES[family].title} | {_power(n)} | {k} | " + " | ".join(cells) + " |")
        tables.append("\n".join(lines))
    silent = {name: [0, 0] for name in names}
    for t in tunings:
        if t["solver"] in silent:
            silent[t["solver"]][0] += t["silent_failures"]
            silent[t["solver"]][1] += t["claims"]
    counted = [f"{SOLVERS[name].title} {wrong} of {all_}" for name, (wrong, all_) in silent.items() if all_]
    tables.append(
        "Silent failures (success reported, error more than ten times what the tolerance implies): "
        + ", ".join(counted)
        + "."
    )
    failed = [run for row in record.results["rows"] for run in row.get("wrong", []) if run["success"]]
    if failed:
        counts = {name: sum(run["solver"] == name for run in failed) for name in SOLVERS}
        each = [f"{SOLVERS[name].title} {count}" for name, count in counts.items() if count]
        tables.append(
            "Runs in races that reported success and were wrong, at a setting that had been right in three runs of "
            f"three with other seeds, and that were raced again at the next one: {', '.join(each)}."
        )
    return "\n\n".join(tables)


def _tuned(tuning: dict[str, Any] | None, tol: str, best: float) -> str:
    if tuning is None:
        return ""
    found = tuning["cheapest"][tol]
    if found is None:
        return {"too slow": "slower", None: "never"}.get(tuning["left"], tuning["left"].split(":")[0])
    text = _seconds(found["cpu_seconds"])
    return f"**{text}**" if found["cpu_seconds"] == best else text


def draw(record: Record, path: str | Path) -> Path:
    """Draw time against n on logarithmic axes, ours and the best peers, at the loosest error on one thread."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    rows = [row for row in record.results["rows"] if row["threads"] == 1]
    loosest = max(row["tol"] for row in rows)
    rows = [row for row in rows if row["tol"] == loosest]
    families = [name for name in FAMILIES if any(row["family"] == name for row in rows)]
    columns = min(4, len(families))
    height = -(-len(families) // columns)
    plt.rcParams["svg.hashsalt"] = "krylow"
    figure, axes = plt.subplots(height, columns, figsize=(3.1 * columns, 2.7 * height), squeeze=False, sharex=True)
    for axis, family in zip(axes.flat, families, strict=False):
        _panel(axis, family, [row for row in rows if row["family"] == family])
    for axis in axes.flat[len(families) :]:
        axis.axis("off")
    for axis in axes[:, 0]:
        axis.set_ylabel("processor seconds")
    for axis in axes[-1]:
        axis.set_xlabel("nodes")
    handles = {
        label: handle for axis in axes.flat for handle, label in zip(*axis.get_legend_handles_labels(), strict=True)
    }
    figure.legend(handles.values(), handles.keys(), loc="outside lower center", ncols=4, fontsize=8, frameon=False)
    figure.suptitle(
        f"Subspace of the K lowest frequencies to an error of {_plain_power(loosest)}, one thread", fontsize=10
    )
    figure.set_layout_engine("constrained")
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, metadata={"Date": None})
    plt.close(figure)
    return Path(path)


#: Colours of the solvers, the same in every panel.
COLOURS = ("C3", "C0", "C1", "C2", "C4", "C5", "C6", "C7", "C8", "C9", "0.4")


def _panel(axis: Any, family: str, rows: list[dict[str, Any]]) -> None:
    names = [name for name in SOLVERS if name == "krylow" or name not in OURS]
    windows = FAMILIES[family].windows
    for name in names:
        for window, (low, high) in enumerate(windows):
            line = [
                (row["n"], row["solvers"][name][clock(1)])
                for row in rows
                if low <= row["k"] <= high and "seconds" in row["solvers"].get(name, {})
            ]
            if line:
                style = {"color": COLOURS[names.index(name) % len(COLOURS)], "linestyle": "-" if window == 0 else "--"}
                label = SOLVERS[name].title if window == 0 else None
                wide = 2.2 if name == "krylow" else 1.1
                axis.loglog(
                    *zip(*sorted(line), strict=True), marker="o", markersize=3, linewidth=wide, label=label, **style
                )
    ks = ["-".join(str(k) for k in sorted({r["k"] for r in rows if low <= r["k"] <= high})) for low, high in windows]
    title = f"K={ks[0]}" if len(ks) == 1 or not ks[1] else f"K={ks[0]}, dashed {ks[1]}"
    axis.set_title(f"{FAMILIES[family].title}, {title}", fontsize=8)
    axis.grid(alpha=0.3)


def _seconds(value: float) -> str:
    return f"{value:.3f}" if value < 1 else f"{value:.2f}" if value < 10 else f"{value:.0f}"


def _power(value: float) -> str:
    mantissa, exponent = f"{value:.0e}".split("e")
    return f"10^{int(exponent)}" if mantissa == "1" else f"{value:g}"


def _plain_power(value: float) -> str:
    mantissa, exponent = f"{value:.0e}".split("e")
    return f"$10^{{{int(exponent)}}}$" if mantissa == "1" else f"{value:g}"
