"""Who holds which slot and what they were granted: the one place that the rest of the agent asks.

Brings identity and grants together at every change of either, in one step on the event loop, so that nobody sees a
slot with one pod's name and another's grant.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Mapping
from typing import Protocol

from orion.api_server.requests import ApiServer
from orion.crds.policy import Priority
from orion.hook import layout
from orion.node_agent.advertising.advertising import Advertising
from orion.node_agent.cluster.holders import grants
from orion.node_agent.cluster.holders.identity import Identity
from orion.node_agent.cluster.holders.pods import Pods
from orion.node_agent.cluster.pod_resources import PodResources, SlotKey, role_of
from orion.node_agent.cluster.state import GpuState, HolderState
from orion.node_agent.slots.holders import Holder, Prepared
from orion.node_agent.slots.slot import Slot

_log = logging.getLogger(__name__)

_PREPARE_SECONDS = 1.0
""" The kubelet waits for the container's start meanwhile. """


class AdvertisesSlots(grants.GrantsSlots, Protocol):
    """What is needed of an agent here."""

    @property
    def advertising(self) -> Advertising:
        """Opens slots that are held, and hears of changes."""


class ClusterHolders:
    """The holders of one agent's slots: its `Holders`, and the `ClusterState` of those who report.

    Args:
        agent: whose slots.
        server: the API server.
        node: this node's name.
        resources: the kubelet.
    """

    def __init__(self, agent: AdvertisesSlots, server: ApiServer, node: str, resources: PodResources) -> None:
        self._agent = agent
        self._listeners: list[Callable[[], None]] = []
        self.pods = Pods(server, node, self._pods_changed)
        self.grants = grants.Grants(agent)
        self.identity = Identity(self.pods, resources, grants.remembered(agent.gpus), self._update)

    def start(self) -> None:
        """Take over what the agent before this one knew."""
        self._update()

    async def run(self) -> None:
        """Keep both current until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self.pods.run())
            tasks.create_task(self.identity.run())

    # -- Holders -------------------------------------------------------------------------------------------------------

    async def prepared(self, slot: Slot) -> Prepared:
        """Find out whose container begins in a slot that was made ready just now, and give it their grant.

        Within a second; after that the default grant stands until it is known.
        """
        key = (slot.gpu, slot.name)
        self.identity.begins(key)
        self._update()
        try:
            async with asyncio.timeout(_PREPARE_SECONDS):
                await self.identity.known(key)
        except TimeoutError:
            _log.warning("slot: %s %s: whose container begins there is not known yet", *key)
        row = self.grants.of(key)
        if (
            row is None or row.holder is None or not row.holder.uid
        ):  # named by the kubelet alone: its grant is not known
            return Prepared()
        return Prepared(row.holder.name, row.fail_closed)

    async def missed(self) -> None:
        """Ask the kubelet again who holds which slot; what is held is opened. Within a second."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_PREPARE_SECONDS):
                await self.identity.answered()

    def holds(self, slot: Slot) -> bool:
        """Return whether some container holds a slot or begins in it, or a process of this machine owns it."""
        key = (slot.gpu, slot.name)
        return key in self.identity.holders or key in self.identity.beginning or slot.owner is not None

    def held(self, gpu: str) -> Mapping[str, layout.Role]:
        """Return the slots of a GPU that containers hold, by name; there may be some that are not open."""
        return {name: role_of(name) for uuid, name in self.identity.holders if uuid == gpu}

    def reserved_bytes(self, gpu: str) -> int:
        """Return what the holders of a GPU's slots ask for of its memory."""
        return sum(row.memory_request_bytes for row in self.grants.held(gpu))

    @property
    def certain(self) -> bool:
        """Whether a slot that nobody is known to hold is held by nobody."""
        return self.identity.certain

    def waits_for(self) -> str:
        """Return which of kubelet and API server has not spoken since the agent began."""
        if not self.identity.answered_once:
            return "the kubelet has not said yet which container has which slot"
        return "" if self.pods.synced else "the API server has not said yet which pods are on this node"

    # -- ClusterState --------------------------------------------------------------------------------------------------

    def of(self, uuid: str) -> GpuState:
        """Return one GPU's state.

        Raises:
            NotFound: there is no such GPU here.
        """
        there = list(self._agent.gpu(uuid).shared_gpu.slots.values())  # at once: a scrape asks from its own thread
        slots = [slot for slot in there if slot.permanent]
        rows = self.grants.held(uuid)
        rows += [HolderState(*key, _priority(key), None) for key in self.identity.beginning if key[0] == uuid]
        return GpuState(
            uuid=uuid,
            slots={each: sum(slot.role.name == each.name for slot in slots) for each in Priority},
            held=tuple(sorted(rows, key=lambda row: row.name)),
            policy=self.grants.policy(uuid),
        )

    def pod(self, uid: str) -> Holder | None:
        """Return any pod of this node by its uid, its container left empty."""
        return self.pods.of_uid(uid)

    def on_change(self, tell: Callable[[], None]) -> None:
        """Call `tell`, on the event loop, after what `of` returns has changed; several changes may lead to one call."""
        self._listeners.append(tell)

    # -- Changes -------------------------------------------------------------------------------------------------------

    def _pods_changed(self) -> None:
        self.identity.pods_changed()

    def _update(self) -> None:
        """Bring what is known to the pages, and tell those who listen."""
        try:
            self._agent.advertising.look()  # opens slots that are held and not open
        except Exception:  # of what is there the grants count all the same
            _log.exception("cluster: the slots could not be looked at")
        try:
            changed = self.grants.apply(self.identity.holders, self.identity.beginning, self.identity.certain)
        except Exception:  # what is wrong with one must not end the watch for all
            _log.exception("cluster: the holders' grants could not be applied")
            return
        if changed:
            self._agent.advertising.changed()
            for tell in self._listeners:
                tell()


def _priority(key: SlotKey) -> Priority:
    return Priority(role_of(key[1]).name.lower())
