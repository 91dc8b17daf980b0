"""What crashes or hangs is a row; apart from the soak's tests, so that its processes import nothing large."""

import os
import signal
import time

from soak.watchdog import watched


def ill(seed):
    if seed == 1:
        os.kill(os.getpid(), signal.SIGSEGV)
    if seed == 2:
        while True:
            pass
    if seed == 3:
        time.sleep(1000)
    return {"seed": seed, "outcome": "ok"}


def test_crashes_and_hangs_are_rows_and_the_run_goes_on():
    rows = sorted(watched(ill, range(6), 2, seconds=1, clock=8.0), key=lambda row: row["seed"])
    assert [row["outcome"] for row in rows] == ["ok", "crash", "hang", "hang", "ok", "ok"]
