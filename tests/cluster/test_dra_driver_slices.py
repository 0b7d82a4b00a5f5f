"""The DRA driver's ResourceSlice at a real API server: it is there, it is right, and it is rarely written."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from kubernetes import client

from orion.dra_driver import slices
from orion.injection.slots import Slot
from orion.injection.snapshot import AdvertisedGPU, Snapshot
from tests.cluster.audited_plane import AuditedPlane, audited_plane, granted
from tests.cluster.conftest import FakeNode
from tests.cluster.rights import bind
from tests.dra_driver.driver_node import DriverNode
from tests.dra_driver.stand_in_kubelet import Failed
from tests.waiting import eventually

pytestmark = pytest.mark.cluster

ROLE = Path(__file__).parents[2] / "charts" / "orion" / "files" / "dra" / "driver-role.yaml"
USER = "system:serviceaccount:default:orion-dra-driver"
SLICES: dict[str, str] = {"group": "resource.k8s.io", "version": "v1", "plural": "resourceslices"}
NODE = "node-1"
NODE_INFO = dict.fromkeys(
    (
        "architecture", "bootID", "containerRuntimeVersion", "kernelVersion", "kubeProxyVersion", "kubeletVersion",
        "machineID", "operatingSystem", "osImage", "systemUUID",
    ),
    "",
)  # fmt: skip
""" All these fields are required. """
REST_SECONDS = 12.0
""" Longer than the time after which the driver looks again without a change. """


class Slices:
    """The node's slices, through the administrator's client."""

    def __init__(self, api: client.ApiClient) -> None:
        self._objects = client.CustomObjectsApi(api)

    def all(self) -> list[dict[str, Any]]:
        return list(self._objects.list_cluster_custom_object(**SLICES)["items"])

    def one(self) -> dict[str, Any]:
        """Wait until there is one slice, and return it."""
        return eventually(lambda: self.all() if len(self.all()) == 1 else [], "one slice")[0]

    def devices(self) -> list[dict[str, Any]]:
        return [device for each in self.all() for device in each["spec"].get("devices") or ()]

    def delete(self, name: str) -> None:
        self._objects.delete_cluster_custom_object(**SLICES, name=name)

    def create(self, body: dict[str, Any]) -> None:
        self._objects.create_cluster_custom_object(**SLICES, body=body)

    def replace(self, body: dict[str, Any]) -> None:
        self._objects.replace_cluster_custom_object(**SLICES, name=body["metadata"]["name"], body=body)


@pytest.fixture
def audited(tmp_path: Path) -> Iterator[AuditedPlane]:
    with audited_plane(USER, tmp_path) as plane:
        client.CoreV1Api(plane.api).create_node({"metadata": {"name": NODE}})
        bind(plane.api, ROLE, USER, "default")
        yield plane


@pytest.fixture
def node(audited: AuditedPlane, socket_folder: Path) -> Iterator[DriverNode]:
    made = DriverNode(socket_folder, audited.kubeconfig)
    made.begin_agent()
    made.begin_driver()
    yield made
    made.close()


def writes(audited: AuditedPlane) -> int:
    verbs = [line["verb"] for line in audited.lines() if line["objectRef"]["resource"] == "resourceslices"]
    return sum(verb in ("create", "update", "delete") for verb in verbs)


def beside(slot: dict[str, Any], name: str) -> dict[str, Any]:
    """A slice as this one, with another name, in a pool of its own."""
    pool = {"name": name, "generation": 1, "resourceSliceCount": 1}
    return {**slot, "metadata": {"name": name}, "spec": {**slot["spec"], "pool": pool}}


def test_the_slice_follows_the_gpus_with_few_writes_and_exactly_these_rights(
    audited: AuditedPlane, node: DriverNode
) -> None:
    stored = Slices(audited.api)
    first = stored.one()
    assert [device["name"] for device in first["spec"]["devices"]] == [gpu.lower() for gpu in node.gpus()]
    assert all(device["allowMultipleAllocations"] for device in first["spec"]["devices"])
    assert [owner["kind"] for owner in first["metadata"]["ownerReferences"]] == ["Node"]
    assert writes(audited) == 1

    node.configure(slots={"hp": 1, "be": 2})
    eventually(lambda: {device["capacity"]["beSlots"]["value"] for device in stored.devices()} == {"2"})
    assert stored.one()["spec"]["pool"]["generation"] == 2

    stored.delete(first["metadata"]["name"])
    began = time.monotonic()
    eventually(stored.all, "the slice is back")
    print(f"back after a deletion: {time.monotonic() - began:.2f} s")

    edited = stored.one()
    del edited["spec"]["devices"][0]["capacity"]["beSlots"]
    edited["spec"]["pool"]["generation"] += 1
    stored.replace(edited)
    eventually(lambda: all("beSlots" in device["capacity"] for device in stored.devices()), "the edit is undone")

    stored.create(beside(stored.one(), "forged"))
    eventually(lambda: [each["metadata"]["name"] for each in stored.all()] == [first["metadata"]["name"]])

    with pytest.raises(Failed, match="does not exist any more"):
        node.kubelet.prepared("nobody")
    before, until = writes(audited), time.monotonic() + REST_SECONDS
    eventually(lambda: time.monotonic() > until)
    assert writes(audited) == before

    core, old = client.CoreV1Api(audited.api), "containerd://1.6.36"
    core.patch_node_status(NODE, {"status": {"nodeInfo": NODE_INFO | {"containerRuntimeVersion": old}}})
    node.configure(slots={"hp": 1, "be": 3})

    def ours() -> list[Any]:
        found = core.list_namespaced_event("default").items  # Kubernetes posts Events about nodes, too
        return [each for each in found if each.reporting_component == "orion.gpu/dra-driver"]

    posted = eventually(ours, "an Event says that no GPU is offered")
    assert [(each.reason, each.involved_object.name) for each in posted] == [("RuntimeWithoutCDI", NODE)]
    assert old in posted[0].message
    assert stored.all() == []
    eventually(lambda: audited.asked() == granted(ROLE), what=f"{granted(ROLE) ^ audited.asked()}")
    assert audited.refused() == []


def test_a_second_driver_leaves_the_slice_to_the_latest(audited: AuditedPlane, node: DriverNode) -> None:
    stored = Slices(audited.api)
    before = stored.one()
    node.options += ["--slot-memory-mib", "1024"]
    node.begin_driver("second")
    eventually(lambda: stored.one()["spec"]["pool"]["generation"] == before["spec"]["pool"]["generation"] + 1)
    number, until = writes(audited), time.monotonic() + REST_SECONDS
    eventually(lambda: time.monotonic() > until)
    assert writes(audited) == number


def test_the_api_server_stores_all_that_a_slice_can_say(api: client.ApiClient, fake_node: FakeNode) -> None:
    slots = tuple(Slot("GPU-A", role, number) for role, number in (("hp", 0), ("be", 0), ("be", 1)))
    gpu = AdvertisedGPU(
        "GPU-A", slots=slots, memory_bytes=80 << 30, model="A model", mode="mps", numa_node=1,
        linked=frozenset({"GPU-B"}),
        compute_capability="9.0", driver_version="580.95.05", pci_bus_id="0000:17:00.0", pcie_root="pci0000:16",
        healthy=False, cordoned=True, reason="Xid79",
    )  # fmt: skip
    found = slices.devices(Snapshot({"GPU-A": gpu, "GPU-B": AdvertisedGPU("GPU-B", index=1)}), 512 << 20)
    node = fake_node("full")
    uid = client.CoreV1Api(api).read_node(node).metadata.uid
    body = slices.resource_slice(node, uid, 1, found)
    objects = client.CustomObjectsApi(api)
    stored: Any = objects.create_cluster_custom_object(**SLICES, body=body)
    assert slices.same(body["spec"], stored["spec"])
    objects.delete_cluster_custom_object(**SLICES, name=body["metadata"]["name"])
