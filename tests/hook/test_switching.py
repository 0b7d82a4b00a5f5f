"""The process that switches contexts: it answers, its end is reported, and it leaves nothing behind."""

import os
import sys

import pytest

from orion.bench.managed import machine
from orion.errors import Unavailable
from orion.hook import switching
from orion.hook.switching import Switcher


def test_it_switches_once_per_request() -> None:
    with machine(simulated=True) as environment, Switcher("", environment) as switcher:
        for _ in range(3):
            switcher.switch()


def test_it_keeps_switching_until_rest() -> None:
    with machine(simulated=True) as environment, Switcher("", environment) as switcher:
        switcher.every(1)
        switcher.rest()
        switcher.switch()
        assert switcher.alive()


def test_it_ends_with_its_context() -> None:
    with machine(simulated=True) as environment:
        with Switcher("", environment) as switcher:
            process = switcher._process
        assert process is not None
        assert process.poll() is not None
        assert not switcher.alive()


def test_it_ends_with_its_standard_input() -> None:
    with machine(simulated=True) as environment, Switcher("", environment) as switcher:
        process = switcher._process
        assert process is not None
        assert process.stdin is not None
        process.stdin.close()
        assert process.wait(10) == 0
        process.stdin = None  # communicate would flush it


def test_without_a_gpu_the_error_says_which_call_failed() -> None:
    refused = pytest.raises(Unavailable, match=r"cu(Init|DeviceGet): CUDA error 10[01]")
    with machine(simulated=True) as environment, refused:
        Switcher("no such GPU", environment).__enter__()


IN_PIECES = """
import array, fcntl, termios
print("ready", end="", flush=True)
unread = array.array("i", [1])
while unread[0]:
    fcntl.ioctl(1, termios.FIONREAD, unread)
print(flush=True)
input()
"""


def test_an_answer_in_two_pieces_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(switching, "COMMAND", (sys.executable, "-c", IN_PIECES))
    with Switcher("") as switcher, pytest.raises(Unavailable, match="gave no answer"):
        switcher.switch()


def test_its_death_is_reported() -> None:
    with machine(simulated=True) as environment, Switcher("", environment) as switcher:
        assert switcher._process is not None
        os.kill(switcher._process.pid, 9)
        with pytest.raises(Unavailable, match="gave no answer"):
            switcher.switch()
