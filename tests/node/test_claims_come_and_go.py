"""Many pods with claims come and go at once: no GPU is given beyond what it has, no pod fails, nothing is left."""

import random
from collections import Counter, defaultdict
from typing import Any

import pytest
from kubernetes import client

from testbed.node import Node
from tests.node.claimed_gpus import CLASSES, DRA, Claims, held, until_nothing_is_left
from tests.node.gpu_tenants import GpuNode, Tenants
from tests.node.shell_pods import shell_pod
from tests.waiting import eventually

pytestmark = [pytest.mark.node, pytest.mark.timeout(600)]

SEED, PODS = 18, 48
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


def given(api: client.ApiClient) -> dict[str, Counter[str]]:
    """What the scheduler has given of each GPU, by capacity."""
    found: Any = client.CustomObjectsApi(api).list_cluster_custom_object(**DRA, plural="resourceclaims")
    sums: dict[str, Counter[str]] = defaultdict(Counter)
    for claim in found["items"]:
        allocation = claim.get("status", {}).get("allocation", {})
        for result in allocation.get("devices", {}).get("results", ()):
            for name, text in result["consumedCapacity"].items():
                sums[result["device"]][name] += amount(text)
    return sums


def test_claims_slots_and_records_agree_while_pods_come_and_go(
    tenants: Tenants, claims: Claims, gpus: GpuNode, node: Node, api: client.ApiClient
) -> None:
    choose = random.Random(SEED)
    for name in SHAPES:
        make_template(api, tenants.namespace, name)
    for number in range(PODS):
        shape = choose.choice([*SHAPES])
        pod = shell_pod(f"pod-{number}", f"sleep {choose.choice((0.1, 0.5, 2))}", restartPolicy="Never")
        pod["spec"]["containers"][0]["resources"] = {"claims": [{"name": "gpu", "request": "c0"}]}
        pod["spec"]["resourceClaims"] = [{"name": "gpu", "resourceClaimTemplateName": shape}]
        tenants.create(pod)
    devices = claims.until_offered()["spec"]["devices"]
    limits = {each["name"]: {name: amount(each["capacity"][name]["value"]) for name in CAPACITIES} for each in devices}

    def ended() -> bool:
        beyond = {
            (device, name): count
            for device, sums in given(api).items()
            for name, count in sums.items()
            if count > limits[device][name]
        }
        assert beyond == {}
        slots = [slot.rpartition("-")[0] for slot in held(gpus)]
        assert len(slots) <= sum(limit["hpSlots"] + limit["beSlots"] for limit in limits.values())
        phases = Counter(pod.status.phase for pod in tenants.pods().values())
        assert phases["Failed"] == 0
        return phases["Succeeded"] == PODS

    eventually(ended, what="all pods have ended", seconds=400)
    until_nothing_is_left(gpus, node)
