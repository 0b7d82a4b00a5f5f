"""Queries the kubelet's PodResources interface: which container has which device.

The interface has no watch, and the kubelet limits the rate of queries (100 a second). So callers wait for the next
answer, and one answer serves all callers that asked before its query was sent. The answer names pods without their
uids.
"""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import grpc.aio

from orion.crds.annotations import RESOURCES
from orion.crds.claims import DRIVER
from orion.errors import Unavailable
from orion.hook import layout
from orion.node_agent.kubelet import api_pb2, api_pb2_grpc

_ANSWER_SECONDS = 5.0
_OPTIONS = [
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1_000),
    ("grpc.max_receive_message_length", 64 << 20),
    ("grpc.default_authority", "localhost"),
]
_DEVICE = re.compile(r"(GPU-[0-9a-fA-F-]{1,43})::((hp|be)-[0-9]{1,3})")

SlotKey = tuple[str, str]
""" A GPU's UUID and a slot's name. """


@dataclass(frozen=True)
class ListedHolder:
    """A container that has a slot, according to the kubelet."""

    slot: SlotKey
    namespace: str
    pod: str
    container: str


@dataclass(frozen=True)
class ClaimUser:
    """A container that uses a ResourceClaim with GPUs of Orion, according to the kubelet."""

    namespace: str
    pod: str
    container: str
    claim: str
    """ The claim's name, in the pod's namespace. """


class PodResources:
    """The kubelet of this node.

    Args:
        socket: the kubelet's socket. It may appear later, and may be replaced.
    """

    def __init__(self, socket: Path) -> None:
        self._channel = grpc.aio.insecure_channel(f"unix:{socket.absolute()}", options=_OPTIONS)
        self._stub = api_pb2_grpc.PodResourcesListerStub(self._channel)  # type: ignore[no-untyped-call]

    async def pods(self) -> list[api_pb2.PodResources]:
        """Return the pods that have devices, with all devices of each of their containers.

        Raises:
            Unavailable: the kubelet did not answer.
        """
        answer = await self._ask(self._stub.List, api_pb2.ListPodResourcesRequest())
        return list(answer.pod_resources)

    async def allocatable(self) -> dict[str, list[str]]:
        """Return the ids of all devices that plugins advertise on this node, by resource.

        Raises:
            Unavailable: the kubelet did not answer.
        """
        answer = await self._ask(self._stub.GetAllocatableResources, api_pb2.AllocatableResourcesRequest())
        found: dict[str, list[str]] = {}
        for each in answer.devices:
            found.setdefault(each.resource_name, []).extend(each.device_ids)
        return found

    async def close(self) -> None:
        """Close the connection."""
        await self._channel.close(grace=None)

    async def _ask(self, method: Any, request: object) -> Any:
        try:
            return await method(request, timeout=_ANSWER_SECONDS)
        except grpc.aio.AioRpcError as error:
            raise Unavailable(f"{error.code().name}: {error.details()}") from None


def listed_holders(pods: list[api_pb2.PodResources]) -> list[ListedHolder]:
    """Return which container has which slot of Orion; skips device ids that are not in Orion's format."""
    resources = set(RESOURCES.values())
    return [
        ListedHolder((match[1], match[2]), pod.namespace, pod.name, container.name)
        for pod in pods
        for container in pod.containers
        for devices in container.devices
        if devices.resource_name in resources
        for identity in devices.device_ids
        if (match := _DEVICE.fullmatch(identity)) is not None
    ]


def claim_users(pods: list[api_pb2.PodResources]) -> list[ClaimUser]:
    """Return which container uses which claim; skips claims without a GPU of Orion."""
    return [
        ClaimUser(pod.namespace, pod.name, container.name, claim.claim_name)
        for pod in pods
        for container in pod.containers
        for claim in container.dynamic_resources
        if claim.claim_namespace == pod.namespace
        and any(given.driver_name == DRIVER for given in claim.claim_resources)
    ]


def devices(pods: list[api_pb2.PodResources]) -> dict[str, list[str]]:
    """Return the devices that containers have: ids by the resource of a device plugin, names by the DRA driver."""
    found: dict[str, list[str]] = {}
    for container in (container for pod in pods for container in pod.containers):
        for each in container.devices:
            found.setdefault(each.resource_name, []).extend(each.device_ids)
        for given in (given for claim in container.dynamic_resources for given in claim.claim_resources):
            names = [given.device_name, *(device.name for device in given.cdi_devices)]
            found.setdefault(given.driver_name, []).extend(names)
    return found


def role_of(name: str) -> layout.Role:
    """Return the role of a slot, from its advertised name."""
    return layout.Role.HP if name.startswith("hp-") else layout.Role.BE
