"""What a device plugin may advertise: which GPUs, in how many slots, and what stands against new pods there.

Two things meet here: the slots that each GPU has (slot_numbers.py), and judges (health, cordon, other plugins) who say
where no further pod shall come. The plugin gets the whole of it each time: a list that replaces another cannot drift
from it as a series of changes can.
"""

import asyncio
import math
import time
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from orion.hook import layout
from orion.node_agent.advertising.slot_numbers import OpensSlots, SlotNumbers
from orion.node_agent.gpus.interface import Gpu
from orion.node_agent.gpus.keeper import HealthKeeper
from orion.node_agent.pacing.tolerating import periodically
from orion.node_agent.sharing.served import ServedGpu
from orion.node_agent.slots.slot import Slot

if TYPE_CHECKING:  # an agent without a configuration loads no API types
    from orion.crds.node_configuration import NodeSettings

_LOOK_SECONDS = 1.0
_SPACING_SECONDS = 0.2
""" Between two lists that one watcher gets. """
_TIME_CONSTANT_SECONDS = 60.0
_STEP = 0.05
_CLEARLY = 0.8
""" Of a step: at this distance from the reported value, the next is reported. """


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
    """Knows something that may stand against a GPU; whoever changes its mind calls `Advertising.changed`."""

    def verdict(self, uuid: str) -> Verdict:
        """Return what is so now."""


class HealthJudge:
    """Speaks for whoever looks after the GPUs' health."""

    def __init__(self, keeper: HealthKeeper) -> None:
        self._keeper = keeper

    def verdict(self, uuid: str) -> Verdict:
        """Return whether a GPU is well."""
        health = self._keeper.verdict(uuid)
        return Verdict(health.healthy, False, health.reason, health.message)


@dataclass(frozen=True)
class AdvertisedGpu:
    """A GPU as it is advertised."""

    gpu: Gpu
    slots: tuple[str, ...]
    held: tuple[str, ...]
    memory_reserved_bytes: int
    hp_busy_ratio: float
    verdict: Verdict


@dataclass(frozen=True)
class NotAdvertised:
    """A GPU that is not."""

    uuid: str
    reason: str
    message: str


@dataclass(frozen=True)
class AdvertisedDevices:
    """All GPUs of the node."""

    gpus: tuple[AdvertisedGpu, ...]
    not_advertised: tuple[NotAdvertised, ...]


class SteppedRatio:
    """A ratio for those who act on it: smoothed over a minute and reported in steps, so that it seldom changes.

    A device plugin sends its whole list to the kubelet again for each change, so noise has to end here. A step is left
    only when the ratio is clearly out of it; else one that hovers between two steps would be reported again and again.

    Args:
        first: its value at the beginning, 0 to 1.
    """

    def __init__(self, first: float) -> None:
        self._smooth = first
        self._reported = _rounded(first)
        self._at: float | None = None

    def take(self, value: float, now: float) -> float:
        """Take in its value now (seconds, monotonic); return what to tell."""
        elapsed = 0.0 if self._at is None else max(0.0, now - self._at)
        self._at = now
        self._smooth += (value - self._smooth) * -math.expm1(-elapsed / _TIME_CONSTANT_SECONDS)
        if abs(self._smooth - self._reported) >= _CLEARLY * _STEP:
            self._reported = _rounded(self._smooth)
        return self._reported


def _rounded(ratio: float) -> float:
    return round(round(ratio / _STEP) * _STEP, 2)


class Advertising:
    """The advertised devices of one agent.

    Args:
        agent: whose GPUs and slots.
    """

    def __init__(self, agent: OpensSlots) -> None:
        self._agent = agent
        self.slots = SlotNumbers(agent)
        self._judges: list[Judge] = []
        self._watchers: set[asyncio.Event] = set()
        self._ratios: dict[str, SteppedRatio] = {}
        self._last: AdvertisedDevices | None = None

    @property
    def settings(self) -> "NodeSettings | None":
        """What the configuration says of this node; None: there is none, or none that could be read."""
        return self.slots.settings

    def add_judge(self, judge: Judge) -> None:
        """Let a judge have its say from now on."""
        self._judges.append(judge)
        self.changed()

    def changed(self) -> None:
        """Something may be advertised otherwise than before: tell those who watch. To be called on the event loop."""
        for watcher in self._watchers:
            watcher.set()

    async def run(self) -> None:
        """Follow the configuration until cancelled."""
        await periodically("advertising: a look", _LOOK_SECONDS, self.look)

    async def watch(self) -> AsyncIterator[AdvertisedDevices]:
        """Yield what is advertised: at once, then whenever it differs from what was yielded last."""
        watcher = asyncio.Event()
        self._watchers.add(watcher)
        try:
            before = None
            while True:
                watcher.clear()
                advertised = self.look()
                if advertised != before:
                    yield advertised
                    before = advertised
                    await asyncio.sleep(_SPACING_SECONDS)
                try:
                    async with asyncio.timeout(_LOOK_SECONDS):
                        await watcher.wait()
                except TimeoutError:
                    pass
        finally:
            self._watchers.discard(watcher)

    def look(self) -> AdvertisedDevices:
        """Take in the configuration, fit the slots to it, and return what is advertised now."""
        self.slots.look()
        advertised = self._advertised()
        if advertised != self._last:
            self._last = advertised
            self.changed()
        return advertised

    def _advertised(self) -> AdvertisedDevices:
        advertised, not_advertised = [], []
        for served in self._agent.gpus.values():
            gpu = served.shared_gpu.gpu
            slots = self.slots.advertised(gpu.uuid)
            why_not = self.slots.why_not(gpu)
            if why_not is not None and not slots:
                not_advertised.append(NotAdvertised(gpu.uuid, *why_not))
                continue
            verdict = self._verdict(gpu.uuid)
            if why_not is not None and verdict == FINE:
                verdict = Verdict(True, True, *why_not)
            advertised.append(
                AdvertisedGpu(
                    gpu=gpu,
                    slots=tuple(slot.name for slot in slots),
                    held=tuple(slot.name for slot in slots if self.slots.in_use(slot)),
                    memory_reserved_bytes=self._agent.holders.reserved_bytes(gpu.uuid),
                    hp_busy_ratio=self._hp_busy_ratio(served, slots),
                    verdict=verdict,
                )
            )
        return AdvertisedDevices(tuple(advertised), tuple(not_advertised))

    def _hp_busy_ratio(self, served: ServedGpu, slots: Iterable[Slot]) -> float:
        """Return what part of the time hp takes; a GPU that hp has left is free at once, whatever went before."""
        shared_gpu = served.shared_gpu
        if not any(slot.role is layout.Role.HP and self.slots.in_use(slot) for slot in slots):
            self._ratios.pop(shared_gpu.gpu.uuid, None)
            return 0.0
        ratio = self._ratios.setdefault(shared_gpu.gpu.uuid, SteppedRatio(shared_gpu.hp_busy_ratio))
        return ratio.take(shared_gpu.hp_busy_ratio, time.monotonic())

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
