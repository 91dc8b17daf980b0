"""Threads of our own, what they do to those of the libraries, and Ctrl-C while they write."""

import signal
import threading

import pytest
import scipy.linalg  # noqa: F401 - so that its library is among those that are looked at
import torch
from threadpoolctl import threadpool_info

from krylow._threads import shared, sharing, thread_count, uninterrupted


def blas_threads():
    return [library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas"]


@pytest.fixture
def threads():
    """Give torch three threads for a test."""
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    yield 3
    torch.set_num_threads(before)


def test_inside_libraries_run_on_one_thread_and_afterwards_on_as_many_as_before(threads):
    before = blas_threads()
    with sharing():
        assert torch.get_num_threads() == 1
        assert thread_count() == threads
        assert set(blas_threads()) == {1}
        with sharing():
            assert thread_count() == threads
        assert set(blas_threads()) == {1}
        assert torch.get_num_threads() == 1
    assert torch.get_num_threads() == thread_count() == threads
    assert blas_threads() == before


def test_an_error_inside_restores_all(threads):
    before = blas_threads()
    with pytest.raises(KeyError), sharing():
        raise KeyError
    assert (torch.get_num_threads(), blas_threads()) == (threads, before)


def test_two_threads_inside_leave_in_any_order(threads):
    before = blas_threads()
    entered, leave, left = threading.Event(), threading.Event(), threading.Event()

    def other():
        with sharing():
            entered.set()
            leave.wait(10)
        left.set()

    thread = threading.Thread(target=other)
    with sharing():
        thread.start()
        assert entered.wait(10)
    assert torch.get_num_threads() == threads
    leave.set()
    assert left.wait(10)
    thread.join()
    assert blas_threads() == before
    assert torch.get_num_threads() == threads


def test_ranges_run_on_threads_of_their_own_where_torch_has_one(threads):
    with sharing():
        seen = shared(lambda start, stop: (start, stop, threading.get_ident(), torch.get_num_threads()), [0, 2, 5, 9])
    assert [each[:2] for each in seen] == [(0, 2), (2, 5), (5, 9)]
    assert seen[-1][2] == threading.get_ident()
    assert all(ident != threading.get_ident() for _, _, ident, _ in seen[:-1])
    assert {each[3] for each in seen} == {1}


@pytest.mark.parametrize("failing", [0, 1])
def test_an_error_of_any_share_comes_out_after_all_have_ended(failing):
    ended = []

    def work(start, stop):
        if start == failing:
            raise ValueError(f"share {start}")
        ended.append(start)

    with pytest.raises(ValueError, match=f"share {failing}"):
        shared(work, [0, 1, 2])
    assert ended == [1 - failing]


def test_ctrl_c_comes_through_at_the_end_and_the_handler_is_back():
    former, done = signal.getsignal(signal.SIGINT), []

    def work():
        with uninterrupted():
            signal.raise_signal(signal.SIGINT)
            done.append(True)

    with pytest.raises(KeyboardInterrupt):
        work()
    assert done
    assert signal.getsignal(signal.SIGINT) is former


def test_an_error_inside_comes_through_and_the_handler_is_back():
    former = signal.getsignal(signal.SIGINT)
    with pytest.raises(ZeroDivisionError), uninterrupted():
        raise ZeroDivisionError
    assert signal.getsignal(signal.SIGINT) is former


def test_another_thread_is_left_alone():
    done = []

    def work():
        with uninterrupted():
            done.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert done == [signal.getsignal(signal.SIGINT)]


def test_a_handler_of_another_language_is_left_alone(monkeypatch):
    monkeypatch.setattr(signal, "getsignal", lambda number: None)
    monkeypatch.setattr(signal, "signal", None)
    with uninterrupted():
        done = True
    assert done
