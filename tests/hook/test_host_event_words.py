"""A be stream that waits for an event of a stream that the hook holds: it takes no time slices from hp.

On a GPU, and on the simulated one, such a wait keeps its context on the GPU for whole time slices.
"""

import statistics

import pytest

from tests.hook.harness import Machine
from tests.hook.scripted_client import MILLISECOND, Client

pytestmark = pytest.mark.quiet

BUSY_MS = 40


def hp_and_crossing(machine: Machine) -> tuple[Client, Client]:
    """Return hp and a be client whose second stream has waited for its first."""
    hp, be = machine.start("hp-0"), machine.start("be-0")
    for _ in range(20):
        be.must("run 2 500 1")
        be.must("run 2 500 2")
    be.must("follow 1 2")
    return hp, be


def test_a_stream_that_waits_for_a_held_stream_takes_no_time_from_hp(machine: Machine) -> None:
    hp, be = hp_and_crossing(machine)
    took = []
    for _ in range(9):
        be.must("launch 12 500 1")  # runs ahead, so most of it is held once hp comes
        be.must("follow 1 2")
        be.must("launch 4 500 2")
        answers = hp.must(f"launch 1 {BUSY_MS}000"), hp.must("sync")
        took.append((answers[1].ended - answers[0].began) / MILLISECOND)
        be.must("ctxsync")
    assert statistics.median(took) < 1.3 * BUSY_MS, f"a kernel of {BUSY_MS} ms took {took}"
    assert be.said == []


def test_a_stream_that_waits_for_a_held_stream_takes_no_time_from_another_slots_turns(machine: Machine) -> None:
    crossing, other = machine.start("be-0"), machine.start("be-1")
    for be in (crossing, other):
        for stream in (1, 2):
            be.must(f"run 20 500 {stream}")
    crossing.must("follow 1 2")
    alone = other.do("loop 1 500 4").result
    other.send("loop 2 500 4")
    while not other.heard_something(0):
        for first, second in ((1, 2), (2, 1)):
            crossing.must(f"launch 8 500 {first}")
            crossing.must(f"follow {first} {second}")
    share = other.answer().result / (2 * alone)
    crossing.must("ctxsync")
    assert share > 0.44, f"the other slot did {share:.2f} of what it does alone"


def test_work_behind_an_event_still_waits_for_it(machine: Machine) -> None:
    _, be = hp_and_crossing(machine)
    for _ in range(10):
        be.must("launch 4 10000 1")
        be.must("follow 1 2")
        waited = be.must("sync 2")  # the 40 ms of stream 1 are over, too
        assert be.must("query 1").ended - waited.ended < 20 * MILLISECOND, "stream 2 did not wait for stream 1"


def test_streams_that_end_with_work_under_way_leave_no_wait_without_end(machine: Machine) -> None:
    _, be = hp_and_crossing(machine)
    for _ in range(5):
        be.must("streams 40 200")
        be.must("launch 2 500 1")
        be.must("follow 1 2")
        be.must("launch 2 500 2")
        be.must("follow 2 1")
    be.must("ctxsync")
    be.must("reset")
    be.must("follow 1 2")
    be.must("ctxsync")
    assert be.said == []
