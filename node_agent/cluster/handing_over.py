"""Finds out what `Ownership` decides by: the node's label, and who holds slots.

The operator sends the label with the node's pods. While there is something to decide, each look asks the kubelet: it
knows a pod as soon as it has admitted it, minutes before its container starts if an image has to come first. At all
other times nothing is asked.
"""

import time
from collections.abc import Iterable

from orion.crds.allocation import Giver
from orion.crds.claims import DRIVER
from orion.errors import Unavailable
from orion.node_agent.advertising.ownership import Holding, Ownership
from orion.node_agent.agent import Agent
from orion.node_agent.cluster.holders.holders import ClusterHolders
from orion.node_agent.cluster.holders.pods import PodName
from orion.node_agent.cluster.pod_resources import PodResources, listed_holders
from orion.node_agent.kubelet import api_pb2
from orion.node_agent.pacing.tolerating import periodically

_LOOK_SECONDS = 0.5


class HandingOver:
    """Lets a node change hands.

    Args:
        agent: the agent that serves the slots.
        holders: who holds them.
        resources: the kubelet.
        ownership: decides.
    """

    def __init__(self, agent: Agent, holders: ClusterHolders, resources: PodResources, ownership: Ownership) -> None:
        self._agent, self._holders, self._resources, self._ownership = agent, holders, resources, ownership

    async def run(self) -> None:
        """Look again and again until cancelled."""
        await periodically("allocation: a check", _LOOK_SECONDS, self.look)

    async def look(self) -> None:
        """Decide again, and tell those who give slots of a change."""
        ownership = self._ownership
        before = (ownership.giver, ownership.waits_for, ownership.is_settled)
        ownership.want(self._holders.pods.allocation, time.monotonic())
        if not ownership.is_settled:
            listed = await self._listed()
            ownership.look(self._holding(listed), time.monotonic())
        if (ownership.giver, ownership.waits_for, ownership.is_settled) != before:
            self._agent.advertising.changed()
            self._holders.notify()

    async def _listed(self) -> "list[api_pb2.PodResources] | None":
        try:
            return await self._resources.pods()
        except Unavailable:
            return None

    def _holding(self, listed: "list[api_pb2.PodResources] | None") -> Holding:
        """Return who holds slots: by the agent's books, by the kubelet's, and pods that are bound and wait to start."""
        by: dict[Giver, list[str]] = {giver: [] for giver in Giver}
        others: list[str] = []
        known = self._holders.pods.known
        for served in self._agent.gpus.values():
            for slot in served.shared_gpu.slots.values():
                if not slot.permanent:
                    continue
                if slot.claim is not None:
                    by[Giver.DRA] += [f"{slot.claim.namespace}/{each.name}" for each in slot.claim.pods] or [
                        slot.claim.title
                    ]
                elif self._holders.holds(slot):
                    by[Giver.DEVICE_PLUGIN].append(slot.holder or f"slot {slot.name} of GPU {slot.gpu}")
                elif self._agent.advertising.slots.in_use(slot):
                    others.append(f"processes in slot {slot.name} of GPU {slot.gpu}")
        for pod in listed or ():
            found = known.get((pod.namespace, pod.name))
            if found is None or not found.ended:
                for giver in _givers(pod):
                    by[giver].append(f"{pod.namespace}/{pod.name}")
        others += [_title(key) for key, pod in known.items() if pod.grant and not pod.ended]
        return Holding(by, others, listed is not None and self._holders.certain)


def _givers(pod: api_pb2.PodResources) -> Iterable[Giver]:
    """Yield who has given slots to a pod, by the kubelet's books."""
    if listed_holders([pod]):
        yield Giver.DEVICE_PLUGIN
    claims = (claim for container in pod.containers for claim in container.dynamic_resources)
    if any(given.driver_name == DRIVER for claim in claims for given in claim.claim_resources):
        yield Giver.DRA


def _title(pod: PodName) -> str:
    return "/".join(pod)
