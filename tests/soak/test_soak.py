"""Ten seconds of the soak, on new cases every day; the rest of it is ``make soak``."""

import datetime
import os
import signal
import time

from soak.case import GRAPHS, draw, run
from soak.run import HARD
from soak.watchdog import watched

SECONDS, LARGEST = 10.0, 1200
#: Cases that failed once.
FOUND: tuple[int, ...] = ()


def test_no_answer_of_today_is_wrong():
    today = datetime.datetime.now(datetime.UTC).date().toordinal() * 10_000
    begin, seed, failed = time.perf_counter(), today, []
    while time.perf_counter() - begin < SECONDS and seed < today + 10_000:
        row = run(seed, LARGEST)
        if row["outcome"] in HARD:
            failed.append(row)
        seed += 1
    assert not failed, failed
    assert seed > today + 5


def test_cases_that_failed_once():
    assert not [row for row in map(run, FOUND) if row["outcome"] in HARD]


def test_every_case_follows_from_its_number_and_every_family_is_drawn():
    assert draw(17) == draw(17)
    assert {draw(seed).family for seed in range(3000)} == set(GRAPHS)


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
    rows = sorted(watched(ill, range(6), 2, seconds=1, clock=15.0), key=lambda row: row["seed"])
    assert [row["outcome"] for row in rows] == ["ok", "crash", "hang", "hang", "ok", "ok"]
