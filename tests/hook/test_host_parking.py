"""A be process leaves the GPU's memory as its agent wishes and comes back, whatever it does at that moment."""

import os
import signal
import subprocess
import sys
import time

import pytest

from orion.hook.layout import ParkingReason, ParkingState
from tests.hook.harness import Machine, record_word
from tests.hook.scripted_client import Client, eventually

MIB = 1 << 20
HELD = 256
""" What each process allocates, in MiB. """


class ParkingSlot:
    """The slot be-0, which parks, and what a process without a hook sees free on the GPU."""

    def __init__(self, machine: Machine) -> None:
        self.machine, self.root = machine, machine.client_root("be-0")
        self.open()
        self.monitor = machine.start_in(None)
        self.monitor.must("init 0")

    def open(self) -> None:
        self.machine.agent.set_grant(self.machine.uuids[0], "be-0", memory_parks=True)

    def wish(self, away: bool) -> None:
        self.machine.agent.park_slot(self.machine.uuids[0], "be-0", away)

    @property
    def reason(self) -> str:
        slots = self.machine.agent.snapshot().gpus[0].slots
        return next(slot.parking.reason for slot in slots if slot.name == "be-0")

    def start(self) -> Client:
        client = self.machine.start_in(self.root)
        client.must("init 0")
        client.must(f"alloc {HELD * MIB}")
        client.must("run 2 100")
        self.machine.until_joined(client)
        return client

    @property
    def free_mib(self) -> int:
        return self.monitor.do("room").result // MIB

    def until(self, client: Client, state: ParkingState) -> None:
        eventually(lambda: record_word(client, "parking") & 255 == state, f"the process is {state.name}")

    def leaves(self, client: Client) -> None:
        self.wish(True)
        self.until(client, ParkingState.PARKED)

    def returns(self, client: Client) -> None:
        self.wish(False)
        self.until(client, ParkingState.RUNNING)
        client.must("run 2 100")


@pytest.fixture
def parking(machine: Machine) -> ParkingSlot:
    return ParkingSlot(machine)


@pytest.fixture
def costly(bare_machine: Machine) -> ParkingSlot:
    """A slot whose processes take about 16 ms to leave and as long to come back."""
    bare_machine.simulate(ORION_SIM_OUT_MS_PER_GIB="64", ORION_SIM_BACK_MS_PER_GIB="64")
    bare_machine.start_agent()
    return ParkingSlot(bare_machine)


def test_a_parked_process_holds_nothing_and_computes_on_when_it_is_back(parking: ParkingSlot) -> None:
    be = parking.start()
    before = parking.free_mib
    for _ in range(3):
        parking.leaves(be)
        assert parking.free_mib >= before + HELD
        assert record_word(be, "memory_bytes") == HELD * MIB, "the agent keeps so much for it"
        be.send("run 2 100")
        assert not be.heard_something(0.05)
        parking.wish(False)
        assert be.answer().result == 0
        eventually(lambda: parking.free_mib == before, "its memory is back")
        assert record_word(be, "memory_bytes") == HELD * MIB
    assert [line for line in be.said if "left" in line] == be.said
    assert len(be.said) == 1


def test_an_idle_process_leaves_also_if_its_slot_parks_only_since_it_computed(machine: Machine) -> None:
    be = machine.start("be-0")
    be.must(f"alloc {HELD * MIB}")
    be.must("run 2 100")
    parking = ParkingSlot(machine)
    parking.leaves(be)
    parking.returns(be)


def test_an_idle_process_leaves_also_if_it_has_joined_late(bare_machine: Machine) -> None:
    be = bare_machine.start_in(bare_machine.client_root("be-0"))
    be.must("init 0")
    be.must(f"alloc {HELD * MIB}")
    bare_machine.start_agent()
    parking = ParkingSlot(bare_machine)
    bare_machine.until_joined(be)
    parking.leaves(be)
    parking.returns(be)


def test_a_process_that_has_only_allocated_leaves(parking: ParkingSlot) -> None:
    be = parking.machine.start_in(parking.root)
    be.must("init 0")
    be.must(f"alloc {HELD * MIB}")
    parking.leaves(be)
    parking.returns(be)


@pytest.mark.parametrize("work", ["flood 2 200", "threads 4 2 300", "graphs 200 500 20", "loop 2 300 5"])
def test_it_leaves_from_the_middle_of_its_work(parking: ParkingSlot, work: str) -> None:
    be = parking.start()
    be.send(work)
    for _ in range(3):
        parking.leaves(be)
        parking.wish(False)
        parking.until(be, ParkingState.RUNNING)
    assert be.answer(60).result >= 0
    be.must("ctxsync")


def test_it_leaves_although_hp_never_pauses(parking: ParkingSlot) -> None:
    be, hp = parking.start(), parking.machine.start("hp-0")
    parking.machine.until_known(hp, be)
    hp.send("loop 4 500 4")
    be.send("flood 1 200")
    parking.leaves(be)
    assert hp.answer(60).result > 0
    parking.wish(False)
    be.answer(60)
    be.must("ctxsync")


@pytest.mark.parametrize("call", range(1, 13))
def test_calls_that_the_driver_does_not_stop_wait_until_it_is_back(parking: ParkingSlot, call: int) -> None:
    """NVIDIA's driver ends a process that makes such a call while it is away, and so does the simulated one."""
    be = parking.start()
    be.must("unstopped 0")
    parking.leaves(be)
    be.send(f"unstopped {call}")
    assert not be.heard_something(0.05)
    assert be.process.poll() is None
    parking.wish(False)
    assert be.answer().result == 0
    parking.leaves(be)
    parking.returns(be)


def test_a_parked_program_ends_though_its_exit_handler_makes_such_a_call(parking: ParkingSlot) -> None:
    be = parking.start()
    be.must("unstopped 0")
    be.must("unstopped 13")
    parking.leaves(be)
    be.send("exit")
    assert be.process.wait(20) == 0


def test_it_leaves_though_its_work_waits_for_a_thread_that_records_an_event(parking: ParkingSlot) -> None:
    be = parking.start()
    be.must("unstopped 0")
    be.must("unstopped 14")
    parking.wish(True)
    parking.until(be, ParkingState.LEAVING)
    be.must("unstopped 15")
    parking.until(be, ParkingState.PARKED)
    parking.returns(be)


def test_it_leaves_while_it_asks_all_the_time(parking: ParkingSlot) -> None:
    be, count = parking.start(), 2000
    be.must("run 2 100 1")
    for _ in range(count):
        be.send("query 1")
    parking.leaves(be)
    parking.wish(False)
    assert all(be.answer().result == 0 for _ in range(count))


def test_all_processes_of_the_slot_leave_and_one_that_comes_later_too(parking: ParkingSlot) -> None:
    be, other = parking.start(), parking.start()
    parking.leaves(be)
    parking.until(other, ParkingState.PARKED)
    late = parking.machine.start_in(parking.root)
    late.send("init 0")
    parking.until(late, ParkingState.PARKED)
    parking.wish(False)
    assert late.answer().result == 0
    for each in (be, other, late):
        each.must("run 2 100")


HOST_POINTER, P2P_TOKENS = 4, 5


@pytest.mark.parametrize(
    ("harmless", "pins"), [("pinlast 0", "pinlast 1"), (f"asklast {HOST_POINTER}", f"asklast {P2P_TOKENS}")]
)
def test_memory_that_a_device_may_have_pinned_keeps_it(parking: ParkingSlot, harmless: str, pins: str) -> None:
    be = parking.start()
    be.must(harmless)
    parking.leaves(be)
    parking.returns(be)
    be.must(pins)
    parking.wish(True)
    eventually(lambda: "it shares GPU memory" in parking.reason, "the process has refused", 30)
    be.must("run 2 100")


@pytest.mark.parametrize("end", ["exit", "_exit", signal.SIGTERM, signal.SIGKILL])
def test_a_parked_program_can_end(parking: ParkingSlot, end: str | signal.Signals) -> None:
    before = parking.free_mib
    be = parking.start()
    parking.leaves(be)
    if isinstance(end, str):
        be.send(end)
    else:
        os.kill(be.pid, end)
    be.process.wait(20)
    eventually(lambda: parking.free_mib == before, "nothing is held")
    parking.wish(False)
    parking.start().must("run 2 100")


@pytest.mark.parametrize("end", ["exit", signal.SIGKILL])
@pytest.mark.parametrize("returns", [False, True])
def test_a_program_can_end_at_any_moment_of_leaving_and_returning(
    costly: ParkingSlot, returns: bool, end: str | signal.Signals
) -> None:
    before = costly.free_mib
    for moment in range(0, 40, 4):
        be = costly.start()
        if returns:
            costly.leaves(be)
        costly.wish(not returns)
        time.sleep(moment / 1e3)  # no condition names these moments
        if isinstance(end, str):
            be.send(end)
        else:
            os.kill(be.pid, end)
        be.process.wait(20)
        eventually(lambda: costly.free_mib == before, f"nothing is held, {moment} ms after the wish")
        costly.wish(False)
    costly.start().must("run 2 100")


def test_a_parked_process_forks(parking: ParkingSlot) -> None:
    be = parking.start()
    parking.leaves(be)
    assert be.do("fork 0").result > 0
    parking.returns(be)


def test_a_stopped_process_leaves_when_it_goes_on(parking: ParkingSlot) -> None:
    be = parking.start()
    os.kill(be.pid, signal.SIGSTOP)
    parking.wish(True)
    assert record_word(be, "parking") & 255 == ParkingState.RUNNING
    os.kill(be.pid, signal.SIGCONT)
    parking.until(be, ParkingState.PARKED)
    parking.returns(be)


def test_it_leaves_after_a_long_kernel_and_a_blocking_call(parking: ParkingSlot) -> None:
    be = parking.start()
    be.send("run 1 1500000")
    parking.leaves(be)
    parking.wish(False)
    assert be.answer().result == 0


def test_a_kernel_that_does_not_end_keeps_it(parking: ParkingSlot) -> None:
    be = parking.start()
    be.must("launch 1 9000000")
    parking.wish(True)
    # The agent takes its wish back at once, so the word is soon another one; the agent keeps the reason.
    eventually(lambda: "did not end in time" in parking.reason, "the process has refused")
    be.must("sync")


def test_a_driver_that_refuses_keeps_it_and_loses_nothing(parking: ParkingSlot) -> None:
    be = parking.start()
    fail = "import sys; from pathlib import Path; from orion.hook.simulated import Machine\n"
    fail += "Machine(Path(sys.argv[1])).fail_checkpoint(801)"
    command = [sys.executable, "-c", fail, str(parking.machine.simulated_library)]
    subprocess.run(command, env=parking.machine.environment, check=True)
    parking.wish(True)
    parking.until(be, ParkingState.REFUSED)
    assert record_word(be, "parking") >> 8 & 0xFFFFFF == 801 << 8 | ParkingReason.CHECKPOINT
    be.must("run 2 100")


def test_the_next_agent_brings_it_back(parking: ParkingSlot) -> None:
    be = parking.start()
    parking.leaves(be)
    parking.machine.kill_agent()
    be.send("run 2 100")
    assert not be.heard_something(0.3)
    parking.machine.start_agent()
    parking.machine.until_joined(be)
    assert record_word(be, "parking") & 255 == ParkingState.PARKED
    parking.wish(False)
    assert be.answer().result == 0
