"""A pod leaves its GPU only if its own memory limit can hold what it has there."""

from typing import Any

import pytest
from kubernetes import client

from orion.node_agent.api.client import AgentClient
from tests.node.gpu_tenants import GROUP, GpuNode, Tenants, main_container, share, training
from tests.waiting import eventually

pytestmark = pytest.mark.node

PARKS = {"request": "1Gi", "limit": "2Gi", "oversubscribe": "park"}


def test_a_pod_parks_only_what_its_memory_limit_can_hold(tenants: Tenants, gpus: GpuNode) -> None:
    pod = training("train")
    main_container(pod)["args"] += ["--memory", "1GiB"]
    main_container(pod)["resources"]["limits"]["memory"] = "512Mi"
    tenants.create(share(pod, memory=PARKS), pod)
    uuid = tenants.begun("train")["gpu"]

    def row() -> dict[str, Any]:
        return next(
            (each for each in gpus.devices()[uuid].get("heldSlots") or () if each["pod"]["name"] == "train"), {}
        )

    slot = eventually(row)["name"]
    eventually(lambda: gpus.slot(f"{uuid}::{slot}").memory_parks)
    with AgentClient(gpus.path("/run/orion")) as agent:
        agent.park_slot(uuid, slot, True)
    uid = tenants.pods()["train"].metadata.uid

    def refusal() -> str:
        found = row()
        return str(found["parkRefused"]) if found.get("parkRefusedReason") == "HostMemoryShort" else ""

    said = eventually(refusal)
    assert uid in said, said
    assert "raise resources.limits.memory" in said
    eventually(lambda: _degraded(tenants) == "HostMemoryShort")
    core = tenants.core
    resources = {"containers": [{"name": main_container(pod)["name"], "resources": {"limits": {"memory": "3Gi"}}}]}
    core.patch_namespaced_pod_resize("train", tenants.namespace, {"spec": resources})
    eventually(lambda: _limit(tenants) == "3Gi")
    with AgentClient(gpus.path("/run/orion")) as agent:
        agent.park_slot(uuid, slot, True)
    eventually(lambda: row().get("parked"))
    assert "parkRefused" not in row()


def _degraded(tenants: Tenants) -> str:
    """Why the share is degraded."""
    shares = client.CustomObjectsApi(tenants.api)
    found = shares.get_namespaced_custom_object(**GROUP, namespace=tenants.namespace, plural="gpushares", name="train")
    conditions = found.get("status", {}).get("conditions", [])
    return next((str(each["reason"]) for each in conditions if each["type"] == "Degraded"), "")


def _limit(tenants: Tenants) -> str:
    """What the kubelet has set as the limit of host memory."""
    (status,) = tenants.pods()["train"].status.container_statuses
    limits: dict[str, str] = (status.resources and status.resources.limits) or {}
    return limits.get("memory", "")
