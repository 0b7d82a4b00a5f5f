"""Who holds each slot: the kubelet's word on who has which device, joined with the pods of this node.

The two know different things and neither is always right. The kubelet gives no uid, and just after its own restart it
lists pods without their devices, or none at all. The API server knows the end of a pod, and may be away. So a slot is
let go when its pod has ended, or when the kubelet does not list it and the pod is gone or has other slots; a slot that
the kubelet gives to another container is that one's at once. A slot in which a container begins is nobody's until the
kubelet has answered a question that was put after that.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

from orion.node_agent.cluster.contested import Contested
from orion.node_agent.cluster.pod_resources import Claim, KubeletAway, PodResources, SlotKey, claims
from orion.node_agent.cluster.pods import Pod, PodName, Pods
from orion.node_agent.holders import Holder

_log = logging.getLogger(__name__)

_EVERY_SECONDS = 10.0
_AGAIN_SECONDS = 1.0
""" After a question without an answer. """
_SPACING_SECONDS = 0.02
""" Between two questions, while somebody waits: the kubelet answers 100 a second. """
_RELAXED_SECONDS = 0.25
""" While nobody does: the kubelet computes anew for each answer who has what. """


@dataclass(frozen=True)
class Hold:
    """Whose a slot is, and what the pod says."""

    holder: Holder
    created: str = ""
    """ When the pod was, as the API server writes times; empty: not known. """

    grant: str | None = None
    """ Its annotation. """

    others: tuple[str, ...] = ()
    """ Living pods to which the kubelet gives the slot too, as NAMESPACE/NAME. """

    @property
    def key(self) -> PodName:
        """How the kubelet names the pod."""
        return self.holder.namespace, self.holder.pod


def join(
    claimed: Sequence[Claim],
    pods: Mapping[PodName, Pod],
    synced: bool,
    before: Mapping[SlotKey, Hold],
    former: Mapping[SlotKey, Hold] = MappingProxyType({}),
) -> dict[SlotKey, Hold]:
    """Return who holds each slot.

    Args:
        claimed: what the kubelet said last.
        pods: those of this node, as last heard.
        synced: whether all of them were heard of once; until then a pod that is not among them may be there.
        before: who held each slot until now.
        former: who held slots before containers began in them: what was known of a pod that is there again.
    """
    holds: dict[SlotKey, Hold] = {}
    for claim in claimed:
        hold = _of_claim(claim, pods, before.get(claim.slot) or former.get(claim.slot))
        other = holds.get(claim.slot)
        if hold is not None and (other is None or other.created < hold.created):
            holds[claim.slot] = hold
    listed = {(claim.namespace, claim.pod, claim.container) for claim in claimed}
    for slot, hold in before.items():
        elsewhere = (*hold.key, hold.holder.container) in listed  # the hold was of an earlier pod of that name
        if slot not in holds and not elsewhere and _stands(hold, pods.get(hold.key), synced):
            holds[slot] = _renewed(hold, pods.get(hold.key))
    return holds


def _of_claim(claim: Claim, pods: Mapping[PodName, Pod], before: Hold | None) -> Hold | None:
    """Return whose a claimed slot is; None: its pod has ended, and the kubelet says so later."""
    pod = pods.get((claim.namespace, claim.pod))
    holder = Holder(claim.namespace, claim.pod, claim.container)
    if pod is None:
        same = before is not None and (before.key, before.holder.container) == (
            (claim.namespace, claim.pod),
            claim.container,
        )
        return before if same else Hold(holder)
    return None if pod.ended else _renewed(Hold(holder), pod)


def _stands(hold: Hold, pod: Pod | None, synced: bool) -> bool:
    """Return whether a hold that the kubelet does not list goes on."""
    if pod is None:
        return not synced
    return not pod.ended and hold.holder.uid in ("", pod.uid)


def _renewed(hold: Hold, pod: Pod | None) -> Hold:
    if pod is None:
        return hold
    holder = hold.holder
    return Hold(Holder(holder.namespace, holder.pod, holder.container, pod.uid), pod.created, pod.grant)


class Identity:
    """Who holds the slots of one node.

    Args:
        pods: the pods of this node.
        resources: the kubelet.
        holds: who held each slot under the agent before this one.
        on_change: called on the event loop when something may have changed.
    """

    def __init__(
        self, pods: Pods, resources: PodResources, holds: Mapping[SlotKey, Hold], on_change: Callable[[], None]
    ) -> None:
        self._pods, self._resources, self._on_change = pods, resources, on_change
        self.holds: Mapping[SlotKey, Hold] = dict(holds)
        self._claims: list[Claim] = []
        self._contested = Contested()
        self._beginning: Mapping[SlotKey, int] = {}
        """ Slots in which a container begins, and the number of the first question whose answer counts for them.
        Replaced and never changed, as `holds` is: scrapes read both in a thread of their own. """
        self._former: dict[SlotKey, Hold] = {}
        """ Who held them until then. """
        self._questions = 0
        self.answered_once = False
        """ Whether the kubelet has spoken to this agent. """
        self._asked, self._waited_for = asyncio.Event(), asyncio.Event()
        self._waiting: list[asyncio.Future[bool]] = []
        self._pods_changed = asyncio.Event()
        self._away = ""

    @property
    def certain(self) -> bool:
        """Whether a slot that nobody is known to hold is held by nobody."""
        return self.answered_once and self._pods.synced and not self._beginning

    @property
    def beginning(self) -> frozenset[SlotKey]:
        """Slots in which a container begins whose pod is not known yet."""
        return frozenset(self._beginning)

    def begins(self, slot: SlotKey) -> None:
        """A container begins in a slot; whoever held it until now does so no longer, as far as is known."""
        self._beginning = {**self._beginning, slot: self._questions + 1}
        self._claims = [claim for claim in self._claims if claim.slot != slot]
        if slot in self.holds:
            self._former[slot] = self.holds[slot]
        self.holds = {each: hold for each, hold in self.holds.items() if each != slot}

    async def known(self, slot: SlotKey) -> None:
        """Return when the kubelet has said whose a slot is, and that pod is known; to be bounded by the caller."""
        await self.answered()
        while (hold := self.holds.get(slot)) is not None:
            pod = self._pods.known.get(hold.key)
            if pod is not None and not pod.leaving:  # one that is leaving starts nothing: it is the one before
                return
            self._pods_changed.clear()
            await self._pods_changed.wait()

    async def answered(self) -> None:
        """Return when the kubelet has answered a question that is put from now on; to be bounded by the caller."""
        while not await self._next_answer():
            await asyncio.sleep(_SPACING_SECONDS)

    def ask(self) -> None:
        """Ask the kubelet soon."""
        self._asked.set()

    def pods_changed(self) -> None:
        """Take in what is new of the pods, and ask the kubelet what it makes of it."""
        self._join()
        self._pods_changed.set()
        self.ask()

    async def run(self) -> None:
        """Ask the kubelet again and again, until cancelled."""
        while True:
            self._asked.clear()
            answered = await self._ask()
            await asyncio.sleep(_SPACING_SECONDS)
            await _within(_RELAXED_SECONDS, self._waited_for)
            await _within(_EVERY_SECONDS if answered else _AGAIN_SECONDS, self._asked)

    async def _next_answer(self) -> bool:
        """Return whether the next question was answered."""
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
            self._take(claims(await self._resources.pods()), number)
            answered = True
            self._say("")
        except KubeletAway as error:
            self._say(str(error))
        finally:
            for each in waiting:
                if not each.done():
                    each.set_result(answered)
        return answered

    def _take(self, claimed: list[Claim], number: int) -> None:
        self._beginning = {slot: first for slot, first in self._beginning.items() if first > number}
        self._claims = [claim for claim in claimed if claim.slot not in self._beginning]
        self.answered_once = True
        self._contested.take(self._claims, self._pods.known)
        self._join()
        self._former = {slot: hold for slot, hold in self._former.items() if slot in self._beginning}

    def _join(self) -> None:
        holds = join(self._claims, self._pods.known, self._pods.synced, self.holds, self._former)
        self.holds = {
            slot: replace(hold, others=self._contested.others(slot, hold.key)) for slot, hold in holds.items()
        }
        self._on_change()

    def _say(self, what: str) -> None:
        if bool(what) != bool(self._away):
            _log.warning("kubelet: %s", f"does not answer, what it said last stands: {what}" if what else "answers")
        self._away = what


async def _within(seconds: float, event: asyncio.Event) -> None:
    """Wait for an event, or so long."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()
