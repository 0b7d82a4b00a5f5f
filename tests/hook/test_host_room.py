"""hp gets memory on a GPU that best-effort processes fill: they leave, and come back when hp has freed it.

A best-effort process that finds no room itself leaves, and comes back in its turn.
"""

import os
import shutil
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from orion.hook.layout import MEMORY_TAKEN, ParkingState
from tests.hook.harness import Machine, record_word
from tests.hook.scripted_client import Client, eventually

MIB = 1 << 20
GPU = 4096
""" The memory of the simulated GPU, in MiB. """
SOON = 5.0
""" Seconds: before the agent gives up a return. """
OUT_OF_MEMORY = 2
""" CUDA's number. """


@pytest.fixture
def full(c_build: Path) -> Iterator[Machine]:
    """A machine with a small GPU, whose agent keeps no memory free for hp that has not asked for it."""
    with Machine(c_build) as machine:
        shutil.rmtree(machine.state)  # it is made again at its first use
        machine.environment["ORION_SIM_MEMORY"] = str(GPU * MIB)
        machine.start_agent("--parking-reserve-mib", "0", "--parking-margin-mib", "0")
        yield machine


def tenant(machine: Machine, slot: str, mib: int) -> Client:
    machine.agent.set_grant(machine.uuids[0], slot, memory_parks=True, memory_limit_bytes=mib * MIB)
    client = machine.start(slot)
    client.must(f"alloc {mib * MIB}")
    return client


def hp_that_waits(machine: Machine, wait_ms: int = 20_000, limit: int = GPU) -> Client:
    machine.agent.set_grant(machine.uuids[0], "hp-0", memory_wait_ms=wait_ms, memory_limit_bytes=limit * MIB)
    return machine.start("hp-0")


def state(client: Client) -> int:
    return record_word(client, "parking") & 255


def test_an_allocation_of_hp_waits_until_others_have_left(full: Machine) -> None:
    be = tenant(full, "be-0", 3000)
    hp = hp_that_waits(full)
    hp.must(f"alloc {2000 * MIB}")
    assert state(be) == ParkingState.PARKED
    be.send("run 3 100")
    assert not be.heard_something(0.3)
    hp.kill()
    assert be.answer().result == 0


def test_hp_sees_as_free_what_others_would_leave(full: Machine) -> None:
    tenant(full, "be-0", 3000)
    hp = hp_that_waits(full)
    eventually(lambda: hp.do("room").result >= 3900 * MIB, "what the other would leave counts as free")
    hp.must(f"alloc {int(0.95 * hp.do('room').result)}")


def sure(machine: Machine, slot: str, mib: int) -> None:
    machine.agent.set_grant(machine.uuids[0], slot, memory_limit_bytes=mib * MIB, memory_request_bytes=mib * MIB)


def test_who_borrows_leaves_for_what_a_slot_that_does_not_park_is_sure_of(full: Machine) -> None:
    be = tenant(full, "be-0", GPU)
    sure(full, "be-1", 2000)
    other = full.start("be-1")
    eventually(lambda: other.do("room").result == 2000 * MIB, "what others would leave counts as free")
    other.must(f"alloc {1900 * MIB}")
    assert state(be) == ParkingState.PARKED
    other.kill()
    be.must("run 2 100", 60)


def test_who_borrows_leaves_for_the_context_of_a_slot_that_does_not_park(crowded: Machine) -> None:
    be = crowded.start("be-0")
    be.must(f"alloc {3700 * MIB}")
    sure(crowded, "be-2", 2000)
    other = crowded.start_in(crowded.client_root("be-2"))
    other.must("init 0")
    other.must(f"alloc {1500 * MIB}")
    other.kill()
    be.must("run 2 100", 60)


def test_nobody_leaves_for_what_a_slot_that_does_not_park_is_not_sure_of(full: Machine) -> None:
    be = tenant(full, "be-0", 3000)
    full.agent.set_grant(full.uuids[0], "be-1", memory_limit_bytes=2000 * MIB, memory_request_bytes=1000 * MIB)
    other = full.start("be-1")
    assert other.do("room").result == (GPU - 3000) * MIB
    assert other.do(f"alloc {1900 * MIB}").result == OUT_OF_MEMORY
    assert state(be) == ParkingState.RUNNING


def test_what_nobody_can_leave_fails_soon_also_for_a_slot_that_is_sure_of_it(full: Machine) -> None:
    tenant(full, "be-0", 1000)
    full.start("be-2").must(f"alloc {2800 * MIB}")
    sure(full, "be-1", 2000)
    assert full.start("be-1").do(f"alloc {1900 * MIB}", SOON).result == OUT_OF_MEMORY


def test_without_a_wait_hp_fails_at_once(full: Machine) -> None:
    be = tenant(full, "be-0", 3000)
    hp = hp_that_waits(full, wait_ms=0)
    assert hp.do(f"alloc {2000 * MIB}").result == OUT_OF_MEMORY
    assert state(be) == ParkingState.RUNNING


def test_what_nobody_can_leave_fails_soon(full: Machine) -> None:
    full.agent.set_grant(full.uuids[0], "be-0", memory_limit_bytes=GPU * MIB)
    full.start("be-0").must(f"alloc {3000 * MIB}")
    hp = hp_that_waits(full, wait_ms=600_000)
    assert hp.do(f"alloc {2000 * MIB}").result == OUT_OF_MEMORY


@pytest.mark.parametrize("slot", ["hp-0", "be-1", "be-2"], ids=["hp", "is sure of it", "parks"])
def test_an_allocation_waits_until_those_who_can_leave_have_returned_to_the_next_agent(
    full: Machine, slot: str
) -> None:
    be = tenant(full, "be-0", 3000)
    full.agent.set_grant(full.uuids[0], "hp-0", memory_wait_ms=20_000)
    sure(full, "be-1", 2000)
    full.agent.set_grant(full.uuids[0], "be-2", memory_parks=True, memory_limit_bytes=1000 * MIB)
    os.kill(be.pid, signal.SIGSTOP)
    other = full.start(slot)
    # Not sooner: with so large a limit it waits for its turn as soon as it joins.
    full.agent.set_grant(full.uuids[0], "be-2", memory_parks=True, memory_limit_bytes=2000 * MIB)
    full.kill_agent()
    full.start_agent("--parking-reserve-mib", "0", "--parking-margin-mib", "0", "--parking-stay-factor", "0.5")
    other.send(f"alloc {1900 * MIB}")
    assert not other.heard_something(1)
    os.kill(be.pid, signal.SIGCONT)
    assert other.answer(60).result == 0
    other.kill()
    be.must("run 2 100", 60)


def test_only_as_many_leave_as_hp_needs(full: Machine) -> None:
    tenants = [tenant(full, f"be-{number}", 900) for number in range(4)]
    hp = hp_that_waits(full, limit=1000)  # it may not grow further, so nothing is kept free for it
    hp.must(f"alloc {1000 * MIB}")
    eventually(lambda: [state(each) for each in tenants].count(ParkingState.PARKED) == 1, "one is away")


def begins_to_return(machine: Machine, be: Client) -> None:
    """Let the program of slot be-0 leave and come back; it is stopped before it takes its room."""
    machine.agent.park_slot(machine.uuids[0], "be-0", away=True)
    eventually(lambda: state(be) == ParkingState.PARKED, "it has left")
    os.kill(be.pid, signal.SIGSTOP)
    machine.agent.park_slot(machine.uuids[0], "be-0", away=False)
    eventually(lambda: parking_of(machine, "be-0") == "returning", "it may come back")


def test_hp_whose_wait_ends_before_a_return_takes_no_room_of_it(full: Machine) -> None:
    be, hp = tenant(full, "be-0", 3000), hp_that_waits(full, limit=3000, wait_ms=500)
    begins_to_return(full, be)
    assert hp.do(f"alloc {2000 * MIB}").result == OUT_OF_MEMORY
    os.kill(be.pid, signal.SIGCONT)
    be.must("run 2 100", 60)


def test_what_a_pool_holds_already_is_no_room_of_those_who_come_back(full: Machine) -> None:
    be, hp = tenant(full, "be-0", 2800), hp_that_waits(full, limit=1000)
    hp.must(f"keep {1 << 40} 0")
    hp.must(f"take {900 * MIB} 0")
    hp.must("give")
    begins_to_return(full, be)
    hp.must(f"take {800 * MIB} 0", SOON)
    os.kill(be.pid, signal.SIGCONT)
    be.must("run 2 100", 60)


@pytest.mark.parametrize(("parks", "result"), [(True, 0), (False, OUT_OF_MEMORY)])
def test_be_that_grows_takes_no_room_of_those_who_come_back(full: Machine, parks: bool, result: int) -> None:
    be = tenant(full, "be-0", 3000)
    full.agent.set_grant(full.uuids[0], "be-1", memory_parks=parks)
    other = full.start("be-1")
    other.must(f"alloc {100 * MIB}")
    begins_to_return(full, be)
    other.send(f"alloc {2000 * MIB}")
    assert not other.heard_something(0.3), "it asks first"
    os.kill(be.pid, signal.SIGCONT)
    assert other.answer(60).result == result, "only one that parks can wait for its turn"
    for each in (be, other):
        each.must("run 2 100", 60)


def is_taking(client: Client) -> bool:
    """Return whether the driver may be asked for memory at any moment."""
    return record_word(client, "memory_taken") & ~MEMORY_TAKEN < record_word(client, "memory_bytes")


def test_nobody_comes_back_to_room_that_a_stopped_program_was_given(full: Machine) -> None:
    """A thread that has too little CPU time stops just as long between the agent's yes and the driver's call."""
    tenants = [tenant(full, slot, 1500) for slot in ("be-0", "be-2")]
    for slot in ("be-0", "be-2"):
        full.agent.park_slot(full.uuids[0], slot, away=True)
    eventually(lambda: all(parking_of(full, slot) == "parked" for slot in ("be-0", "be-2")), "they have left")
    other = full.start("be-1")
    os.kill(tenants[0].pid, signal.SIGSTOP)
    full.agent.park_slot(full.uuids[0], "be-0", away=False)
    eventually(lambda: parking_of(full, "be-0") == "returning", "it may come back")
    os.kill(full.agent_pid, signal.SIGSTOP)
    other.send(f"alloc {1200 * MIB}")
    eventually(lambda: is_taking(other), "it has asked, or is about to")
    os.kill(other.pid, signal.SIGSTOP)
    for pid in (full.agent_pid, tenants[0].pid):
        os.kill(pid, signal.SIGCONT)
    tenants[0].must("run 2 100", 60)
    full.agent.park_slot(full.uuids[0], "be-2", away=False)
    until = time.monotonic() + SOON
    eventually(lambda: time.monotonic() > until or state(tenants[1]) != ParkingState.PARKED, "the agent has looked")
    os.kill(other.pid, signal.SIGCONT)
    assert other.answer(60).result == 0
    other.kill()
    tenants[1].must("run 2 100", 60)


def test_a_slot_that_becomes_sure_of_memory_takes_no_room_of_those_who_come_back(full: Machine) -> None:
    be = tenant(full, "be-0", 3000)
    begins_to_return(full, be)
    sure(full, "be-1", 2000)
    other = full.start("be-1")
    other.send(f"alloc {1900 * MIB}")
    assert not other.heard_something(0.5), "it asks first"
    os.kill(be.pid, signal.SIGCONT)
    assert other.answer(60).result == 0
    assert state(be) == ParkingState.PARKED, "it has come back, and has left again for the other one"


def test_hp_does_not_take_the_room_of_those_who_come_back(full: Machine) -> None:
    be, hp = tenant(full, "be-0", 3000), hp_that_waits(full, limit=3000)
    begins_to_return(full, be)
    hp.send(f"alloc {2000 * MIB}")
    assert not hp.heard_something(0.3), "hp asks first"
    os.kill(be.pid, signal.SIGCONT)
    assert hp.answer(60).result == 0
    hp.kill()
    be.must("run 2 100", 60)


def parking_of(machine: Machine, name: str) -> str:
    return next(slot.parking.state for slot in machine.agent.snapshot().gpus[0].slots if slot.name == name)


def test_hp_that_grows_never_fails(full: Machine) -> None:
    tenants = [tenant(full, f"be-{number}", 900) for number in range(4)]
    hp = hp_that_waits(full)
    for _ in range(14):
        hp.must(f"alloc {256 * MIB}")
    assert all(state(each) == ParkingState.PARKED for each in tenants)
    hp.kill()
    for each in tenants:
        each.must("run 2 100", 60)


CONTEXT = 300
""" What each context takes on a `crowded` GPU, in MiB. """


@pytest.fixture
def crowded(c_build: Path) -> Iterator[Machine]:
    """The same, where contexts take memory and tenants stay for a short time."""
    with Machine(c_build) as machine:
        shutil.rmtree(machine.state)
        machine.environment |= {"ORION_SIM_MEMORY": str(GPU * MIB), "ORION_SIM_CONTEXT_MEMORY": str(CONTEXT * MIB)}
        stays = ("--parking-stay-factor", "0.5")
        machine.start_agent("--parking-reserve-mib", "0", "--parking-margin-mib", "0", *stays)
        for slot in ("be-0", "be-1"):
            machine.agent.set_grant(machine.uuids[0], slot, memory_parks=True)
        yield machine


def test_an_allocation_of_be_that_finds_no_room_waits_for_its_turn(crowded: Machine) -> None:
    one, other = crowded.start("be-0"), crowded.start("be-1")
    one.must(f"alloc {2000 * MIB}")
    other.must(f"alloc {1000 * MIB}")
    one.must(f"alloc {1200 * MIB}", 60)
    one.must("run 2 100", 60)
    other.must("run 2 100", 60)
    one.must("run 2 100", 60)


def test_two_that_find_no_room_at_the_same_time_both_get_it(crowded: Machine) -> None:
    both = crowded.start("be-0"), crowded.start("be-1")
    for each in both:
        each.must(f"alloc {1500 * MIB}")
    for each in both:
        each.send(f"alloc {1500 * MIB}")
    for each in both:
        assert each.answer(60).result == 0
        each.must("run 2 100", 60)


def test_a_be_program_whose_context_finds_no_room_waits_for_its_turn(crowded: Machine) -> None:
    one = crowded.start("be-0")
    one.must(f"alloc {3700 * MIB}")
    other = crowded.start_in(crowded.client_root("be-1"))
    other.must("init 0", 60)
    other.must(f"alloc {2000 * MIB}", 60)
    for each in (one, other):
        each.must("run 2 100", 60)


@pytest.mark.parametrize("slot", ["be-1", "be-2", "be-3", "hp-0"], ids=["parks", "does not park", "small limit", "hp"])
def test_a_context_takes_no_room_of_those_who_come_back(crowded: Machine, slot: str) -> None:
    crowded.agent.set_grant(crowded.uuids[0], "be-3", memory_limit_bytes=700 * MIB)
    crowded.agent.set_grant(crowded.uuids[0], "be-0", memory_parks=True, memory_limit_bytes=GPU * MIB)
    crowded.agent.set_grant(crowded.uuids[0], "hp-0", memory_wait_ms=20_000, memory_limit_bytes=GPU * MIB)
    be = crowded.start("be-0")
    be.must(f"alloc {3400 * MIB}")
    eventually(lambda: be.do("room").result == (GPU - 3400 - CONTEXT) * MIB, "its context counts")
    begins_to_return(crowded, be)
    other = crowded.start_in(crowded.client_root(slot))
    other.send("init 0")
    assert not other.heard_something(0.5), "it asks first"
    os.kill(be.pid, signal.SIGCONT)
    assert other.answer(60).result == 0
    assert record_word(other, "memory_refusals") == 0
    if slot == "hp-0":  # be may leave again, so that hp can grow as much once more
        other.kill()
    be.must("run 2 100", 60)


def test_what_be_can_never_have_fails_soon(crowded: Machine) -> None:
    be = crowded.start("be-0")
    be.must(f"alloc {2000 * MIB}")
    assert be.do(f"alloc {2000 * MIB}").result == OUT_OF_MEMORY
    assert state(be) == ParkingState.RUNNING
    be.must("run 2 100")


def test_a_be_program_that_waits_for_room_can_be_killed(crowded: Machine) -> None:
    one, other = crowded.start("be-0"), crowded.start("be-1")
    one.must(f"alloc {2000 * MIB}")
    other.must(f"alloc {1000 * MIB}")
    one.send(f"alloc {1200 * MIB}")
    eventually(lambda: state(one) != ParkingState.RUNNING, "it leaves to wait for its turn")
    one.kill()
    other.must(f"alloc {2500 * MIB}", 60)
