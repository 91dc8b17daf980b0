"""Low-pass attention beside nn.MultiheadAttention and beside the exact filter: time and memory, both passes.

    python benchmarks/attention.py [--tokens 64 128 256 512] [--threads 1] [--out results/attention]

One process, the modules take turns, forward and backward apart, medians. MultiheadAttention is measured twice: as it is
fastest (``need_weights=False``, torch's fused kernel) and as it is called by default, which holds the weights; the
ratios are to the faster. Memory is the most that torch has allocated at any time of one forward and backward pass.
"""

from __future__ import annotations

import argparse
import datetime
import json
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch
from timing import interleaved
from torch import Tensor, nn

from krylow.nn import LowPassAttention
from krylow_lab.records import Record

HEADS, K, M = 4, 10, 20
FUSED, DEFAULT, OURS, EXACT = "MultiheadAttention", "MultiheadAttention with weights", "unrolled", "exact"


def modules(embed: int) -> dict[str, Callable[[Tensor], Tensor]]:
    torch.manual_seed(0)
    attention = nn.MultiheadAttention(embed, HEADS, batch_first=True)
    return {
        FUSED: lambda x: attention(x, x, x, need_weights=False)[0],
        DEFAULT: lambda x: attention(x, x, x)[0],
        OURS: LowPassAttention(embed, HEADS, k=K, m=M),
        "unrolled, cutoff": LowPassAttention(embed, HEADS, cutoff=0.5, m=M),
        "block": LowPassAttention(embed, HEADS, filter="block", k=K, m=24),
        EXACT: LowPassAttention(embed, HEADS, filter="exact", k=K),
    }


def tokens(n: int, batch: int, embed: int) -> Tensor:
    x = torch.randn(batch, n, embed, generator=torch.Generator().manual_seed(1))
    return nn.functional.layer_norm(x, (embed,)).requires_grad_()


def measure(n: int, batch: int, embed: int, repeats: int) -> dict[str, float]:
    x = tokens(n, batch, embed)
    jobs = modules(embed)
    forward, outputs = interleaved({name: (lambda f=f: f(x)) for name, f in jobs.items()}, repeats=repeats)
    grad = torch.randn(batch, n, embed, generator=torch.Generator().manual_seed(2))
    backward, _ = interleaved(
        {name: (lambda y=y: y.backward(grad, retain_graph=True)) for name, y in outputs.items()}, repeats=repeats
    )
    memory = {name: peak_memory(lambda f=f: f(x).backward(grad)) for name, f in jobs.items()}
    both = {name: forward[name] + backward[name] for name in jobs}
    return {
        **{f"seconds forward, {name}": seconds for name, seconds in forward.items()},
        **{f"seconds backward, {name}": seconds for name, seconds in backward.items()},
        **{f"megabytes, {name}": value for name, value in memory.items()},
        **{f"time / MultiheadAttention, {name}": both[name] / both[FUSED] for name in jobs if name != FUSED},
        "time / MultiheadAttention with weights, unrolled": both[OURS] / both[DEFAULT],
        "exact / unrolled": both[EXACT] / both[OURS],
        "memory / MultiheadAttention, unrolled": memory[OURS] / memory[FUSED],
        "memory / MultiheadAttention with weights, unrolled": memory[OURS] / memory[DEFAULT],
    }


def peak_memory(job: Callable[[], None]) -> float:
    """Return the most megabytes that a job has allocated at any time, from torch's own account of every allocation."""
    with torch.profiler.profile(profile_memory=True, activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        job()
    with tempfile.TemporaryDirectory() as folder:
        trace = Path(folder) / "trace.json"
        profile.export_chrome_trace(str(trace))
        events = [event for event in json.loads(trace.read_text())["traceEvents"] if event["name"] == "[memory]"]
    events.sort(key=lambda event: event["ts"])
    first = events[0]["args"]
    return (
        max(event["args"]["Total Allocated"] for event in events) - first["Total Allocated"] + first["Bytes"]
    ) / 2**20


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokens", type=int, nargs="+", default=[64, 128, 256, 512])
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--embed", type=int, default=128)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--out", default=None, help="folder for the record; none is written without it")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    started, begin = datetime.datetime.now(datetime.UTC), time.perf_counter()
    results = {}
    for n in args.tokens:
        results[f"n={n}"] = measure(n, args.batch, args.embed, args.repeats)
        print(f"n = {n}")
        for name, value in results[f"n={n}"].items():
            print(f"  {name:56s} {value:.4g}")
    if args.out:
        config = {name: getattr(args, name) for name in ("tokens", "batch", "embed", "threads")}
        config |= {"heads": HEADS, "k": K, "m": M}
        wall = time.perf_counter() - begin
        record = Record.create("attention", config, results, seed=None, started=started, wall_seconds=wall)
        print(record.write(args.out))


if __name__ == "__main__":
    main()
