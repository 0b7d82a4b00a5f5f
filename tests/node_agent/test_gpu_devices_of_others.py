"""GPUDevices that name another node: who may write them, who takes them over, and what a rejected write means."""

import asyncio
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from orion.api_server.paths import DEVICES, NODES
from orion.api_server.requests import ApiError
from orion.crds.device import device_name
from orion.crds.device_status import GPUDeviceStatus
from orion.node_agent.cluster.reporting import gpu_devices
from orion.node_agent.cluster.reporting.cordons import Cordons
from orion.node_agent.cluster.reporting.gpu_devices import Device, GpuDevices

UUID = "GPU-00000000-0000-4000-8000-000000000000"
NAME = device_name(UUID)


class Server:
    """An API server with one GPUDevice and some nodes."""

    def __init__(self, status: Mapping[str, Any], *nodes: str) -> None:
        self.status, self.nodes = dict(status), nodes
        self.forbids = False
        self.patches = 0

    async def get(self, path: str) -> dict[str, Any]:
        if path == f"{DEVICES}/{NAME}":
            metadata = {"name": NAME, "uid": "u", "resourceVersion": str(self.patches + 1)}
            return {"metadata": metadata, "status": self.status}
        if path.removeprefix(f"{NODES}/") in self.nodes:
            return {}
        raise ApiError(404, path)

    async def patch(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        self.patches += 1
        if self.forbids:
            raise ApiError(403, "an agent of node here may write only GPUs of that node")
        self.status |= body["status"]
        return await self.get(f"{DEVICES}/{NAME}")


class Keeper:
    """The GPUDevices of node `here`, which has the GPU."""

    def __init__(self, server: Server, folder: Path) -> None:
        self.reported: list[str] = []
        made: Any = server
        self.devices = GpuDevices(
            made, "here", Cordons(folder / "cordons.json"), self._here, self._make, self._report, lambda: None
        )

    async def _here(self) -> list[str]:
        return [UUID]

    def _make(self, uuid: str, device: Device) -> GPUDeviceStatus:
        return GPUDeviceStatus(node="here", uuid=uuid, health="Healthy")

    def _report(self, device: Device, status: GPUDeviceStatus) -> None:
        self.reported.append(device.name)

    def look(self) -> None:
        asyncio.run(self.devices._update(NAME, UUID))


@pytest.fixture(autouse=True)
def now(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    clock = [1_000.0]
    monkeypatch.setattr(gpu_devices, "time", SimpleNamespace(monotonic=lambda: clock[0]))
    return clock


@pytest.mark.parametrize(
    ("status", "nodes"),
    [
        ({}, ("there",)),
        ({"node": "here", "health": "Healthy"}, ("there",)),
        ({"node": "there", "health": "Unknown"}, ("there",)),
        ({"node": "there", "health": "Healthy"}, ()),
    ],
    ids=["of no node", "of this node", "reported as gone", "of a node that is gone"],
)
def test_a_device_is_written_if_no_other_agent_claims_it(
    tmp_path: Path, status: dict[str, Any], nodes: tuple[str, ...]
) -> None:
    server = Server(status, *nodes)
    keeper = Keeper(server, tmp_path)
    keeper.look()
    assert (server.status["node"], server.status["uuid"], server.patches) == ("here", UUID, 1)
    assert keeper.reported == [NAME]
    assert keeper.devices.elsewhere(UUID) == ""


def test_a_device_of_another_agent_is_not_written(tmp_path: Path, now: list[float]) -> None:
    server = Server({"node": "there", "health": "Healthy"}, "there")
    keeper = Keeper(server, tmp_path)
    keeper.look()
    assert (server.patches, keeper.reported, keeper.devices.elsewhere(UUID)) == (0, [], "there")
    server.status["health"] = "Unknown"
    keeper.look()
    assert server.patches == 0  # the agent has not read the device again yet
    now[0] += 6.0
    keeper.look()
    assert (server.status["node"], keeper.devices.elsewhere(UUID)) == ("here", "")


def test_a_write_rejected_by_a_policy_means_that_the_gpu_is_another_nodes(
    tmp_path: Path, now: list[float], caplog: pytest.LogCaptureFixture
) -> None:
    server = Server({"node": "there", "health": "Healthy"})  # the node is gone, but the GPU was not reported as gone
    server.forbids = True
    keeper = Keeper(server, tmp_path)
    for _ in range(3):
        keeper.look()
        assert keeper.devices.elsewhere(UUID) == "there"
        now[0] += 6.0
    assert (server.patches, keeper.reported, keeper.devices.failures) == (3, [], 3)
    assert caplog.text.count("names node there") == 1
    server.forbids = False
    keeper.look()
    assert (server.status["node"], keeper.reported, keeper.devices.elsewhere(UUID)) == ("here", [NAME], "")


def test_a_refusal_about_a_device_of_this_node_is_a_failure(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    server = Server({"node": "here", "health": "Unhealthy"})
    server.forbids = True
    keeper = Keeper(server, tmp_path)
    keeper.look()
    assert keeper.devices.elsewhere(UUID) == ""
    assert keeper.devices.failures == 1
    assert "403" in caplog.text
