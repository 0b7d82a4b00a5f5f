"""Finds out who holds each slot: queries the kubelet, follows the pods of this node, and joins the two (resolving.py).

When a container starts in a slot, the slot has no holder until the kubelet has answered a query that was sent after the
start.
"""

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

from orion.errors import Unavailable
from orion.node_agent.cluster.holders.pods import Pod, PodName, Pods
from orion.node_agent.cluster.holders.resolving import ResolvedHolder, join, of_claim
from orion.node_agent.cluster.pod_resources import (
    ClaimUser,
    ListedHolder,
    PodResources,
    SlotKey,
    claim_users,
    listed_holders,
)
from orion.node_agent.slots.claim import Claim

_log = logging.getLogger(__name__)

_EVERY_SECONDS = 10.0
_AGAIN_SECONDS = 1.0
""" The pause after a query without an answer. """
_SPACING_SECONDS = 0.02
""" The pause between two queries while a caller waits. The kubelet answers 100 queries a second. """
_RELAXED_SECONDS = 0.25
""" The pause between two queries while no caller waits. The kubelet computes each answer from the start. """
_CONTESTED_SECONDS = 15.0
""" If the kubelet lists a slot for two living pods for this time, the slot counts as contested. The time is longer than
the maximum age of the kubelet's answer. """


class Contested:
    """Slots that the kubelet lists for two living pods, which should never happen.

    A short overlap is normal: the operator learns of a pod's end after the kubelet has given its device to the next
    pod. So a slot counts as contested only after `_CONTESTED_SECONDS`.
    """

    def __init__(self) -> None:
        self._since: dict[tuple[SlotKey, frozenset[PodName]], float] = {}
        self._now: dict[SlotKey, tuple[PodName, ...]] = {}

    def take(self, listing: Iterable[ListedHolder], pods: Mapping[PodName, Pod], now: float | None = None) -> None:
        """Process an answer of the kubelet, with the current pods. `now`: in seconds, for tests."""
        now = time.monotonic() if now is None else now
        listed: dict[SlotKey, set[PodName]] = {}
        for entry in listing:
            pod = pods.get((entry.namespace, entry.pod))
            if pod is not None and not pod.ended and not pod.leaving:
                listed.setdefault(entry.slot, set()).add(pod.key)
        found = {(slot, frozenset(names)) for slot, names in listed.items() if len(names) > 1}
        self._since = {each: self._since.get(each, now) for each in found}
        self._now = {
            slot: tuple(sorted(names)) for (slot, names), at in self._since.items() if now - at >= _CONTESTED_SECONDS
        }

    def others(self, slot: SlotKey, holder: PodName) -> tuple[str, ...]:
        """Return the pods other than its holder for which the kubelet lists a slot, as NAMESPACE/NAME."""
        return tuple("/".join(name) for name in self._now.get(slot, ()) if name != holder)


class Identity:
    """Who holds the slots of one node.

    Args:
        pods: the pods of this node.
        resources: the kubelet.
        holders: who held each slot, as the previous agent saved it.
        on_change: called on the event loop when something may have changed.
        claims: returns the claims that have slots. Their pods are known from the driver, so the kubelet is not asked.
    """

    def __init__(
        self,
        pods: Pods,
        resources: PodResources,
        holders: Mapping[SlotKey, ResolvedHolder],
        on_change: Callable[[], None],
        claims: Callable[[], Mapping[SlotKey, Claim]] = dict,
    ) -> None:
        self._pods, self._resources, self._on_change, self._claims = pods, resources, on_change, claims
        self.holders: Mapping[SlotKey, ResolvedHolder] = dict(holders)
        self._claimed = frozenset(claims())
        """ The slots in `holders` that claims have. """
        self._listing: list[ListedHolder] = []
        self.users: Sequence[ClaimUser] = ()
        """ The containers that use claims, as the kubelet lists them. """
        self._contested = Contested()
        self._beginning: Mapping[SlotKey, int] = {}
        """ Slots in which a container starts, and the number of the first query whose answer counts for them.
        This mapping, like `holders`, is replaced and never changed: scrapes read both in their own thread. """
        self._former: dict[SlotKey, ResolvedHolder] = {}
        """ Who held the slots in `_beginning` before. """
        self._questions = 0
        self.answered_once = False
        """ Whether the kubelet has answered this agent once. """
        self._asked, self._waited_for = asyncio.Event(), asyncio.Event()
        self._waiting: list[asyncio.Future[bool]] = []
        self._pods_changed = asyncio.Event()
        self._away = ""

    @property
    def certain(self) -> bool:
        """Whether every slot without a known holder is free; false if the agent may not know some holders yet."""
        return self.answered_once and self._pods.synced and not self._beginning

    @property
    def beginning(self) -> frozenset[SlotKey]:
        """Slots in which a container starts whose pod is not known yet."""
        return frozenset(self._beginning)

    def begins(self, slot: SlotKey) -> None:
        """Note that a container starts in a slot. The previous holder, if any, no longer holds it."""
        self._beginning = {**self._beginning, slot: self._questions + 1}
        self._listing = [entry for entry in self._listing if entry.slot != slot]
        if slot in self.holders:
            self._former[slot] = self.holders[slot]
        self.holders = {each: resolved for each, resolved in self.holders.items() if each != slot}

    async def known(self, slot: SlotKey) -> None:
        """Return when the kubelet has listed the slot's holder and that pod is known. The caller limits the time."""
        await self.answered()
        while (resolved := self.holders.get(slot)) is not None:
            pod = self._pods.known.get(resolved.key)
            # A pod with a deletion time starts no container: it is the previous holder.
            if pod is not None and not pod.leaving:
                return
            self._pods_changed.clear()
            await self._pods_changed.wait()

    async def claim_known(self, slot: SlotKey) -> None:
        """Return when the operator has named a pod of the claim that has a slot. The caller limits the time."""
        while (resolved := self.holders.get(slot)) is not None and not resolved.created:
            self._pods_changed.clear()
            await self._pods_changed.wait()

    async def answered(self) -> None:
        """Return when the kubelet has answered a query that is sent from now on. The caller sets the time limit."""
        while not await self._next_answer():
            await asyncio.sleep(_SPACING_SECONDS)

    def ask(self) -> None:
        """Query the kubelet soon."""
        self._asked.set()

    def claims_changed(self) -> None:
        """Find the holders again with the changed claims."""
        self._join()

    def pods_changed(self) -> None:
        """Find the holders again with the changed pods, and query the kubelet again."""
        self._join()
        self._pods_changed.set()
        self.ask()

    async def run(self) -> None:
        """Query the kubelet at intervals until cancelled."""
        while True:
            self._asked.clear()
            answered = await self._ask()
            await asyncio.sleep(_SPACING_SECONDS)
            await _within(_RELAXED_SECONDS, self._waited_for)
            await _within(_EVERY_SECONDS if answered else _AGAIN_SECONDS, self._asked)

    async def _next_answer(self) -> bool:
        """Return whether the next query was answered."""
        waiting: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._waiting.append(waiting)
        self._waited_for.set()
        self._asked.set()
        return await waiting

    async def _ask(self) -> bool:
        self._questions += 1
        number, waiting, self._waiting = self._questions, self._waiting, []
        self._waited_for.clear()
        answered = False
        try:
            pods = await self._resources.pods()
            self.users = claim_users(pods)
            self._take(listed_holders(pods), number)
            answered = True
            self._log_state("")
        except Unavailable as error:
            self._log_state(str(error))
        finally:
            for each in waiting:
                if not each.done():
                    each.set_result(answered)
        return answered

    def _take(self, listing: list[ListedHolder], number: int) -> None:
        self._beginning = {slot: first for slot, first in self._beginning.items() if first > number}
        self._listing = [entry for entry in listing if entry.slot not in self._beginning]
        self.answered_once = True
        self._contested.take(self._listing, self._pods.known)
        self._join()
        self._former = {slot: resolved for slot, resolved in self._former.items() if slot in self._beginning}

    def _join(self) -> None:
        claims, pods = self._claims(), self._pods.known
        before = {slot: each for slot, each in self.holders.items() if slot not in self._claimed and slot not in claims}
        holders = join(self._listing, pods, self._pods.synced, before, self._former)
        self.holders = {
            slot: replace(resolved, others=self._contested.others(slot, resolved.key))
            for slot, resolved in holders.items()
        } | {slot: of_claim(claim, pods, self.holders.get(slot)) for slot, claim in claims.items()}
        self._claimed = frozenset(claims)
        self._on_change()

    def _log_state(self, error: str) -> None:
        if bool(error) != bool(self._away):
            _log.warning(
                "kubelet: %s", f"does not answer, its last answer stays valid: {error}" if error else "answers"
            )
        self._away = error


async def _within(seconds: float, event: asyncio.Event) -> None:
    """Wait for an event, at most for `seconds`."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()
