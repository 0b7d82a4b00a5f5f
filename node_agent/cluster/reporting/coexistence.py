"""Whether another device plugin offers our GPUs too: then two pods that each count on the GPU would meet on it.

The kubelet knows what every plugin offers, device by device (PodResources), and NVIDIA's plugin and those made after it
name devices by the GPU's UUID, some with a suffix for each replica. So the agent knows within
seconds which GPU a device is on, without the API server.

It lists healthy devices only, and a plugin that is being replaced has none for a while: so a claim stands for some time
after it was seen last, and for as long as a container has one of those devices.

Rejected: the node object's allocatable, which counts devices and names none, and is late by a heartbeat.
"""

import asyncio
import logging
import re
import time
from collections.abc import Iterable, Mapping
from typing import Protocol

from orion.crds.model import GROUP
from orion.node_agent.advertising.advertising import FINE, Advertising, Verdict
from orion.node_agent.cluster.pod_resources import KubeletAway, PodResources, devices
from orion.node_agent.gpus.interface import Gpu
from orion.node_agent.settings import AgentSettings
from orion.node_agent.sharing.served import ServedGpu

_log = logging.getLogger(__name__)

REASON = "AdvertisedByAnother"
_LOOK_SECONDS = 2.0
_NVIDIA = "nvidia.com/"
_INDEX = re.compile(r"(\d{1,3})(?:::\d+)?")
""" NVIDIA's plugin can name devices by their number, replicas after two colons. """


Claim = tuple[str, str]
""" A GPU's UUID, and the resource of another plugin that it is offered as. """


def claims_of_others(devices: Mapping[str, Iterable[str]], gpus: Iterable[Gpu]) -> set[Claim]:
    """Return as which resources of others our GPUs are offered.

    Args:
        devices: their ids, by resource.
        gpus: ours.
    """
    ours = list(gpus)
    return {
        (gpu.uuid, resource)
        for resource, ids in devices.items()
        if not resource.startswith(f"{GROUP}/")
        for identity in ids
        for gpu in ours
        if _is_about(resource, identity, gpu)
    }


def _is_about(resource: str, identity: str, gpu: Gpu) -> bool:
    if gpu.uuid.lower() in identity.lower():
        return True
    number = _INDEX.fullmatch(identity) if resource.startswith(_NVIDIA) else None
    return number is not None and int(number[1]) == gpu.index


class AdvertisesGpus(Protocol):
    """What is needed of an agent here."""

    @property
    def gpus(self) -> Mapping[str, ServedGpu]:
        """Those that are served."""

    @property
    def settings(self) -> AgentSettings:
        """How it was started."""

    @property
    def advertising(self) -> Advertising:
        """Has the node's configuration, and hears of changes."""


class Coexistence:
    """A judge of what is offered: GPUs that others offer too are unhealthy, unless the configuration says `coexist`.

    Args:
        agent: whose GPUs.
        kubelet: knows what every plugin offers, and what containers have.
    """

    def __init__(self, agent: AdvertisesGpus, kubelet: PodResources) -> None:
        self._agent, self._kubelet = agent, kubelet
        self._seen: dict[Claim, float] = {}
        """ When each claim was seen last (seconds, monotonic). """
        self._others: dict[str, tuple[str, ...]] = {}
        self._away = ""
        self._answered = 0.0
        """ When the kubelet answered last (seconds, monotonic). """

    def others(self, uuid: str) -> tuple[str, ...]:
        """Return the resources of others as which a GPU is offered."""
        return self._others.get(uuid, ())

    def verdict(self, uuid: str) -> Verdict:
        """Return whether it stands against the GPU."""
        others = self.others(uuid)
        settings = self._agent.advertising.settings
        if not others or (settings is not None and settings.coexist):
            return FINE
        message = (
            f"another device plugin advertises this GPU as {', '.join(others)}, so pods that "
            "do not know of each other could use it together: take the GPU from one of the two plugins, "
            "or set `coexist: true` in Orion's node configuration"
        )
        return Verdict(healthy=False, reason=REASON, message=message)

    async def run(self) -> None:
        """Ask again and again until cancelled; while the kubelet does not answer, its last answer counts."""
        while True:
            try:
                advertised, pods = await asyncio.gather(self._kubelet.allocatable(), self._kubelet.pods())
                self._take(advertised, devices(pods))
                self._away = ""
            except KubeletAway as error:
                if str(error) != self._away:
                    self._away = str(error)
                    _log.warning("the kubelet does not say what other plugins advertise: %s", error)
            await asyncio.sleep(_LOOK_SECONDS)

    def _take(
        self, advertised: Mapping[str, Iterable[str]], held: Mapping[str, Iterable[str]], now: float | None = None
    ) -> None:
        """Take in which devices are offered and which containers have; `now` in seconds, for tests."""
        now = time.monotonic() if now is None else now
        if self._away:  # claims do not age by a silence: a kubelet that is just back may not know its plugins yet
            self._seen = {claim: seen + now - self._answered for claim, seen in self._seen.items()}
        self._answered = now
        gpus = [served.shared_gpu.gpu for served in self._agent.gpus.values()]
        self._seen |= dict.fromkeys(claims_of_others(advertised, gpus) | claims_of_others(held, gpus), now)
        stands = self._agent.settings.claim_seconds
        self._seen = {claim: seen for claim, seen in self._seen.items() if now - seen <= stands}
        found: dict[str, tuple[str, ...]] = {}
        for uuid, resource in sorted(self._seen):
            found[uuid] = (*found.get(uuid, ()), resource)
        if found == self._others:
            return
        for uuid in found.keys() | self._others.keys():
            if found.get(uuid) != self._others.get(uuid):
                _log.warning(
                    "gpu: %s is advertised by other plugins as: %s", uuid, ", ".join(found.get(uuid, ())) or "-"
                )
        self._others = found
        self._agent.advertising.changed()
