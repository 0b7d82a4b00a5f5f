"""Pods with claims spread over GPUs and nodes, by the real scheduler: it needs slices and templates, and no kubelet."""

import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from kubernetes import client

from orion.crds.claims import CLAIM, ClaimShape
from orion.crds.places import PLACES
from orion.crds.policy import Priority
from orion.dra_driver import slices
from orion.injection.slots import Slot
from orion.injection.snapshot import AdvertisedGPU, Snapshot
from tests.cluster.conftest import FakeNode
from tests.waiting import eventually

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(400)]

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

    def __init__(self, api: client.ApiClient, namespace: str, fake_node: FakeNode) -> None:
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

    def begin(self, shape: ClaimShape, count: int = 1) -> list[str]:
        """Create pods with claims of a shape, all at once; return their names."""
        body = shape.template()
        for request in body["spec"]["spec"]["devices"]["requests"]:
            for exactly in request.get("firstAvailable") or [request["exactly"]]:
                exactly["deviceClassName"] = self._class(exactly["deviceClassName"])
        where: dict[str, str] = {**RESOURCES, "namespace": self._namespace, "plural": "resourceclaimtemplates"}
        known = self._objects.list_namespaced_custom_object(**where)["items"]
        if shape.template_name not in [each["metadata"]["name"] for each in known]:
            self._objects.create_namespaced_custom_object(**where, body=body)
        names = [f"p-{uuid.uuid4().hex[:8]}" for _ in range(count)]
        for name in names:
            self._core.create_namespaced_pod(self._namespace, _pod(name, shape))
        return names

    def place(self, shape: ClaimShape, count: int = 1) -> list[str]:
        """Create pods with claims of a shape; return their names when all have GPUs."""
        names = self.begin(shape, count)
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
            for each in self._claims()
            if (given := each.get("status", {}).get("allocation", {}).get("devices", {}).get("results"))
        }

    def tenants(self) -> Counter[tuple[str, str]]:
        """Return the number of slots that are given of each GPU that has tenants."""
        return Counter(each for gpus in self.placed().values() for each in gpus)

    def _claims(self) -> list[dict[str, Any]]:
        found: Any = self._objects.list_namespaced_custom_object(
            **RESOURCES, namespace=self._namespace, plural="resourceclaims"
        )
        return list(found["items"])


@pytest.fixture
def cluster(api: client.ApiClient, namespace: str, fake_node: FakeNode) -> Iterator[Cluster]:
    made = Cluster(api, namespace, fake_node)
    yield made
    made.remove()


def _pod(name: str, shape: ClaimShape) -> dict[str, Any]:
    containers = [
        {"name": each, "image": "none", "resources": {"claims": [{"name": CLAIM, "request": each}]}}
        for each in shape.gpus
    ]
    claims = [{"name": CLAIM, "resourceClaimTemplateName": shape.template_name}]
    return {"metadata": {"name": name}, "spec": {"containers": containers, "resourceClaims": claims}}


def be(count: int = 1, **fields: Any) -> ClaimShape:
    return ClaimShape(priority=Priority.BE, gpus={"main": count}, **{"places": PLACES, **fields})


HP = ClaimShape(priority=Priority.HP, gpus={"main": 1}, places=PLACES)


def burst(cluster: Cluster) -> None:
    cluster.place(be(), 16)


def one_by_one(cluster: Cluster) -> None:
    for _ in range(16):
        cluster.place(be())


@pytest.mark.parametrize(("come", "most"), [(burst, 2), (one_by_one, 1)])
def test_sixteen_pods_on_two_nodes_spread_over_gpus_and_nodes(
    cluster: Cluster, come: Callable[[Cluster], None], most: int
) -> None:
    """In a burst kube-scheduler takes a GPU for full for a moment while it writes a claim (docs/dra.md)."""
    nodes = [cluster.node(name, *map(gpu, range(4))) for name in ("a", "b")]
    come(cluster)
    tenants = cluster.tenants()
    of_nodes = {node: [tenants[node, gpu(number).uuid.lower()] for number in range(4)] for node in nodes}
    assert all(max(counts) - min(counts) <= most for counts in of_nodes.values()), of_nodes
    assert abs(sum(of_nodes[nodes[0]]) - sum(of_nodes[nodes[1]])) <= 2, of_nodes


def test_pods_that_ask_for_no_place_get_the_first_gpu_that_fits(cluster: Cluster) -> None:
    """Once Kubernetes spreads claims by itself, places are no longer needed."""
    node = cluster.node("a", *map(gpu, range(4)))
    cluster.place(be(places=None), 8)
    assert cluster.tenants() == {(node, gpu(0).uuid.lower()): 8}


def test_more_tenants_than_places_use_all_slots(cluster: Cluster) -> None:
    cluster.node("a", gpu(0), gpu(1, be=2))
    cluster.place(be(), 10)
    assert sorted(cluster.tenants().values()) == [2, 8]


def test_hp_and_be_avoid_each_other_while_a_gpu_is_empty(cluster: Cluster) -> None:
    cluster.node("a", *map(gpu, range(4)))
    cluster.place(be(), 2)
    cluster.place(HP, 2)
    assert sorted(cluster.tenants().values()) == [1, 1, 1, 1]
    cluster.place(HP, 2)
    cluster.place(be(), 2)
    assert sorted(cluster.tenants().values()) == [2, 2, 2, 2]


def test_pods_with_several_gpus_get_different_ones(cluster: Cluster) -> None:
    cluster.node("a", *map(gpu, range(4)))
    cluster.place(be())
    (pair,) = cluster.place(be(3))
    assert len(set(cluster.placed()[pair])) == 3
    assert sorted(cluster.tenants().values()) == [1, 1, 1, 1]
    (four,) = cluster.place(be(4))
    assert len(set(cluster.placed()[four])) == 4


def test_gpus_in_common_hold_for_whatever_alternative_is_chosen(cluster: Cluster) -> None:
    linked = {number: frozenset({gpu(other).uuid}) for number, other in ((0, 1), (1, 0), (2, 3), (3, 2))}
    cluster.node("a", *(gpu(number, linked=linked[number]) for number in range(4)))
    cluster.place(be())
    cluster.place(be(2, in_common="orion.gpu/nvlink"), 2)
    pairs = [gpus for gpus in cluster.placed().values() if len(gpus) == 2]
    numbers = sorted(sorted(int(device[11]) for _, device in gpus) for gpus in pairs)
    assert numbers == [[0, 1], [2, 3]]


def test_a_quota_counts_the_alternatives_of_a_pod_once(cluster: Cluster) -> None:
    cluster.node("a", gpu(0), gpu(1))
    used = cluster.quota(3)
    eventually(lambda: used() == "0", "the quota counts")
    cluster.place(be(2))
    cluster.place(be())
    eventually(lambda: used() == "3", "all GPUs of the pods count, and none of their alternatives")


def test_a_pod_takes_the_place_of_the_first_that_left(cluster: Cluster) -> None:
    """What docs/dra.md says about pods that leave: a place is no count."""
    cluster.node("a", gpu(0), gpu(1))
    first, second, *_ = [cluster.place(be())[0] for _ in range(6)]
    (left,) = cluster.placed()[first]
    cluster.end(first)
    (after,) = cluster.place(be())
    assert cluster.placed()[after] == [left]
    assert cluster.placed()[second] != [left]
