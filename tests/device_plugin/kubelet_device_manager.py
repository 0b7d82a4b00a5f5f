"""The part of the stand-in kubelet that handles plugins: their registration, their streams, and their devices."""

import contextlib
import random
import stat
import threading
from concurrent import futures
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import grpc

from orion.device_plugin.kubelet import api_pb2, api_pb2_grpc
from tests.device_plugin import kubelet_checkpoint
from tests.device_plugin.kubelet_checkpoint import Entry

SOCKET = "kubelet.sock"
VERSION = "v1beta1"


@dataclass
class Client:
    """One registration of a plugin, as in `plugin/v1beta1/client.go`."""

    resource: str
    path: Path
    channel: grpc.Channel
    stub: Any
    options: Any = None
    stopped: bool = False
    listed: bool = False
    call: Any = None


@dataclass
class DeviceManager:
    """The device manager of one kubelet process. `stop` ends the process; the folder stays."""

    folder: Path
    refuses: str = ""
    """ If not empty, Register fails with this sentence. """

    refuses_endpoints: tuple[str, ...] = ("",)
    """ Register fails only for endpoints whose names start with one of these texts. """

    deaf: bool = False
    """ It accepts registrations but does not call ListAndWatch. """

    order: random.Random = field(default_factory=lambda: random.Random(4))

    def __post_init__(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        self._lock = threading.RLock()
        self._clients: dict[str, Client] = {}
        self._endpoints: dict[str, Client] = {}
        self._connections: list[Client] = []
        self._devices: dict[str, dict[str, Any]] = {}
        self.entries: list[Entry] = []
        self.registrations: list[str] = []
        """ Resources in the order of their registrations. """
        self.answers: list[tuple[str, int, int]] = []
        """ ListAndWatch answers: resource, number of healthy devices, number of all devices. """
        self._server: grpc.Server | None = None
        self._threads: list[threading.Thread] = []

    # -- Life ----------------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Delete every socket in the folder, read the checkpoint, listen."""
        self.clean()
        self._restore()
        self._server = grpc.server(futures.ThreadPoolExecutor(8), options=[("grpc.so_reuseport", 0)])
        api_pb2_grpc.add_RegistrationServicer_to_server(_Registration(self), self._server)  # type: ignore[no-untyped-call]
        self._server.add_insecure_port(f"unix:{self.folder / SOCKET}")
        self._server.start()

    def clean(self) -> None:
        """Delete every socket, as a starting kubelet does; plugins may delete theirs at the same time."""
        for path in self.folder.iterdir():
            with contextlib.suppress(FileNotFoundError):
                if stat.S_ISSOCK(path.lstat().st_mode):
                    path.unlink()

    def stop(self, leave_socket: bool = False) -> None:
        """End the process, which breaks all streams; with `leave_socket` the socket's file stays, as after SIGKILL."""
        if self._server is None:
            return
        kept = self.folder / "kept"
        if leave_socket and (self.folder / SOCKET).exists():
            (self.folder / SOCKET).rename(kept)
        self._server.stop(None).wait()
        self._server = None
        with contextlib.suppress(FileNotFoundError):
            (self.folder / SOCKET).unlink()
        if kept.exists():
            kept.rename(self.folder / SOCKET)
        with self._lock:
            clients = [*self._connections]
            self._connections.clear()
            self._clients.clear()
            self._endpoints.clear()
        for client in clients:
            client.channel.close()
        for thread in self._threads:
            thread.join(10)
        self._threads.clear()

    def abandon(self) -> None:
        """End a kubelet whose socket another kubelet has replaced."""
        taken = self.folder / SOCKET
        taken.rename(self.folder / "taken")
        self.stop()
        (self.folder / "taken").rename(taken)

    def restart(self) -> None:
        """Stop and start, as a kubelet's restart does."""
        self.stop()
        self.start()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    # -- Plugins -------------------------------------------------------------------------------------------------------

    def register(self, request: Any) -> None:
        """Register a plugin: connect to it, ask for its options, then read its stream in a thread."""
        if request.version != VERSION:
            raise ValueError(
                f'requested API version "{request.version}" is not supported by kubelet. '
                f'Supported version is ["{VERSION}"]'
            )
        path = self.folder / request.endpoint
        channel = grpc.insecure_channel(f"unix:{path}", options=[("grpc.use_local_subchannel_pool", 1)])
        client = Client(request.resource_name, path, channel, api_pb2_grpc.DevicePluginStub(channel))  # type: ignore[no-untyped-call]
        with self._lock:
            self._clients[client.resource] = client
            self._connections.append(client)
        try:
            grpc.channel_ready_future(channel).result(10)
            client.options = client.stub.GetDevicePluginOptions(api_pb2.Empty(), timeout=10)
        except (grpc.RpcError, grpc.FutureTimeoutError) as error:
            with self._lock:
                self._clients.pop(client.resource, None)
            raise ValueError(f"failed to dial device plugin: {error}") from None
        with self._lock:
            self._endpoints[client.resource] = client
            self.registrations.append(client.resource)
        if self.deaf:
            return
        thread = threading.Thread(target=self._listen, args=(client,), daemon=True)
        self._threads.append(thread)
        thread.start()

    def _listen(self, client: Client) -> None:
        with contextlib.suppress(grpc.RpcError, ValueError):
            client.call = client.stub.ListAndWatch(api_pb2.Empty())
            for answer in client.call:
                with self._lock:
                    client.listed = True
                    self._devices[client.resource] = {device.ID: device for device in answer.devices}
                    healthy = sum(device.health == "Healthy" for device in answer.devices)
                    self.answers.append((client.resource, healthy, len(answer.devices)))
                    self._write()
        # Like runClient in server.go, this disconnects the newest client of the resource, even if it is another one.
        with self._lock:
            newest = self._clients.pop(client.resource, None)
        if newest is not None:
            if newest.options is not None:  # a client that is still connecting has no channel, and keeps connecting
                newest.channel.close()
            self._disconnected(newest.resource)

    def _disconnected(self, resource: str) -> None:
        with self._lock:
            if (endpoint := self._endpoints.get(resource)) is not None:
                endpoint.stopped = True
                for device in self._devices.get(resource, {}).values():
                    device.health = "Unhealthy"

    def break_stream(self, resource: str) -> bool:
        """End the stream of a resource's newest client; return whether it had one."""
        with self._lock:
            client = self._clients.get(resource)
        if client is None or client.call is None:
            return False
        client.call.cancel()
        return True

    def connected(self, resource: str) -> bool:
        """Return whether the resource's endpoint can be called."""
        with self._lock:
            endpoint = self._endpoints.get(resource)
            return endpoint is not None and not endpoint.stopped

    def plugins(self) -> dict[str, str]:
        """Return the token of the plugin that registered last, by resource."""
        with self._lock:
            return {resource: endpoint.path.name.split("-")[2] for resource, endpoint in self._endpoints.items()}

    def listed(self, resource: str) -> bool:
        """Return whether the endpoint is connected and has sent a list; before that the list is an older endpoint's."""
        with self._lock:
            return self.connected(resource) and self._endpoints[resource].listed

    def devices(self, resource: str) -> dict[str, Any]:
        """Return the devices of the last list by ID."""
        with self._lock:
            return dict(self._devices.get(resource, {}))

    def capacity(self, resource: str) -> int:
        """Return how many devices there are."""
        return len(self.devices(resource))

    def allocatable(self, resource: str) -> int:
        """Return how many devices could be allocated if all were free; 0 while the plugin is not connected."""
        if not self.connected(resource):
            return 0
        return sum(device.health == "Healthy" for device in self.devices(resource).values())

    def free(self, resource: str) -> list[str]:
        """Return the healthy devices that no container holds."""
        with self._lock:
            used = {device for entry in self.entries if entry.resource == resource for device in entry.devices}
            return [
                name
                for name, device in self._devices.get(resource, {}).items()
                if device.health == "Healthy" and name not in used
            ]

    # -- The checkpoint ------------------------------------------------------------------------------------------------

    def _write(self) -> None:
        kubelet_checkpoint.write(self.folder, self.entries, self._devices)

    def _restore(self) -> None:
        with self._lock:
            self._devices.clear()
            self.entries = kubelet_checkpoint.read(self.folder)

    def checkpoint(self) -> list[tuple[str, str, str, frozenset[str]]]:
        """Return the entries in the file: pod, container, resource, devices."""
        entries = kubelet_checkpoint.read(self.folder)
        return [(each.pod, each.container, each.resource, frozenset(each.devices)) for each in entries]


class _Registration(api_pb2_grpc.RegistrationServicer):
    def __init__(self, kubelet: DeviceManager) -> None:
        self._kubelet = kubelet

    def Register(self, request: Any, context: Any) -> Any:  # noqa: N802
        """Register a plugin, or abort with the reason."""
        try:
            if self._kubelet.refuses and request.endpoint.startswith(self._kubelet.refuses_endpoints):
                raise ValueError(self._kubelet.refuses)
            self._kubelet.register(request)
        except ValueError as error:
            context.abort(grpc.StatusCode.UNKNOWN, str(error))
        return api_pb2.Empty()
