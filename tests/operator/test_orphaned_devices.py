"""GPUs whose node is gone: the operator deletes them. If people wrote the spec, it sets the status to unknown once."""

from dataclasses import replace
from typing import Any

import pytest

from orion.crds.device_status import GPUDeviceStatus
from orion.operator.reconciler.decisions import decide
from orion.operator.reconciler.keys import Key, Kind
from orion.operator.reconciler.orphans import orphan_status
from orion.operator.reconciler.records import Named
from orion.operator.reconciler.writes import DeleteDevice, PatchDevice, Write
from tests.operator.fake_cluster import NOW, Body, FakeCluster, Reconciler, state_of, take

UUID = "GPU-00000000-0000-4000-8000-000000000001"
NAME = UUID.lower()
KEY = Key(Kind.DEVICE, Named("", NAME))
NODE: Body = {"kind": "Node", "metadata": {"name": "node"}}


def device(**status: Any) -> Body:
    held = [{"name": "be-0", "priority": "be", "pod": {"namespace": "n", "name": "p"}, "clients": 1}]
    ready = {"type": "Ready", "status": "True", "reason": "Advertised", "lastTransitionTime": "2025-01-01T00:00:00Z"}
    degraded = {"type": "Degraded", "status": "False", "reason": "AsPromised"} | {
        "lastTransitionTime": "2025-01-01T00:00:00Z"
    }
    memory = {"total": "80Gi", "used": "60Gi", "reserved": "8Gi", "borrowed": "2Gi", "returnable": "1Gi"}
    known = {"node": "node", "uuid": UUID, "model": "NVIDIA H200", "health": "Healthy", "heldSlots": held}
    status = {**known, "memory": memory, "clientCount": 1, "conditions": [ready, degraded], **status}
    return {"kind": "GPUDevice", "metadata": {"name": NAME}, "spec": {"cordon": True}, "status": status}


def writes(cluster: FakeCluster) -> list[Write]:
    return decide(state_of(cluster), KEY, NOW, 0.0)


def test_a_gpu_of_an_existing_node_is_left_to_its_agent() -> None:
    cluster = FakeCluster([NODE, device()])
    assert writes(cluster) == []
    assert KEY not in state_of(cluster).everything()


def test_a_gpu_of_a_missing_node_is_set_to_unknown_once() -> None:
    cluster = FakeCluster([device()])
    [write] = writes(cluster)
    assert isinstance(write, PatchDevice)
    assert write.patch["metadata"] == {"resourceVersion": "1"}
    Reconciler(cluster, state_of(cluster)).run()
    found = cluster.objects["GPUDevice", "", NAME]
    assert found["spec"] == {"cordon": True}
    status = found["status"]
    assert (status["node"], status["model"], status["health"]) == ("node", "NVIDIA H200", "Unknown")
    assert status.keys().isdisjoint({"heldSlots", "clientCount"})
    assert status["memory"] == {"total": "80Gi"}
    conditions = {each["type"]: (each["status"], each["reason"]) for each in status["conditions"]}
    unknown = ("Unknown", "NodeGone")
    assert conditions == {"Ready": unknown, "HookInjected": unknown, "Degraded": ("False", "AsPromised")}
    assert writes(cluster) == []


@pytest.mark.parametrize("spec", [{}, {"cordon": False, "mode": "timeslice"}])
def test_a_gpu_of_a_missing_node_is_deleted_if_nobody_wrote_its_spec(spec: Body) -> None:
    for health in ("Healthy", "Unknown"):
        cluster = FakeCluster([device(health=health) | {"spec": spec}])
        assert writes(cluster) == [DeleteDevice(KEY.at, cluster.objects["GPUDevice", "", NAME]["metadata"]["uid"], 1)]
        Reconciler(cluster, state_of(cluster)).run()
        assert cluster.objects == {}


@pytest.mark.parametrize("spec", [{"cordon": True}, {"mode": "mps"}, {"ofALaterVersion": 1}])
def test_a_gpu_whose_spec_people_wrote_is_kept(spec: Body) -> None:
    assert [type(write) for write in writes(FakeCluster([device() | {"spec": spec}]))] == [PatchDevice]


def test_a_gpu_without_a_node_is_left_alone() -> None:
    assert writes(FakeCluster([device(node=None)])) == []


def test_a_gpu_is_queued_when_its_node_is_removed_and_when_it_is_added_without_its_node() -> None:
    state = state_of(FakeCluster([NODE, device()]))
    assert KEY in state.drop_node("node")
    assert KEY in state.everything()
    assert KEY in take(state, {**device(), "metadata": {"name": NAME, "uid": "u", "resourceVersion": "9"}})


def test_fields_of_the_agent_are_removed_and_the_rest_stays() -> None:
    status = state_of(FakeCluster([device()])).devices[NAME].status
    patch = orphan_status(status, NOW)
    assert {key for key, value in patch.items() if value is not None} == {"health", "conditions", "memory"}
    assert "memory" not in orphan_status(replace(status, memory=None), NOW)
    hardware = {"node", "uuid", "index", "model", "simulated", "mode"}
    lasting = {*hardware, "observedGeneration", "agentVersion", "message"}
    fields = {field.alias or name for name, field in GPUDeviceStatus.model_fields.items()}
    assert fields - patch.keys() == lasting


def test_what_a_later_version_reports_leaves_the_rest_of_a_status() -> None:
    later = [{"name": "be-1", "priority": "middling"}, {"name": "be-2", "priority": "be"}, 3]
    state = state_of(FakeCluster([device(mode="mig", memory={"total": "80 of them"}, heldSlots=later)]))
    status = state.devices[NAME].status
    assert (status.mode, status.memory, status.node, status.health) == (None, None, "node", "Healthy")
    assert [row.name for row in status.held_slots or ()] == ["be-2"]
    assert [each.type for each in status.conditions or ()] == ["Ready", "Degraded"]
    assert state_of(FakeCluster([device() | {"status": 3}])).devices[NAME].status.node is None
