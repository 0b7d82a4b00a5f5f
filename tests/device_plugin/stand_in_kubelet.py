"""A stand-in for the kubelet's device manager, over the real protocol: what 1.34's does, and in the order it does it.

It registers plugins, dials back, keeps one client a resource (the end of any stream of a resource disconnects whichever
client is the newest), hands out devices, keeps the checkpoint, and uses an answer of Allocate again when a container
restarts. It knows nothing of Orion. What a container would get it returns; `container.py` starts a process with it.
"""

import base64
import contextlib
import json
import random
import stat
import threading
from collections.abc import Iterator, Sequence
from concurrent import futures
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc

from orion.device_plugin.kubelet import api_pb2, api_pb2_grpc

SOCKET = "kubelet.sock"
CHECKPOINT = "kubelet_internal_checkpoint"
VERSION = "v1beta1"


class AdmissionFailed(Exception):
    """The pod is Failed for ever, with the reason UnexpectedAdmissionError."""


class StartFailed(Exception):
    """The container does not start now; a kubelet tries again."""


@dataclass
class Client:
    """One registration of a plugin, as `plugin/v1beta1/client.go` has it."""

    resource: str
    path: Path
    channel: grpc.Channel
    stub: Any
    options: Any = None
    stopped: bool = False
    call: Any = None


@dataclass
class Entry:
    """One line of the checkpoint: what a container got of a resource."""

    pod: str
    container: str
    resource: str
    devices: list[str]
    response: Any


@dataclass
class StandInKubelet:
    """The device manager of one kubelet process. `stop` is the process's end; the folder stays."""

    folder: Path
    refuses: str = ""
    """ A sentence that Register is refused with. """

    refuses_endpoints: tuple[str, ...] = ("",)
    """ How the sockets' names begin for which alone that is so. """

    deaf: bool = False
    """ It takes plugins in and does not listen to them. """

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
        """ Resources, in the order of their registration. """
        self.answers: list[tuple[str, int, int]] = []
        """ Of ListAndWatch: resource, healthy, all. """
        self._server: grpc.Server | None = None
        self._threads: list[threading.Thread] = []

    # -- Life ----------------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Delete every socket of the folder, read the checkpoint, listen."""
        self.clean()
        self._restore()
        self._server = grpc.server(futures.ThreadPoolExecutor(8), options=[("grpc.so_reuseport", 0)])
        api_pb2_grpc.add_RegistrationServicer_to_server(_Registration(self), self._server)  # type: ignore[no-untyped-call]
        self._server.add_insecure_port(f"unix:{self.folder / SOCKET}")
        self._server.start()

    def clean(self) -> None:
        """Delete every socket, as a kubelet does when it starts."""
        for path in self.folder.iterdir():
            if stat.S_ISSOCK(path.lstat().st_mode):
                path.unlink()

    def stop(self, leave_socket: bool = False) -> None:
        """End: streams break; `leave_socket`: as after SIGKILL, with the socket's file still there."""
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
        """End a kubelet whose socket another one has taken over."""
        taken = self.folder / SOCKET
        taken.rename(self.folder / "taken")
        self.stop()
        (self.folder / "taken").rename(taken)

    def restart(self) -> None:
        """What a kubelet's restart does."""
        self.stop()
        self.start()

    def __enter__(self) -> "StandInKubelet":
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    # -- Plugins -------------------------------------------------------------------------------------------------------

    def register(self, request: Any) -> None:
        """Take a plugin in: dial back, ask for its options, then listen to it in a thread."""
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
                    self._devices[client.resource] = {device.ID: device for device in answer.devices}
                    healthy = sum(device.health == "Healthy" for device in answer.devices)
                    self.answers.append((client.resource, healthy, len(answer.devices)))
                    self._write()
        # As server.go's runClient: whichever client of the resource is the newest is disconnected.
        with self._lock:
            newest = self._clients.pop(client.resource, None)
        if newest is not None:
            if newest.options is not None:  # one that is being dialled has no connection yet, and goes on
                newest.channel.close()
            self._disconnected(newest.resource)

    def _disconnected(self, resource: str) -> None:
        with self._lock:
            if (endpoint := self._endpoints.get(resource)) is not None:
                endpoint.stopped = True
                for device in self._devices.get(resource, {}).values():
                    device.health = "Unhealthy"

    def break_stream(self, resource: str) -> None:
        """End the stream of a resource's newest client."""
        self._clients[resource].call.cancel()

    def connected(self, resource: str) -> bool:
        """Whether the resource's endpoint is one that can be asked."""
        with self._lock:
            endpoint = self._endpoints.get(resource)
            return endpoint is not None and not endpoint.stopped

    def devices(self, resource: str) -> dict[str, Any]:
        """Return the devices by id, as listed last."""
        with self._lock:
            return dict(self._devices.get(resource, {}))

    def capacity(self, resource: str) -> int:
        """Return how many devices there are."""
        return len(self.devices(resource))

    def allocatable(self, resource: str) -> int:
        """Return how many of them could be allocated, were they free; 0 while the plugin is not connected."""
        if not self.connected(resource):
            return 0
        return sum(device.health == "Healthy" for device in self.devices(resource).values())

    def free(self, resource: str) -> list[str]:
        """Return the healthy devices that nobody has."""
        with self._lock:
            used = {device for entry in self.entries if entry.resource == resource for device in entry.devices}
            return [
                name
                for name, device in self._devices.get(resource, {}).items()
                if device.health == "Healthy" and name not in used
            ]

    # -- Pods ----------------------------------------------------------------------------------------------------------

    def admit(self, pod: str, container: str, **wanted: int) -> list[str]:
        """Allocate devices for a container of a pod: `hp=1`, `be=2`; return their ids.

        Raises:
            AdmissionFailed: the pod has failed.
        """
        given = []
        for name, number in wanted.items():
            given += self._allocate(pod, container, f"orion.gpu/{name}", number)
        return given

    def _allocate(self, pod: str, container: str, resource: str, number: int) -> list[str]:
        endpoint = self._endpoints.get(resource)
        if endpoint is None:
            raise AdmissionFailed(f"cannot allocate unregistered device {resource}")
        free = self.free(resource)
        if not [device for device in self.devices(resource).values() if device.health == "Healthy"]:
            raise AdmissionFailed(f"no healthy devices present; cannot allocate unhealthy devices {resource}")
        if len(free) < number:
            raise AdmissionFailed(f"requested number of devices unavailable for {resource}")
        devices = self.preferred(resource, free, number) if len(free) > number else list(free)
        self.order.shuffle(devices)  # a set of Go's: any order
        with self._admission(resource):
            request = api_pb2.AllocateRequest(container_requests=[{"devices_ids": devices}])
            answer = endpoint.stub.Allocate(request, timeout=60)
        assert len(answer.container_responses) == 1
        with self._lock:
            self.entries.append(Entry(pod, container, resource, devices, answer.container_responses[0]))
            self._write()
        return devices

    def preferred(self, resource: str, free: Sequence[str], number: int, must: Sequence[str] = ()) -> list[str]:
        """Return what the plugin prefers, and others where that is not enough."""
        request = api_pb2.PreferredAllocationRequest()
        shuffled = self.order.sample(list(free), len(free))
        request.container_requests.add(
            available_deviceIDs=shuffled, must_include_deviceIDs=must, allocation_size=number
        )
        with self._admission(resource):
            answer = self._endpoints[resource].stub.GetPreferredAllocation(request, timeout=60)
        hinted = [device for device in answer.container_responses[0].deviceIDs if device in free]
        others = [device for device in shuffled if device not in hinted]
        return [*hinted, *others][:number]

    def ask(self, resource: str, method: str, devices: Sequence[str]) -> str:
        """Call Allocate or PreStartContainer with any ids; return the sentence of the error, or nothing."""
        requests = {
            "Allocate": api_pb2.AllocateRequest(container_requests=[{"devices_ids": devices}]),
            "PreStartContainer": api_pb2.PreStartContainerRequest(devices_ids=devices),
        }
        try:
            getattr(self._endpoints[resource].stub, method)(requests[method], timeout=30)
        except grpc.RpcError as error:
            return str(error.details())
        return ""

    @contextlib.contextmanager
    def _admission(self, resource: str) -> Iterator[None]:
        try:
            yield
        except grpc.RpcError as error:
            raise AdmissionFailed(f"{resource}: {error.details()}") from None

    def start_container(self, pod: str, container: str) -> Any:
        """Prepare a start, the first or a later one; return the environment, mounts and so on of the container.

        Raises:
            StartFailed: the plugin does not let it start now.
        """
        with self._lock:
            mine = [entry for entry in self.entries if (entry.pod, entry.container) == (pod, container)]
        merged = api_pb2.ContainerAllocateResponse()
        for entry in mine:
            endpoint = self._endpoints.get(entry.resource)
            # After its own restart a kubelet has no options until the plugin registers, and calls nobody.
            if endpoint is not None and endpoint.options is not None and endpoint.options.pre_start_required:
                try:
                    endpoint.stub.PreStartContainer(
                        api_pb2.PreStartContainerRequest(devices_ids=entry.devices), timeout=30
                    )
                except (grpc.RpcError, ValueError) as error:
                    told = error.details() if isinstance(error, grpc.RpcError) else str(error)
                    raise StartFailed(told) from None
            merged.MergeFrom(entry.response)
        return merged

    def remove(self, pod: str) -> None:
        """Forget a pod that has ended."""
        with self._lock:
            self.entries = [entry for entry in self.entries if entry.pod != pod]
            self._write()

    # -- The checkpoint ------------------------------------------------------------------------------------------------

    def _write(self) -> None:
        entries = [
            {
                "PodUID": entry.pod,
                "ContainerName": entry.container,
                "ResourceName": entry.resource,
                "DeviceIDs": {"-1": entry.devices},
                "AllocResp": base64.b64encode(entry.response.SerializeToString()).decode(),
            }
            for entry in self.entries
        ]
        registered = {name: sorted(devices) for name, devices in self._devices.items()}
        data = {"PodDeviceEntries": entries or None, "RegisteredDevices": registered}
        fresh = self.folder / ".checkpoint"
        fresh.write_text(json.dumps({"Data": data, "Checksum": 1}))
        fresh.replace(self.folder / CHECKPOINT)

    def checkpoint(self) -> list[tuple[str, str, str, frozenset[str]]]:
        """Return the entries of the file: pod, container, resource, devices."""
        try:
            data = json.loads((self.folder / CHECKPOINT).read_text())["Data"]
        except FileNotFoundError:
            return []
        return [
            (each["PodUID"], each["ContainerName"], each["ResourceName"],
             frozenset(device for devices in each["DeviceIDs"].values() for device in devices))
            for each in data["PodDeviceEntries"] or []
        ]  # fmt: skip

    def _restore(self) -> None:
        with self._lock:
            self._devices.clear()
            self.entries.clear()
            path = self.folder / CHECKPOINT
            if not path.exists():
                return
            for each in json.loads(path.read_text())["Data"]["PodDeviceEntries"] or []:
                devices = [device for some in each["DeviceIDs"].values() for device in some]
                response = api_pb2.ContainerAllocateResponse.FromString(base64.b64decode(each["AllocResp"]))
                self.entries.append(
                    Entry(each["PodUID"], each["ContainerName"], each["ResourceName"], devices, response)
                )


class _Registration(api_pb2_grpc.RegistrationServicer):
    def __init__(self, kubelet: StandInKubelet) -> None:
        self._kubelet = kubelet

    def Register(self, request: Any, context: Any) -> Any:  # noqa: N802
        """Take a plugin in."""
        try:
            if self._kubelet.refuses and request.endpoint.startswith(self._kubelet.refuses_endpoints):
                raise ValueError(self._kubelet.refuses)
            self._kubelet.register(request)
        except ValueError as error:
            context.abort(grpc.StatusCode.UNKNOWN, str(error))
        return api_pb2.Empty()
