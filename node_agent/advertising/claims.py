"""Which ResourceClaims hold slots: the DRA driver takes a free slot for a claim, and gives it back.

The driver chooses the slot, because it must be able to do so while no agent runs. The agent decides whether the slot is
free, since two drivers may run side by side, and processes may live longer than their pod. A claim that already has a
slot for a share keeps it, whatever slot the driver names: so a driver that has lost its records does no harm.

A slot whose claim has given it back stays taken until no process uses it.
"""

import logging
from typing import Protocol

from orion.crds.allocation import Giver
from orion.errors import Conflict, NotFound
from orion.hook import layout
from orion.node_agent.advertising.advertising import Advertising
from orion.node_agent.pacing.tolerating import periodically
from orion.node_agent.sharing.served import ServedGpu, ServesGpus
from orion.node_agent.sharing.slot_operations import SlotOperations
from orion.node_agent.slots.claim import Claim
from orion.node_agent.slots.holders import Holders
from orion.node_agent.slots.slot import Slot

_LOOK_SECONDS = 1.0

_log = logging.getLogger(__name__)


class HoldsSlots(ServesGpus, Protocol):
    """What `Claims` needs from an agent."""

    @property
    def advertising(self) -> Advertising:
        """The agent's `Advertising`."""

    @property
    def holders(self) -> Holders:
        """Who holds the slots."""

    def gpu(self, uuid: str) -> ServedGpu:
        """Return one GPU."""

    @property
    def slots(self) -> SlotOperations:
        """The operations on slots."""

    def save(self, gpu: ServedGpu) -> None:
        """Write the state file after a change of a GPU."""


class Claims:
    """The claims that hold slots of one agent.

    Args:
        agent: the agent.
    """

    def __init__(self, agent: HoldsSlots) -> None:
        self._agent = agent

    async def run(self) -> None:
        """Free slots that were given back, as soon as no process uses them, until cancelled."""
        await periodically("claims: a check", _LOOK_SECONDS, self.look)

    def hold(self, uuid: str, name: str, claim: Claim, had_it: bool) -> Slot:
        """Give a slot to a claim, or update what is known of a claim that has one; return the slot.

        Args:
            uuid: the GPU.
            name: the slot that the driver chose.
            claim: the claim.
            had_it: whether the claim has had this slot before, so that the processes in it may be the claim's own.

        Raises:
            NotFound: there is no such GPU or slot.
            Conflict: the slot is not free.
        """
        served = self._agent.gpu(uuid)
        slot = next((each for each in self._slots(served) if each.claim and each.claim.is_share(claim)), None)
        if slot is None:
            slot = served.shared_gpu.slot(name)
            self._refuse_unless_free(slot, had_it)
            if not had_it:
                self._agent.slots.prepare(uuid, name, saves=False)  # `_changed` saves
            _log.info("slot: %s %s is now held by %s", uuid, name, claim.title)
        claim = claim.after(slot.claim)
        if slot.claim != claim:
            slot.claim = claim
            self._grant(slot, claim)
            self._changed(served)
        return slot

    def release(self, uid: str) -> None:
        """Take back the slots of a claim; those that processes still use, once these have ended."""
        for served in self._agent.gpus.values():
            for slot in self._slots(served):
                if slot.claim is None or slot.claim.uid != uid:
                    continue
                if not served.shared_gpu.has_clients(slot):
                    self._free(slot, slot.claim)
                elif not slot.claim.released:
                    slot.claim = slot.claim.model_copy(update={"released": True})
                    self._agent.save(served)

    def look(self) -> None:
        """Free the slots that were given back and that no process uses any more."""
        for served in self._agent.gpus.values():
            for slot in self._slots(served):
                if slot.claim is not None and slot.claim.released and not served.shared_gpu.has_clients(slot):
                    self._free(slot, slot.claim)

    def _free(self, slot: Slot, claim: Claim) -> None:
        _log.info("slot: %s %s is free again after %s", slot.gpu, slot.name, claim.title)
        slot.claim = None
        self._agent.slots.prepare(slot.gpu, slot.name)  # writes the state file, too
        self._notify()

    def _refuse_unless_free(self, slot: Slot, had_it: bool) -> None:
        """Refuse a slot that is not free.

        Raises:
            NotFound: containers cannot hold the slot.
            Conflict: somebody has it.
        """
        if not slot.permanent:
            raise NotFound(f"slot {slot.name} of GPU {slot.gpu} was opened for a process, and is not for containers")
        if slot.claim is not None:
            raise Conflict(f"slot {slot.name} of GPU {slot.gpu} is held by {slot.claim.title}")
        if had_it and not self._agent.holders.holds(slot):
            return
        if (ownership := self._agent.advertising.ownership) is not None:
            ownership.refuse(Giver.DRA)
        if self._agent.advertising.slots.in_use(slot):
            held_by = slot.holder or "processes of its previous holder"
            raise Conflict(f"slot {slot.name} of GPU {slot.gpu} is held by {held_by}")
        if self._agent.advertising.slots.is_closed(slot):
            raise Conflict(f"slot {slot.name} of GPU {slot.gpu} is closed to new pods")

    def _grant(self, slot: Slot, claim: Claim) -> None:
        """Write the claim's amounts into the page. In a cluster, `holders` writes the pod's grant over them."""
        request = claim.time_milli if slot.role is layout.Role.BE else 0
        slot.set(memory_limit_bytes=claim.memory_bytes, request_milli=request)

    def _changed(self, served: ServedGpu) -> None:
        self._agent.save(served)
        self._notify()

    def _notify(self) -> None:
        self._agent.holders.claims_changed()
        self._agent.advertising.changed()

    @staticmethod
    def _slots(served: ServedGpu) -> list[Slot]:
        return list(served.shared_gpu.slots.values())
