"""DeviceClasses, ResourceClaims and pods that use GPUs by claims, written by hand, without annotations and webhook."""

import contextlib
import copy
from collections.abc import Iterator
from typing import Any

import pytest
from kubernetes import client

from orion.node_agent.api.client import NoAgent
from testbed.node import Node
from testbed.orion import Orion
from tests.node.gpu_tenants import GpuNode, Manifest, main_container
from tests.waiting import eventually

DRA = {"group": "resource.k8s.io", "version": "v1"}
CDI = "/run/cdi"
RECORDS = "/var/lib/kubelet/plugins/orion.gpu/claims"
CLASSES = {"hp": "orion-hp", "be": "orion-be"}


def make_classes(api: client.ApiClient) -> None:
    """Make the classes for hp and be."""
    for role, name in CLASSES.items():
        spec = {
            "selectors": [{"cel": {"expression": 'device.driver == "orion.gpu"'}}],
            "config": [{"opaque": {"driver": "orion.gpu", "parameters": {"role": role}}}],
        }
        body = {"apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": {"name": name}, "spec": spec}
        client.CustomObjectsApi(api).create_cluster_custom_object(**DRA, plural="deviceclasses", body=body)


def remove_classes(api: client.ApiClient) -> None:
    for name in CLASSES.values():
        client.CustomObjectsApi(api).delete_cluster_custom_object(**DRA, plural="deviceclasses", name=name)


def claiming(pod: Manifest, role: str, count: int = 1, claim: str = "", **amounts: str) -> tuple[Manifest, Manifest]:
    """Return a claim and a pod that uses it, made of one of the examples' pods.

    Args:
        pod: the example's pod.
        role: hp or be.
        count: number of GPUs.
        claim: the claim's name; empty: the pod's.
        amounts: time and memory.
    """
    pod, name = copy.deepcopy(pod), claim or pod["metadata"]["name"]
    pod["metadata"].pop("annotations", None)
    resources = main_container(pod)["resources"]
    resources["limits"] = {each: amount for each, amount in resources["limits"].items() if "orion" not in each}
    resources["claims"] = [{"name": "gpu", "request": "c0"}]
    pod["spec"]["resourceClaims"] = [{"name": "gpu", "resourceClaimName": name}]
    slots = {"hpSlots": "0", "beSlots": "0", f"{role}Slots": "1"}
    exactly = {"deviceClassName": CLASSES[role], "count": count, "capacity": {"requests": {**slots, **amounts}}}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": name},
        "spec": {"devices": {"requests": [{"name": "c0", "exactly": exactly}]}},
    }, pod


class Claims:
    """The claims of one namespace, and the driver's devices."""

    def __init__(self, api: client.ApiClient, namespace: str, node: Node, orion: Orion) -> None:
        self._objects, self._namespace = client.CustomObjectsApi(api), namespace
        self.node, self.orion = node, orion

    def create(self, claim: Manifest) -> None:
        self._objects.create_namespaced_custom_object(
            **DRA, namespace=self._namespace, plural="resourceclaims", body=claim
        )

    def delete(self, name: str) -> None:
        self._objects.delete_namespaced_custom_object(
            **DRA, namespace=self._namespace, plural="resourceclaims", name=name
        )

    def uid(self, name: str) -> str:
        found: Any = self._objects.get_namespaced_custom_object(
            **DRA, namespace=self._namespace, plural="resourceclaims", name=name
        )
        return str(found["metadata"]["uid"])

    def slices(self) -> list[dict[str, Any]]:
        """Return the driver's slices of the node."""
        found: Any = self._objects.list_cluster_custom_object(**DRA, plural="resourceslices")
        return [
            each
            for each in found["items"]
            if (each["spec"]["driver"], each["spec"].get("nodeName")) == ("orion.gpu", self.node.name)
        ]

    def until_offered(self, seconds: float = 60.0) -> dict[str, Any]:
        """Wait until the node's slice exists; return it."""
        return eventually(
            self.slices, lambda: f"a slice: {self.orion.log(f'{self.node.name}-driver')[-2000:]}", seconds
        )[0]

    def delete_slice(self) -> None:
        for each in self.slices():
            self._objects.delete_cluster_custom_object(**DRA, plural="resourceslices", name=each["metadata"]["name"])


@pytest.fixture(scope="module")
def offering(orion: Orion, node: Node, api: client.ApiClient) -> Iterator[None]:
    """The node's DRA driver in place of its device plugin, and the classes."""
    orion.end(node, "plugin")
    orion.begin_driver(node)
    make_classes(api)
    yield
    remove_classes(api)
    orion.end(node, "driver")
    orion.begin_plugin(node)
    orion.wait_until_advertised(node)


@pytest.fixture(scope="module")
def claiming_webhook(offering: None, orion: Orion, node: Node) -> Iterator[None]:
    """Webhook and operator give slots by claims."""
    allocate(orion, node, "dra")
    yield
    allocate(orion, node, "device-plugin")


def allocate(orion: Orion, node: Node, allocation: str) -> None:
    """Change how slots are given; return when the node's agent has the new operator's answer."""
    log = f"{node.name}-agent"
    begun = len(orion.log(log))
    orion.allocate(allocation)
    eventually(lambda: "orion-operator answers" in orion.log(log)[begun:], what="the agent has an answer")


@pytest.fixture
def claims(offering: None, api: client.ApiClient, namespace: str, node: Node, orion: Orion) -> Claims:
    made = Claims(api, namespace, node, orion)
    made.until_offered()
    return made


def held(gpus: GpuNode) -> dict[str, tuple[str, ...]]:
    """Return the slots that claims hold, and the pods of each."""
    with contextlib.suppress(NoAgent):
        return {
            f"{gpu.uuid}::{slot.name}": tuple(pod.name for pod in slot.claim.pods)
            for gpu in gpus.snapshot().gpus
            for slot in gpu.slots
            if slot.HasField("claim")
        }
    return {}


def files(node: Node, folder: str) -> list[str]:
    return node.run(["ls", folder]).split()


def until_nothing_is_left(gpus: GpuNode, node: Node) -> None:
    eventually(lambda: held(gpus) == {}, what=f"claims hold {held(gpus)}")
    eventually(lambda: files(node, CDI) == [] and files(node, RECORDS) == [], what="files of claims are left")
