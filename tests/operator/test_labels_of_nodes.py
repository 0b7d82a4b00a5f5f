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


@pytest.mark.parametrize(
    ("health", "labels"),
    [
        ("Healthy", {"gpu-model": "mixed", "gpu-memory": "4096", "mode": "mixed", "simulated": "true"}),
        ("Unhealthy", {"gpu-model": "mixed", "gpu-memory": "4096", "mode": "mixed", "simulated": "true"}),
        ("Unknown", {"gpu-model": "NVIDIA-H200", "gpu-memory": "144384", "mode": "timeslice"}),
    ],
)
def test_a_gpu_that_is_gone_does_not_count_for_the_labels(health: str, labels: dict[str, str]) -> None:
    """A GPU that was replaced or excluded keeps its GPUDevice while its node exists."""
    old = {"model": "NVIDIA T400", "memory": {"total": "4Gi"}, "mode": "mps", "simulated": True, "health": health}
    new = {"memory": {"total": "141Gi"}, "health": "Healthy"}
    cluster = reconciled({"kind": "Node", "metadata": {"name": "node"}}, device(0, **old), device(1, **new))
    found = cluster.objects["Node", "", "node"]["metadata"]["labels"]
    assert {key: value for key, value in found.items() if key != "orion.gpu/gpus"} == {
        f"orion.gpu/{key}": value for key, value in labels.items()
    }


def test_a_node_keeps_its_labels_while_all_its_gpus_are_away() -> None:
    """The driver is reloaded: pods that select the node can go on waiting for it."""
    away = device(0, memory={"total": "141Gi"}, health="Unknown", conditions=[ready("Unknown")])
    cluster = reconciled({"kind": "Node", "metadata": {"name": "node"}}, away)
    assert cluster.objects["Node", "", "node"]["metadata"]["labels"] == {
        "orion.gpu/gpus": "0",
        "orion.gpu/gpu-memory": "144384",
        "orion.gpu/gpu-model": "NVIDIA-H200",
        "orion.gpu/mode": "timeslice",
    }


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
