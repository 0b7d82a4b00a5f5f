"""Whether another device plugin offers our GPUs too: then two pods that each count on the GPU would meet on it.

The kubelet knows what every plugin offers, device by device (PodResources), and NVIDIA's plugin and those made after it
name devices by the GPU's UUID, some with a suffix for each replica. So it can be told which GPU it is about, within
seconds, and without the API server.

Refused: the node object's allocatable, which counts devices and names none, and is late by a heartbeat.
"""

import asyncio
import logging
import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from orion.crds.model import GROUP
from orion.node_agent.agent import Agent
from orion.node_agent.cluster.pod_resources import KubeletAway, PodResources
from orion.node_agent.gpus.interface import Gpu
from orion.node_agent.offering import FINE, Verdict

if TYPE_CHECKING:
    from orion.crds.node_configuration import NodeSettings

_log = logging.getLogger(__name__)

REASON = "OfferedByAnother"
_LOOK_SECONDS = 2.0
_NVIDIA = "nvidia.com/"
_INDEX = re.compile(r"(\d{1,3})(?:::\d+)?")
""" NVIDIA's plugin can name devices by their number, replicas after two colons. """


def offered_by(allocatable: Mapping[str, Iterable[str]], gpus: Iterable[Gpu]) -> dict[str, tuple[str, ...]]:
    """Return the resources of others, sorted, as which each GPU is offered; GPUs that only we offer are left out.

    Args:
        allocatable: ids of devices, by resource.
        gpus: ours.
    """
    found: dict[str, set[str]] = {}
    ours = list(gpus)
    for resource, ids in allocatable.items():
        if resource.startswith(f"{GROUP}/"):
            continue
        for identity in ids:
            for gpu in ours:
                if _is_about(resource, identity, gpu):
                    found.setdefault(gpu.uuid, set()).add(resource)
    return {uuid: tuple(sorted(resources)) for uuid, resources in found.items()}


def _is_about(resource: str, identity: str, gpu: Gpu) -> bool:
    if gpu.uuid.lower() in identity.lower():
        return True
    number = _INDEX.fullmatch(identity) if resource.startswith(_NVIDIA) else None
    return number is not None and int(number[1]) == gpu.index


class Coexistence:
    """A judge of what is offered: GPUs that others offer too are unhealthy, unless the configuration says `coexist`.

    Args:
        agent: whose GPUs.
        kubelet: knows what every plugin offers.
    """

    def __init__(self, agent: Agent, kubelet: PodResources) -> None:
        self._agent, self._kubelet = agent, kubelet
        self._others: dict[str, tuple[str, ...]] = {}
        self._away = ""

    def others(self, uuid: str) -> tuple[str, ...]:
        """Return the resources of others as which a GPU is offered."""
        return self._others.get(uuid, ())

    def verdict(self, uuid: str) -> Verdict:
        """Return whether it stands against the GPU."""
        others = self.others(uuid)
        settings: NodeSettings | None = self._agent.offering.settings
        if not others or (settings is not None and settings.coexist):
            return FINE
        message = (
            f"another device plugin offers this GPU as {', '.join(others)}, so pods that know nothing of each other "
            "could meet on it: take the GPU from one of the two, or set `coexist: true` in Orion's node configuration"
        )
        return Verdict(healthy=False, reason=REASON, message=message)

    async def run(self) -> None:
        """Ask again and again until cancelled; while the kubelet is away, its last word stands."""
        while True:
            try:
                self._take(await self._kubelet.allocatable())
                self._away = ""
            except KubeletAway as error:
                if str(error) != self._away:
                    self._away = str(error)
                    _log.warning("the kubelet does not say what other plugins offer: %s", error)
            await asyncio.sleep(_LOOK_SECONDS)

    def _take(self, allocatable: Mapping[str, Iterable[str]]) -> None:
        found = offered_by(allocatable, [served.board.gpu for served in self._agent.gpus.values()])
        if found == self._others:
            return
        for uuid in found.keys() | self._others.keys():
            if found.get(uuid) != self._others.get(uuid):
                _log.warning("gpu: %s is offered by other plugins as: %s", uuid, ", ".join(found.get(uuid, ())) or "-")
        self._others = found
        self._agent.offering.changed()
