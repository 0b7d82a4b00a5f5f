"""What an agent says of slots that have left a GPU's memory: in the GPUDevice's status, and in Events of their pods."""

from dataclasses import fields, replace
from datetime import UTC, datetime
from typing import Any

import pytest

from orion.crds.conditions import ConditionType
from orion.crds.device import GPUDeviceSpec
from orion.crds.device_status import GPUDeviceStatus, SlotRow
from orion.crds.policy import Mode, Priority
from orion.hook import layout
from orion.node_agent.advertising.advertising import Verdict
from orion.node_agent.cluster.reporting.device_events import post_pod_events
from orion.node_agent.cluster.reporting.device_status import status_of
from orion.node_agent.cluster.reporting.events import Subject
from orion.node_agent.cluster.reporting.seen import Seen
from orion.node_agent.cluster.state import GpuState, HolderState, PolicyState
from orion.node_agent.gpus.interface import Gpu
from orion.node_agent.pages import agent_pages, client_pages, policy_words
from orion.node_agent.slots.holders import Holder
from orion.node_agent.slots.memory_sharing import MemorySharing
from orion.node_agent.slots.parking_state import SlotParking
from orion.node_agent.snapshots import ClientView, GpuView, SlotView

UUID = "GPU-00000000-0000-4000-8000-000000000000"
MIB = 1 << 20
EMPTY = client_pages.Record(
    **{each.name: 0 for each in fields(client_pages.Record)} | {"wait_bucket": (), "long_kernel_name": ""}  # type: ignore[arg-type]
)
AWAY = SlotParking(number=1, state="parked", began=1_770_000_000.0, held_bytes=512 * MIB + 1)


class Posted:
    """Collects the Events of pods; as the real one does, each Event of a key once."""

    def __init__(self) -> None:
        self.events: list[tuple[str, str, str, bool]] = []
        self._keys: set[tuple[str, str, str | None]] = set()

    def post(self, about: Subject, reason: str, note: str, *, warning: bool = True, key: str | None = None) -> None:
        if (about.name, reason, key) not in self._keys:
            self._keys.add((about.name, reason, key))
            self.events.append((about.name, reason, note, warning))


def seen(*parking: SlotParking, parks: bool = True, held: int | None = None) -> Seen:
    """A GPU with a be slot for each of `parking`; pods hold the first `held` of them, or all."""
    grant, sharing = agent_pages.Grant(layout.Role.BE, 0, 0), MemorySharing(parks=parks)
    slots = tuple(
        SlotView(
            UUID, f"be-{number}", layout.Role.BE, "/", grant, 0, 0, (), memory_sharing=sharing, parking=replace(each)
        )
        for number, each in enumerate(parking)
    )
    holders = tuple(
        HolderState(UUID, slot.name, Priority.BE, Holder("team", f"train-{number}", "main", f"uid-{number}"))
        for number, slot in enumerate(slots[:held])
    )
    view = GpuView(Gpu(UUID, 0, "NVIDIA H200", 141 << 30), policy_words.DEFAULT, 0.0, 0, slots, ())
    state = GpuState(UUID, {Priority.HP: 1, Priority.BE: 8}, holders, PolicyState(policy_words.DEFAULT))
    return Seen("a-node", GPUDeviceSpec(), 1, view, state, Verdict(), 0.0, (), Mode.TIMESLICE, None, {}, "1.0")


def condition(status: GPUDeviceStatus) -> tuple[str, str, str] | None:
    found = [each for each in status.conditions or () if each.type == ConditionType.PARKED]
    return (found[0].status, found[0].reason, found[0].message) if found else None


def rows(of: Seen, now: datetime | None = None) -> list[SlotRow]:
    return list(status_of(of, [], now).held_slots or [])


def posted(of: Seen, *later: Seen) -> list[tuple[str, str, str, bool]]:
    collected: Any = Posted()
    for each in (of, *later):
        post_pod_events(collected, each.view, each.state)
    events: list[tuple[str, str, str, bool]] = collected.events
    return events


def test_a_gpu_whose_slots_never_park_has_no_such_condition() -> None:
    assert condition(status_of(seen(SlotParking(), parks=False), [])) is None


def test_the_condition_names_the_pods_that_are_away() -> None:
    found = condition(status_of(seen(SlotParking(), AWAY), []))
    assert found is not None
    assert found[:2] == ("True", "SlotsParked")
    assert "train-1" in found[2]
    assert "train-0" not in found[2]


def test_the_condition_names_a_slot_that_no_pod_holds() -> None:
    found = condition(status_of(seen(AWAY, held=0), []))
    assert found is not None
    assert found[2].endswith(": be-0")


@pytest.mark.parametrize("state", ["", "leaving", "returning", "refused", "lost"])
def test_only_a_slot_that_has_left_is_parked(state: str) -> None:
    status = status_of(seen(replace(AWAY, state=state)), [])
    assert condition(status) == ("False", "NoneParked", "no slot has left the GPU's memory")
    assert [row.parked for row in rows(seen(replace(AWAY, state=state)))] == [None]


def test_the_condition_keeps_its_time_until_a_slot_leaves_or_the_last_is_back() -> None:
    none, one, two = (status_of(seen(*each), []) for each in ([SlotParking()], [AWAY], [AWAY, AWAY]))
    times = {"2026-01-01T00:00:00Z"}
    before = [each.model_copy(update={"last_transition_time": min(times)}) for each in one.conditions or ()]
    later = {each.type: each.last_transition_time for each in status_of(seen(AWAY, AWAY), before).conditions or ()}
    assert later[ConditionType.PARKED] in times
    back = {each.type: each.last_transition_time for each in status_of(seen(SlotParking()), before).conditions or ()}
    assert back[ConditionType.PARKED] not in times
    assert len({str(condition(each)) for each in (none, one, two)}) == 3


def test_a_row_says_since_when_and_how_much_in_whole_mib() -> None:
    (row,) = rows(seen(AWAY))
    assert row.parked is not None
    assert (row.parked.since, row.parked.memory.bytes) == ("2026-02-02T02:40:00Z", 513 * MIB)


def test_a_row_says_why_a_slot_could_not_leave() -> None:
    why = "it has memory that other processes use"
    refused = SlotParking(number=1, state="refused", problem="ParkRefused", reason=why)
    (row,) = rows(seen(refused))
    assert (row.park_refused, row.park_refused_reason, row.keeps_room_time) == (why, "ParkRefused", None)
    assert row.parked is None
    refused.clear()
    (row,) = rows(seen(refused))
    assert (row.park_refused, row.park_refused_reason, row.keeps_room_time) == (None, None, None)


def test_the_time_at_which_a_slot_keeps_room_is_written_every_15_seconds() -> None:
    keeps = seen(SlotParking(number=1, state="refused", keeps_room=True))
    times = [row.keeps_room_time for now in (44, 45, 59, 60) for row in rows(keeps, datetime.fromtimestamp(now, UTC))]
    assert times == ["1970-01-01T00:00:30Z", *["1970-01-01T00:00:45Z"] * 2, "1970-01-01T00:01:00Z"]


@pytest.mark.parametrize(
    ("sharing", "expected"),
    [(MemorySharing(), None), (MemorySharing(parks=True), "park"), (MemorySharing(unified=True), "unified")],
)
def test_a_row_says_how_a_slot_gives_memory_back(sharing: MemorySharing, expected: str | None) -> None:
    made = seen(SlotParking())
    (slot,) = made.view.slots
    (row,) = rows(replace(made, view=replace(made.view, slots=(replace(slot, memory_sharing=sharing),))))
    assert row.oversubscribe == expected


def test_a_pod_learns_once_that_it_has_left_and_that_it_is_back() -> None:
    back = SlotParking(number=2, away_seconds=12.4)
    events = posted(seen(AWAY), seen(AWAY), seen(back), seen(back))
    assert [(name, reason, warning) for name, reason, _, warning in events] == [
        ("train-0", "Parked", False),
        ("train-0", "Returned", False),
    ]
    assert "513 MiB, because others need the room" in events[0][2]
    assert events[1][2] == f"slot be-0 of {UUID} is back in the GPU's memory after 12 s"


def test_each_time_that_a_pod_leaves_is_an_event_of_its_own() -> None:
    reasons = [reason for _, reason, _, _ in posted(seen(AWAY), seen(replace(AWAY, number=3)))]
    assert reasons == ["Parked", "Parked"]


def test_a_pod_learns_that_an_administrator_wants_it_away() -> None:
    ((_, _, note, _),) = posted(seen(replace(AWAY, is_wished_away=True)))
    assert "because an administrator wants it away" in note


@pytest.mark.parametrize(
    "parking",
    [SlotParking(), replace(AWAY, state="leaving"), replace(AWAY, state="returning"), SlotParking(number=2)],
    ids=["never asked", "leaving", "returning", "back before it had left"],
)
def test_nothing_is_said_about_what_has_not_happened(parking: SlotParking) -> None:
    assert posted(seen(parking)) == []


def test_a_slot_without_a_pod_gets_no_event() -> None:
    assert posted(seen(AWAY, held=0)) == []


def having(of: Seen, request: int, held: int) -> Seen:
    """The same GPU, each of whose slots is sure of so many MiB and has so many."""
    process = ClientView(1, 1, 1001, "python", "idle", (), 5.0, 0, 0, 0, replace(EMPTY, memory_bytes=held * MIB))
    slots = tuple(replace(each, clients=(process,)) for each in of.view.slots)
    holders = tuple(replace(each, memory_request_bytes=request * MIB) for each in of.state.held)
    return replace(of, view=replace(of.view, slots=slots), state=replace(of.state, held=holders))


@pytest.mark.parametrize(
    ("of", "borrowed", "returnable"),
    [
        (having(seen(SlotParking()), 100, 300), 200, 200),
        (having(seen(SlotParking(), parks=False), 100, 300), 200, 0),
        (having(seen(SlotParking(), AWAY), 100, 300), 200, 200),
        (having(seen(replace(AWAY, state="refused")), 100, 300), 200, 0),
        (having(seen(replace(AWAY, state="returning")), 100, 300), 200, 0),
        (having(seen(SlotParking()), 300, 100), 0, 0),
        (having(seen(SlotParking()), 0, 300), 0, 0),
    ],
    ids=["may park", "may not park", "one is away", "refuses", "comes back", "within its request", "sure of nothing"],
)
def test_what_slots_have_beyond_their_requests_is_borrowed_and_given_back_if_they_park(
    of: Seen, borrowed: int, returnable: int
) -> None:
    memory = status_of(of, []).memory
    assert memory is not None
    assert memory.borrowed is not None
    assert memory.returnable is not None
    assert (memory.borrowed.bytes, memory.returnable.bytes) == (borrowed * MIB, returnable * MIB)
