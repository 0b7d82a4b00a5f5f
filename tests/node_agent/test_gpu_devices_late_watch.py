"""An agent whose watch is late, as after the end of the API server that served it: its statuses get through."""

import asyncio
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from orion.api_server.requests import ApiError
from orion.crds.device import device_name
from orion.crds.device_status import GPUDeviceStatus
from orion.node_agent.cluster.reporting import gpu_devices
from orion.node_agent.cluster.reporting.cordons import Cordons
from orion.node_agent.cluster.reporting.gpu_devices import Device, GpuDevices

UUID = "GPU-00000000-0000-4000-8000-000000000000"
NAME = device_name(UUID)


class Server:
    """An API server with one GPUDevice, which accepts a write of its present version only."""

    def __init__(self) -> None:
        self.version, self.reads, self.gone = 1, 0, False
        self.status: dict[str, Any] = {}
        self.spec: dict[str, Any] = {}

    @property
    def device(self) -> dict[str, Any]:
        return {
            "metadata": {"name": NAME, "uid": "u", "resourceVersion": str(self.version)},
            "spec": self.spec,
            "status": {**self.status},
        }

    async def get(self, path: str) -> dict[str, Any]:
        self.reads += 1
        if self.gone:
            raise ApiError(404, path)
        return self.device

    async def post(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        self.version, self.gone, self.status = self.version + 1, False, {}
        return self.device

    async def patch(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        if self.gone:
            raise ApiError(404, path)
        if body["metadata"]["resourceVersion"] != str(self.version):
            raise ApiError(409, "the object has been modified")
        self.version += 1
        self.status |= body["status"]
        return self.device


class Keeper:
    """The GPUDevices of node `here`, at a time that the test sets."""

    def __init__(self, server: Server, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now, self.health = 1_000.0, "Healthy"
        monkeypatch.setattr(gpu_devices, "time", SimpleNamespace(monotonic=lambda: self.now))
        made: Any = server
        nothing: Any = lambda *_: None  # noqa: E731
        self.devices = GpuDevices(made, "here", Cordons(folder / "cordons"), nothing, self._make, nothing, nothing)

    def _make(self, uuid: str, device: Device) -> GPUDeviceStatus:
        return GPUDeviceStatus.model_validate({"node": "here", "uuid": uuid, "health": self.health})

    def watch_shows(self, device: dict[str, Any]) -> None:
        self.devices._watched._apply("MODIFIED", device)

    def look(self, health: str) -> None:
        """Look after the time for which the agent waits for the watch."""
        self.now, self.health = self.now + 6.0, health
        asyncio.run(self.devices._update(NAME, UUID))


@pytest.fixture
def server() -> Server:
    return Server()


@pytest.fixture
def keeper(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Keeper:
    made = Keeper(server, tmp_path, monkeypatch)
    made.watch_shows(server.device)
    return made


def test_each_status_is_written_while_the_watch_shows_nothing(server: Server, keeper: Keeper) -> None:
    for health in ("Healthy", "Unhealthy", "Healthy", "Unhealthy"):
        keeper.look(health)
        assert server.status["health"] == health
    assert server.reads == 0


def test_a_device_that_others_have_changed_is_read_while_the_watch_shows_nothing(
    server: Server, keeper: Keeper
) -> None:
    keeper.look("Healthy")
    server.version += 1
    for _ in range(2):
        keeper.look("Unhealthy")
    assert server.status["health"] == "Unhealthy"
    for _ in range(5):
        keeper.look("Unhealthy")
    assert server.reads == 1


def test_a_device_that_others_have_changed_before_the_first_write_is_read(server: Server, keeper: Keeper) -> None:
    """Before, each write was a conflict until the watch was made again."""
    server.version += 1
    for _ in range(3):
        keeper.look("Unhealthy")
    assert (server.status.get("health"), server.reads) == ("Unhealthy", 1)


def test_a_cordon_holds_before_a_status_of_its_generation_is_written(server: Server, keeper: Keeper) -> None:
    server.version, server.spec = server.version + 1, {"cordon": True}
    for _ in range(4):
        keeper.look("Unhealthy")
        assert not server.status or keeper.devices.verdict(UUID).cordoned
        keeper.devices._received()  # as when the watch shows some other device
    assert (server.status["health"], keeper.devices.verdict(UUID).cordoned) == ("Unhealthy", True)


def test_what_the_watch_shows_later_counts_again(server: Server, keeper: Keeper) -> None:
    keeper.look("Healthy")
    late = server.device
    keeper.look("Unhealthy")
    assert server.status["health"] == "Unhealthy"
    keeper.watch_shows(late)
    keeper.look("Healthy")
    assert server.status["health"] == "Healthy"
    server.version += 1
    keeper.watch_shows(server.device)
    keeper.look("Unhealthy")
    assert (server.status["health"], server.reads) == ("Unhealthy", 0)


def test_a_device_that_is_deleted_after_a_write_is_made_again(server: Server, keeper: Keeper) -> None:
    keeper.look("Healthy")
    keeper.devices._watched._apply("DELETED", server.device)
    server.gone = True
    keeper.look("Healthy")
    assert (server.gone, server.status["health"]) == (False, "Healthy")
