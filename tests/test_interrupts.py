"""Ctrl-C, held back and let through."""

import signal
import threading

import pytest

from krylow._interrupts import uninterrupted


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
