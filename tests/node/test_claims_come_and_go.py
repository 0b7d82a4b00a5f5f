"""Many pods with claims come and go: no GPU is given beyond what it has, no pod fails, all books agree."""

import random
from collections import Counter, defaultdict
from typing import Any

import pytest
from kubernetes import client

from testbed.node import Node
from tests.node.claimed_gpus import CDI, CLASSES, DRA, RECORDS, Claims, files, until_nothing_is_left
from tests.node.gpu_tenants import GpuNode, Tenants
from tests.node.shell_pods import shell_pod
from tests.waiting import eventually

pytestmark = [pytest.mark.node, pytest.mark.timeout(600)]

SEED, PODS, ROUND = 18, 48, 12
LASTS = "lasts"
""" In the names of pods that run until they are deleted, after each round. """
CAPACITIES = ("time", "memory", "hpSlots", "beSlots")
SHAPES: dict[str, dict[str, Any]] = {
    "small": {"role": "be"},
    "half": {"role": "be", "time": "500", "memory": "10Gi"},
    "most": {"role": "be", "time": "700"},
    "first": {"role": "hp", "time": "300"},
    "wide": {"role": "be", "count": 2, "memory": "1Gi"},
}
""" What a pod asks for, by the name of its template. """
UNITS = {"": 1, "k": 1000, "Mi": 1 << 20, "Gi": 1 << 30}


def make_template(api: client.ApiClient, namespace: str, name: str) -> None:
    shape = dict(SHAPES[name])
    role, count = shape.pop("role"), shape.pop("count", 1)
    slots = {"hpSlots": "0", "beSlots": "0", f"{role}Slots": "1"}
    exactly = {"deviceClassName": CLASSES[role], "count": count, "capacity": {"requests": {**slots, **shape}}}
    spec = {"spec": {"devices": {"requests": [{"name": "c0", "exactly": exactly}]}}}
    body = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaimTemplate",
        "metadata": {"name": name},
        "spec": spec,
    }
    client.CustomObjectsApi(api).create_namespaced_custom_object(
        **DRA, namespace=namespace, plural="resourceclaimtemplates", body=body
    )


def amount(text: str) -> int:
    number = text.rstrip("kMGi")
    return int(number) * UNITS[text.removeprefix(number)]


def claims_of(api: client.ApiClient) -> list[dict[str, Any]]:
    found: Any = client.CustomObjectsApi(api).list_cluster_custom_object(**DRA, plural="resourceclaims")
    return list(found["items"])


def given(api: client.ApiClient) -> dict[str, Counter[str]]:
    """What the scheduler has given of each GPU, by capacity."""
    sums: dict[str, Counter[str]] = defaultdict(Counter)
    for claim in claims_of(api):
        allocation = claim.get("status", {}).get("allocation", {})
        for result in allocation.get("devices", {}).get("results", ()):
            for name, text in result["consumedCapacity"].items():
                sums[result["device"]][name] += amount(text)
    return sums


def books(api: client.ApiClient, gpus: GpuNode, node: Node) -> dict[str, set[str]]:
    """The uids of the claims that have GPUs, by who says so."""
    slots = (slot for gpu in gpus.snapshot().gpus for slot in gpu.slots)
    return {
        "scheduler": {each["metadata"]["uid"] for each in claims_of(api) if each.get("status", {}).get("allocation")},
        "agent": {slot.claim.uid for slot in slots if slot.HasField("claim")},
        "records": {name.removesuffix(".json") for name in files(node, RECORDS)},
        "CDI files": {name.removeprefix("orion.gpu-claim_").removesuffix(".json") for name in files(node, CDI)},
    }


def what_agrees(found: dict[str, set[str]]) -> set[str]:
    """Return the claims that all name; nothing, if somebody names another one or lacks one."""
    named = [*found.values()]
    return named[0] if all(each == named[0] for each in named) else set()


def has_settled(pod: client.V1Pod) -> bool:
    """Whether a pod has ended, runs until somebody deletes it, or waits for others."""
    if pod.status.phase == "Pending":
        reasons = [each.reason for each in pod.status.conditions or () if each.type == "PodScheduled"]
        return reasons == ["Unschedulable"]
    return bool(pod.status.phase == ("Running" if LASTS in pod.metadata.name else "Succeeded"))


def test_claims_slots_and_records_agree_while_pods_come_and_go(
    tenants: Tenants, claims: Claims, gpus: GpuNode, node: Node, api: client.ApiClient
) -> None:
    choose = random.Random(SEED)
    for name in SHAPES:
        make_template(api, tenants.namespace, name)
    devices = claims.until_offered()["spec"]["devices"]
    limits = {each["name"]: {name: amount(each["capacity"][name]["value"]) for name in CAPACITIES} for each in devices}

    def pods() -> list[client.V1Pod]:
        """All pods, at a moment at which nothing is given beyond what there is."""
        beyond = {
            (device, name): count
            for device, sums in given(api).items()
            for name, count in sums.items()
            if count > limits[device][name]
        }
        assert beyond == {}
        found = list(tenants.pods().values())
        assert [pod.metadata.name for pod in found if pod.status.phase == "Failed"] == []
        return found

    def settled() -> bool:
        return all(map(has_settled, pods())) and bool(what_agrees(books(api, gpus, node)))

    for number in range(PODS):
        kind = choose.choice((LASTS, "ends", "ends"))
        pod = shell_pod(f"{kind}-{number}", f"sleep {600 if kind == LASTS else choose.choice((0.1, 0.5, 2))}")
        pod["spec"] |= {
            "restartPolicy": "Never",
            "resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": choose.choice([*SHAPES])}],
        }
        pod["spec"]["containers"][0]["resources"] = {"claims": [{"name": "gpu", "request": "c0"}]}
        tenants.create(pod)
        if number % ROUND == ROUND - 1:
            eventually(settled, what="pods that run until they are deleted, and books that agree", seconds=200)
            tenants.delete(*(name for name in tenants.pods() if LASTS in name))
    eventually(lambda: {pod.status.phase for pod in pods()} == {"Succeeded"}, what="all have ended", seconds=200)
    until_nothing_is_left(gpus, node)
