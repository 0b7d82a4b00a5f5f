"""Pods of a real kubelet on a simulated GPU in mode mps, with `orion mps-daemon` on the node."""

from collections.abc import Iterator

import pytest
from kubernetes import client

from testbed.node import Node
from testbed.orion import Orion
from tests.node.gpu_tenants import GROUP, GpuNode, Tenants, advertising, serving, training
from tests.waiting import eventually

pytestmark = pytest.mark.node


@pytest.fixture
def gpu(orion: Orion, node: Node, api: client.ApiClient) -> Iterator[str]:
    """The only GPU that the node advertises, in mode mps; afterwards in timeslice again."""
    gpus = GpuNode(node, api)
    with advertising(orion, node, {"gpus": ["0"]}, hp=1, be=8):
        eventually(lambda: len(healthy(gpus)) == 1)  # the agent may report the other GPU's health a little later
        (uuid,) = healthy(gpus)
        set_mode(api, uuid, "mps")
        try:
            eventually(lambda: gpus.devices()[uuid]["mode"] == "mps", what=lambda: orion.log("node-1-mps"))
            eventually(lambda: orion.allocatable(node)["orion.gpu/be"] == 8)
            yield uuid
        finally:
            set_mode(api, uuid, "timeslice")
            eventually(lambda: gpus.devices()[uuid]["mode"] == "timeslice", what=lambda: orion.log("node-1-mps"))
            eventually(lambda: orion.allocatable(node)["orion.gpu/be"] == 8)


def healthy(gpus: GpuNode) -> list[str]:
    return [uuid for uuid, status in gpus.devices().items() if status.get("health") == "Healthy"]


def set_mode(api: client.ApiClient, uuid: str, mode: str) -> None:
    client.CustomObjectsApi(api).patch_cluster_custom_object(
        **GROUP, plural="gpudevices", name=uuid.lower(), body={"spec": {"mode": mode}}
    )


def test_pods_share_their_contexts_and_the_mode_stays_while_they_run(
    gpu: str, node: Node, api: client.ApiClient, namespace: str
) -> None:
    tenants, gpus = Tenants(api, namespace), GpuNode(node, api)
    tenants.create(serving(rate=20), training())
    for name in ("serve", "train"):
        assert tenants.begun(name)["gpu"] == gpu

    def sharing() -> list[bool]:
        device = next(each for each in gpus.snapshot().gpus if each.uuid == gpu)
        return [each.shares_context for slot in device.slots for each in slot.clients]

    eventually(lambda: sharing() == [True, True])
    set_mode(api, gpu, "timeslice")
    eventually(lambda: gpus.condition(gpu, "ModePending")["reason"] == "ClientsPresent")
    assert gpus.devices()[gpu]["mode"] == "mps"
    tenants.reports("train", 2)  # the pods continue
    tenants.delete("serve", "train")
    eventually(lambda: gpus.condition(gpu, "ModePending")["reason"] == "InMode")
    tenants.create(training("after"))
    tenants.begun("after")
    eventually(lambda: sharing() == [False])
    tenants.delete("after")
