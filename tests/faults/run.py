"""Faults on purpose: commands that are killed at random moments, and disks, folders, memory and pipes that fail them.

    python tests/faults/run.py --kills 60 --seed 0 --out results/faults

A command runs in a fork of this process, which has loaded everything, and is killed when it has used a random share of
the processor time that it takes. What was whole before is whole afterwards; run again until it ends, the command leaves
the same files with the same content as one that nobody disturbed, and no others.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import hashlib
import json
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

TICKS = os.sysconf("SC_CLK_TCK")
#: Seconds after which a command that nobody kills has failed.
LONGEST = 900


@dataclass(frozen=True)
class Command:
    """A command line, and what of its results may differ from one run to the next."""

    arguments: tuple[str, ...]
    varying: tuple[str, ...] = ()


COMMANDS = {
    "filter": Command(("filter", "graph.npz", "x.npy", "-k", "12", "--method", "chebyshev", "-o", "out/y.npy")),
    "train": Command(("train", "--k", "2", "--epochs", "4", "--probe", "none", "--out", "out")),
    "reproduce": Command(
        ("reproduce", "table1", "--k", "4", "--seeds", "1", "--workers", "1", "--out", "out"),
        (".svg", ".png", ".html"),  # pictures and page: made anew from the record at every run
    ),
}


def load() -> None:
    """Import all that the commands need, once: an import that runs out of memory may end in anything, a crash too."""
    import torch

    torch.set_num_threads(1)
    import krylow_lab.commands.reproduce
    import krylow_lab.report
    import krylow_lab.table1
    import krylow_lab.table1.pictures
    import krylow_lab.table1.run  # noqa: F401


def shrink() -> None:
    """Make the grid of the reproduction small."""
    import krylow_lab.table1
    from krylow_lab.table1 import plan

    one = dict.fromkeys(plan.FORMS, ((3, 3, 3),))
    small = dataclasses.replace(plan.REDUCED, probes=one, epochs=1, learned=((3, 3, 3),), learned_lrs=(3e-3,))
    krylow_lab.table1.REDUCED = small
    plan.GRIDS[small.name] = small


def inputs(folder: Path) -> None:
    """Write a graph and signals."""
    rng = np.random.default_rng(0)
    n = 3000
    W = sp.random_array((n, n), density=0.003, rng=rng, format="csr") + sp.diags_array(np.ones(n - 1), offsets=1)
    sp.save_npz(folder / "graph.npz", sp.csr_array(sp.triu(W, 1) + sp.triu(W, 1).T))
    np.save(folder / "x.npy", rng.standard_normal((n, 40)))
    (folder / "out").mkdir()


def start(arguments: tuple[str, ...], folder: Path, prepare: Callable[[], None] = lambda: None) -> int:
    """Run a command in a fork, in ``folder``, with its messages in a file beside it."""
    child = os.fork()
    if child:
        return child
    code = 1
    try:
        os.chdir(folder)
        messages = os.open(folder.with_suffix(".err"), os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        os.dup2(messages, 2)
        sys.stdout, sys.stderr = open(1, "w", closefd=False), open(2, "w", closefd=False)  # noqa: SIM115 (not those of a test)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        sys.argv = ["krylow", *arguments]
        prepare()
        from krylow.cli.app import run

        run()
    except SystemExit as leave:
        code = leave.code if isinstance(leave.code, int) else 0
    except BaseException as error:
        os.write(2, f"Traceback: {error!r}".encode())
    finally:
        sys.stderr.flush()
        os._exit(code)


def used(process: int) -> float:
    """Return the processor time of a process, in seconds."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def finish(process: int) -> tuple[int, float]:
    """Wait for a process; return its exit code, negative for a signal, and its processor time."""
    _, status, usage = os.wait4(process, 0)
    return os.waitstatus_to_exitcode(status), usage.ru_utime + usage.ru_stime


def kill_after(process: int, seconds: float, how: int) -> int:
    """Send a signal after so much processor time, and return the exit code."""
    begin = time.monotonic()
    while used(process) < seconds and os.waitid(os.P_PID, process, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
        time.sleep(0.0005)
        if time.monotonic() - begin > LONGEST:
            break
    with contextlib.suppress(ProcessLookupError):
        os.kill(process, how)
    return finish(process)[0]


def contents(folder: Path, varying: tuple[str, ...] = ()) -> dict[str, str]:
    """Return what the files of a folder hold: a sum, or of a record what was measured, without its times."""
    return {
        str(path.relative_to(folder)): "" if path.suffix in varying else content_of(path)
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def content_of(path: Path) -> str:
    data = path.read_bytes()
    if path.suffix == ".json":
        results = json.loads(data)["results"]
        data = json.dumps(timeless(results), sort_keys=True).encode()
    elif path.suffix == ".safetensors":  # its header has no order
        size = int.from_bytes(data[:8], "little")
        data = json.dumps(json.loads(data[8 : 8 + size]), sort_keys=True).encode() + data[8 + size :]
    return hashlib.sha256(data).hexdigest()


def timeless(value: Any) -> Any:
    """Return plain values without those that are times."""
    if isinstance(value, dict):
        return {key: timeless(item) for key, item in value.items() if "second" not in key and "time" not in key}
    return [timeless(item) for item in value] if isinstance(value, list) else value


def killed(name: str, kills: int, seed: int, how: int = signal.SIGKILL) -> dict[str, Any]:
    """Kill a command so many times, and run it to its end after each series; return what was lost or left."""
    command, rng = COMMANDS[name], random.Random(seed)
    found: dict[str, Any] = {"command": name, "signal": signal.Signals(how).name, "kills": 0, "ends": 0, "wrong": []}
    with tempfile.TemporaryDirectory() as place:
        undisturbed = Path(place) / "undisturbed"
        undisturbed.mkdir()
        inputs(undisturbed)
        code, seconds = finish(start(command.arguments, undisturbed))
        if code != 0:
            raise RuntimeError(f"{name} ends with {code}: {undisturbed.with_suffix('.err').read_text()}")
        expected = contents(undisturbed / "out", command.varying)
        found["seconds"] = round(seconds, 3)
        while found["kills"] < kills:
            folder = Path(place) / f"run-{found['ends']}"
            folder.mkdir()
            inputs(folder)
            for _ in range(rng.randint(1, 4)):
                if found["kills"] < kills:
                    _kill_once(command, folder, rng.uniform(0, 1.05 * seconds), how, found, expected)
            code, _ = finish(start(command.arguments, folder))
            found["ends"] += 1
            after = contents(folder / "out", command.varying)
            if code != 0:
                found["wrong"].append(f"exit code {code}: {folder.with_suffix('.err').read_text()[-300:]}")
            if after != expected:
                differ = sorted(key for key in after.keys() | expected.keys() if after.get(key) != expected.get(key))
                found["wrong"].append(f"lost, left or other: {differ}")
            shutil.rmtree(folder)
    return found


def _kill_once(
    command: Command, folder: Path, seconds: float, how: int, found: dict[str, Any], expected: dict[str, str]
) -> None:
    """Kill one run, and look whether what was whole before it is whole after it."""
    states = ("state.safetensors", *command.varying)  # written over at every step
    before = {key: value for key, value in contents(folder / "out").items() if not key.endswith(states)}
    code = kill_after(start(command.arguments, folder), seconds, how)
    found["kills"] += int(code == -how)
    after = contents(folder / "out")
    lost = sorted(key for key, value in before.items() if after.get(key) != value and ".krylow-" not in key)
    if lost:
        found["wrong"].append(f"lost by a kill: {lost}")
    partial = [key for key, value in after.items() if key in expected and expected[key] not in ("", value)]
    if wrong := sorted(key for key in partial if not key.endswith(states)):
        found["wrong"].append(f"a part of a file: {wrong}")


# What fails beside kills


@contextlib.contextmanager
def place() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "run"
        path.mkdir()
        inputs(path)
        yield path


def outcome(folder: Path, arguments: tuple[str, ...], code: int, prepare: Callable[[], None] = lambda: None) -> str:
    """Run a command that has to end with ``code``, one line of message and no file; return what is wrong, or ""."""
    before = sorted(path.name for path in (folder / "out").iterdir())
    got, _ = finish(start(arguments, folder, prepare))
    said = folder.with_suffix(".err").read_text()
    after = sorted(path.name for path in (folder / "out").iterdir())
    if got != code or "Traceback" in said or not said.strip() or before != after:
        return f"exit code {got}, {before} became {after}, said {said[-300:]!r}"
    return ""


FILTER = COMMANDS["filter"].arguments


def full_disk() -> str:
    """Files may have 4 KiB: less than the answer has."""

    def limit() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))

    with place() as folder:
        (folder / "out" / "y.npy").write_bytes(b"an older answer")
        wrong = outcome(folder, FILTER, 2, limit)
        return wrong or ("" if (folder / "out" / "y.npy").read_bytes() == b"an older answer" else "the older is gone")


def full_disk_in_training() -> str:
    def limit() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (512, 512))

    with place() as folder:
        return outcome(folder, COMMANDS["train"].arguments, 2, limit)


def small_disk() -> str:
    """A file system of 64 KiB, where this user may mount one."""
    with place() as folder:
        mounted = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", folder / "out"], capture_output=True, check=False
        )
        if mounted.returncode:
            return ""
        try:
            return outcome(folder, FILTER, 2)
        finally:
            subprocess.run(["umount", folder / "out"], check=True)


def unwritable_folder() -> str:
    """/proc takes no files, whoever asks."""
    with place() as folder:
        return outcome(folder, (*FILTER[:-1], "/proc/y.npy"), 2) or outcome(
            folder, (*COMMANDS["train"].arguments[:-1], "/proc/train"), 2
        )


def out_of_memory() -> str:
    """The signals alone, as float64, take more than all the addresses that the process may have."""

    def limit() -> None:
        size = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (size + (96 << 20), size + (96 << 20)))

    with place() as folder:
        np.save(folder / "x.npy", np.zeros((3000, 5000)))
        return outcome(folder, FILTER, 2, limit)


def two_writers() -> str:
    """Two commands write different answers to one file, again and again: it is always one of the two."""
    with place() as folder:
        answers, commands = [], [(*FILTER[:4], k, *FILTER[5:]) for k in ("12", "3")]
        for command in commands:
            finish(start(command, folder))
            answers.append((folder / "out" / "y.npy").read_bytes())
        if answers[0] == answers[1]:
            return "the answers do not differ"
        for _ in range(4):
            running = [start(command, folder) for command in commands]
            codes = [finish(process)[0] for process in running]
            if codes != [0, 0] or (folder / "out" / "y.npy").read_bytes() not in answers:
                return f"exit codes {codes}, or a mixture"
        return "" if os.listdir(folder / "out") == ["y.npy"] else f"left: {os.listdir(folder / 'out')}"


def two_trainings() -> str:
    """Two trainings in one folder at once end as one does."""
    with place() as folder, place() as other:
        finish(start(COMMANDS["train"].arguments, other))
        running = [start(COMMANDS["train"].arguments, folder) for _ in range(2)]
        codes = [finish(process)[0] for process in running]
        same = contents(folder / "out") == contents(other / "out")
        return "" if codes == [0, 0] and same else f"exit codes {codes}, the same files: {same}"


def closed_pipe() -> str:
    """The reader of a pipe goes before the answer comes."""
    read, write = os.pipe()
    os.close(read)
    with place() as folder:
        code, _ = finish(start((*FILTER[:-1], "-"), folder, lambda: os.dup2(write, 1)))
        os.close(write)
        said = folder.with_suffix(".err").read_text()
        return "" if code == 141 and "Traceback" not in said else f"exit code {code}, said {said[-300:]!r}"


def full_pipe() -> str:
    """What is printed goes to a device that is full."""
    with place() as folder:
        return outcome(folder, (*FILTER[:-1], "-"), 4, lambda: os.dup2(os.open("/dev/full", os.O_WRONLY), 1))


FAULTS = {
    check.__name__: check
    for check in (
        *(full_disk, full_disk_in_training, small_disk, unwritable_folder, out_of_memory),
        *(two_writers, two_trainings, closed_pipe, full_pipe),
    )
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=60)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=None, help="folder for the record")
    args = parser.parse_args()
    load()
    shrink()
    started, begin = datetime.now(UTC), time.perf_counter()
    faults = {}
    for name, check in FAULTS.items():
        faults[name] = check() or "as it should be"
        print(name, faults[name], flush=True)
    series = []
    dear = args.kills // 8  # a reproduction takes a hundred times as long as the others
    plan = {"filter": (args.kills - dear) // 2, "train": args.kills - dear - (args.kills - dear) // 2}
    runs = [(name, count, signal.SIGKILL) for name, count in plan.items()]
    runs += [("train", max(1, args.kills // 10), signal.SIGTERM), ("reproduce", dear, signal.SIGKILL)]
    for i, (name, count, how) in enumerate(runs):
        series.append(killed(name, count, args.seed + i, how) if count else {"command": name, "kills": 0, "wrong": []})
        print(series[-1], flush=True)
    wrong = [fault for fault in faults.values() if fault != "as it should be"]
    wrong += [line for one in series for line in one["wrong"]]
    kills = sum(one["kills"] for one in series)
    if args.out:
        from krylow_lab.records import Record

        results = {"kills": kills, "wrong": len(wrong), "series": series, "faults": faults}
        config = {"kills": args.kills, "seed": args.seed}
        seconds = time.perf_counter() - begin
        record = Record.create("faults", config, results, seed=args.seed, started=started, wall_seconds=seconds)
        print(record.write(args.out))
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
