"""Asks the kubelet which container has which device, by its PodResources interface.

It can only be asked, not watched, and it bounds how often (100 times a second): so whoever wants to know waits for the
next answer, and one answer serves all who asked before its question was sent. It names pods, and gives no uid.
"""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import grpc.aio

from orion.crds.annotations import RESOURCES
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
""" A GPU's UUID, and a slot's name. """


class KubeletAway(Exception):
    """The kubelet did not answer; the text says why."""


@dataclass(frozen=True)
class ListedHolder:
    """A container that the kubelet says has a slot."""

    slot: SlotKey
    namespace: str
    pod: str
    container: str


class PodResources:
    """The kubelet of this node.

    Args:
        socket: its socket; it may come later, and be replaced.
    """

    def __init__(self, socket: Path) -> None:
        self._channel = grpc.aio.insecure_channel(f"unix:{socket.absolute()}", options=_OPTIONS)
        self._stub = api_pb2_grpc.PodResourcesListerStub(self._channel)  # type: ignore[no-untyped-call]

    async def pods(self) -> list[api_pb2.PodResources]:
        """Return the pods that have devices, with all that each of their containers has.

        Raises:
            KubeletAway: it did not answer.
        """
        answer = await self._ask(self._stub.List, api_pb2.ListPodResourcesRequest())
        return list(answer.pod_resources)

    async def allocatable(self) -> dict[str, list[str]]:
        """Return the ids of all devices that plugins offer on this node, by resource.

        Raises:
            KubeletAway: it did not answer.
        """
        answer = await self._ask(self._stub.GetAllocatableResources, api_pb2.AllocatableResourcesRequest())
        found: dict[str, list[str]] = {}
        for each in answer.devices:
            found.setdefault(each.resource_name, []).extend(each.device_ids)
        return found

    async def close(self) -> None:
        """Ask no more."""
        await self._channel.close(grace=None)

    async def _ask(self, method: Any, request: object) -> Any:
        try:
            return await method(request, timeout=_ANSWER_SECONDS)
        except grpc.aio.AioRpcError as error:
            raise KubeletAway(f"{error.code().name}: {error.details()}") from None


def listed_holders(pods: list[api_pb2.PodResources]) -> list[ListedHolder]:
    """Return who has which of our slots; ids that can be none of ours are left out."""
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


def devices(pods: list[api_pb2.PodResources]) -> dict[str, list[str]]:
    """Return the ids of the devices that containers have, by resource, whichever plugin's they are."""
    found: dict[str, list[str]] = {}
    for each in (devices for pod in pods for container in pod.containers for devices in container.devices):
        found.setdefault(each.resource_name, []).extend(each.device_ids)
    return found


def role_of(name: str) -> layout.Role:
    """Return the role of a slot, by its name as it is offered."""
    return layout.Role.HP if name.startswith("hp-") else layout.Role.BE
