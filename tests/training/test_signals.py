"""Signals become a flag, and everything is put back afterwards."""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator

import pytest

from graphmill.training.signals import StopRequest


@pytest.fixture(autouse=True)
def handlers() -> Iterator[None]:
    """Whatever a test does, pytest's own handlers come back."""
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_sets_the_flag_and_the_handler_comes_back(number: signal.Signals) -> None:
    before = signal.getsignal(number)
    with StopRequest() as stop:
        assert not stop.requested
        os.kill(os.getpid(), number)
        assert stop.requested
        assert stop.reason == number.name
        assert stop.at > 0
    assert signal.getsignal(number) is before


def test_the_second_interrupt_does_not_wait() -> None:
    with StopRequest() as stop:
        os.kill(os.getpid(), signal.SIGINT)
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
    assert stop.requested


def test_a_repeated_sigterm_stays_polite_and_the_first_reason_stays() -> None:
    with StopRequest() as stop:
        for number in (signal.SIGTERM, signal.SIGTERM, signal.SIGINT):
            os.kill(os.getpid(), number)
        assert stop.reason == "SIGTERM"


def test_handlers_come_back_after_an_error() -> None:
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(ZeroDivisionError), StopRequest():
        raise ZeroDivisionError
    assert signal.getsignal(signal.SIGINT) is before


def test_a_process_that_ends_afterwards_is_not_ended_before() -> None:
    with pytest.raises(ZeroDivisionError), StopRequest(last=True):
        raise ZeroDivisionError
    os.kill(os.getpid(), signal.SIGTERM)  # would end this process


def test_an_ignored_signal_stays_ignored() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with StopRequest() as stop:
        os.kill(os.getpid(), signal.SIGINT)
        assert not stop.requested
    assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN


def test_outside_the_main_thread_it_is_asked_by_hand() -> None:
    before, seen = signal.getsignal(signal.SIGTERM), []

    def work() -> None:
        with StopRequest() as stop:
            seen.append(signal.getsignal(signal.SIGTERM))
            stop.request("the test")
            seen.append((stop.requested, stop.reason))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [before, (True, "the test")]


def test_a_sleeping_process_notices() -> None:
    script = (
        "import time\nfrom graphmill.training.signals import StopRequest\n"
        "with StopRequest() as stop:\n    print('ready', flush=True)\n"
        "    while not stop.requested: time.sleep(0.01)\n    print(stop.reason)\n"
    )
    child = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    assert child.stdout.readline() == "ready\n"
    child.terminate()
    assert child.communicate(timeout=10)[0] == "SIGTERM\n"
    assert child.returncode == 0
