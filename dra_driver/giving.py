"""Takes a free slot for each share of a claim, on the GPU that the scheduler chose, and tells the agent whose it is.

The scheduler counts slots and does not know them. So there can be no free slot for a moment, although the scheduler
counted one: while the processes of the last pod end, or while the GPU is sick. An error would cost the pod more than a
minute, as the kubelet tries again late. So this module waits for slot and agent, as long as the kubelet waits.

The agent decides whether a slot is free. Without an agent, the last snapshot, what the agent has refused since, and the
driver's records decide, if the pod may start without an agent (`onNoAgent`, `failClosed`). The next agent then learns
it (`tell_again`).
"""

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path

from orion.dra_driver.claims import AllocatedClaim, Share
from orion.dra_driver.holding import Holding
from orion.dra_driver.names import device_name, why_not_offered
from orion.dra_driver.records import GivenShare, Record, Records
from orion.errors import Conflict, Invalid, OrionError, Unavailable
from orion.injection.agent_link import AgentLink
from orion.injection.current import CurrentSnapshot
from orion.injection.mount_sources import forget_known_limit
from orion.injection.slots import Slot, parse
from orion.injection.snapshot import AdvertisedGPU, Snapshot
from orion.injection.waiting import Waiting
from orion.node_agent.api import agent_pb2

_AGAIN_SECONDS = 0.5
""" A slot that the agent refused is tried again after this time, also if no snapshot has come. """

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class _Candidate:
    """A slot that a share could get."""

    slot: Slot
    is_recorded: bool = False
    """ The claim's own record names the slot. """
    had_it: bool = False
    """ The claim has had the slot in this boot, so the processes in it may be its own. """
    why_taken: str = ""
    """ Why the slot is not free for all that is known here, so only the agent may give it; empty: it is free. """


class Giving:
    """Gives slots to claims.

    Args:
        root: the agent's directory.
        link: the connection to the agent.
        current: the agent's last snapshot.
        waiting: whether the device plugin gives the node's slots, so that no claim gets one that it has not had.
        records: the claims that have slots.
        holding: decides which pods must not start without an agent.
        patience: seconds to wait for an agent, if the pod may start without one.
        boot: the id of this boot.
        untold: called after a claim got a slot and no agent answered: one that is only slow has to learn it.
    """

    def __init__(
        self,
        root: Path,
        link: AgentLink,
        current: CurrentSnapshot,
        waiting: Waiting,
        records: Records,
        holding: Holding,
        patience: float,
        boot: str,
        untold: Callable[[], None],
    ) -> None:
        self._root, self._link, self._current, self._waiting, self._records = root, link, current, waiting, records
        self._holding, self._patience, self._boot, self._untold = holding, patience, boot, untold
        self._being_given: dict[str, set[Slot]] = {}
        """ By claim, the slots that are about to be given to it, and are in no record yet. Two claims can have one slot
        here: one asks the agent for it, and the agent says that the other one has it. """
        self._refused: dict[Slot, Snapshot | None] = {}
        """ The slots that the agent has refused, each with the snapshot of that moment: it may not yet show why. """

    @contextlib.asynccontextmanager
    async def giving(self, claim: AllocatedClaim, deadline: float) -> AsyncIterator[list[GivenShare]]:
        """Give the claim its slots. Nobody else gets them while the context lasts, in which the caller records them.

        Raises:
            Unavailable: a slot or the agent was not there in time.
        """
        self._being_given[claim.uid] = set()
        try:
            given, all_known = [], True
            for share in claim.shares:
                slot, is_known = await self._give(claim, share, deadline)
                given.append(GivenShare(**share.model_dump(), slot_id=str(slot)))
                all_known &= is_known
            try:
                yield given
            finally:  # a caller that is cancelled may have recorded them
                if not all_known:
                    self._untold()
        finally:
            del self._being_given[claim.uid]

    async def tell_again(self, record: Record) -> None:
        """Tell a new agent which slots a claim has.

        Raises:
            Conflict, Unavailable: the agent refuses a slot, or does not answer. It knows all others then.
        """
        refused: OrionError | None = None
        for share in record.shares:
            try:
                had_it = record.boot == self._boot
                if await self._link.hold(share.slot, _message(record, share), had_it, self._patience) is None:
                    refused = Unavailable(f"the agent does not answer for {share.slot}")
            except (Conflict, Unavailable) as error:
                refused = error
        if refused is not None:
            raise refused

    async def _give(self, claim: AllocatedClaim, share: Share, deadline: float) -> tuple[Slot, bool]:
        """Return the slot that the share gets, and whether an agent knows it.

        Raises:
            Unavailable: a slot or the agent was not there in time.
        """
        message, why, taken = _message(claim, share), "", self._being_given[claim.uid]
        while True:
            changed = self._current.changed.next
            try:
                await asyncio.to_thread(self._records.refresh)
                for candidate in self._candidates(claim, share):
                    slot = candidate.slot
                    why = candidate.why_taken or f"slot {slot} is not free"
                    if self._is_given(candidate):
                        continue
                    taken.add(slot)
                    try:
                        held, is_known = await self._hold(claim, candidate, message, deadline)
                    except Conflict as error:
                        # The agent says who has the slot, which is no business of the claim's owner.
                        _log.info("claims: %s/%s does not get %s: %s", claim.namespace, claim.name, slot, error)
                        self._refused[slot] = self._current.snapshot
                        continue
                    finally:
                        taken.discard(slot)
                    taken.add(held)
                    return held, is_known
            except Unavailable as error:
                why = str(error)
            left = deadline - time.monotonic()
            if left <= 0:
                raise Unavailable(f"{why}; the kubelet tries again")
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(min(left, _AGAIN_SECONDS)):
                    await changed.wait()

    async def _hold(
        self, claim: AllocatedClaim, candidate: _Candidate, message: agent_pb2.ClaimOfSlot, deadline: float
    ) -> tuple[Slot, bool]:
        """Tell the agent that the claim has the slot; return the slot that it has, and whether an agent answered.

        Raises:
            Conflict: the slot is not free.
            Unavailable: no agent answers, and the pod must not start without one.
        """
        slot, left, why_wait = candidate.slot, max(0.1, deadline - time.monotonic()), self._holding.why(claim.pods)
        patience = left if why_wait else min(left, self._patience)
        if why_wait and not self._link.connected:
            _log.info("claims: %s/%s waits for an agent: %s", claim.namespace, claim.name, why_wait)
        # The grant is that of the pod, so one wait for it is enough for all slots.
        await_grant = claim.governed and message.share == claim.shares[-1].key
        answer = await self._link.hold(slot, message, candidate.had_it, patience, await_grant)
        if answer is None:
            if candidate.why_taken or self._is_refused(slot):
                raise Unavailable(candidate.why_taken or f"slot {slot} is not free")
            if why_wait:
                raise Unavailable(f"the node's agent does not answer for {slot}, and {why_wait}")
            if not candidate.had_it:
                forget_known_limit(self._root, slot)
            _log.warning("claims: %s/%s gets %s while no agent answers", claim.namespace, claim.name, slot)
            return slot, False
        return parse(f"{slot.gpu}::{answer.name}"), True

    def _candidates(self, claim: AllocatedClaim, share: Share) -> list[_Candidate]:
        """Return the slots that the share can get.

        If none is free, the claim may have one that is in no record: the last driver ended before it recorded the slot,
        or the record cannot be read. The agent knows it, if it is asked for a slot whose holder is not known here.

        Raises:
            Invalid: the device plugin gives this node's slots.
            Unavailable: there is none now.
        """
        snapshot = self._current.snapshot
        if snapshot is None:
            raise Unavailable("the node's agent has not yet reported its GPUs: check that it runs")
        gpu, before = _gpu(share, snapshot), self._before(claim, share)
        slots = [slot for slot in gpu.slots if slot.role == share.role]
        if before is None and (other := self._waiting.why):
            raise Invalid(f"{other}: delete the pod, so that it starts on another node")
        known = self._known()
        free = [_Candidate(slot) for slot in slots if _is_free(gpu, slot) and slot not in known]
        # The configuration may have taken the slot away. A claim that the agent knows keeps it, whatever slot is named.
        had = [before] if before is not None and before.slot in gpu.slots and gpu.healthy else []
        if had or free:
            return sorted([*had, *free], key=lambda each: self._is_refused(each.slot))
        why = _why_none(gpu, share.role)
        unexplained = [slot for slot in slots if slot in gpu.held and slot not in known]
        if not unexplained:
            raise Unavailable(why)
        return [_Candidate(unexplained[0], why_taken=why)]

    def _before(self, claim: AllocatedClaim, share: Share) -> _Candidate | None:
        """Return the slot that the share has had; None: it has had none."""
        record = self._records.of(claim.uid)
        had = next((each for each in record.shares if each.key == share.key), None) if record is not None else None
        return None if had is None or record is None else _Candidate(had.slot, True, record.boot == self._boot)

    def _is_refused(self, slot: Slot) -> bool:
        """Return whether the agent has refused a slot and sent no snapshot since."""
        return slot in self._refused and self._refused[slot] is self._current.snapshot

    def _is_given(self, candidate: _Candidate) -> bool:
        """Return whether a claim got the slot after the candidates were listed, while the agent was asked for others.

        Without this check, two claims have one slot if no agent answers for the second.
        """
        return candidate.slot in (self._about_to_be_given() if candidate.is_recorded else self._known())

    def _known(self) -> set[Slot]:
        """Return the slots that were or are being given to a claim that is known here."""
        return self._about_to_be_given().union(share.slot for each in self._records.all() for share in each.shares)

    def _about_to_be_given(self) -> set[Slot]:
        return set().union(*self._being_given.values())


def _gpu(share: Share, snapshot: Snapshot) -> AdvertisedGPU:
    found = next((gpu for gpu in snapshot.gpus.values() if device_name(gpu.uuid) == share.device), None)
    if found is not None:
        return found
    raise Unavailable(why_not_offered(share.device, snapshot))


def _is_free(gpu: AdvertisedGPU, slot: Slot) -> bool:
    return gpu.usable_for_allocated(slot) and slot not in gpu.held


def _why_none(gpu: AdvertisedGPU, role: str) -> str:
    if not gpu.healthy:
        return f"GPU {gpu.uuid} is unhealthy: {gpu.message}"
    if gpu.cordoned:
        return f"GPU {gpu.uuid} is cordoned: {gpu.message or 'it takes no further pods'}"
    count = sum(slot.role == role for slot in gpu.slots)
    return f"GPU {gpu.uuid} has no free {role} slot: others hold all {count}, or their processes have not ended yet"


def _message(claim: AllocatedClaim | Record, share: Share) -> agent_pb2.ClaimOfSlot:
    return agent_pb2.ClaimOfSlot(
        uid=claim.uid,
        share=share.key,
        namespace=claim.namespace,
        name=claim.name,
        pods=[agent_pb2.PodOfClaim(name=pod.name, uid=pod.uid) for pod in claim.pods],
        memory_bytes=share.memory_bytes,
        time_milli=share.time_milli,
    )
