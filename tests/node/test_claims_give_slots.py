"""Pods get slots by ResourceClaims, from the real scheduler, kubelet and container runtime, on simulated GPUs."""

from typing import Any

import pytest

from testbed.node import Node
from testbed.orion import Orion
from tests.node.claimed_gpus import CDI, Claims, claiming, files, held, until_nothing_is_left
from tests.node.gpu_tenants import GpuNode, Tenants, serving, training
from tests.waiting import eventually

pytestmark = pytest.mark.node

MIB = 1 << 20


def test_a_pod_runs_under_the_hook_in_the_slot_of_its_claim(
    tenants: Tenants, claims: Claims, gpus: GpuNode, node: Node
) -> None:
    claim, pod = claiming(training(memory=MIB), "be", time="300", memory="640Mi")
    claims.create(claim)
    tenants.create(pod)
    tenants.begun("train")
    ((device, pods),) = held(gpus).items()
    assert pods == ("train",)
    slot = gpus.slot(device)
    assert (slot.memory_limit_bytes, slot.request) == (640 * MIB, 0.3)
    eventually(lambda: len(gpus.slot(device).clients) == 1, what="the pod's process joins")
    assert slot.claim.uid == claims.uid("train")

    def rows() -> list[str]:
        return [row["pod"]["name"] for status in gpus.devices().values() for row in status.get("heldSlots") or ()]

    eventually(lambda: rows() == ["train"], what=lambda: f"the GPUDevice shows the holder: {rows()}")
    tenants.delete("train")
    until_nothing_is_left(gpus, node)


def test_hp_and_be_of_one_gpu_and_a_pod_with_two_gpus(
    tenants: Tenants, claims: Claims, gpus: GpuNode, node: Node
) -> None:
    for claim, pod in (
        claiming(serving("serve"), "hp"),
        claiming(training("train", memory=MIB), "be"),
        claiming(training("wide", memory=MIB), "be", count=2),
    ):
        claims.create(claim)
        tenants.create(pod)
    for name in ("serve", "train", "wide"):
        tenants.begun(name)
    slots = held(gpus)
    assert sorted(pods[0] for pods in slots.values()) == ["serve", "train", "wide", "wide"]
    (hp,) = [device for device, pods in slots.items() if pods == ("serve",)]
    assert hp.endswith("::hp-0")
    assert len({device.partition("::")[0] for device, pods in slots.items() if pods == ("wide",)}) == 2
    tenants.delete("serve", "train", "wide")
    until_nothing_is_left(gpus, node)


def test_what_is_not_left_keeps_a_pod_pending_until_it_is(tenants: Tenants, claims: Claims, gpus: GpuNode) -> None:
    for name, gpu_time in (("a", "600"), ("b", "600"), ("c", "500")):  # two GPUs
        claim, pod = claiming(training(name, memory=MIB), "be", time=gpu_time)
        claims.create(claim)
        tenants.create(pod)
    tenants.begun("a")
    tenants.begun("b")
    reasons = eventually(lambda: tenants.pods()["c"].status.conditions)
    assert [each.reason for each in reasons if each.type == "PodScheduled"] == ["Unschedulable"]
    tenants.delete("a")
    claims.delete("a")
    tenants.begun("c")


def shares_slot(tenants: Tenants) -> list[str]:
    """The pods whose Events say that they share a slot."""
    found = tenants.core.list_namespaced_event(tenants.namespace).items
    return [each.involved_object.name for each in found if each.reason == "SharesSlot"]


def test_pods_that_share_a_claim_share_its_slot(tenants: Tenants, claims: Claims, gpus: GpuNode, node: Node) -> None:
    claim, first = claiming(training("first", memory=MIB), "be", claim="both")
    _, second = claiming(training("second", memory=MIB), "be", claim="both")
    claims.create(claim)
    tenants.create(first)
    tenants.begun("first")
    tenants.create(second)
    tenants.begun("second")
    ((device, _),) = held(gpus).items()
    eventually(lambda: len(gpus.slot(device).clients) == 2, what="both pods' processes are in the slot")
    eventually(lambda: held(gpus) == {device: ("first", "second")}, what="both pods are named")

    def named() -> list[str]:
        rows = [row for status in gpus.devices().values() for row in status.get("clients") or ()]
        return sorted(row["pod"]["name"] for row in rows)

    eventually(lambda: named() == ["first", "second"], what="each process has its pod")
    eventually(lambda: shares_slot(tenants) == ["second"], what="the second pod's Event")
    tenants.delete("first")
    eventually(
        lambda: gpus.holders() == {device.partition("::")[2]: "second"}, what="the pod that is left has the slot"
    )
    assert list(held(gpus)) == [device]
    tenants.reports("second", 1)
    tenants.delete("second")
    until_nothing_is_left(gpus, node)


def test_a_driver_that_is_killed_goes_on_where_it_was(
    tenants: Tenants, claims: Claims, gpus: GpuNode, node: Node, orion: Orion
) -> None:
    claim, pod = claiming(training("before", memory=MIB), "be")
    claims.create(claim)
    tenants.create(pod)
    tenants.begun("before")
    slots = held(gpus)
    orion.end(node, "driver", 0)
    node.run(["sh", "-c", f"rm -f {CDI}/*"])
    claim, pod = claiming(training("after", memory=MIB), "be")
    claims.create(claim)
    tenants.create(pod)
    orion.begin_driver(node)
    tenants.begun("after")
    assert slots.items() <= held(gpus).items()
    assert len(files(node, CDI)) == 2
    tenants.reports("before", 1)
    tenants.delete("before", "after")
    until_nothing_is_left(gpus, node)


def test_a_pod_that_ends_while_the_driver_is_away_ends_when_it_is_back(
    tenants: Tenants, claims: Claims, gpus: GpuNode, node: Node, orion: Orion
) -> None:
    claim, pod = claiming(training(memory=MIB), "be")
    claims.create(claim)
    tenants.create(pod)
    tenants.begun("train")
    orion.end(node, "driver", 0)
    tenants.core.delete_namespaced_pod("train", tenants.namespace)
    eventually(lambda: tenants.pods()["train"].metadata.deletion_timestamp)
    orion.begin_driver(node)
    eventually(lambda: "train" not in tenants.pods(), what="the pod is gone")
    until_nothing_is_left(gpus, node)


def test_a_kubelet_restart_loses_nothing(
    tenants: Tenants, claims: Claims, gpus: GpuNode, node: Node, orion: Orion
) -> None:
    claim, pod = claiming(training("before", memory=MIB), "be")
    claims.create(claim)
    tenants.create(pod)
    tenants.begun("before")
    slots, uid = held(gpus), claims.until_offered()["metadata"]["uid"]
    node.restart("kubelet")
    eventually(lambda: [each["metadata"]["uid"] for each in claims.slices()] not in ([uid], []), what="a new slice")
    node.wait_until_ready()
    claim, pod = claiming(training("after", memory=MIB), "be")
    claims.create(claim)
    tenants.create(pod)
    tenants.begun("after")
    assert slots.items() <= held(gpus).items()
    tenants.delete("before", "after")
    until_nothing_is_left(gpus, node)


def test_a_container_that_restarts_keeps_its_slot(tenants: Tenants, claims: Claims, gpus: GpuNode, node: Node) -> None:
    claim, pod = claiming(training(memory=MIB), "be")
    claims.create(claim)
    tenants.create(pod)
    tenants.begun("train")
    slots = held(gpus)
    node.run(["pkill", "-KILL", "-x", "workload"])

    def restarted() -> Any:
        (status,) = tenants.pods()["train"].status.container_statuses
        return status.restart_count and status.state.running

    eventually(restarted, what="the container runs again")
    tenants.begun("train")
    assert held(gpus) == slots
    ((device, _),) = slots.items()
    eventually(lambda: len(gpus.slot(device).clients) == 1)
    tenants.delete("train")
    until_nothing_is_left(gpus, node)


def test_a_slice_that_is_deleted_or_edited_comes_back(claims: Claims) -> None:
    before = claims.until_offered()["spec"]["devices"]
    claims.delete_slice()
    assert claims.until_offered()["spec"]["devices"] == before


def test_a_cordon_becomes_a_taint_and_keeps_what_runs(
    tenants: Tenants, claims: Claims, gpus: GpuNode, cordon: Any
) -> None:
    claim, pod = claiming(training(memory=MIB), "be")
    claims.create(claim)
    tenants.create(pod)
    tenants.begun("train")
    ((device, _),) = held(gpus).items()
    gpu = device.partition("::")[0]

    def taints() -> dict[str, list[str]]:
        (found,) = claims.slices()
        return {each["name"]: [taint["key"] for taint in each.get("taints") or ()] for each in found["spec"]["devices"]}

    cordon(gpu, True)
    eventually(lambda: taints()[gpu.lower()] == ["orion.gpu/cordoned"], what="the taint")
    tenants.reports("train", 1)
    cordon(gpu, False)
    eventually(lambda: taints()[gpu.lower()] == [], what="the taint is gone")
