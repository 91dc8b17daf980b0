"""Write the tables of README and docs from the records: `python benchmarks/tables.py`. Measures nothing.

A table stands between a pair of comments, `<!-- name -->` and `<!-- /name -->`.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from pathlib import Path

import table1_tables as table1

from krylow._floor import PROOF_LIMIT
from krylow_lab.large.graphs import FAMILIES
from krylow_lab.large.render import SOLVERS, draw, markdown, peers_markdown
from krylow_lab.records import Record, find
from krylow_lab.table2 import gain, render

ROOT = Path(__file__).parent.parent


def seconds_of_methods(
    row: dict, methods: list[str], ends: tuple[str, ...] = ("CONVERGED",), same: dict[str, str] | None = None
) -> tuple[str, str]:
    """The seconds of those that ended in one of these statuses, the least in bold, and those of auto over the least.

    ``same`` names those that are another method by another name, which is shown, and does not win over itself.
    """
    same = same or {}
    right = {m: t for m, t in row["seconds"].items() if row["status"][m] in ends and m not in same}
    least = min(right.values(), default=math.nan)
    shown = {m: f"**{t:.3f}**" if t == least else f"{t:.3f}" for m, t in right.items()}
    shown |= {m: f"= {other}" for m, other in same.items()}
    ratio = f"{right[row['auto']] / least:.2f}" if row["auto"] in right else "not converged"
    return " | ".join(shown.get(m, "") for m in methods), ratio


def crossover() -> str:
    (record,) = find(ROOT / "results" / "crossover", kind="crossover")
    methods = record.config["methods"]
    lines = ["| graphs | " + " | ".join(methods) + " | auto |", "| --- |" + " --- |" * (len(methods) + 1)]
    for name, row in record.results.items():
        cells, _ = seconds_of_methods(row, methods, ("CONVERGED", "NO_GAP"), coarsest(name))
        lines.append(f"| {name} | {cells} | {row['auto']} |")
    return "\n".join([*lines, "", source(record, ROOT / "results" / "crossover")])


def coarsest(case: str) -> dict[str, str]:
    """Graphs of a batch, and one of up to 2048 nodes, are multilevel's coarsest level, which is decomposed."""
    kind, n, *_ = re.findall(r"^\w+| n=\d+", case)
    return {"multilevel": "exact"} if kind == "dense" or int(n.removeprefix(" n=")) <= PROOF_LIMIT else {}


def proofs() -> str:
    """What a proof costs beside the solve alone, and what it showed."""
    folder = ROOT / "results" / "proofs"
    lines = ["| graph | nodes | k | solve, s | proof, s | without | with | how |", "| --- |" + " --- |" * 7]
    sources = []
    for record in sorted(find(folder, kind="proofs"), key=lambda record: record.config["families"][0]):
        for row in record.results.values():
            bounds = (f"{row[side]['status']} ({row[side]['kind']})" for side in ("without", "with"))
            how = row["why"].split("; ")[0].split(",")[0].removeprefix("proof by the inertia of ")
            start = f"| {row['graph']} | {row['n']} | {row['k']} | {row['solve']:.2f} | {row['proof']:.2f} | "
            lines.append(start + " | ".join([*bounds, how]) + " |")
        sources.append(source(record, folder))
    return "\n".join([*lines, "", *sources])


def warm_start() -> str:
    """Products from nothing and from the answer before a change, and in brackets how many times fewer."""
    folder = ROOT / "results" / "warm-start"
    (record,) = find(folder, kind="warm-start")
    rows: dict[tuple[str, str], dict[str, str]] = {}
    for case, row in record.results.items():
        graph, size, method = case.split()
        ratio = row["cold"] / row["warm"]
        shown = f"({ratio:.1f})" if ratio >= 3 else f"**({ratio:.1f})**"
        cells = rows.setdefault((graph, f"{int(size[2:]):,} | {row['k']}"), {})
        cells[method] = f"{row['cold']:,}, {row['warm']:,} {shown}"
    methods = list(dict.fromkeys(method for row in rows.values() for method in row))
    lines = ["| graph | nodes | k | " + " | ".join(methods) + " |", "| --- | --- | --- |" + " --- |" * len(methods)]
    for (graph, size), row in rows.items():
        lines.append(f"| {graph} | {size} | " + " | ".join(row.get(method, "") for method in methods) + " |")
    return "\n".join([*lines, "", source(record, folder)])


def gradients() -> str:
    """What a backward pass takes beside its forward pass, and how exact the gradient is at the default tolerance."""
    folder = ROOT / "results" / "gradients"
    (record,) = find(folder, kind="gradients")
    columns = "graph | k | method | forward, s | backward, s | ratio, subspace | ratio, from weights | gradient's error"
    lines = [f"| {columns} |", "| --- |" + " --- |" * 7]
    for name, r in record.results.items():
        lines.append(
            f"| {FAMILIES[name].title} | {r['k']} | {r['method']} | {r['forward']:.2f} | {r['backward']:.2f} | "
            f"{r['ratio']:.1f} | {r['with edges']['ratio']:.1f} | {r['accuracy']['0.001']['gradient']:.3f} |"
        )
    return "\n".join([*lines, "", source(record, folder)])


def large_choice() -> str:
    """The graphs that the thresholds were not fitted on, one seed of each, and what auto loses on all."""
    (record,) = find(ROOT / "results" / "large-choice", kind="large-choice")
    r, methods = record.results, record.config["methods"]
    lines = ["| graph | nodes | k | " + " | ".join(methods) + " | auto | its time / the least |"]
    lines.append("| --- | --- | --- |" + " --- |" * (len(methods) + 2))
    seeds = {row["graph"]: row["seed"] for row in reversed(r["unseen"])}
    for row in r["unseen"]:
        if row["seed"] != seeds[row["graph"]]:
            continue
        cells, ratio = seconds_of_methods(row, methods)
        lines.append(f"| {row['graph']} | {row['n']:,} | {row['k']} | {cells} | {row['auto']} | {ratio} |")
    mean, most, first = r["mean ratio"], r["largest ratio"], r["fastest taken"]
    said = (
        f"Geometric mean of the last column over all seeds: {mean['unseen']:.2f} (on the training graphs "
        f"{mean['training']:.3f}, where the best thresholds of the grid reach "
        f"{r['best mean ratio on training graphs']:.3f}); largest {most['unseen']:.1f} ({most['training']:.2f}); "
        f"within 5 % of the least in {first['unseen']:.0%} of the runs ({first['training']:.0%})."
    )
    return "\n".join([*lines, "", said, "", source(record, ROOT / "results" / "large-choice")])


def reliability(by: str = "method") -> str:
    """How often an answer was called converged, and how often that was wrong, by method or by family."""
    records = find(ROOT / "results" / "calibration", kind="calibration")
    total: dict[str, Counter[str]] = {}
    for record in records:
        for name, counts in record.results["by"][by].items():
            of = total.setdefault(name, Counter())
            of.update({key: count for key, count in counts.items() if key != "ends"})
            of.update({"raised": sum(counts["ends"].get(end, 0) for end in ("raised", "warned", "given"))})
    lines = [
        f"| {by} | solves | raised, warned or given up | called converged | error above 10 tol | above its bound |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for name, of in total.items():
        keys = ("solves", "raised", "called converged", "above 10 tol")
        bound = "" if name.startswith("scipy") else f"{of['above its bound']}"
        lines.append(f"| {name} | " + " | ".join(str(of[key]) for key in keys) + f" | {bound} |")
    graphs = sum(record.results["graphs"] for record in records)
    files = ", ".join(f"`{record.file_name}`" for record in records)
    return "\n".join([*lines, "", f"{graphs} graphs; records in `results/calibration/`: {files}."])


def batch() -> str:
    (record,) = find(ROOT / "results" / "batch", kind="batch")
    r, c = record.results, record.config
    lines = [
        f"The k = {c['k']} subspaces of {c['graphs']} graphs of {c['nodes']} nodes, float32, {c['threads']} thread:",
        "",
        "| | seconds | time / krylow's |",
        "| --- | --- | --- |",
        f"| PyG `AddLaplacianEigenvectorPE` | {r['seconds pyg']:.2f} | {r['ratio pyg / krylow']:.1f} |",
        f"| batched `torch.linalg.eigh` | {r['seconds eigh']:.3f} | {r['ratio eigh / krylow']:.1f} |",
        f"| `kl.subspace(L, k)`, largest error {r['largest error of krylow']:.0e} | {r['seconds krylow']:.3f} | 1 |",
        f"| the same, from PyG's `Data` objects on | {r['seconds krylow_from_data']:.3f} "
        f"| PyG / this: {r['ratio pyg / krylow from the same Data']:.1f} |",
    ]
    return "\n".join([*lines, "", source(record, ROOT / "results" / "batch")])


def table2() -> str:
    """The rows that matter: accuracy and F1, a column a data set and protocol."""
    records = find(ROOT / "results" / "table2", kind="table2")
    files = ", ".join(f"`{record.file_name}`" for record in render.ordered(records))
    return f"{render.render_side_by_side(records)}\n\nRecords in `results/table2/`: {files}."


def large(n: int | None = None, threads: int | None = None, *, peers: bool = False) -> str:
    (record,) = find(ROOT / "results" / "large", kind="large")
    shown = markdown(record, n=n, threads=threads)
    parts = [shown, peers_markdown(record) if peers else "", source(record, ROOT / "results" / "large")]
    return "\n\n".join(part for part in parts if part)


def filters() -> str:
    """PyGSP's filters beside krylow's, which is asked for PyGSP's error."""
    (record,) = find(ROOT / "results" / "filters", kind="filters")
    c = record.config
    lines = [
        f"PyGSP's `Sensor` graph of {c['nodes']:,} nodes, {c['signals']} signals in float64, {c['threads']} thread, "
        "processor seconds; PyGSP with its own degree of 30, krylow with a tolerance that gives an error no larger. "
        f"Once a graph, PyGSP estimates the largest eigenvalue in {c['seconds pygsp, largest eigenvalue']:.2f} s, and "
        "krylow's first call takes longer:",
        "",
        "| | PyGSP: error | seconds | krylow: error | seconds | first call | PyGSP / krylow | all in float64 |",
        "| --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for name, r in record.results.items():
        lines.append(
            f"| {name} | {r['error pygsp']:.0e} | {r['seconds pygsp']:.2f} | {r['error krylow']:.0e} | "
            f"{r['seconds krylow']:.3f} | {r['seconds krylow, first call']:.3f} | {r['ratio pygsp / krylow']:.1f} | "
            f"{r['ratio pygsp / krylow, all in float64']:.1f} |"
        )
    return "\n".join([*lines, "", source(record, ROOT / "results" / "filters")])


def first() -> str:
    """Three lines of README, each against another tool."""
    (large,) = find(ROOT / "results" / "large", kind="large")
    rows = [r for r in large.results["rows"] if (r["n"], r["threads"], r["tol"]) == (100_000, 1, 1e-3)]
    ratios = sorted(r["ratio"] for r in rows if SOLVERS[r["best_peer"]].title.startswith("scipy"))
    (pyg,) = find(ROOT / "results" / "integrations", kind="integrations")
    (filters,) = find(ROOT / "results" / "filters", kind="filters")
    slower = sorted(row["ratio pygsp / krylow"] for row in filters.results.values())
    fresh = sorted(r["seconds pygsp"] / r["seconds krylow, first call"] for r in filters.results.values())
    encodings = pyg.results["pyg"]["ratio pyg, tuned / krylow, batched"]
    lines = (
        f"- **scipy** `eigsh`, tuned by hand, takes {ratios[0]:.1f} to {ratios[-1]:.0f} times as long for "
        f"{len(ratios)} subspaces of graphs of 100,000 nodes, those where no other peer is faster "
        "([all graphs and peers](docs/large-graphs.md#measured)).",
        f"- **PyG**'s transform takes {encodings:.1f} times as long for the encodings of all PROTEINS graphs "
        "(`results/integrations/`).",
        f"- **PyGSP** takes {slower[0]:.1f} to {slower[-1]:.1f} times as long for {len(slower)} filters and banks on a "
        f"graph of {filters.config['nodes']:,} nodes, with errors no smaller; {fresh[0]:.1f} to {fresh[-1]:.1f} times "
        "at the first call ([filters](docs/filters.md)).",
    )
    return "\n".join(lines)


def task_rows() -> tuple[dict[str, dict], list[Record]]:
    """Every task's row by its name, the last one measured, and the records that they come from."""
    records = sorted(find(ROOT / "results" / "tasks", kind="tasks"), key=lambda record: record.started)
    rows: dict[str, dict] = {}
    for record in records:
        rows |= record.results
    used = [record for record in records if any(rows[name] is row for name, row in record.results.items())]
    return rows, used


def tasks() -> str:
    """Every task: lines, seconds and accuracy of the usual tool and of krylow; losses in bold."""
    rows, records = task_rows()
    lines = [
        "| task | usual tool | lines: it, krylow | seconds: it, krylow | ratio | what is compared | it | krylow |",
        "|" + " --- |" * 8,
    ]
    for name, row in rows.items():
        ratio = f"{row['ratio']:.1f}" if row["ratio"] >= 1 else f"**{row['ratio']:.2f}**"
        shown = [f"{row[who]:.1e}" if abs(row[who]) < 1e-2 else f"{row[who]:.3g}" for who in ("usual", "krylow")]
        seconds = f"{row['seconds usual']:.2g}, {row['seconds krylow']:.2g}"
        if row.get("MiB usual"):
            seconds += f" ({row['MiB usual']:.0f}, {row['MiB krylow']:.0f} MiB)"
        counts = f"{row['lines usual']}, {row['lines krylow']}"
        lines.append(
            f"| {name} | {row['tool']} | {counts} | {seconds} | {ratio} | {row['accuracy']} | {' | '.join(shown)} |"
        )
    return "\n".join([*lines, "", *(source(record, ROOT / "results" / "tasks") for record in records)])


def source(record: Record, folder: Path) -> str:
    commit = (record.commit or "no commit")[:7]
    return f"Record `{(folder / record.file_name).relative_to(ROOT)}`, commit {commit}."


def fill(path: Path, name: str, text: str) -> None:
    page = path.read_text(encoding="utf-8")
    pattern = re.compile(rf"(<!-- {name} -->\n).*?(<!-- /{name} -->)", flags=re.DOTALL)
    if not pattern.search(page):
        raise SystemExit(f"{path} has no place for the table {name!r}.")
    path.write_text(pattern.sub(lambda m: f"{m[1]}{text}\n{m[2]}", page), encoding="utf-8")


if __name__ == "__main__":
    fill(ROOT / "docs" / "choosing-a-method.md", "crossover", crossover())
    fill(ROOT / "docs" / "choosing-a-method.md", "large choice", large_choice())
    fill(ROOT / "README.md", "first", first())
    fill(ROOT / "docs" / "tasks.md", "tasks", tasks())
    fill(ROOT / "docs" / "choosing-a-method.md", "batch", batch())
    fill(ROOT / "docs" / "large-graphs.md", "proofs", proofs())
    fill(ROOT / "docs" / "large-graphs.md", "warm start", warm_start())
    fill(ROOT / "docs" / "large-graphs.md", "gradients", gradients())
    fill(ROOT / "docs" / "large-graphs.md", "large", large(peers=True))
    draw(find(ROOT / "results" / "large", kind="large")[0], ROOT / "docs" / "pictures" / "large.svg")
    fill(ROOT / "docs" / "filters.md", "filters", filters())
    fill(ROOT / "README.md", "reliability", reliability())
    fill(ROOT / "docs" / "reliability.md", "reliability", reliability())
    fill(ROOT / "docs" / "reliability.md", "reliability families", reliability("family"))
    fill(ROOT / "docs" / "table1.md", "headlines", table1.headlines())
    fill(ROOT / "docs" / "what-is-learned.md", "transfer", table1.transfer())
    fill(ROOT / "docs" / "what-is-learned.md", "starts", table1.starts())
    fill(ROOT / "docs" / "table1.md", "table1", table1.all_rows())
    fill(ROOT / "docs" / "table1.md", "scan", "\n\n".join(table1.scan(data) for data in table1.searched()))
    for data in ("sbm", "PROTEINS"):
        fill(ROOT / "docs" / "what-is-learned.md", f"apart {data}", table1.apart(data))
        fill(ROOT / "docs" / "what-is-learned.md", f"roots {data}", table1.roots(data))
    fill(ROOT / "docs" / "table2.md", "side by side", table2())
    page, folder = ROOT / "docs" / "table2.md", ROOT / "results" / "table2"
    fill(page, "table2", render.render_markdown(find(folder, kind="table2")).rstrip())
    (gained,) = find(folder, kind=gain.KIND)
    fill(page, "gain", gain.render_markdown(gained))
    fill(page, "operators", gain.render_operators(gained))
