"""Which pods the operator evicts: they keep memory that others need, or use a GPU without the hook."""

from typing import Any

import pytest

from orion.operator.reconciler.decisions import decide
from orion.operator.reconciler.state import State
from orion.operator.reconciler.writes import EvictPod, PostEvent
from tests.operator.fake_cluster import NOW, Body, FakeCluster, Reconciler, state_of, take
from tests.operator.share_objects import PARKS, POD, device, events, pinned, pod, share, slot, unmanaged, writes

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


def test_fail_closed_evicts_after_an_event_and_once() -> None:
    cluster = FakeCluster([share(failClosed=True), pod("p"), device(unmanaged=[unmanaged("p")])])
    Reconciler(cluster, state_of(cluster)).run()
    assert cluster.objects["Pod", "n", "p"]["metadata"]["deletionTimestamp"]
    assert ("p", "HookMissing") in events(cluster)
    fresh = FakeCluster([share(failClosed=True), pod("p"), device(unmanaged=[unmanaged("p")])])
    kinds = [type(write) for write in writes(fresh, POD)]
    assert kinds == [PostEvent, EvictPod]


@pytest.mark.parametrize("what", ["not closed", "not running", "another pod's", "unmanaged"])
def test_no_other_process_without_the_hook_evicts_a_pod(what: str) -> None:
    found = (
        unmanaged("p")
        if what != "another pod's"
        else unmanaged("p") | {"pod": {"namespace": "n", "name": "p", "uid": "before"}}
    )
    victim = pod("p", running=what != "not running", priority=None if what == "unmanaged" else "be")
    cluster = FakeCluster([share(failClosed=what != "not closed"), victim, device(unmanaged=[found])])
    assert EvictPod not in [type(write) for write in writes(cluster, POD)]


def test_fail_closed_of_a_deleted_share_evicts_no_pod() -> None:
    report = device(heldSlots=[slot("p")], unmanaged=[unmanaged("p")])
    before = FakeCluster([share(failClosed=True), pinned("s"), report])
    assert EvictPod in [type(write) for write in writes(before, POD)]
    assert EvictPod not in [type(write) for write in writes(FakeCluster([pinned("s"), report]), POD)]


def test_a_process_that_an_agent_of_another_node_reports_evicts_no_pod() -> None:
    cluster = FakeCluster([share(failClosed=True), pod("p"), device(node="elsewhere", unmanaged=[unmanaged("p")])])
    assert EvictPod not in [type(write) for write in writes(cluster, POD)]
