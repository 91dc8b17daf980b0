"""What the experiment consists of: the paper's numbers, the rows, the two protocols and what is tried in each.

A *setting* is a flat dict that fixes one training completely but for its seed. Every row of the table has as many
candidate settings as any other row that has something to choose, and all rows share the draws of what they share.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from typing import Any

#: The paper's Table 2: data -> row -> accuracy, F1.
PAPER = {
    "qnli": {"unrolled": (61.82, 65.75), "lanczos": (55.43, 30.84), "attention": (61.85, 62.15)},
    "mrpc": {"unrolled": (69.61, 81.76), "lanczos": (68.87, 81.41), "attention": (68.38, 81.22)},
}
DATA = ("mrpc", "qnli", "synthetic")
PROTOCOLS = ("A", "B", "R", "L")

#: The trained rows: name in settings and records -> what it is called in the table.
TRAINED = {
    "unrolled": "Unrolled Lanczos (learned gammas)",
    "probe": "Unrolled Lanczos with the paper's probe",
    "lanczos": "Standard Lanczos (gamma = 1)",
    "block": "block Lanczos (gamma = 1)",
    "attention": "Self-Attention",
    "none": "no mixing",
    "exact": "exact low-pass",
    "kernel": "the same graph, $D^{-1} W$",
    "identity": "Self-Attention, token-only, identity start",
}
#: The rows without a network.
COUNTED = {"majority": "majority class", "overlap": "logistic regression on token overlap"}
ROWS = {**TRAINED, **COUNTED}
#: Rows that learn a graph, and those of them that filter in a Krylov basis.
ON_A_GRAPH = ("unrolled", "probe", "lanczos", "block", "exact", "kernel")
IN_A_BASIS = ("unrolled", "probe", "lanczos", "block")
#: Columns of the block's start: a divisor of every m that is tried, so that all bases have as many vectors.
BLOCK = 5

#: The part of every model that no row changes. The paper names none of it.
COMMON: dict[str, Any] = {"embed_dim": 64, "ffn_dim": 128, "batch": 32, "heads": 4, "embeddings": "scratch"}
#: Data whose training splits take minutes an epoch.
LONG = ("qnli",)
#: Longest sequence.
MAX_TOKENS = 64
#: Part of the training split that settings and epochs are chosen on.
VALIDATION = 0.15


@dataclass(frozen=True)
class Rung:
    """How many candidates are trained, with how many seeds, and on how many rows of the training split (None: all)."""

    candidates: int
    seeds: int
    train_rows: int | None = None


@dataclass(frozen=True)
class Protocol:
    """How a table is made.

    "A" is the paper's protocol, "B" is tuned, "R" is one recipe for every row and two epochs, "L" is tuned as B with
    the filter as the paper writes it; "quick" is a look. After each rung the best mean validation accuracies go on,
    and the best of the last is trained with every seed.
    """

    name: str
    rows: tuple[str, ...]
    rungs: tuple[Rung, ...]
    long_rungs: tuple[Rung, ...] = ()  # where the training split is long
    draws: int = 1  # candidates a row, in protocol B

    def rungs_of(self, data: str) -> tuple[Rung, ...]:
        """Return the rungs for a data set."""
        return self.long_rungs if data in LONG and self.long_rungs else self.rungs


PROTOCOL_A = Protocol("A", tuple(row for row in TRAINED if row != "block"), (Rung(3, 1),))
PROTOCOL_B = Protocol(
    "B",
    tuple(row for row in TRAINED if row not in ("probe", "block")),
    rungs=(Rung(4, 1), Rung(2, 2)),
    long_rungs=(Rung(4, 1, train_rows=6000),),
    draws=4,
)
PROTOCOL_L = replace(PROTOCOL_B, name="L", rows=("unrolled", "lanczos"))
PROTOCOL_R = Protocol("R", tuple(row for row in TRAINED if row != "probe"), ())
QUICK = Protocol("quick", PROTOCOL_B.rows, ())


def candidates(protocol: Protocol, row: str, data: str, *, vectors: bool = False) -> list[dict[str, Any]]:
    """Return the settings that are tried for a row; ``vectors``: protocol B may draw pretrained word vectors."""
    if protocol.name == "A":
        return _as_the_paper(row)
    if protocol.name in ("quick", "R"):
        return [{**_recipe(row, data), "epochs": {"quick": 3, "R": 2}[protocol.name]}]
    found = [_recipe(row, data)]
    draw = 0
    while len(found) < protocol.draws:
        setting = _drawn(row, data, draw, vectors and data != "synthetic")
        draw += 1
        if setting not in found:
            found.append(setting)
    return [{**setting, "literal": True} for setting in found] if protocol.name == "L" else found


def _as_the_paper(row: str) -> list[dict[str, Any]]:
    """Return the paper's settings: 10 epochs, learning rate 1e-4, m of 15, 20 and 25, K = m / 2 as in its Table 1.

    The graph is the literal one: the combinatorial Laplacian, of features D = E / 4 of what enters the block.
    """
    base = {**COMMON, "row": row, "lr": 1e-4, "schedule": "constant", "epochs": 10, "dropout": 0.1}
    base["token_graph"] = row == "identity"
    if row not in ON_A_GRAPH:
        return [base]
    base |= {"distance": 1.0, "feature_dim": 16}
    if row == "kernel":
        return [base]
    base["kind"] = "combinatorial"
    if row == "exact":  # no m to choose: K as for the middle one
        return [{**base, "k": 10}]
    return [{**base, "k": m // 2, "m": m} for m in (15, 20, 25)]


def _recipe(row: str, data: str) -> dict[str, Any]:
    """Return what is tried first in protocol B: a recipe known to train on these tasks."""
    synthetic = data == "synthetic"
    base = {**COMMON, "row": row, "lr": 3e-3 if synthetic else 1e-3, "schedule": "warm-up", "epochs": 6}
    base |= {"dropout": 0.0 if synthetic else 0.1, "token_graph": row != "attention"}
    if row not in ON_A_GRAPH:
        return base
    base |= {"distance": 8.0 if synthetic else 16.0, "feature_dim": 64}
    if row != "kernel":
        base |= {"kind": "normalized", "cutoff": 0.5}
    if row in IN_A_BASIS:
        base["m"] = 20
    return base


def _drawn(row: str, data: str, draw: int, vectors: bool) -> dict[str, Any]:
    """Return one draw from a row's space. All rows make the same draws, and each takes what concerns it."""
    random_draw = random.Random(draw)
    choose = random_draw.choice
    shared = {
        "lr": choose((5e-4, 1e-3, 2e-3)),
        "schedule": choose(("warm-up", "warm-up", "constant")),
        "epochs": choose((4, 6, 8)),
        "dropout": choose((0.1, 0.2, 0.3)),
        "embeddings": choose(("scratch", "vectors")) if vectors else "scratch",
    }
    graph = {"distance": choose((4.0, 8.0, 16.0, 32.0)), "feature_dim": choose((16, 64))}
    kind = choose(("normalized", "normalized", "combinatorial"))
    band: dict[str, Any] = choose(({"cutoff": 0.3}, {"cutoff": 0.5}, {"cutoff": 0.5}, {"cutoff": 0.7}, {"k": 10}))
    m = choose((15, 20, 25))
    heads, token_only = choose((1, 4, 8)), choose((True, False))
    setting = {**_recipe(row, data), **shared}
    if row in ("attention", "identity"):
        setting["heads"] = heads
    if row == "attention":
        setting["token_graph"] = token_only
    if row in ON_A_GRAPH:
        setting |= graph
    if "kind" in setting:
        del setting["cutoff"]
        setting |= {"kind": kind, **band}
    if row in IN_A_BASIS:
        setting["m"] = m
    return setting
