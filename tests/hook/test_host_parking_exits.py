"""A program exits in the middle of a step of parking: it does not hang, and nothing of it is left."""

import pytest

from orion.hook.layout import ParkingState
from tests.hook.harness import Machine
from tests.hook.scripted_client import Client, eventually
from tests.hook.test_host_parking import ParkingSlot

STEPS = {
    "lock": {"ORION_SIM_LOCK_US": "400000"},
    "checkpoint": {"ORION_SIM_OUT_MS_PER_GIB": "1500"},
    "away": {},
    "restore": {"ORION_SIM_BACK_MS_PER_GIB": "1500"},
}
""" The simulated driver takes long for that step: about 0.4 s. """
SOON = 5.0
""" Seconds. No test waits so long: the agent knows within 0.2 s, and a program that hangs does so until it is back. """
CALLS = range(5)
""" Of the command `atexit`. """
FROM_MAIN = "return"


@pytest.fixture
def slot(bare_machine: Machine, step: str) -> ParkingSlot:
    bare_machine.simulate(**STEPS[step])
    bare_machine.start_agent()
    return ParkingSlot(bare_machine)


def bring_into(step: str, slot: ParkingSlot, be: Client) -> None:
    if step in ("lock", "checkpoint"):
        slot.wish(True)
        slot.until(be, ParkingState.LEAVING)
        return
    slot.leaves(be)
    if step == "restore":
        slot.wish(False)
        slot.until(be, ParkingState.RETURNING)


def ends(slot: ParkingSlot, be: Client, how: str, free_mib: int) -> None:
    if how == FROM_MAIN:
        assert be.process.stdin is not None
        be.process.stdin.close()
    else:
        be.send(how)
    assert be.process.wait(SOON) == 0
    eventually(lambda: slot.machine.shown(be) is None, "the agent knows that it has ended", SOON)
    eventually(lambda: slot.free_mib == free_mib, "nothing of it is left", SOON)
    slot.wish(False)


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("how", ["exit", "_exit", "threadexit 0", "threadexit 1", FROM_MAIN])
def test_a_program_ends_in_the_middle_of_a_step(slot: ParkingSlot, step: str, how: str) -> None:
    free_mib = slot.free_mib
    be = slot.start()
    be.must("atexit 0")
    bring_into(step, slot, be)
    ends(slot, be, how, free_mib)
    slot.start().must("run 2 100")


@pytest.mark.parametrize("step", STEPS)
def test_its_exit_handlers_do_not_wait_for_a_return(slot: ParkingSlot, step: str) -> None:
    free_mib = slot.free_mib
    for call in CALLS:
        be = slot.start()
        be.must(f"atexit {call}")
        bring_into(step, slot, be)
        ends(slot, be, "exit", free_mib)
