"""Nodes that choose: the operator sends each agent what its node's label says, and judges a fresh node by it."""

from typing import Any

import pytest

from orion.crds.allocation import Allocation
from orion.crds.annotations import ALLOCATION, STARTUP_TAINT
from orion.operator.reconciler.decisions import decide
from orion.operator.reconciler.keys import Key, Kind
from orion.operator.reconciler.pods_of_nodes import PodsOfNodes
from orion.operator.reconciler.records import Named, device_record, node_record
from orion.operator.reconciler.state import State
from orion.operator.reconciler.writes import RemoveTaints
from tests.operator.fake_cluster import NOW

NODE = Key(Kind.NODE, Named("", "node"))
UUID = "GPU-00000000-0000-4000-8000-000000000001"
GPU = {
    "metadata": {"name": UUID.lower(), "uid": "gpu", "resourceVersion": "1"},
    "status": {"node": "node", "uuid": UUID, "slots": {"be": {"total": 8}, "hp": {"total": 1}}},
}


def node(label: str = "", version: int = 1, **spec: Any) -> dict[str, Any]:
    labels = {ALLOCATION: label} if label else {}
    meta = {"name": "node", "uid": "u", "resourceVersion": str(version), "labels": labels}
    return {"metadata": {**meta, "creationTimestamp": "2026-01-01T00:00:00Z"}, "spec": spec, "status": {}}


@pytest.mark.parametrize("label", ["", "device-plugin", "dra", "DRA"])
def test_the_agent_learns_the_label_where_nodes_choose(label: str) -> None:
    sent = {}
    for allocation in Allocation:
        state = State(allocation=allocation)
        state.put_node(node_record(node(label)))
        sent[allocation.value] = PodsOfNodes(state).of("node").allocation
    assert sent == {"device-plugin": "", "dra": "", "by-node": label or "device-plugin"}


def test_a_changed_label_reaches_the_agent() -> None:
    state = State(allocation=Allocation.BY_NODE)
    state.put_node(node_record(node()))
    assert state.take_changed_nodes() == set()
    state.put_node(node_record(node("dra", 2)))
    assert state.take_changed_nodes() == {"node"}
    state.put_node(node_record(node("dra", 3)))
    assert state.take_changed_nodes() == set()


@pytest.mark.parametrize(("label", "ready"), [("", False), ("dra", True)])
def test_a_fresh_node_whose_driver_gives_slots_needs_none_of_the_kubelet(label: str, ready: bool) -> None:
    state = State(allocation=Allocation.BY_NODE)
    state.put_node(node_record(node(label, taints=[{"key": STARTUP_TAINT, "effect": "NoSchedule"}])))
    state.put_device(device_record(GPU), 0.0)
    assert any(isinstance(each, RemoveTaints) for each in decide(state, NODE, NOW, 0.0)) == ready
