"""The labels that nodes get by their GPUs."""

from typing import Any

import pytest

from orion.operator.reconciler.keys import Key, Kind
from orion.operator.reconciler.records import Named
from orion.operator.reconciler.writes import PatchNode
from tests.operator.share_objects import UUID, device, reconciled, slot, writes


def test_nodes_are_labelled_by_their_gpus_and_lose_the_labels_with_them() -> None:
    node = {"kind": "Node", "metadata": {"name": "node", "labels": {"other": "1"}}}
    two = [device(0, simulated=True), device(1, {"cordon": True}, mode="mps", simulated=True)]
    cluster = reconciled(node, *two)
    assert cluster.objects["Node", "", "node"]["metadata"]["labels"] == {
        "other": "1",
        "orion.gpu/gpus": "1",
        "orion.gpu/gpu-model": "NVIDIA-H200",
        "orion.gpu/mode": "mixed",
        "orion.gpu/simulated": "true",
    }
    for number in range(2):
        cluster.delete(("GPUDevice", "", UUID.format(number).lower()))
    [write] = writes(cluster, Key(Kind.NODE, Named("", "node")))
    assert isinstance(write, PatchNode)
    assert set(write.patch["metadata"]["labels"].values()) == {None}


def ready(status: str) -> dict[str, str]:
    return {"type": "Ready", "status": status, "reason": "Because", "lastTransitionTime": "2026-01-01T00:00:00Z"}


@pytest.mark.parametrize(
    ("second", "held_by", "count"),
    [
        ({}, "b", "2"),
        ({"spec": {"cordon": True}}, "b", "1"),
        ({"conditions": [ready("False")]}, "b", "1"),
        ({"conditions": [ready("True")]}, "b", "2"),
        ({"spec": {"cordon": True}}, "a", "2"),  # a holds both: a restarted kubelet checks its node affinity again
        ({"conditions": [ready("False")]}, "a", "2"),
    ],
)
def test_the_label_counts_gpus_that_take_pods_or_that_a_pod_with_several_gpus_holds(
    second: dict[str, Any], held_by: str, count: str
) -> None:
    spec = second.pop("spec", {})
    gpus = [device(0, heldSlots=[slot("a")]), device(1, spec, heldSlots=[slot(held_by)], **second)]
    cluster = reconciled({"kind": "Node", "metadata": {"name": "node"}}, *gpus)
    assert cluster.objects["Node", "", "node"]["metadata"]["labels"]["orion.gpu/gpus"] == count
