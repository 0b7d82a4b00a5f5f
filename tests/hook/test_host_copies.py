"""Blocking copies of a be client that hp holds: the program's thread sleeps, although the driver would spin."""

import pytest

from tests.hook.harness import Machine, figure
from tests.hook.scripted_client import MILLISECOND, Client, busy, warm

pytestmark = pytest.mark.quiet

BYTES = 1 << 20
HELD_MS = 200
ROUNDS = 3
WITHOUT_FREE = 3
BEHIND_WAITING_WORK = 4
WAYS = ("cuMemcpyHtoD", "cuMemcpy", "cuMemcpy2D")


def start_be(machine: Machine) -> Client:
    """Start a be client whose driver spins in calls that wait, as a GPU's does."""
    be = machine.start_in(machine.client_root("be-0"), ORION_SIM_SPIN="1")
    be.must("init 0")
    machine.until_joined(be)
    warm(be, 100)
    return be


@pytest.mark.parametrize("way", range(len(WAYS)), ids=WAYS)
def test_a_held_copy_burns_no_cpu_and_waits_for_hp(machine: Machine, way: int) -> None:
    hp, be = machine.start("hp-0"), start_be(machine)
    machine.until_known(hp, be)
    for _ in range(3):
        be.must(f"copyin {BYTES} {way}")  # its duration is known from now on
    seconds, held = [], []
    for _ in range(ROUNDS):
        be.must("launch 20 100")  # the copy's turn comes after this work
        with busy(hp, HELD_MS) as launched:
            copied = be.do(f"copyin {BYTES} {way}")
            assert copied.result == 0
            assert copied.ended >= launched.began + HELD_MS * MILLISECOND
            assert be.do("query").result == 0  # nothing of the stream is left: the copy came last
        held.append((copied.ended - copied.began) / 1e9)
        seconds.append(copied.more[0])
    figure(f"CPU time of a held {WAYS[way]}", [each * 1000 for each in seconds], "ms")
    assert min(held) > HELD_MS / 1000 / 2, "a copy was hardly held"
    assert all(cpu < time / 3 for cpu, time in zip(seconds, held, strict=True))


def test_a_small_copy_that_hp_holds_is_complete_when_the_call_returns(machine: Machine) -> None:
    """The driver returns at once. Programs then launch into streams that it does not order with the copy."""
    hp, be = machine.start("hp-0"), start_be(machine)
    machine.until_known(hp, be)
    be.must(f"copyin 4096 {WITHOUT_FREE}")
    with busy(hp, HELD_MS) as launched:
        copied = be.do(f"copyin 4096 {WITHOUT_FREE}")
    assert copied.result == 0
    assert copied.ended >= launched.began + HELD_MS * MILLISECOND


def test_a_small_copy_behind_work_that_waits_for_the_program_returns(machine: Machine) -> None:
    """The driver returns at once, and the program then lets that work go on."""
    hp, be = machine.start("hp-0"), start_be(machine)
    machine.until_known(hp, be)
    be.must(f"copyin 4096 {WITHOUT_FREE}")
    with busy(hp, HELD_MS):
        copied = be.do(f"copyin 4096 {BEHIND_WAITING_WORK}")
    assert copied.result == 0
