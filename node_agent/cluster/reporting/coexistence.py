"""Detects GPUs that another device plugin advertises or a DRA driver gave out: two pods could use them unawares.

The kubelet knows which devices every plugin advertises (PodResources). NVIDIA's plugin, and those derived from it, name
a device by the GPU's UUID, sometimes with a suffix for each replica. So the agent knows within seconds which GPU a
device is on, without the API server.

The kubelet does not know what a DRA driver offers, only what it gave to pods. NVIDIA's driver names a GPU by the number
of its device file (`gpu-5`, a part of it `gpu-5-mig-9-0-1`). Rejected: to read which GPUs its ResourceSlices offer,
because that needs a right on the slices of all nodes.

The kubelet lists healthy devices only, and a plugin that is being replaced has no devices for a while. So the agent
counts a GPU as advertised by another plugin for some time after it last saw a device of this GPU, and as long as a
container has such a device.

The agent does not use the node object's `allocatable`, which counts devices without their names, and is late by one
heartbeat of the kubelet.
"""

import asyncio
import logging
import re
import time
from collections.abc import Iterable, Mapping

from orion.crds.model import GROUP
from orion.errors import Unavailable
from orion.node_agent.advertising.advertising import FINE, AdvertisesGpus, Verdict
from orion.node_agent.cluster.pod_resources import PodResources, devices
from orion.node_agent.gpus.interface import Gpu

_log = logging.getLogger(__name__)

REASON = "AdvertisedByAnother"
_LOOK_SECONDS = 2.0
_NVIDIA = "nvidia.com/"
_INDEX = re.compile(r"(\d{1,3})(?:::\d+)?")
""" NVIDIA's plugin can name a device by its index. For replicas, it adds two colons and a number. """
_NVIDIA_DRA = "gpu.nvidia.com"
_MINOR = re.compile(r"gpu-(\d{1,3})(?:-mig-.+)?")
""" NVIDIA's DRA driver names a GPU by the number in /dev/nvidia<minor>, and adds the part of a GPU with MIG. """


Claim = tuple[str, str]
""" A GPU's UUID, and the other plugin's resource, or the DRA driver, that has it. """


def claims_of_others(devices: Mapping[str, Iterable[str]], gpus: Iterable[Gpu]) -> set[Claim]:
    """Return the resources of other plugins, and the DRA drivers, that have our GPUs.

    Args:
        devices: device ids by resource, device names by DRA driver.
        gpus: our GPUs.
    """
    ours = list(gpus)
    return {
        (gpu.uuid, resource)
        for resource, ids in devices.items()
        if resource != GROUP and not resource.startswith(f"{GROUP}/")
        for identity in ids
        for gpu in ours
        if _is_about(resource, identity, gpu)
    }


def _is_about(resource: str, identity: str, gpu: Gpu) -> bool:
    if gpu.uuid.lower() in identity.lower():
        return True
    if resource == _NVIDIA_DRA:
        number = _MINOR.fullmatch(identity)
        return number is not None and int(number[1]) == gpu.minor
    number = _INDEX.fullmatch(identity) if resource.startswith(_NVIDIA) else None
    return number is not None and int(number[1]) == gpu.index


class Coexistence:
    """A judge: its verdict closes a GPU that another plugin advertises to new pods, except with `coexist`.

    Args:
        agent: the agent whose GPUs are checked.
        kubelet: knows what every plugin advertises, and which devices containers have.
    """

    def __init__(self, agent: AdvertisesGpus, kubelet: PodResources) -> None:
        self._agent, self._kubelet = agent, kubelet
        self._seen: dict[Claim, float] = {}
        """ When the kubelet last listed each claim, a GPU that another resource contains (in seconds, monotonic). """
        self._others: dict[str, tuple[str, ...]] = {}
        self._away = ""
        self._answered = 0.0
        """ When the kubelet last answered (in seconds, monotonic). """

    def others(self, uuid: str) -> tuple[str, ...]:
        """Return the other plugins' resources and the DRA drivers that have a GPU."""
        return self._others.get(uuid, ())

    def verdict(self, uuid: str) -> Verdict:
        """Return whether the GPU is unhealthy because another plugin advertises it or a DRA driver gave it out."""
        others = self.others(uuid)
        settings = self._agent.advertising.settings
        if not others or (settings is not None and settings.coexist):
            return FINE
        message = (
            f"another device plugin or DRA driver gives this GPU to pods, as {', '.join(others)}, so pods that "
            "do not know of each other could use it together: take the GPU from one of the two, "
            "or set `coexist: true` in Orion's node configuration"
        )
        return Verdict(healthy=False, reason=REASON, message=message)

    async def run(self) -> None:
        """Query the kubelet at intervals until cancelled. While it does not answer, its last answer stays valid."""
        while True:
            try:
                advertised, pods = await asyncio.gather(self._kubelet.allocatable(), self._kubelet.pods())
                self._take(advertised, devices(pods))
                self._away = ""
            except Unavailable as error:
                if str(error) != self._away:
                    self._away = str(error)
                    _log.warning("the kubelet does not answer which devices others advertise or gave out: %s", error)
            await asyncio.sleep(_LOOK_SECONDS)

    def _take(
        self, advertised: Mapping[str, Iterable[str]], held: Mapping[str, Iterable[str]], now: float | None = None
    ) -> None:
        """Process the devices that plugins advertise and those that containers have. `now`: in seconds, for tests."""
        now = time.monotonic() if now is None else now
        if self._away:  # the kubelet was away, so its plugins may not have registered again yet: keep all claims
            self._seen = {claim: seen + now - self._answered for claim, seen in self._seen.items()}
        self._answered = now
        gpus = [served.shared_gpu.gpu for served in self._agent.gpus.values()]
        self._seen |= dict.fromkeys(claims_of_others(advertised, gpus) | claims_of_others(held, gpus), now)
        valid_seconds = self._agent.settings.claim_seconds
        self._seen = {claim: seen for claim, seen in self._seen.items() if now - seen <= valid_seconds}
        found: dict[str, tuple[str, ...]] = {}
        for uuid, resource in sorted(self._seen):
            found[uuid] = (*found.get(uuid, ()), resource)
        if found == self._others:
            return
        for uuid in found.keys() | self._others.keys():
            if found.get(uuid) != self._others.get(uuid):
                _log.warning(
                    "gpu: %s is advertised or given out by others as: %s", uuid, ", ".join(found.get(uuid, ())) or "-"
                )
        self._others = found
        self._agent.advertising.changed()
