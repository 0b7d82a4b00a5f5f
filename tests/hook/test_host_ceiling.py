"""An hp program at its limit leaves the rest of the GPU to be, and has the GPU idle without be: real processes."""

import time

import pytest

from tests.hook.harness import Machine, figure
from tests.hook.scripted_client import Client, warm

pytestmark = pytest.mark.quiet

SETTLE_SECONDS, SECONDS = 3.0, 5.0
LIMIT = 0.5
ROUNDS_AT_MOST = 6
""" Programs that wait for a CPU use less of the GPU than they may. """


def _traced(machine: Machine, slot: str) -> Client:
    client = machine.start_in(machine.client_root(slot), ORION_SIM_TRACE=str(machine.folder / f"trace-{slot}"))
    client.must("init 0")
    machine.until_joined(client)
    warm(client, 500)
    return client


def _parts(machine: Machine, *slots: str) -> list[float]:
    """Return which part of the time each slot had the simulated GPU, by the GPU's trace."""
    time.sleep(SETTLE_SECONDS)
    began = time.monotonic_ns()
    time.sleep(SECONDS)  # the time over which the parts are measured
    ended = time.monotonic_ns()
    return [_seconds(machine, slot, began, ended) * 1e9 / (ended - began) for slot in slots]


def _seconds(machine: Machine, slot: str, began: int, ended: int) -> float:
    total = 0
    for line in (machine.folder / f"trace-{slot}").read_text().splitlines(keepends=True):
        if line.endswith("\n"):
            start, end = map(int, line.split()[1:3])
            total += max(0, min(end, ended) - max(start, began))
    return total / 1e9


def test_hp_at_its_limit_leaves_an_idle_gpu_idle(machine: Machine) -> None:
    client = _traced(machine, "hp-0")
    machine.agent.set_grant(machine.uuids[0], "hp-0", limit=LIMIT)
    client.send("loop 30 500 1")
    (found,) = _parts(machine, "hp-0")
    figure("part of the GPU's time, limit 0.5", [found], "x")
    assert LIMIT - 0.1 < found < LIMIT + 0.05


def test_be_gets_what_a_limited_hp_leaves(machine: Machine) -> None:
    hp, be = _traced(machine, "hp-0"), _traced(machine, "be-0")
    machine.agent.set_grant(machine.uuids[0], "hp-0", limit=LIMIT)
    be.send("flood 90 100")
    hp.send("loop 90 500 1")
    rounds: list[tuple[float, float]] = []
    while len(rounds) < ROUNDS_AT_MOST:
        found, rest = _parts(machine, "hp-0", "be-0")
        figure("parts of the GPU's time of hp with limit 0.5, and of be", [found, rest], "x")
        assert found < LIMIT + 0.05
        rounds.append((found, rest))
        if found > LIMIT - 0.1 and rest > 0.7 * (1 - LIMIT):
            return
    raise AssertionError(f"in no round hp had its limit and be what hp leaves: {rounds}")


def test_a_limit_of_be_is_a_part_of_the_gpu_and_not_of_what_hp_leaves(machine: Machine) -> None:
    hp, be = _traced(machine, "hp-0"), _traced(machine, "be-0")
    machine.agent.set_grant(machine.uuids[0], "hp-0", limit=LIMIT)
    machine.agent.set_grant(machine.uuids[0], "be-0", limit=0.3)
    be.send("flood 30 100")
    hp.send("loop 30 500 1")
    (found,) = _parts(machine, "be-0")
    figure("part of the GPU's time of be with limit 0.3, beside hp with limit 0.5", [found], "x")
    assert 0.2 < found < 0.35


def test_a_limit_that_is_removed_no_longer_holds(machine: Machine) -> None:
    client = _traced(machine, "hp-0")
    machine.agent.set_grant(machine.uuids[0], "hp-0", limit=0.2)
    client.send("loop 30 500 1")
    (limited,) = _parts(machine, "hp-0")
    machine.agent.set_grant(machine.uuids[0], "hp-0", limit=1)
    (free,) = _parts(machine, "hp-0")
    assert limited < 0.25
    assert free > 0.5
