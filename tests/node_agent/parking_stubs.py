"""Parking of one GPU whose tenant and driver are stand-ins, for tests of when the agent looks, asks and decides."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from orion.hook import layout
from orion.hook.layout import ParkingState
from orion.node_agent.parking import asking, host_room, showing
from orion.node_agent.parking.known import Known
from orion.node_agent.parking.parking import Parking
from orion.node_agent.parking.view import Place, View, Wishes
from orion.node_agent.settings import AgentSettings
from orion.node_agent.slots.parking_state import GpuParking
from tests.node_agent.asking_thread import Thread
from tests.node_agent.conftest import GPU

GIB = 1 << 30


class Stub(SimpleNamespace):
    """A client or a slot, which can be a key."""

    __hash__ = object.__hash__  # type: ignore[assignment]


class Tenants:
    """One tenant, which may leave and come back if nothing else is said."""

    all_are_here = False

    def __init__(self, place: Place = Place.LEAVING, moves_always: bool = False) -> None:
        self.moves_always = moves_always
        self.record = SimpleNamespace(parking=SimpleNamespace(state=ParkingState.RUNNING), memory_mib=1)
        slot = SimpleNamespace(parking=SimpleNamespace(is_asked=place is Place.LEAVING))
        self.one: Any = SimpleNamespace(
            name="one", known=Known(began=0.0, place=place), slots=[], members=[], gpus={GPU},
            clients=[SimpleNamespace(record=self.record, slot=slot, stays=False)], joined={},
            note_lacks=lambda waiting: None, moved_since=lambda asked: self.one.known.moved > asked,
            look=self.look_at_one, note=lambda now: None, is_asked=True, is_listed=True, parks=True,
            moves=moves_always or place is Place.LEAVING, rests=place is Place.HERE,
        )  # fmt: skip
        self.present: dict[str, Any] = {"one": self.one}
        self.on = {GPU: [self.one]}

    def group(self, *_: Any) -> None:
        pass

    def moving(self) -> list[Any]:
        return [self.one] if self.one.moves else []

    def look_at_one(self, now: float, *_: Any) -> None:
        if self.moves_always or (self.one.moves and self.record.parking.state is ParkingState.PARKED):
            self.one.known.moved, self.one.moves = now, self.moves_always

    def together(self, _: Any) -> tuple[set[str], list[Any]]:
        return {GPU}, [self.one]

    def views(self, *_: Any) -> tuple[()]:
        return ()


def note_views(monkeypatch: pytest.MonkeyPatch) -> list[View]:
    """Return what will be decided upon; nobody is asked to move."""
    monkeypatch.setattr(asking, "_ANSWER_SECONDS", 0.001)
    monkeypatch.setattr(showing, "show", lambda *_: None)
    seen: list[View] = []

    def decide(view: View) -> Wishes:
        seen.append(view)
        return Wishes()

    monkeypatch.setattr(host_room, "decide", decide)
    return seen


def stub_parking(thread: Thread, root: Path) -> Parking:
    """Return the parking of a GPU with a tenant that moves whenever somebody looks. `thread`: asks the driver."""
    slot: Any = Stub(
        role=layout.Role.HP,
        parking=SimpleNamespace(is_asked=True, state="", left_bytes=0),
        grant=SimpleNamespace(memory_limit_bytes=0, memory_wait_ns=0),
        page=SimpleNamespace(set_leaving=lambda mib: None, set_returning=lambda mib: None),
        job="",
        claim=None,
    )
    shared_gpu: Any = SimpleNamespace(
        gpu=SimpleNamespace(uuid=GPU, memory_bytes=8 * GIB), slots={"hp-0": slot}, clients={}, parking=GpuParking(),
        living_hp={}, awaited={},
    )  # fmt: skip
    shared_gpu.of_slot = lambda slot: []
    source: Any = SimpleNamespace(memory_free_bytes=lambda gpu: GIB, memory_of_processes=lambda gpu: {})
    served: Any = SimpleNamespace(shared_gpu=shared_gpu)
    threads: Any = SimpleNamespace(of=lambda uuid: thread)
    made = Parking(source, {GPU: served}, threads, AgentSettings(root=root), lambda uuids: None)
    tenants: Any = Tenants(Place.HERE, moves_always=True)
    made.tenants = tenants
    return made
