"""A be program loads code while the hook holds its work: the call waits for hp, and takes no time slices from it.

In such a call the driver of an H200 waits for the context's earlier work, and keeps the context on the GPU for whole
time slices meanwhile. The simulated GPU does so, too.
"""

import statistics

import pytest

from tests.hook.harness import Machine, record_word
from tests.hook.scripted_client import DEADLINE, LONG_ENOUGH_TO_SEE, MILLISECOND, Client, eventually, warm

pytestmark = pytest.mark.quiet

BUSY_MS = 40
ROUNDS = 9
WAYS = ("module", "first-launch", "stack", "library", "graph")


def hp_and_be(machine: Machine) -> tuple[Client, Client]:
    """Return hp, and a be client with kernels that it has loaded and not launched."""
    hp, be = machine.start("hp-0"), machine.start("be-0")
    be.must(f"kernels {3 * ROUNDS}")
    warm(be, 100)
    for _ in range(20):
        be.must("run 2 500 1")
        be.must("run 2 100 1")
    machine.until_known(hp, be)
    return hp, be


@pytest.mark.parametrize("way", range(len(WAYS)), ids=WAYS)
def test_a_call_that_loads_code_takes_no_time_from_hp(machine: Machine, way: int) -> None:
    hp, be = hp_and_be(machine)
    took = []
    for _ in range(ROUNDS):
        be.must("launch 12 500 1")  # runs ahead, so most of it is held once hp comes
        launched = hp.must(f"launch 1 {BUSY_MS}000")
        be.send(f"code {way}")
        took.append((hp.must("sync").ended - launched.began) / MILLISECOND)
        assert be.answer().result == 0
        be.must("ctxsync")
    assert statistics.median(took) < 1.3 * BUSY_MS, f"a kernel of {BUSY_MS} ms took {took}"
    assert be.said == []


@pytest.mark.parametrize("way", [0, 2], ids=["module", "stack"])
def test_a_program_with_nothing_in_flight_loads_code_while_hp_is_busy(machine: Machine, way: int) -> None:
    hp, be = hp_and_be(machine)
    be.must("ctxsync")
    launched = hp.must(f"launch 1 {LONG_ENOUGH_TO_SEE}000")
    loaded = be.must(f"code {way}")
    assert loaded.ended < launched.began + LONG_ENOUGH_TO_SEE * MILLISECOND
    hp.must("sync")


def test_without_an_hp_client_a_program_loads_code_with_work_in_flight(machine: Machine) -> None:
    be = machine.start("be-0")
    be.must("kernels 40")
    warm(be, 100)
    for _ in range(20):
        be.must("launch 20 100 1")
        for way in range(len(WAYS)):
            be.must(f"code {way}")
    be.must("ctxsync")
    assert be.said == []


def waits_for(be: Client, command: str) -> bool:
    """Return whether a command waits until the be client's work in flight is complete."""
    be.must("launch 12 500 1")
    waited = record_word(be, "window_wait_ns")
    be.must(command)
    waits = record_word(be, "window_wait_ns") > waited
    be.must("ctxsync")
    return waits


def test_a_repeated_look_up_waits_for_nothing(machine: Machine) -> None:
    _, be = hp_and_be(machine)
    be.must("code 6")
    assert not any(waits_for(be, "code 6") for _ in range(ROUNDS))

    def waits_after_an_unload() -> bool:
        be.must("code 8")  # the driver may give the kernel's handle to another one now
        return waits_for(be, "code 6")

    eventually(waits_after_an_unload, "the first look-up after a library was unloaded waits", DEADLINE)


@pytest.mark.parametrize(("loads", "again"), [(1, 7), (6, 6)], ids=["launch", "look-up in a library"])
def test_after_a_module_was_unloaded_other_kernels_wait_for_nothing(machine: Machine, loads: int, again: int) -> None:
    _, be = hp_and_be(machine)
    be.must(f"code {loads}")

    def waits_for_nothing() -> bool:
        be.must("code 5")
        return not waits_for(be, f"code {again}")

    # On a busy machine launches wait for other reasons, for a second at a time.
    eventually(waits_for_nothing, "the code of the first command's kernel is still there", DEADLINE)
