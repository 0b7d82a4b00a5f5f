"""Computes what a device plugin may advertise: which GPUs, with how many slots, and which are closed to new pods.

A judge is a check that can close a GPU to new pods: its health, a cordon, or another plugin that advertises the GPU.
This module combines the slots of each GPU (slot_numbers.py) with the verdicts of all judges. The plugin always gets the
whole list. If it got only the changes, one missed change would make its list wrong.
"""

import asyncio
import math
import time
from collections.abc import AsyncIterator, Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from orion.hook import layout
from orion.node_agent.advertising.slot_numbers import OpensSlots, SlotNumbers
from orion.node_agent.gpus.interface import Gpu
from orion.node_agent.gpus.keeper import HealthKeeper
from orion.node_agent.pacing.tolerating import periodically
from orion.node_agent.settings import AgentSettings
from orion.node_agent.sharing.served import ServedGpu, ServesGpus
from orion.node_agent.slots.slot import Slot

if TYPE_CHECKING:  # so that an agent without a configuration does not load the API types
    from orion.crds.node_configuration import NodeSettings
    from orion.node_agent.advertising.ownership import Ownership

_LOOK_SECONDS = 1.0
_SPACING_SECONDS = 0.2
""" The minimum time between two lists to one watcher. """
_TIME_CONSTANT_SECONDS = 60.0
_STEP = 0.05
_CLEARLY = 0.8
""" How far the ratio must be from the reported value, in steps, before a new value is reported. """


@dataclass(frozen=True)
class Verdict:
    """The verdict of a judge about a GPU."""

    healthy: bool = True
    cordoned: bool = False
    """ No new pods; running pods stay. """

    reason: str = ""
    """ One CamelCase word; empty: new pods can get the GPU. """

    message: str = ""
    """ One sentence for people. """


FINE = Verdict()


class Judge(Protocol):
    """Decides whether new pods can get a GPU. A judge must call `Advertising.changed` after its verdict changed."""

    def verdict(self, uuid: str) -> Verdict:
        """Return the current verdict."""


class HealthJudge:
    """Judges each GPU by its health."""

    def __init__(self, keeper: HealthKeeper) -> None:
        self._keeper = keeper

    def verdict(self, uuid: str) -> Verdict:
        """Return whether a GPU is healthy."""
        health = self._keeper.verdict(uuid)
        return Verdict(health.healthy, False, health.reason, health.message)


@dataclass(frozen=True)
class AdvertisedGpu:
    """An advertised GPU."""

    gpu: Gpu
    slots: tuple[str, ...]
    held: tuple[str, ...]
    closed: tuple[str, ...]
    """ The slots that no further pod may get. """
    fail_closed: tuple[tuple[str, bool], ...]
    """ The uids of the pods with a slot whose grant is known, and whether they must not start without the hook. """
    memory_reserved_bytes: int
    hp_busy_ratio: float
    verdict: Verdict
    mode: str


@dataclass(frozen=True)
class NotAdvertised:
    """A GPU that is not advertised, with the reason."""

    uuid: str
    reason: str
    message: str


@dataclass(frozen=True)
class AdvertisedDevices:
    """All GPUs of the node."""

    gpus: tuple[AdvertisedGpu, ...]
    not_advertised: tuple[NotAdvertised, ...]
    giver: str = ""
    """ The program that gives slots, where each node chooses; empty: not known, or there is no choice. """
    handover: str = ""
    """ What a change of the giver waits for; empty: there is none to come. """
    other_users: tuple[tuple[str, tuple[str, ...]], ...] = ()
    """ The uids of claims whose pods are others than the driver has named, each with its pods. """


class SteppedRatio:
    """A ratio that is smoothed over a minute and reported in steps, so that it rarely changes.

    For each change, a device plugin sends its whole list to the kubelet again, so this class removes noise. The
    reported value changes only when the ratio is clearly in another step. If every change of the step were reported, a
    ratio between two steps would cause many reports.

    Args:
        first: the first value, 0 to 1.
    """

    def __init__(self, first: float) -> None:
        self._smooth = first
        self._reported = _rounded(first)
        self._at: float | None = None

    def take(self, value: float, now: float) -> float:
        """Process the current value; return the value to report. `now`: in seconds, monotonic."""
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
        agent: the agent whose GPUs and slots are advertised.
    """

    def __init__(self, agent: OpensSlots) -> None:
        self._agent = agent
        self.slots = SlotNumbers(agent)
        self.mode_of: Callable[[str], str] = lambda _: "timeslice"
        """ Returns how processes share a GPU: timeslice or mps. """
        self.ownership: Ownership | None = None
        """ Decides which program gives slots; None: there is no choice. """
        self._judges: list[Judge] = []
        self._watchers: set[asyncio.Event] = set()
        self._ratios: dict[str, SteppedRatio] = {}
        self._last: AdvertisedDevices | None = None

    @property
    def settings(self) -> "NodeSettings | None":
        """The configuration of this node; None: no configuration exists, or the agent could never read it."""
        return self.slots.settings

    def add_judge(self, judge: Judge) -> None:
        """Use the verdicts of this judge from now on."""
        self._judges.append(judge)
        self.changed()

    def changed(self) -> None:
        """Notify the watchers that the list may have changed. Call it on the event loop."""
        for watcher in self._watchers:
            watcher.set()

    async def run(self) -> None:
        """Follow the configuration until cancelled."""
        await periodically("advertising: a check", _LOOK_SECONDS, self.look)

    async def watch(self) -> AsyncIterator[AdvertisedDevices]:
        """Yield the list at once, and again whenever it differs from the last one."""
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
        """Read the configuration, open and close slots for it, and return the current list."""
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
            verdict = self.verdict(gpu.uuid)
            # With MIG, no process can use the whole GPU any more, so a container must not restart on it either.
            mig = self.slots.mig_enabled(gpu.uuid)
            if why_not is not None and (verdict == FINE or (mig and verdict.healthy)):
                verdict = Verdict(not mig, True, *why_not)
            advertised.append(
                AdvertisedGpu(
                    gpu=gpu,
                    slots=tuple(slot.name for slot in slots),
                    held=tuple(slot.name for slot in slots if self.slots.in_use(slot)),
                    closed=tuple(slot.name for slot in slots if self._is_closed(slot)),
                    fail_closed=tuple(self._agent.holders.fail_closed(gpu.uuid).items()),
                    memory_reserved_bytes=self._agent.holders.reserved_bytes(gpu.uuid),
                    hp_busy_ratio=self._hp_busy_ratio(served, slots),
                    verdict=verdict,
                    mode=self.mode_of(gpu.uuid),
                )
            )
        owned = self.ownership
        giver, handover = (owned.giver or "", owned.waits_for) if owned is not None else ("", "")
        others = tuple(self._agent.holders.other_users().items())
        return AdvertisedDevices(tuple(advertised), tuple(not_advertised), giver, handover, others)

    def _is_closed(self, slot: Slot) -> bool:
        if self.ownership is not None and self.slots.in_use(slot):
            return self.ownership.contradicts(slot.claim is not None) or self.slots.is_closed(slot)
        return self.slots.is_closed(slot)

    def _hp_busy_ratio(self, served: ServedGpu, slots: Iterable[Slot]) -> float:
        """Return the part of the time in which hp is busy; 0 as soon as no hp slot is in use."""
        shared_gpu = served.shared_gpu
        if not any(slot.role is layout.Role.HP and self.slots.in_use(slot) for slot in slots):
            self._ratios.pop(shared_gpu.gpu.uuid, None)
            return 0.0
        ratio = self._ratios.setdefault(shared_gpu.gpu.uuid, SteppedRatio(shared_gpu.hp_busy_ratio))
        return ratio.take(shared_gpu.hp_busy_ratio, time.monotonic())

    def verdict(self, uuid: str) -> Verdict:
        """Combine the verdicts of all judges.

        The reason is that of the first verdict that is unhealthy. If none is, it is that of the first cordoned verdict.
        """
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


class AdvertisesGpus(ServesGpus, Protocol):
    """What judges need from an agent."""

    @property
    def settings(self) -> AgentSettings:
        """The agent's settings."""

    @property
    def advertising(self) -> Advertising:
        """The agent's `Advertising`. Judges ask it for the configuration and the slots in use, and notify it."""
