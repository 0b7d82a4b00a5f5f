"""Which pods the operator evicts because they keep memory of a GPU that others need."""

from typing import Any

import pytest

from orion.operator.reconciler.writes import EvictPod, PostEvent
from tests.operator.fake_cluster import Body, FakeCluster, Reconciler, state_of, take
from tests.operator.test_share_decisions import PARKS, POD, device, pod, share, slot, writes

EVICTS = PARKS | {"evictUnparked": True}


def keeps_room(of: str = "p", **more: Any) -> dict[str, Any]:
    refused = {"parkRefused": "it uses managed memory", "parkRefusedReason": "ParkRefused", "keepsRoom": True}
    return slot(of) | refused | more


def is_evicted(of: Body, report: Body) -> bool:
    return EvictPod in [type(write) for write in writes(FakeCluster([of, pod("p"), report]), POD)]


def test_a_pod_that_keeps_room_is_evicted_after_an_event_if_its_share_says_so() -> None:
    cluster = FakeCluster([share(memory=EVICTS), pod("p"), device(heldSlots=[keeps_room()])])
    event, eviction = writes(cluster, POD)
    assert isinstance(event, PostEvent)
    assert isinstance(eviction, EvictPod)
    assert event.reason == "KeepsRoom"
    assert "slot be-0 keeps" in event.note
    assert "(ParkRefused): the pod is evicted, because its GPUShare sets memory.evictUnparked" in event.note
    Reconciler(cluster, state_of(cluster)).run()
    assert cluster.objects["Pod", "n", "p"]["metadata"]["deletionTimestamp"]


def test_a_report_that_a_pod_keeps_room_makes_the_operator_look_at_the_pod() -> None:
    cluster = FakeCluster([share(memory=EVICTS), pod("p"), device(heldSlots=[slot("p")])])
    state = state_of(cluster)
    assert POD not in take(state, cluster.put(device(heldSlots=[slot("p")])))
    assert POD in take(state, cluster.put(device(heldSlots=[keeps_room()])))


@pytest.mark.parametrize("memory", [PARKS, EVICTS | {"evictUnparked": False}])
def test_it_stays_if_its_share_does_not_say_so(memory: dict[str, Any]) -> None:
    assert not is_evicted(share(memory=memory), device(heldSlots=[keeps_room()]))
    assert not is_evicted(share(), device(heldSlots=[keeps_room()]))


@pytest.mark.parametrize("more", [{"keepsRoom": False}, {"pod": {"namespace": "n", "name": "p", "uid": "before"}},
                                  {"pod": {"namespace": "n", "name": "another"}}])  # fmt: skip
def test_neither_another_refusal_nor_that_of_another_pod_evicts_it(more: dict[str, Any]) -> None:
    assert not is_evicted(share(memory=EVICTS), device(heldSlots=[keeps_room(**more)]))
    assert not is_evicted(share(memory=EVICTS), device(heldSlots=[slot("p") | {"parkRefused": "it is busy"}]))


def test_an_agent_of_another_node_evicts_no_pod() -> None:
    assert not is_evicted(share(memory=EVICTS), device(node="elsewhere", heldSlots=[keeps_room()]))
