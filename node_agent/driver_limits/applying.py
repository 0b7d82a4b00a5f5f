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
from pathlib import Path
from typing import NamedTuple

from orion.errors import Unavailable
from orion.node_agent.driver_limits.interface import LimitsMemory
from orion.node_agent.gpus.asking import AskingThread
from orion.node_agent.pacing.tolerating import Tolerating
from orion.node_agent.sharing.served import ServedGpu

_LOOK_SECONDS = 1.0
_AGAIN_SECONDS = 30.0
""" After this time a refused limit is tried again. """


class _Limited(NamedTuple):
    """A GPU and the cgroup of a container that has a slot of it."""

    gpu: str
    cgroup: Path


class _Held(NamedTuple):
    """A slot that a pod holds; limit 0: it has none."""

    gpu: str
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
        self._containers: dict[tuple[str, str], _Containers] = {}
        """ By GPU and slot. """
        self._set: dict[_Limited, int] = {}
        """ 0: any limit of an earlier agent was removed. """
        self._refused: dict[_Limited, tuple[int, float, str]] = {}
        """ The limit that was refused, when, and why. """
        self._thread = AskingThread("driver-limits")

    async def run(self) -> None:
        """Look until cancelled."""
        tolerating = Tolerating("gpus: the driver's limits of memory")
        while True:
            with tolerating:
                await self.look()
            await asyncio.sleep(_LOOK_SECONDS)

    async def look(self) -> None:
        """Set, change and remove the limits once. A driver that hangs blocks only this call."""
        await asyncio.wrap_future(self._thread.submit(self._apply, self._held()))
        for uuid, served in self._gpus.items():
            served.conditions.driver_limits = _sentence(list(self._lacking(uuid)))

    def close(self) -> None:
        """End the thread. The limits stay: containers run on without an agent."""
        self._thread.close()

    def _held(self) -> list[_Held]:
        """Return the slots that pods hold."""
        return [
            _Held(uuid, slot.name, holder, slot.grant.memory_limit_bytes,
                  frozenset(client.process_id for client in served.shared_gpu.of_slot(slot)))
            for uuid, served in self._gpus.items()
            for slot in served.shared_gpu.slots.values()
            if (holder := slot.claim.uid if slot.claim is not None else slot.holder)
        ]  # fmt: skip

    def _apply(self, held: list[_Held]) -> None:
        wanted = self._wanted(held)
        for limited in self._set.keys() - wanted.keys():
            self._remove(limited)
        self._refused = {limited: why for limited, why in self._refused.items() if limited in wanted}
        for limited, limit_bytes in wanted.items():
            if self._set.get(limited) != limit_bytes:
                self._put(limited, limit_bytes)

    def _wanted(self, held: list[_Held]) -> dict[_Limited, int]:
        """Return the limit of each container; 0: none. One with several slots of a GPU gets the sum of their limits."""
        before, self._containers = self._containers, {}
        wanted: dict[_Limited, int] = {}
        for each in held:
            found = before.get((each.gpu, each.slot))
            if found is None or found.holder != each.holder:
                found = _Containers(each.holder)
            self._containers[each.gpu, each.slot] = found
            found.limited = bool(each.limit_bytes)
            new = each.process_ids - found.known.keys()
            found.known = {process: cgroup for process, cgroup in found.known.items() if process in each.process_ids}
            found.known |= {process: self._cgroup_of(process) for process in new}
            named = found.cgroups | {cgroup for cgroup in found.known.values() if cgroup is not None}
            found.cgroups = {cgroup for cgroup in named if cgroup.is_dir()}
            for cgroup in found.cgroups:
                limited = _Limited(each.gpu, cgroup)
                wanted[limited] = wanted.get(limited, 0) + each.limit_bytes
        return wanted

    def _lacking(self, gpu: str) -> Iterator[str]:
        """Yield why containers have no limit on a GPU, one sentence for each."""
        yield from (why for limited, (limit, _, why) in self._refused.items() if limited.gpu == gpu and limit)
        for (uuid, slot), found in self._containers.items():
            if uuid == gpu and found.limited and None in found.known.values():
                yield f"the cgroup of a process in slot {slot} was not found; it must be of cgroup v2 and visible here"

    def _put(self, limited: _Limited, limit_bytes: int) -> None:
        refused, tried, _ = self._refused.get(limited, (-1, 0.0, ""))
        may_wait = limit_bytes or limited not in self._set  # a limit that this agent has set must go at once
        if refused == limit_bytes and may_wait and self._clock() - tried < _AGAIN_SECONDS:
            return
        try:
            if limit_bytes:
                self._driver.set(limited.gpu, limited.cgroup, limit_bytes)
            else:
                self._driver.remove(limited.gpu, limited.cgroup)
        except Unavailable as error:
            self._refused[limited] = limit_bytes, self._clock(), str(error)
        else:
            self._refused.pop(limited, None)
            self._set[limited] = limit_bytes

    def _remove(self, limited: _Limited) -> None:
        """Remove a limit; one that the driver keeps is tried again with the next look, while its cgroup exists."""
        try:
            if self._set[limited] and limited.cgroup.is_dir():
                self._driver.remove(limited.gpu, limited.cgroup)
        except Unavailable:
            return
        del self._set[limited]


def _sentence(why: list[str]) -> str:
    if not why:
        return ""
    others = f" (and {len(why) - 1} more)" if len(why) > 1 else ""
    return f"the driver holds no limit for a container{others}, so only the hook's limit holds: {why[0]}"
