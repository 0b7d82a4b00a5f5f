"""A be program that launches into the legacy stream and into a blocking one: the driver orders their work.

On a GPU, and on the simulated one, a stream that waits so keeps its context on the GPU for whole time slices.
"""

import statistics

import pytest

from tests.hook.harness import Machine
from tests.hook.scripted_client import MILLISECOND, Client

pytestmark = pytest.mark.quiet

LEGACY, NON_BLOCKING, BLOCKING = 0, 1, 3
BUSY_MS = 40
ROUNDS = 200


def hp_and_be(machine: Machine, *streams: int) -> tuple[Client, Client]:
    """Return hp and a be client that knows its kernels."""
    hp, be = machine.start("hp-0"), machine.start("be-0")
    for stream in streams:
        be.must(f"run 20 500 {stream}")
    return hp, be


def beside_hp(hp: Client, be: Client, commands: list[str]) -> float:
    """Let be execute the commands at full speed; return the median time of hp's kernels meanwhile, ms."""
    for command in commands:
        be.send(command)
    be.answer()
    took = []
    for _ in range(7):
        answers = hp.must(f"launch 1 {BUSY_MS}000"), hp.must("sync")
        took.append((answers[1].ended - answers[0].began) / MILLISECOND)
        for _ in range(4):
            be.answer()
    for _ in range(len(commands) - 1 - 7 * 4):
        assert be.answer().result == 0
    return statistics.median(took)


@pytest.mark.parametrize("order", [(LEGACY, BLOCKING), (BLOCKING, LEGACY, NON_BLOCKING)])
def test_streams_that_the_driver_orders_take_no_time_from_hp(machine: Machine, order: tuple[int, ...]) -> None:
    hp, be = hp_and_be(machine, *order)
    took = beside_hp(hp, be, [f"launch 2 500 {stream}" for _ in range(ROUNDS // len(order)) for stream in order])
    assert took < 1.3 * BUSY_MS, f"a kernel of {BUSY_MS} ms took {took}"
    be.must("ctxsync")
    assert be.said == []


@pytest.mark.parametrize(
    "steps",
    [
        [f"launch 2 500 {BLOCKING}", f"hosts 1 {LEGACY}"],
        [f"launch 2 500 {NON_BLOCKING}", f"follow {NON_BLOCKING} {LEGACY}", f"launch 2 500 {BLOCKING}"],
    ],
    ids=["host functions", "waits for another stream"],
)
def test_the_driver_orders_other_operations_like_launches(machine: Machine, steps: list[str]) -> None:
    hp, be = hp_and_be(machine, NON_BLOCKING, BLOCKING)
    took = beside_hp(hp, be, steps * (ROUNDS // len(steps)))
    assert took < 1.3 * BUSY_MS, f"a kernel of {BUSY_MS} ms took {took}"
    be.must("ctxsync")
    assert be.said == []
