"""Write the tables of README and docs from the records: `python benchmarks/tables.py`. Measures nothing.

A table stands between a pair of comments, `<!-- name -->` and `<!-- /name -->`.
"""

from __future__ import annotations

import re
from pathlib import Path

from krylow.experiments.records import Record, find
from krylow.experiments.table1 import PAPER, render_markdown

ROOT = Path(__file__).parent.parent


def crossover() -> str:
    (record,) = find(ROOT / "results" / "crossover", kind="crossover")
    methods = record.config["methods"]
    lines = ["| graphs | " + " | ".join(methods) + " | auto |", "| --- |" + " --- |" * (len(methods) + 1)]
    for name, row in record.results.items():
        seconds = row["seconds"]
        best = min(seconds.values())
        cells = [f"**{s:.3f}**" if s == best else f"{s:.3f}" for s in (seconds[m] for m in methods)]
        lines.append(f"| {name} | " + " | ".join(cells) + f" | {row['auto']} |")
    return "\n".join([*lines, "", source(record, ROOT / "results" / "crossover")])


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


#: Rows of Table 1 that README shows: number and name in the record, budget in multiples of k, and what to call it.
HEADLINES = (
    ("2", "standard Lanczos, random start", None, "standard Lanczos, random start"),
    ("5", "gammas only (theory)", None, "learned gammas only"),
    ("3", "untrained probe, literal", None, "the paper's probe, untrained"),
    ("6", "full network (theory), literal", None, "the paper's network, its theory loss"),
    ("7", "full network (subspace), literal", None, "the paper's network, trained on the error itself"),
    ("9", "thick-restart Lanczos", 4, "thick-restart Lanczos, 4K products"),
    ("12", "root probe", 4, "**learned filter roots (ours), 4K products**"),
    ("9", "thick-restart Lanczos", 6, "thick-restart Lanczos, 6K products"),
    ("12", "root probe", 6, "**learned filter roots (ours), 6K products**"),
)


def table1_records() -> list[Record]:
    return find(ROOT / "results" / "table1", kind="table1")


def headlines() -> str:
    """The rows of README: error and products."""
    records = sorted(table1_records(), key=lambda r: (r.config["data"] != "sbm", r.config["k"]))
    names = [f"{'SBM' if r.config['data'] == 'sbm' else r.config['data']} K={r.config['k']}" for r in records]
    lines = ["| error (products) | " + " | ".join(names) + " |", "| --- |" + " --- |" * len(names)]
    paper = [PAPER[r.config["data"], r.config["k"]] for r in records]
    lines.append("| *the paper: standard Lanczos* | " + " | ".join(f"*{p[0]:.3f}*" for p in paper) + " |")
    lines.append("| *the paper: unrolled Lanczos* | " + " | ".join(f"*{p[1]:.3f}*" for p in paper) + " |")
    for number, name, multiple, title in HEADLINES:
        cells = [headline(record, number, name, multiple) for record in records]
        lines.append(f"| {title} | " + " | ".join(cells) + " |")
    files = ", ".join(f"`{r.file_name}`" for r in records)
    return "\n".join([*lines, "", f"Records in `results/table1/`: {files}; all rows in [Table 1](docs/table1.md)."])


def headline(record: Record, number: str, name: str, multiple: int | None) -> str:
    budget = None if multiple is None else multiple * record.config["k"]
    for row in record.results["rows"]:
        if (row["row"], row["name"]) == (number, name) and (budget is None or row.get("budget") == budget):
            products = sorted(set(row["products"]))
            spent = str(products[0]) if len(products) == 1 else f"{products[0]}-{products[-1]}"
            return f"{row['mean']:.3f} ± {row['std']:.3f} ({spent})"
    raise SystemExit(f"{record.file_name} has no row {number}, {name!r}, budget {budget}.")


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
    fill(ROOT / "README.md", "batch", batch())
    fill(ROOT / "README.md", "table1", headlines())
    fill(ROOT / "docs" / "table1.md", "table1", render_markdown(table1_records()).rstrip())
