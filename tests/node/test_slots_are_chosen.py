"""Which GPU of a node a be pod gets: the scheduler counts slots alone, so the kubelet asks Orion for the better one."""

import json
from typing import Any

import pytest

from tests.node.gpu_tenants import GpuNode, Manifest, Tenants, serving, share, training
from tests.waiting import eventually

pytestmark = pytest.mark.node

GIB = 1 << 30


def come(tenants: Tenants, pod: Manifest, reserved: str = "1Gi") -> str:
    """Let a pod come that asks for so much memory; return its GPU."""
    tenants.create(share(pod, memory={"request": reserved}), pod)
    uuid: str = tenants.begun(pod["metadata"]["name"])["gpu"]
    return uuid


def word(gpus: GpuNode) -> dict[str, dict[str, Any]]:
    """What the plugin goes by: the agent's last word on each GPU, as it keeps it."""
    reported = json.loads(gpus.path("/run/orion/device-plugin.json").read_text())
    return {gpu["uuid"]: gpu for gpu in reported["devices"]}


def reserved(gpus: GpuNode) -> dict[str, int]:
    """What pods ask for of each GPU's memory, as the plugin knows it; in GiB."""
    return {uuid: int(gpu.get("memoryReservedBytes", 0)) // GIB for uuid, gpu in word(gpus).items()}


def test_be_pods_go_where_most_memory_is_unreserved_and_apart_from_each_other(tenants: Tenants, gpus: GpuNode) -> None:
    first = come(tenants, training("first"), "30Gi")
    eventually(lambda: reserved(gpus)[first] == 30)
    second = come(tenants, training("second"), "20Gi")
    eventually(lambda: reserved(gpus) == {first: 30, second: 20})
    assert come(tenants, training("third")) == second


def test_be_goes_where_hp_leaves_most_time_though_more_memory_is_free_elsewhere(
    tenants: Tenants, gpus: GpuNode
) -> None:
    idle = come(tenants, serving("idle", rate=0.1), "40Gi")
    eventually(lambda: reserved(gpus)[idle] == 40)
    busy = come(tenants, serving("busy", rate=40, kernels=20, kernel_us=1000))
    eventually(lambda: word(gpus)[busy].get("hpBusyRatio", 0) > 0)
    eventually(lambda: reserved(gpus) == {idle: 40, busy: 1})
    assert come(tenants, training("train")) == idle
