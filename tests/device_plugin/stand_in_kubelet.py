"""A stand-in for the kubelet's device manager, over the real protocol: it does what 1.34 does, in the same order.

The stand-in registers plugins and connects to them. It keeps one client for each resource: the end of any stream of a
resource disconnects the newest client. It allocates devices, writes the checkpoint, and reuses an Allocate answer when
a container restarts. It contains no code for Orion. It returns the mounts and the environment of a container;
`container.py` starts a process with them.
"""

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

import grpc

from orion.device_plugin.kubelet import api_pb2
from tests.device_plugin.kubelet_checkpoint import Entry
from tests.device_plugin.kubelet_device_manager import DeviceManager


class AdmissionFailed(Exception):
    """The pod fails permanently, with the reason UnexpectedAdmissionError."""


class StartFailed(Exception):
    """The container does not start now; a kubelet retries."""


class StandInKubelet(DeviceManager):
    """A kubelet with pods: their admission, and the starts of their containers."""

    def admit(self, pod: str, container: str, **wanted: int) -> list[str]:
        """Allocate devices for a container of a pod: `hp=1`, `be=2`; return their IDs.

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
        self.order.shuffle(devices)  # the kubelet uses a Go set, whose order is random
        with self._admission(resource):
            request = api_pb2.AllocateRequest(container_requests=[{"devices_ids": devices}])
            answer = endpoint.stub.Allocate(request, timeout=60)
        assert len(answer.container_responses) == 1
        with self._lock:
            self.entries.append(Entry(pod, container, resource, devices, answer.container_responses[0]))
            self._write()
        return devices

    def preferred(self, resource: str, free: Sequence[str], number: int, must: Sequence[str] = ()) -> list[str]:
        """Return the devices that the plugin prefers, and others if those are too few."""
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
        """Call Allocate or PreStartContainer with any IDs; return the text of the error, or an empty text."""
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
        except (grpc.RpcError, ValueError) as error:  # a closed channel raises ValueError
            raise AdmissionFailed(f"{resource}: {_reported(error)}") from None

    def start_container(self, pod: str, container: str) -> Any:
        """Prepare a start, the first or a later one; return the container's environment, mounts and so on.

        Raises:
            StartFailed: the plugin rejects the start for now.
        """
        with self._lock:
            mine = [entry for entry in self.entries if (entry.pod, entry.container) == (pod, container)]
        merged = api_pb2.ContainerAllocateResponse()
        for entry in mine:
            endpoint = self._endpoints.get(entry.resource)
            # After its own restart a kubelet has no options until the plugin registers, and does not call it.
            if endpoint is not None and endpoint.options is not None and endpoint.options.pre_start_required:
                try:
                    endpoint.stub.PreStartContainer(
                        api_pb2.PreStartContainerRequest(devices_ids=entry.devices), timeout=30
                    )
                except (grpc.RpcError, ValueError) as error:
                    raise StartFailed(_reported(error)) from None
            merged.MergeFrom(entry.response)
        return merged

    def remove(self, pod: str) -> None:
        """Remove a pod that has ended."""
        with self._lock:
            self.entries = [entry for entry in self.entries if entry.pod != pod]
            self._write()


def _reported(error: Exception) -> str:
    return str(error.details()) if isinstance(error, grpc.RpcError) else str(error)
