"""Keeps the driver's limits of containers equal to the limits of their slots.

A container's cgroup is known from the first of its processes that joins. It then has the limit until the slot is given
to somebody else, even while none of its processes runs. A limit of a container that ended while no agent ran goes with
its cgroup: the driver keeps nothing back for it. A limit that was taken off while no agent ran is removed when the
container is seen: the agent cannot ask the driver which limits it has.
"""

import asyncio
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import NamedTuple

from orion.errors import Unavailable
from orion.node_agent.driver_limits.interface import LimitsMemory
from orion.node_agent.gpus.asking import Questions
from orion.node_agent.pacing.tolerating import Tolerating
from orion.node_agent.sharing.served import ServedGpu
from orion.node_agent.slots.slot import Slot

_LOOK_SECONDS = _ANSWER_SECONDS = 1.0
_AGAIN_SECONDS = 30.0
""" After this time a refused limit is tried again. """


class _Held(NamedTuple):
    """A slot that a pod holds; limit 0: it has none."""

    slot: str
    holder: str
    limit_bytes: int
    process_ids: frozenset[int]


@dataclass
class _Containers:
    """The containers that use a slot."""

    holder: str
    cgroups: set[Path] = field(default_factory=set)
    known: dict[int, Path | None] = field(default_factory=dict)
    """ The cgroup of each process that has joined and lives; None: it was not found. """
    limited: bool = False
    """ Whether the slot has a limit. """


class DriverLimits:
    """The driver's limits on the GPUs of one agent.

    Args:
        driver: sets the limits.
        gpus: by UUID; more may come later.
        cgroup_of: returns the cgroup of a process's container; None: it has none, or it is not known.
        clock: monotonic seconds.
    """

    def __init__(
        self,
        driver: LimitsMemory,
        gpus: Mapping[str, ServedGpu],
        cgroup_of: Callable[[int], Path | None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._driver, self._gpus, self._cgroup_of, self._clock = driver, gpus, cgroup_of, clock
        self._limits: dict[str, _Limits] = {}
        """ By GPU. """
        self._questions = Questions[str]("the driver's limits of memory", _ANSWER_SECONDS)

    async def run(self) -> None:
        """Look until cancelled."""
        tolerating = Tolerating("gpus: the driver's limits of memory")
        while True:
            with tolerating:
                await self.look()
            await asyncio.sleep(_LOOK_SECONDS)

    async def look(self) -> None:
        """Set, change and remove the limits once."""
        for uuid in self._gpus.keys() - self._limits.keys():
            self._limits[uuid] = _Limits(self._driver, uuid, self._cgroup_of, self._clock)
        asked = {uuid: partial(self._limits[uuid].apply, _held(served)) for uuid, served in self._gpus.items()}
        for uuid, sentence in (await self._questions.ask(asked)).items():
            self._gpus[uuid].conditions.driver_limits = sentence

    def close(self) -> None:
        """End the threads. The limits stay: containers run on without an agent."""
        self._questions.close()


def _held(served: ServedGpu) -> list[_Held]:
    """Return the slots that pods hold."""
    shared_gpu = served.shared_gpu
    return [
        _Held(slot.name, holder, _limit(slot),
              frozenset(client.process_id for client in shared_gpu.of_slot(slot)))
        for slot in shared_gpu.slots.values()
        if (holder := slot.claim.uid if slot.claim is not None else slot.holder)
    ]  # fmt: skip


def _limit(slot: Slot) -> int:
    """Return a slot's limit; 0: none. Processes that are away come back with all that they have left."""
    limit = slot.grant.memory_limit_bytes
    return max(limit, slot.parking.left_bytes) if limit else 0


class _Limits:
    """The driver's limits on one GPU; used in the thread that asks about it."""

    def __init__(
        self,
        driver: LimitsMemory,
        gpu: str,
        cgroup_of: Callable[[int], Path | None],
        clock: Callable[[], float],
    ) -> None:
        self._driver, self._gpu, self._cgroup_of, self._clock = driver, gpu, cgroup_of, clock
        self._containers: dict[str, _Containers] = {}
        """ By slot. """
        self._set: dict[Path, int] = {}
        """ By cgroup. 0: any limit of an earlier agent was removed. """
        self._refused: dict[Path, tuple[int, float, str]] = {}
        """ The limit that was refused, when, and why. """

    def apply(self, held: list[_Held]) -> str:
        """Set, change and remove the limits once; return what people should know, as sentences."""
        wanted = self._wanted(held)
        for cgroup in self._set.keys() - wanted.keys():
            self._remove(cgroup)
        self._refused = {each: why for each, why in self._refused.items() if each in wanted or each in self._set}
        for cgroup, limit_bytes in wanted.items():
            if self._set.get(cgroup) != limit_bytes:
                self._put(cgroup, limit_bytes)
        only_hook = "the driver holds no limit for a container{}, so only the hook's limit holds: {}"
        kept = "the driver keeps an earlier limit of a container{}: {}"
        return "; ".join(filter(None, (_sentence(only_hook, [*self._lacking()]), _sentence(kept, [*self._kept()]))))

    def _wanted(self, held: list[_Held]) -> dict[Path, int]:
        """Return the limit of each container; 0: none. One with several slots of the GPU gets their sum."""
        before, self._containers = self._containers, {}
        wanted: dict[Path, int] = {}
        for each in held:
            found = before.get(each.slot)
            if found is None or found.holder != each.holder:
                found = _Containers(each.holder)
            self._containers[each.slot] = found
            found.limited = bool(each.limit_bytes)
            new = each.process_ids - found.known.keys()
            found.known = {process: cgroup for process, cgroup in found.known.items() if process in each.process_ids}
            found.known |= {process: self._cgroup_of(process) for process in new}
            named = found.cgroups | {cgroup for cgroup in found.known.values() if cgroup is not None}
            found.cgroups = {cgroup for cgroup in named if cgroup.is_dir()}
            for cgroup in found.cgroups:
                wanted[cgroup] = wanted.get(cgroup, 0) + each.limit_bytes
        return wanted

    def _lacking(self) -> Iterator[str]:
        """Yield why containers have no limit, one sentence for each."""
        yield from (why for cgroup, (limit, _, why) in self._refused.items() if limit and not self._set.get(cgroup))
        for slot, found in self._containers.items():
            if found.limited and None in found.known.values():
                yield f"the cgroup of a process in slot {slot} was not found; it must be of cgroup v2 and visible here"

    def _kept(self) -> Iterator[str]:
        """Yield which limits of this agent the driver did not change or remove, and why."""
        for cgroup, (_, _, why) in self._refused.items():
            if self._set.get(cgroup):
                yield f"{cgroup.name}: {why}"

    def _put(self, cgroup: Path, limit_bytes: int) -> None:
        refused, tried, _ = self._refused.get(cgroup, (-1, 0.0, ""))
        may_wait = limit_bytes or cgroup not in self._set  # a limit that this agent has set must go at once
        if refused == limit_bytes and may_wait and self._clock() - tried < _AGAIN_SECONDS:
            return
        try:
            if limit_bytes:
                self._driver.set(self._gpu, cgroup, limit_bytes)
            else:
                self._driver.remove(self._gpu, cgroup)
        except Unavailable as error:
            self._refused[cgroup] = limit_bytes, self._clock(), str(error)
        else:
            self._refused.pop(cgroup, None)
            self._set[cgroup] = limit_bytes

    def _remove(self, cgroup: Path) -> None:
        """Remove the limit of a container without a slot; one that is kept is tried again while its cgroup exists."""
        if self._set[cgroup] and cgroup.is_dir():
            self._put(cgroup, 0)
        if not (self._set[cgroup] and cgroup.is_dir()):
            del self._set[cgroup]


def _sentence(text: str, why: list[str]) -> str:
    """Return a text with the number of containers beyond the first one, and why; empty: it is about none."""
    return text.format(f" (and {len(why) - 1} more)" if len(why) > 1 else "", why[0]) if why else ""
