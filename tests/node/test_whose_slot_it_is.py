"""The agent learns from a real kubelet who holds each slot: after a restart, with init containers and equal names."""

import contextlib
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
from kubernetes import client

from orion.node_agent.api.client import AgentClient, NoAgent
from testbed.node import Node
from testbed.orion import Orion
from tests.node.gpu_tenants import GROUP, GpuNode, Manifest, Tenants, main_container, share, training
from tests.waiting import eventually

pytestmark = pytest.mark.node

MIB = 1 << 20


def held(gpus: GpuNode, tenants: Tenants) -> list[dict[str, Any]]:
    """The GPUDevices' rows of slots that this namespace's pods hold."""
    rows = [row for device in gpus.devices().values() for row in device.get("heldSlots") or ()]
    return [row for row in rows if row.get("pod", {}).get("namespace") == tenants.namespace]


def limits(gpus: GpuNode, tenants: Tenants) -> dict[str, int]:
    """The memory limits of the slots that this namespace's pods hold, in MiB, by the pods' names."""
    rows = [row for row in held(gpus, tenants) if "memoryLimit" in row]
    return {row["pod"]["name"]: int(row["memoryLimit"].removesuffix("Mi")) for row in rows}


def limited(pod: Manifest, mebibytes: int) -> Manifest:
    return share(pod, memory={"limit": f"{mebibytes}Mi"})


@contextlib.contextmanager
def watched(gpus: GpuNode) -> Iterator[list[set[int]]]:
    """The slots' memory limits in bytes, sampled ten times a second until the block ends."""
    seen: list[set[int]] = []
    agent = AgentClient(gpus.path("/run/orion"))

    def watch() -> None:
        with contextlib.suppress(NoAgent):
            for snapshot in agent.watch(0.1):
                seen.append({slot.memory_limit_bytes for gpu in snapshot.gpus for slot in gpu.slots})

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield seen
    finally:
        agent.close()
        thread.join(10)


def test_a_share_that_changes_reaches_the_running_pod(tenants: Tenants, gpus: GpuNode) -> None:
    pod = training(memory=MIB)
    tenants.create(limited(pod, 640), pod)
    tenants.begun("train")
    eventually(lambda: limits(gpus, tenants) == {"train": 640})
    objects = client.CustomObjectsApi(tenants.api)
    with watched(gpus) as seen:
        begin = time.monotonic()
        objects.patch_namespaced_custom_object(
            **GROUP, namespace=tenants.namespace, plural="gpushares", name="train",
            body={"spec": {"memory": {"limit": "704Mi"}}},
        )  # fmt: skip
        eventually(lambda: seen and 704 * MIB in seen[-1], seconds=10)
        print(f"share to page: {time.monotonic() - begin:.3f} s")
    eventually(lambda: limits(gpus, tenants) == {"train": 704})


def test_a_kubelet_restart_removes_no_grant(tenants: Tenants, gpus: GpuNode, node: Node, orion: Orion) -> None:
    pod = training(memory=MIB)
    tenants.create(limited(pod, 640), pod)
    tenants.begun("train")
    eventually(lambda: limits(gpus, tenants) == {"train": 640})
    advertised = orion.allocatable(node)
    with watched(gpus) as seen:
        node.restart("kubelet")
        node.wait_until_ready()
        eventually(lambda: orion.allocatable(node) == advertised)
        count = len(seen) + 150  # the agent asks the kubelet every ten seconds
        eventually(lambda: len(seen) > count)
    assert all(640 * MIB in limits for limits in seen)
    assert limits(gpus, tenants) == {"train": 640}
    tenants.reports("train", 2)


def test_an_init_container_passes_its_slot_and_grant_on(tenants: Tenants, gpus: GpuNode) -> None:
    pod = training(memory=MIB)
    warm = {**main_container(pod), "name": "warm", "args": ["train", "--seconds", "1", "--memory", "1MiB"]}
    pod["spec"]["initContainers"] = [warm]
    tenants.create(limited(pod, 640), pod)
    tenants.begun("train")
    eventually(lambda: limits(gpus, tenants) == {"train": 640})
    (row,) = held(gpus, tenants)
    assert row["pod"]["container"] == main_container(pod)["name"]
    tenants.delete("train")
    eventually(lambda: held(gpus, tenants) == [])


def test_pods_of_one_name_are_distinguished(tenants: Tenants, gpus: GpuNode) -> None:
    pod = training(memory=MIB)
    tenants.create(limited(pod, 640), pod)
    tenants.begun("train")
    first = tenants.pods()["train"].metadata.uid
    tenants.delete("train")
    pod["metadata"]["labels"] = {"app": "other"}
    tenants.create(limited(pod, 320), pod)
    tenants.begun("train")
    second = tenants.pods()["train"].metadata.uid
    assert second != first
    eventually(lambda: [row["pod"]["uid"] for row in held(gpus, tenants)] == [second])
    eventually(lambda: limits(gpus, tenants) == {"train": 320})
