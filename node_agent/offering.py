"""What a device plugin may offer: which GPUs, in how many slots, and what stands against new pods there.

Two things meet here: the slots that each GPU has (slot_numbers.py), and judges (health, cordon, other plugins) who say
where no further pod shall come. The plugin gets the whole of it each time: a list that replaces another cannot drift
from it as a series of changes can.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from orion.hook import layout
from orion.node_agent.gpus.interface import Gpu
from orion.node_agent.ratios import SteppedRatio
from orion.node_agent.slot_numbers import SlotNumbers
from orion.node_agent.tolerating import periodically

if TYPE_CHECKING:
    from orion.crds.node_configuration import NodeSettings
    from orion.node_agent.agent import Agent
    from orion.node_agent.gpus.keeper import HealthKeeper
    from orion.node_agent.served import ServedGpu
    from orion.node_agent.slots import Slot

_LOOK_SECONDS = 1.0
_SPACING_SECONDS = 0.2
""" Between two lists that one watcher gets. """


@dataclass(frozen=True)
class Verdict:
    """What a judge says of a GPU."""

    healthy: bool = True
    cordoned: bool = False
    """ No further pods; those that are there stay. """

    reason: str = ""
    """ One CamelCase word; empty where nothing stands against the GPU. """

    message: str = ""
    """ A sentence for people. """


FINE = Verdict()


class Judge(Protocol):
    """Knows something that may stand against a GPU; whoever changes its mind calls `Offering.changed`."""

    def verdict(self, uuid: str) -> Verdict:
        """Return what is so now."""


class HealthJudge:
    """Speaks for whoever looks after the GPUs' health."""

    def __init__(self, keeper: "HealthKeeper") -> None:
        self._keeper = keeper

    def verdict(self, uuid: str) -> Verdict:
        """Return whether a GPU is well."""
        health = self._keeper.verdict(uuid)
        return Verdict(health.healthy, False, health.reason, health.message)


@dataclass(frozen=True)
class Offered:
    """A GPU as it is offered."""

    gpu: Gpu
    slots: tuple[str, ...]
    held: tuple[str, ...]
    memory_reserved_bytes: int
    hp_busy_ratio: float
    verdict: Verdict


@dataclass(frozen=True)
class NotOffered:
    """A GPU that is not."""

    uuid: str
    reason: str
    message: str


@dataclass(frozen=True)
class Offer:
    """All GPUs of the node."""

    gpus: tuple[Offered, ...]
    not_offered: tuple[NotOffered, ...]


class Offering:
    """The offer of one agent.

    Args:
        agent: whose GPUs and slots.
    """

    def __init__(self, agent: "Agent") -> None:
        self._agent = agent
        self.slots = SlotNumbers(agent)
        self._judges: list[Judge] = []
        self._watchers: set[asyncio.Event] = set()
        self._ratios: dict[str, SteppedRatio] = {}
        self._last: Offer | None = None

    @property
    def settings(self) -> "NodeSettings | None":
        """What the configuration says of this node; None: there is none, or none that could be read."""
        return self.slots.settings

    def add_judge(self, judge: Judge) -> None:
        """Let a judge have its say from now on."""
        self._judges.append(judge)
        self.changed()

    def changed(self) -> None:
        """Something may be offered otherwise than before: tell those who watch. To be called on the event loop."""
        for watcher in self._watchers:
            watcher.set()

    async def run(self) -> None:
        """Follow the configuration until cancelled."""
        await periodically("offering: a look", _LOOK_SECONDS, self.look)

    async def watch(self) -> AsyncIterator[Offer]:
        """Yield what is offered: at once, then whenever it differs from what was yielded last."""
        watcher = asyncio.Event()
        self._watchers.add(watcher)
        try:
            before = None
            while True:
                watcher.clear()
                offer = self.look()
                if offer != before:
                    yield offer
                    before = offer
                    await asyncio.sleep(_SPACING_SECONDS)
                try:
                    async with asyncio.timeout(_LOOK_SECONDS):
                        await watcher.wait()
                except TimeoutError:
                    pass
        finally:
            self._watchers.discard(watcher)

    def look(self) -> Offer:
        """Take in the configuration, fit the slots to it, and return what is offered now."""
        self.slots.look()
        offer = self._offer()
        if offer != self._last:
            self._last = offer
            self.changed()
        return offer

    def _offer(self) -> Offer:
        offered, not_offered = [], []
        for served in self._agent.gpus.values():
            gpu = served.board.gpu
            slots = self.slots.offered(gpu.uuid)
            why_not = self.slots.why_not(gpu)
            if why_not is not None and not slots:
                not_offered.append(NotOffered(gpu.uuid, *why_not))
                continue
            verdict = self._verdict(gpu.uuid)
            if why_not is not None and verdict == FINE:
                verdict = Verdict(True, True, *why_not)
            offered.append(
                Offered(
                    gpu=gpu,
                    slots=tuple(slot.name for slot in slots),
                    held=tuple(slot.name for slot in slots if self.slots.in_use(slot)),
                    memory_reserved_bytes=self._agent.holders.reserved_bytes(gpu.uuid),
                    hp_busy_ratio=self._hp_busy_ratio(served, slots),
                    verdict=verdict,
                )
            )
        return Offer(tuple(offered), tuple(not_offered))

    def _hp_busy_ratio(self, served: "ServedGpu", slots: Iterable["Slot"]) -> float:
        """Return what part of the time hp takes; a GPU that hp has left is free at once, whatever went before."""
        board = served.board
        if not any(slot.role is layout.Role.HP and self.slots.in_use(slot) for slot in slots):
            self._ratios.pop(board.gpu.uuid, None)
            return 0.0
        ratio = self._ratios.setdefault(board.gpu.uuid, SteppedRatio(board.hp_busy_ratio))
        return ratio.take(board.hp_busy_ratio, time.monotonic())

    def _verdict(self, uuid: str) -> Verdict:
        """Return what all judges say together; the reason is that of the first who speaks against the GPU."""
        verdicts = [judge.verdict(uuid) for judge in self._judges]
        against = [each for each in verdicts if not each.healthy] + [each for each in verdicts if each.cordoned]
        if not against:
            return FINE
        return Verdict(
            healthy=all(each.healthy for each in verdicts),
            cordoned=any(each.cordoned for each in verdicts),
            reason=against[0].reason,
            message=against[0].message,
        )
