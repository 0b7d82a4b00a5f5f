"""A be stream that waits for an event of a stream that the hook holds: it takes no time slices from hp.

On a GPU, and on the simulated one, such a wait keeps its context on the GPU for whole time slices.
"""

import statistics

import pytest

from tests.hook.harness import Machine
from tests.hook.scripted_client import MILLISECOND, Client

pytestmark = pytest.mark.quiet

BUSY_MS = 40


OWN = 3
""" The thread's own default stream, as of programs that are built with `--default-stream per-thread`. """


def hp_and_crossing(machine: Machine, first: int = 1, second: int = 2) -> tuple[Client, Client]:
    """Return hp and a be client whose second stream has waited for its first."""
    hp, be = machine.start("hp-0"), machine.start("be-0")
    for _ in range(20):
        be.must(f"run 2 500 {first}")
        be.must(f"run 2 500 {second}")
    be.must(f"follow {first} {second}")
    return hp, be


@pytest.mark.parametrize(("first", "second"), [(1, 2), (OWN, 2), (2, OWN)])
def test_a_stream_that_waits_for_a_held_stream_takes_no_time_from_hp(machine: Machine, first: int, second: int) -> None:
    hp, be = hp_and_crossing(machine, first, second)
    took = []
    for _ in range(9):
        be.must(f"launch 12 500 {first}")  # runs ahead, so most of it is held once hp comes
        be.must(f"follow {first} {second}")
        be.must(f"launch 4 500 {second}")
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


@pytest.mark.parametrize(("first", "second"), [(1, 2), (OWN, 2), (2, OWN)])
def test_work_behind_an_event_still_waits_for_it(machine: Machine, first: int, second: int) -> None:
    _, be = hp_and_crossing(machine, first, second)
    for _ in range(10):
        be.must(f"launch 4 10000 {first}")
        be.must(f"follow {first} {second}")
        waited = be.must(f"sync {second}")  # the 40 ms of the first stream are over, too
        assert be.must(f"query {first}").ended - waited.ended < 20 * MILLISECOND, "the second stream did not wait"


def test_threads_that_end_with_work_under_way_leave_no_wait_without_end(machine: Machine) -> None:
    hp, be = hp_and_crossing(machine, OWN, 2)
    for _ in range(3):
        hp.send("launch 1 20000")
        be.must("endings 40 200")
        be.must("follow 2 3")
        be.must("ctxsync")
        hp.answer()
    assert be.said == []


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
