"""Which GPU of a node a be pod gets. The scheduler only counts slots, so the plugin chooses the GPU."""

import json
from typing import Any

import pytest

from tests.node.gpu_tenants import GpuNode, Manifest, Tenants, serving, share, training
from tests.waiting import eventually

pytestmark = pytest.mark.node

GIB = 1 << 30


def create(tenants: Tenants, pod: Manifest, reserved: str = "1Gi") -> str:
    """Create a pod that reserves this much GPU memory; return its GPU."""
    tenants.create(share(pod, memory={"request": reserved}), pod)
    uuid: str = tenants.begun(pod["metadata"]["name"])["gpu"]
    return uuid


def last_snapshot(gpus: GpuNode) -> dict[str, dict[str, Any]]:
    """The agent's last snapshot of each GPU, as the plugin stores and uses it."""
    reported = json.loads(gpus.path("/run/orion/device-plugin.json").read_text())
    return {gpu["uuid"]: gpu for gpu in reported["devices"]}


def reserved(gpus: GpuNode) -> dict[str, int]:
    """The memory that pods reserve of each GPU, as the plugin knows it, in GiB."""
    return {uuid: int(gpu.get("memoryReservedBytes", 0)) // GIB for uuid, gpu in last_snapshot(gpus).items()}


def test_be_pods_go_where_most_memory_is_unreserved_and_apart_from_each_other(tenants: Tenants, gpus: GpuNode) -> None:
    first = create(tenants, training("first"), "30Gi")
    eventually(lambda: reserved(gpus)[first] == 30)
    second = create(tenants, training("second"), "20Gi")
    eventually(lambda: reserved(gpus) == {first: 30, second: 20})
    assert create(tenants, training("third")) == second


def test_be_goes_where_hp_leaves_most_time_though_more_memory_is_free_elsewhere(
    tenants: Tenants, gpus: GpuNode
) -> None:
    idle = create(tenants, serving("idle", rate=0.1), "40Gi")
    eventually(lambda: reserved(gpus)[idle] == 40)
    busy = create(tenants, serving("busy", rate=40, kernels=20, kernel_us=1000))
    eventually(lambda: last_snapshot(gpus)[busy].get("hpBusyRatio", 0) > 0)
    eventually(lambda: reserved(gpus) == {idle: 40, busy: 1})
    assert create(tenants, training("train")) == idle
