"""A be process that is away when its agent is replaced by one that knows nothing of it: it comes back, to room."""

from pathlib import Path

from orion.hook.layout import ParkingState
from tests.hook.harness import Machine, record_word
from tests.hook.scripted_client import Client, eventually

GIB = 1 << 30


def state(client: Client) -> int:
    return record_word(client, "parking") & 255


def start(machine: Machine, slot: str, gib: int) -> Client:
    client = machine.start_in(machine.client_root(slot))
    client.must("init 0")
    client.must(f"alloc {gib * GIB}")
    client.must("run 2 100")
    machine.until_joined(client)
    return client


def lose_state(machine: Machine) -> None:
    """Start the next agent without what the one before it has saved."""
    machine.kill_agent()
    (Path(machine.root) / "state.json").unlink()
    machine.start_agent("--parking-answer-seconds", "3600")


def test_it_waits_for_room_also_if_its_slot_parks_no_more(bare_machine: Machine) -> None:
    bare_machine.start_agent()
    gpu = bare_machine.uuids[0]
    bare_machine.agent.set_grant(gpu, "be-0", memory_parks=True)
    away = start(bare_machine, "be-0", 50)
    bare_machine.agent.park_slot(gpu, "be-0", True)
    eventually(lambda: state(away) == ParkingState.PARKED, "it is away")
    other = start(bare_machine, "be-1", 60)
    lose_state(bare_machine)

    def shown() -> str:
        return next(each.parking.state for each in bare_machine.agent.snapshot().gpus[0].slots if each.name == "be-0")

    eventually(lambda: shown() == "parked" or state(away) == ParkingState.LOST, "the agent knows that it is away")
    assert state(away) == ParkingState.PARKED
    other.kill()
    away.must("run 2 100", 60)
    assert state(away) == ParkingState.RUNNING
