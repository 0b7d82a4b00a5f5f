"""be programs under the hook leave the simulated GPU's memory for hp, and come back when hp has freed it."""

from orion.node_agent.api import agent_pb2
from tests.hook.harness import Machine
from tests.hook.scripted_client import eventually

QUICK = ("--parking-reserve-mib", "0", "--parking-margin-mib", "16", "--parking-stay-factor", "0")


def parking(machine: Machine) -> agent_pb2.Parking:
    return next(slot.parking for slot in machine.gpu().slots if slot.name == "be-0")


def begin(machine: Machine) -> None:
    machine.start_agent(*QUICK)
    machine.agent.set_grant(machine.uuids[0], "be-0", memory_parks=True)
    machine.agent.set_grant(machine.uuids[0], "hp-0", memory_wait_ms=20_000)


def test_an_allocation_of_hp_on_a_full_gpu_waits_until_a_be_program_has_left(bare_machine: Machine) -> None:
    machine = bare_machine
    begin(machine)
    total = machine.gpu().memory_bytes
    be, hp = machine.start("be-0"), machine.start("hp-0")
    assert be.must(f"alloc {total // 2}").result == 0
    be.must("run 3 10")
    assert hp.must(f"alloc {total * 3 // 4}").result == 0
    eventually(lambda: parking(machine).state == "parked", machine.agent_log())
    assert parking(machine).bytes >= total // 2
    be.send("run 3 10")  # it waits for its memory
    hp.close()
    assert be.answer().result == 0
    eventually(lambda: parking(machine).state == "")
    assert machine.gpu().parkings["returned"] == 1


def test_a_person_sends_a_program_away_and_lets_it_back_after_the_agent_was_killed(bare_machine: Machine) -> None:
    machine = bare_machine
    begin(machine)
    be = machine.start("be-0")
    be.must(f"alloc {machine.gpu().memory_bytes // 4}")
    be.must("run 3 10")
    machine.agent.park_slot(machine.uuids[0], "be-0", away=True)
    eventually(lambda: parking(machine).state == "parked", machine.agent_log())
    machine.kill_agent()
    be.send("run 3 10")
    machine.start_agent(*QUICK)
    eventually(lambda: parking(machine).state == "parked", machine.agent_log())
    machine.agent.park_slot(machine.uuids[0], "be-0", away=False)
    assert be.answer().result == 0
    eventually(lambda: parking(machine).state == "")
