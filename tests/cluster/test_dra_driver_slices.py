"""The DRA driver's ResourceSlice at a real API server: it is there, it is right, and it is rarely written."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from kubernetes import client

from tests.cluster.audited_plane import AuditedPlane, audited_plane, granted
from tests.cluster.rights import bind
from tests.dra_driver.driver_node import DriverNode
from tests.dra_driver.stand_in_kubelet import Failed
from tests.waiting import eventually

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(400)]

ROLE = Path(__file__).parents[2] / "charts" / "orion" / "files" / "dra" / "role.yaml"
USER = "system:serviceaccount:default:orion-dra-driver"
SLICES: dict[str, str] = {"group": "resource.k8s.io", "version": "v1", "plural": "resourceslices"}
NODE = "node-1"
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
    slices = Slices(audited.api)
    first = slices.one()
    assert [device["name"] for device in first["spec"]["devices"]] == [gpu.lower() for gpu in node.gpus()]
    assert all(device["allowMultipleAllocations"] for device in first["spec"]["devices"])
    assert [owner["kind"] for owner in first["metadata"]["ownerReferences"]] == ["Node"]
    assert writes(audited) == 1

    node.configure(slots={"hp": 1, "be": 2})
    eventually(lambda: {device["capacity"]["beSlots"]["value"] for device in slices.devices()} == {"2"})
    assert slices.one()["spec"]["pool"]["generation"] == 2

    slices.delete(first["metadata"]["name"])
    began = time.monotonic()
    eventually(slices.all, "the slice is back")
    print(f"back after a deletion: {time.monotonic() - began:.2f} s")

    edited = slices.one()
    del edited["spec"]["devices"][0]["capacity"]["beSlots"]
    edited["spec"]["pool"]["generation"] += 1
    slices.replace(edited)
    eventually(lambda: all("beSlots" in device["capacity"] for device in slices.devices()), "the edit is undone")

    slices.create(beside(slices.one(), "forged"))
    eventually(lambda: [each["metadata"]["name"] for each in slices.all()] == [first["metadata"]["name"]])

    with pytest.raises(Failed, match="does not exist any more"):
        node.kubelet.prepared("nobody")
    eventually(lambda: audited.asked() == granted(ROLE), what=f"{granted(ROLE) ^ audited.asked()}")
    assert audited.refused() == []

    before, until = writes(audited), time.monotonic() + REST_SECONDS
    eventually(lambda: time.monotonic() > until)
    assert writes(audited) == before


def test_a_second_driver_leaves_the_slice_to_the_latest(audited: AuditedPlane, node: DriverNode) -> None:
    slices = Slices(audited.api)
    before = slices.one()
    node.options += ["--slot-memory-mib", "1024"]
    node.begin_driver("second")
    eventually(lambda: slices.one()["spec"]["pool"]["generation"] == before["spec"]["pool"]["generation"] + 1)
    number, until = writes(audited), time.monotonic() + REST_SECONDS
    eventually(lambda: time.monotonic() > until)
    assert writes(audited) == number
