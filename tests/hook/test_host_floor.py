"""The floor for be (1 - `request` of hp), in real processes; hook/test/test_floor.c tests its exact times."""

import time

import pytest

from tests.hook.harness import Machine, figure
from tests.hook.scripted_client import MILLISECOND, Client, eventually, warm

pytestmark = pytest.mark.quiet

CYCLE = 200 * MILLISECOND
""" The value in hook/src/be/gate.c. """

SHARE = 0.2
LINGER = {"linger_floor_us": 20_000, "linger_ceiling_us": 20_000}
""" Long enough that the gaps of a loop are no idle time, however loaded this machine is. """


def never_idle(machine: Machine, hp: Client, seconds: float, phase: int = 0) -> None:
    """Let hp work without a pause, from that phase of the clock's cycle on."""
    eventually(lambda: abs(time.monotonic_ns() % CYCLE - phase) < 20 * MILLISECOND, "the clock has that phase")
    hp.send(f"loop {seconds} 1000 2")
    machine.until(hp, "busy")


def ran(be: Client, seconds: float, *hps: Client) -> int:
    """Return how many of be's kernels ended before the first hp client was done."""
    spans = be.do(f"stamps {seconds} 100").spans
    ended = min(hp.answer().ended for hp in hps)
    return sum(end < ended for _, end in spans)


def test_be_runs_at_its_floor_beside_hp_clients_that_are_never_idle(machine: Machine) -> None:
    first, second, be = machine.start("hp-0"), machine.start("hp-0"), machine.start("be-0")
    warm(be, 100)
    machine.agent.set_policy(machine.uuids[0], policy="gate", **LINGER)
    never_idle(machine, first, 1.5)
    assert ran(be, 1.0, first) == 0
    machine.agent.set_policy(machine.uuids[0], request=1 - SHARE)
    never_idle(machine, first, 3.5)
    never_idle(machine, second, 3.0, phase=CYCLE // 2)
    number = ran(be, 2.0, first, second)
    figure("be kernels in 2 s of a floor", [number], "")
    assert number >= 10
