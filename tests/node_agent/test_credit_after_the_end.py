"""What a process of a slot held that has ended, or of which the driver says nothing, counts until it is free."""

import os
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest

from orion.hook.join import CreditAnswer
from orion.node_agent.clients import credit
from orion.node_agent.processes.liveness import Program
from tests.node_agent.credit_slots import LIMIT, MIB, Slots
from tests.waiting import eventually


def sleeping() -> subprocess.Popen[bytes]:
    """Start a process, and return once its program is the one that stays."""
    process = subprocess.Popen(["sleep", "60"])
    command = Path(f"/proc/{process.pid}/cmdline")
    eventually(lambda: command.read_bytes().startswith(b"sleep"), "the process has executed its program")
    return process


def end_of_a_client(slots: Slots, mib: int) -> int:
    """Let a client that the driver lists end, and be reaped; return its process id."""
    process = sleeping()
    dead = slots.join(mib, process_id=process.pid)
    slots.credit.asks()
    slots.credit.answered({process.pid: mib * MIB})
    process.kill()
    process.wait()
    del slots.clients[dead.key[0]]
    slots.credit.left(dead)
    return process.pid


def test_what_a_dead_process_held_is_free_when_the_driver_lists_it_no_longer() -> None:
    slots = Slots()
    two = slots.join(0)
    dead = end_of_a_client(slots, 300)
    slots.credit.asks()
    slots.credit.answered({dead: 300 * MIB})
    assert slots.credit.asked(two, 300) is CreditAnswer.NO
    slots.credit.answered({})
    assert slots.credit.asked(two, 300) is CreditAnswer.YES


def test_an_answer_that_says_nothing_does_not_free_what_a_dead_process_held() -> None:
    slots = Slots()
    two = slots.join(0)
    end_of_a_client(slots, 300)
    slots.credit.asks()
    slots.credit.answered(None)
    assert slots.credit.asked(two, 300) is CreditAnswer.LATER
    slots.credit.asks()
    slots.credit.answered({})
    assert slots.credit.asked(two, 300) is CreditAnswer.YES


def test_what_a_dead_process_held_is_free_when_the_driver_has_said_nothing_for_long(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    slots = Slots()
    two = slots.join(0)
    end_of_a_client(slots, 300)
    monkeypatch.setattr(credit, "_LISTED_MOST_NS", 0)
    slots.credit.asks()
    slots.credit.answered(None)
    assert slots.credit.asked(two, 300) is CreditAnswer.YES


def test_who_needs_what_a_dead_process_held_waits_until_the_driver_is_asked_after_its_end() -> None:
    slots, wakes = Slots(), list[bool]()
    slots.credit.on_wait = lambda: wakes.append(slots.credit.hurries)
    two = slots.join(0)
    dead = end_of_a_client(slots, 300)
    assert slots.credit.asked(two, LIMIT + 1) is CreditAnswer.NO
    assert not slots.credit.hurries
    for _ in range(2):
        assert slots.credit.asked(two, 300) is slots.credit.asked(two, 300) is CreditAnswer.LATER
        assert slots.credit.hurries
        slots.credit.answered({dead: 300 * MIB})  # to the question from before its end
    assert wakes == [True, True], "the driver is asked soon"
    slots.credit.asks()
    slots.credit.answered({dead: 300 * MIB})
    assert slots.credit.asked(two, 300) is CreditAnswer.NO
    assert not slots.credit.hurries


def test_who_needs_what_a_process_holds_that_the_kernel_takes_down_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    slots = Slots()
    with sleeping() as process:
        dead, two = slots.join(300, process_id=process.pid), slots.join(0)
        del slots.clients[dead.key[0]]
        slots.credit.left(dead)  # its socket is closed before the driver has freed its memory
        assert slots.credit.asked(two, 300) is CreditAnswer.NO
        monkeypatch.setattr(credit, "ends", lambda program: True)
        assert slots.credit.asked(two, 300) is CreditAnswer.LATER
        process.kill()
    slots.credit.answered({})
    assert slots.credit.asked(two, 300) is CreditAnswer.YES


FIRST_THREAD_ENDS = """
import ctypes, os, sys, threading
threading.Thread(target=threading.Event().wait).start()
print(flush=True)
sys.stdin.readline()
ctypes.CDLL(None).syscall({"x86_64": 60, "aarch64": 93}[os.uname().machine], 0)  # ends the calling thread alone
"""


def test_what_a_process_holds_is_not_free_before_its_last_thread_has_ended() -> None:
    slots = Slots()
    ending = subprocess.Popen(
        [sys.executable, "-c", FIRST_THREAD_ENDS], stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0
    )
    with ending as process, ExitStack() as stack:
        stack.callback(process.kill)
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdout.readline()
        dead, two = slots.join(300), slots.join(0)
        dead.process_id, dead.program = process.pid, Program.of(process.pid)
        process.stdin.write(b"\n")
        eventually(lambda: b") Z " in Path(f"/proc/{process.pid}/stat").read_bytes(), "the first thread has ended")
        del slots.clients[0]
        slots.credit.left(dead)
        slots.credit.answered({process.pid: 300 * MIB})
        assert slots.credit.asked(two, 300) is CreditAnswer.NO
    slots.credit.answered({})
    assert slots.credit.asked(two, 300) is CreditAnswer.YES


def test_a_process_of_which_the_driver_says_nothing_hides_no_other_one() -> None:
    slots = Slots()
    process = sleeping()
    dead, two = slots.join(300), slots.join(100)
    dead.process_id, dead.program = process.pid, Program.of(process.pid)
    slots.credit.asks()
    slots.credit.answered({process.pid: 320 * MIB, os.getpid(): 130 * MIB})
    slots.credit.answered({process.pid: None, os.getpid(): 130 * MIB})
    assert slots.used() == 320 + 130
    process.kill()
    process.wait()
    del slots.clients[0]
    slots.credit.left(dead)
    slots.credit.asks()
    slots.credit.answered({process.pid: None, os.getpid(): 130 * MIB})  # it still ends
    assert slots.credit.asked(two, 300) is CreditAnswer.NO
