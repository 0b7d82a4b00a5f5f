"""Nodes that offer GPUs to claims, without kubelets and drivers, and pods that the real scheduler places there."""

import uuid
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml
from kubernetes import client

from orion.crds.claims import CLAIM, ClaimShape
from orion.crds.places import PLACES
from orion.crds.policy import Priority
from orion.dra_driver import slices
from orion.injection.slots import Slot
from orion.injection.snapshot import AdvertisedGPU, Snapshot
from tests.waiting import eventually

CLASSES = Path(__file__).parents[2] / "charts" / "orion" / "files" / "dra" / "classes.yaml"
RESOURCES: dict[str, str] = {"group": "resource.k8s.io", "version": "v1"}
Placed = dict[str, list[tuple[str, str]]]
""" The GPUs of each pod, each with its node. """


def gpu(number: int, be: int = 8, **fields: Any) -> AdvertisedGPU:
    uid = f"GPU-0000000{number}-0000-4000-8000-00000000000a"
    slots = (Slot(uid, "hp", 0), *(Slot(uid, "be", each) for each in range(be)))
    return replace(AdvertisedGPU(uid, index=number, slots=slots, memory_bytes=80 << 30), **fields)


class Cluster:
    """The nodes of a test, which offer GPUs to claims, and its pods."""

    def __init__(self, api: client.ApiClient, namespace: str, fake_node: Callable[..., str]) -> None:
        self._core, self._objects, self._fake_node = client.CoreV1Api(api), client.CustomObjectsApi(api), fake_node
        self._namespace = namespace
        self._slices: list[str] = []
        # Tests run side by side on one API server, so each has classes for its own nodes.
        for body in yaml.safe_load_all(CLASSES.read_text()):
            of_nodes = {"cel": {"expression": f'device.attributes["orion.gpu"].model == "{namespace}"'}}
            body["metadata"]["name"] = self._class(body["metadata"]["name"])
            body["spec"]["selectors"].append(of_nodes)
            del body["spec"]["extendedResourceName"]
            self._objects.create_cluster_custom_object(**RESOURCES, plural="deviceclasses", body=body)

    def _class(self, name: str) -> str:
        return f"{name}-{self._namespace}"

    def remove(self) -> None:
        for name in self._slices:
            self._objects.delete_cluster_custom_object(**RESOURCES, plural="resourceslices", name=name)
        for body in yaml.safe_load_all(CLASSES.read_text()):
            name = self._class(body["metadata"]["name"])
            self._objects.delete_cluster_custom_object(**RESOURCES, plural="deviceclasses", name=name)

    def node(self, name: str, *gpus: AdvertisedGPU) -> str:
        """Make a node that offers these GPUs, as the driver offers them; return its name."""
        full = self._fake_node(name, {"cpu": "1000"})
        snapshot = Snapshot({each.uuid: replace(each, model=self._namespace) for each in gpus})
        uid = self._core.read_node(full).metadata.uid
        body = slices.resource_slice(full, uid, 1, slices.devices(snapshot, 512 << 20))
        self._objects.create_cluster_custom_object(**RESOURCES, plural="resourceslices", body=body)
        self._slices.append(slices.slice_name(full))
        return full

    def keep_memory(self, node: str, slot_memory_bytes: int, *gpus: AdvertisedGPU) -> None:
        """Offer a node's GPUs with less memory, as a driver that keeps more of it for contexts."""
        snapshot = Snapshot({each.uuid: replace(each, model=self._namespace) for each in gpus})
        where = {**RESOURCES, "plural": "resourceslices", "name": slices.slice_name(node)}
        body: Any = self._objects.get_cluster_custom_object(**where)
        body["spec"]["pool"]["generation"] += 1
        body["spec"]["devices"] = slices.devices(snapshot, slot_memory_bytes)
        self._objects.replace_cluster_custom_object(**where, body=body)

    def begin(self, shape: ClaimShape, count: int = 1, **spec: Any) -> list[str]:
        """Create pods with claims of a shape, all at once; return their names.

        Args:
            shape: what their claims ask for.
            count: number of pods.
            spec: further fields of their specs.
        """
        self.make_template(shape)
        names = [f"p-{uuid.uuid4().hex[:8]}" for _ in range(count)]
        for name in names:
            body = {"metadata": {"name": name}, "spec": pod_spec(shape) | spec}
            self._core.create_namespaced_pod(self._namespace, body)
        return names

    def make_template(self, shape: ClaimShape) -> None:
        """Make the template of a shape, unless it exists."""
        body = shape.template()
        for request in body["spec"]["spec"]["devices"]["requests"]:
            for exactly in request.get("firstAvailable") or [request["exactly"]]:
                exactly["deviceClassName"] = self._class(exactly["deviceClassName"])
        where: dict[str, str] = {**RESOURCES, "namespace": self._namespace, "plural": "resourceclaimtemplates"}
        known = self._objects.list_namespaced_custom_object(**where)["items"]
        if shape.template_name not in [each["metadata"]["name"] for each in known]:
            self._objects.create_namespaced_custom_object(**where, body=body)

    def place(self, shape: ClaimShape, count: int = 1, **spec: Any) -> list[str]:
        """Create pods with claims of a shape; return their names when all have GPUs."""
        names = self.begin(shape, count, **spec)
        eventually(lambda: set(names) <= set(self.placed()), "all pods have GPUs")
        return names

    def quota(self, number: int) -> Callable[[], str]:
        """Limit the GPUs of be pods; return a function that returns how many count."""
        name = f"{self._class('orion-be')}.deviceclass.resource.k8s.io/devices"
        body = {"metadata": {"name": "gpus"}, "spec": {"hard": {name: str(number)}}}
        self._core.create_namespaced_resource_quota(self._namespace, body)

        def used() -> str:
            status = self._core.read_namespaced_resource_quota("gpus", self._namespace).status
            return str((status.used or {}).get(name, ""))

        return used

    def end(self, name: str) -> None:
        """End a pod; return when its GPUs are free."""
        self._core.delete_namespaced_pod(name, self._namespace, grace_period_seconds=0)
        eventually(lambda: name not in self.placed(), "its claim is gone")

    def placed(self) -> Placed:
        """Return the GPUs of each pod that has some."""
        return {
            each["metadata"]["ownerReferences"][0]["name"]: [(one["pool"], one["device"]) for one in given]
            for each in self.claims()
            if (given := each.get("status", {}).get("allocation", {}).get("devices", {}).get("results"))
        }

    def tenants(self) -> Counter[tuple[str, str]]:
        """Return the number of slots that are given of each GPU that has tenants."""
        return Counter(each for gpus in self.placed().values() for each in gpus)

    def pod(self, name: str) -> client.V1Pod:
        return self._core.read_namespaced_pod(name, self._namespace)

    def why_pending(self, name: str) -> str:
        """Return why kube-scheduler cannot place a pod; empty: it has placed the pod, or has not tried."""
        conditions = self.pod(name).status.conditions or ()
        return "".join(each.message or "" for each in conditions if each.type == "PodScheduled" and each.reason)

    def events(self, name: str) -> dict[str, str]:
        """Return the messages of the Events about a pod, by reason."""
        found = self._core.list_namespaced_event(self._namespace, field_selector=f"involvedObject.name={name}")
        return {each.reason: each.message or "" for each in found.items}

    def claims(self) -> list[dict[str, Any]]:
        found: Any = self._objects.list_namespaced_custom_object(
            **RESOURCES, namespace=self._namespace, plural="resourceclaims"
        )
        return list(found["items"])


def pod_spec(shape: ClaimShape) -> dict[str, Any]:
    containers = [
        {"name": each, "image": "none", "resources": {"claims": [{"name": CLAIM, "request": each}]}}
        for each in shape.gpus
    ]
    claims = [{"name": CLAIM, "resourceClaimTemplateName": shape.template_name}]
    return {"containers": containers, "resourceClaims": claims}


def be(count: int = 1, **fields: Any) -> ClaimShape:
    return ClaimShape(priority=Priority.BE, gpus={"main": count}, **{"places": PLACES, **fields})


HP = ClaimShape(priority=Priority.HP, gpus={"main": 1}, places=PLACES)
