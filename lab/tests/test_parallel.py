import functools
import os
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor

import pytest
import torch

from krylow_lab.parallel import parallel


def number_and_process(number):
    return number, os.getpid(), torch.get_num_threads()


def test_every_job_is_done_in_a_process_of_one_thread():
    done = dict(parallel([functools.partial(number_and_process, i) for i in range(3)], workers=2))
    assert [done[i][0] for i in range(3)] == [0, 1, 2]
    assert all(process != os.getpid() and threads == 1 for _, process, threads in done.values())


def test_one_worker_is_this_process():
    done = dict(parallel([functools.partial(number_and_process, i) for i in range(3)], workers=1))
    assert {process for _, process, _ in done.values()} == {os.getpid()}


@pytest.mark.parametrize("kind", [ThreadPoolExecutor, ProcessPoolExecutor])
def test_any_executor_does_the_jobs_and_is_left_open(kind):
    with kind(2) as executor:
        done = dict(parallel([functools.partial(number_and_process, i) for i in range(3)], executor))
        assert executor.submit(divmod, 7, 2).result() == (3, 1)
    assert [done[i][0] for i in range(3)] == [0, 1, 2]
    assert {threads for _, _, threads in done.values()} == {1}


def test_a_failure_reaches_the_caller():
    with pytest.raises(ZeroDivisionError):
        list(parallel([functools.partial(divmod, 1, divisor) for divisor in (1, 0)], workers=2))
