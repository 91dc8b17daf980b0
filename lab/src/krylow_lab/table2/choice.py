"""From what a user asks for to the tables that are made."""

from __future__ import annotations

from typing import Any

from krylow import _checks
from krylow.data.tudataset import VARIABLE
from krylow_lab.table2.plan import (
    DATA,
    PROTOCOL_A,
    PROTOCOL_B,
    PROTOCOL_L,
    PROTOCOL_R,
    PROTOCOLS,
    QUICK,
    Protocol,
)
from krylow_lab.text.glue import find_glue

#: Rows of MRPC's splits in the quick look.
QUICK_ROWS = 400

Tables = list[tuple[dict[str, Any], Protocol]]


def tables(data: str, protocol: str) -> Tables:
    """Return pairs of data and protocol; "all" is allowed for either, and is A and B for the latter."""
    names = DATA if data == "all" else (_checks.choice(data, (*DATA, "all"), "data"),)
    _checks.choice(protocol, (*PROTOCOLS, "all"), "protocol")
    every = {p.name: p for p in (PROTOCOL_A, PROTOCOL_B, PROTOCOL_R, PROTOCOL_L)}
    chosen = [PROTOCOL_A, PROTOCOL_B] if protocol == "all" else [every[protocol]]
    return [({"name": name}, p) for name in names for p in chosen]


def quick_tables() -> tuple[Tables, list[str]]:
    """Return the tables of the quick look, and what to say about them: without MRPC where it is not local."""
    asked: Tables = [({"name": "synthetic"}, QUICK)]
    if find_glue("mrpc", "train") is None or find_glue("mrpc", "dev") is None:
        return asked, [
            f"MRPC is left out: no MRPC/train.tsv and MRPC/dev.tsv in the folder that {VARIABLE} names. "
            "Without --quick it is fetched where there is a network."
        ]
    return [*asked, ({"name": "mrpc", "limit": QUICK_ROWS}, QUICK)], [
        f"A look at the machinery: {QUICK_ROWS} rows of MRPC show no more than the more frequent answer."
    ]
