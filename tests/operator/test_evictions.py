"""Which pods the operator evicts because they keep memory of a GPU that others need."""

from typing import Any

import pytest

from orion.operator.reconciler.decisions import decide
from orion.operator.reconciler.state import State
from orion.operator.reconciler.writes import EvictPod, PostEvent
from tests.operator.fake_cluster import NOW, Body, FakeCluster, state_of, take
from tests.operator.test_share_decisions import PARKS, POD, device, pod, share, slot

EVICTS = PARKS | {"evictUnparked": True}


def keeps_room(of: str = "p", **more: Any) -> dict[str, Any]:
    refused = {"parkRefused": "it uses managed memory", "parkRefusedReason": "ParkRefused"}
    return slot(of) | refused | {"keepsRoomTime": "2026-01-02T03:04:05Z"} | more


def watching(of: Body, report: Body) -> State:
    """Return the state of an operator that watches while an agent writes a report, at the time 0."""
    cluster = FakeCluster([of, pod("p"), device()])
    state = state_of(cluster)
    take(state, cluster.put(report))
    return state


def is_evicted(of: Body, report: Body) -> bool:
    return evicts(watching(of, report), 0.0)


def evicts(state: State, now: float) -> bool:
    return EvictPod in [type(write) for write in decide(state, POD, NOW, now)]


def test_a_pod_that_keeps_room_is_evicted_after_an_event_if_its_share_says_so() -> None:
    event, eviction = decide(watching(share(memory=EVICTS), device(heldSlots=[keeps_room()])), POD, NOW, 0.0)
    assert isinstance(event, PostEvent)
    assert isinstance(eviction, EvictPod)
    assert event.reason == "KeepsRoom"
    assert "slot be-0 keeps" in event.note
    assert "(ParkRefused): the pod is evicted, because its GPUShare sets memory.evictUnparked" in event.note


def test_a_report_that_a_pod_keeps_room_makes_the_operator_look_at_the_pod() -> None:
    cluster = FakeCluster([share(memory=EVICTS), pod("p"), device(heldSlots=[slot("p")])])
    state = state_of(cluster)
    assert POD not in take(state, cluster.put(device(heldSlots=[slot("p")])))
    assert POD in take(state, cluster.put(device(heldSlots=[keeps_room()])))


def test_the_report_of_an_agent_that_writes_no_more_evicts_nobody() -> None:
    cluster = FakeCluster([share(memory=EVICTS), pod("p"), device(heldSlots=[slot("p")])])
    state = state_of(cluster)
    take(state, cluster.put(device(heldSlots=[keeps_room()])), 100.0)
    assert evicts(state, 100.0)
    assert evicts(state, 150.0), "a disruption budget has held the pod back for a while"
    take(state, cluster.put(device(heldSlots=[keeps_room()])), 155.0)  # a new watch brings the same again
    assert not evicts(state, 161.0)
    keys = take(state, cluster.put(device(heldSlots=[keeps_room(keepsRoomTime="2026-01-02T03:05:05Z")])), 300.0)
    assert POD in keys
    assert evicts(state, 300.0)


def test_an_operator_that_starts_does_not_evict_by_a_report_of_unknown_age() -> None:
    cluster = FakeCluster([share(memory=EVICTS), pod("p"), device(heldSlots=[keeps_room()])])
    state = state_of(cluster)
    assert not evicts(state, 0.0)
    take(state, cluster.put(device(heldSlots=[keeps_room(keepsRoomTime="2026-01-02T03:04:20Z")])), 15.0)
    assert evicts(state, 15.0)


@pytest.mark.parametrize("memory", [PARKS, EVICTS | {"evictUnparked": False}])
def test_it_stays_if_its_share_does_not_say_so(memory: dict[str, Any]) -> None:
    assert not is_evicted(share(memory=memory), device(heldSlots=[keeps_room()]))
    assert not is_evicted(share(), device(heldSlots=[keeps_room()]))


@pytest.mark.parametrize("more", [{"keepsRoomTime": None}, {"pod": {"namespace": "n", "name": "p", "uid": "before"}},
                                  {"pod": {"namespace": "n", "name": "another"}}])  # fmt: skip
def test_neither_another_refusal_nor_that_of_another_pod_evicts_it(more: dict[str, Any]) -> None:
    assert not is_evicted(share(memory=EVICTS), device(heldSlots=[keeps_room(**more)]))
    assert not is_evicted(share(memory=EVICTS), device(heldSlots=[slot("p") | {"parkRefused": "it is busy"}]))
    assert is_evicted(share(memory=EVICTS), device(heldSlots=[keeps_room()]))


def test_an_agent_of_another_node_evicts_no_pod() -> None:
    assert not is_evicted(share(memory=EVICTS), device(node="elsewhere", heldSlots=[keeps_room()]))
