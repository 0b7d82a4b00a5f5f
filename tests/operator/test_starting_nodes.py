"""Fresh nodes: when the operator removes their startup taint, and what it says if it cannot."""

from datetime import timedelta
from typing import Any

import pytest

from orion.crds.annotations import STARTUP_TAINT
from orion.operator.reconciler.decisions import decide
from orion.operator.reconciler.keys import Key, Kind
from orion.operator.reconciler.records import Named
from orion.operator.reconciler.starting_nodes import PATIENCE_S
from orion.operator.reconciler.writes import PatchNode, PostEvent, Remember, RemoveTaints, RequeueAfter, Write
from tests.operator.fake_cluster import NOW, Body, FakeCluster, Reconciler, state_of, take

KEY = Key(Kind.NODE, Named("", "node"))
OTHER = {"key": "nvidia.com/gpu", "effect": "NoSchedule"}
OURS = [{"key": STARTUP_TAINT, "effect": effect} for effect in ("NoSchedule", "NoExecute")]
OF_TEMPLATE = {"orion.gpu/gpus": "8", "orion.gpu/gpu-memory": "143771"}


def node(*taints: Body, age_s: float = 0.0, **allocatable: str) -> Body:
    created = (NOW - timedelta(seconds=age_s)).strftime("%Y-%m-%dT%H:%M:%SZ")
    return {
        "kind": "Node",
        "metadata": {"name": "node", "creationTimestamp": created, "labels": OF_TEMPLATE},
        "spec": {"taints": list(taints)},
        "status": {"allocatable": {"cpu": "8", **{f"orion.gpu/{name}": count for name, count in allocatable.items()}}},
    }


def gpu(number: int, hp: int = 1, be: int = 8, **status: Any) -> Body:
    uuid = f"GPU-00000000-0000-4000-8000-00000000000{number}"
    known = {"node": "node", "uuid": uuid, "mode": "timeslice", "memory": {"total": "80Gi"}}
    slots = {"slots": {"hp": {"total": hp}, "be": {"total": be}}} if hp or be else {}
    return {"kind": "GPUDevice", "metadata": {"name": uuid.lower()}, "spec": {}, "status": known | slots | status}


def reconciled(*bodies: Body) -> Body:
    cluster = FakeCluster(bodies)
    Reconciler(cluster, state_of(cluster)).run()
    return cluster.objects["Node", "", "node"]


def writes(*bodies: Body) -> list[Write]:
    return decide(state_of(FakeCluster(bodies)), KEY, NOW, 0.0)


def test_the_taint_goes_with_the_slots_and_the_labels_come_first() -> None:
    bodies = node(OTHER, OURS[0], hp="2", be="16"), gpu(0), gpu(1)
    assert [type(write) for write in writes(*bodies)] == [PatchNode, RemoveTaints]
    found = reconciled(*bodies)
    assert found["spec"]["taints"] == [OTHER]
    assert found["metadata"]["labels"] == {
        "orion.gpu/gpus": "2",
        "orion.gpu/gpu-memory": str(80 * 1024),
        "orion.gpu/mode": "timeslice",
    }


def test_every_effect_of_the_taint_goes() -> None:
    assert reconciled(node(OURS[0], OTHER, OURS[1], hp="1", be="8"), gpu(0))["spec"]["taints"] == [OTHER]


@pytest.mark.parametrize(
    ("allocatable", "gpus", "why"),
    [
        ({}, (), "no node agent has reported a GPU of it"),
        ({"hp": "1", "be": "8"}, (), "no node agent has reported a GPU of it"),
        ({}, (gpu(0),), "the kubelet does not offer orion.gpu/hp yet"),
        ({"hp": "1"}, (gpu(0),), "the kubelet does not offer orion.gpu/be yet"),
        ({"hp": "1", "be": "0"}, (gpu(0),), "the kubelet does not offer orion.gpu/be yet"),
        ({"hp": "2", "be": "16"}, (gpu(0),), "the kubelet offers 2 orion.gpu/hp, and the node agent has reported 1"),
        ({}, (gpu(0, hp=0, be=0),), "its GPUs have no slots"),
    ],
)
def test_a_node_that_lacks_slots_keeps_the_taint_and_the_labels_of_its_template(
    allocatable: dict[str, str], gpus: tuple[Body, ...], why: str
) -> None:
    [wait] = writes(node(OURS[0], age_s=PATIENCE_S - 10, **allocatable), *gpus)
    assert wait == RequeueAfter(10.0)
    found = writes(node(OURS[0], age_s=PATIENCE_S, **allocatable), *gpus)
    assert [type(write) for write in found] == [PostEvent, Remember]
    assert isinstance(found[0], PostEvent)
    assert why in found[0].note
    assert found[0].regarding["kind"] == "Node"


def test_the_event_says_why_the_gpus_have_no_slots() -> None:
    ready = {"type": "Ready", "status": "False", "reason": "MIGEnabled", "message": "MIG is enabled on this GPU"}
    ready["lastTransitionTime"] = "2026-01-01T00:00:00Z"
    event = writes(node(OURS[0], age_s=PATIENCE_S), gpu(0, hp=0, be=0, conditions=[ready]))[0]
    assert isinstance(event, PostEvent)
    assert event.note.endswith(": gpu-00000000-0000-4000-8000-000000000000: MIG is enabled on this GPU")


def test_slots_of_one_priority_are_enough_if_the_gpus_have_no_others() -> None:
    assert not reconciled(node(OURS[0], be="8"), gpu(0, hp=0))["spec"]["taints"]


def test_an_event_is_posted_once_and_again_for_another_reason() -> None:
    cluster = FakeCluster([node(OURS[0], age_s=PATIENCE_S)])
    state = state_of(cluster)
    Reconciler(cluster, state).run()
    take(state, cluster.put(node(OURS[0], age_s=PATIENCE_S, hp="1")))
    assert decide(state, KEY, NOW, 0.0) == []
    take(state, cluster.put(gpu(0)))
    Reconciler(cluster, state).run()
    assert len(cluster.events) == 2


def test_an_old_node_that_gets_its_slots_late_is_opened() -> None:
    cluster = FakeCluster([node(OURS[0], age_s=PATIENCE_S)])
    state = state_of(cluster)
    Reconciler(cluster, state).run()
    for body in (gpu(0), node(OURS[0], age_s=PATIENCE_S, hp="1", be="8")):
        take(state, cluster.put(body))
    Reconciler(cluster, state).run()
    assert not cluster.objects["Node", "", "node"]["spec"]["taints"]
    assert state.nodes["node"].complaint is None


def test_a_node_without_the_taint_and_without_gpus_loses_the_labels() -> None:
    assert reconciled(node())["metadata"]["labels"] == {}
