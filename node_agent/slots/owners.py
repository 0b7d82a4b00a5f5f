"""Processes that own slots: a slot that was made for one process ends when that process ends in any way."""

import asyncio
import os
from collections.abc import Callable

from orion.node_agent.processes.liveness import Owner
from orion.node_agent.slots.slot import Slot


class Owners:
    """Detects the end of each owner by its pidfd. This needs no polling, and a reused process id does no harm.

    Args:
        on_end: called once for each slot whose owner has ended.
    """

    def __init__(self, on_end: Callable[[Slot], None]) -> None:
        self._on_end = on_end
        self._loop = asyncio.get_running_loop()
        self._pidfds: dict[Slot, int] = {}

    def set(self, slot: Slot, owner: Owner | None) -> None:
        """Set the process that owns a slot; None: no process."""
        slot.owner = owner
        self._forget(slot)
        if owner is None:
            return
        try:
            self._pidfds[slot] = os.pidfd_open(owner.process_id)
        except OSError:
            self._loop.call_soon(self._ended, slot, owner)
            return
        if Owner.of(owner.process_id) == owner:
            self._loop.add_reader(self._pidfds[slot], self._ended, slot, owner)
        else:
            self._loop.call_soon(self._ended, slot, owner)

    def close(self) -> None:
        """Stop waiting; slots keep their owners for the next agent."""
        for slot in list(self._pidfds):
            self._forget(slot)

    def _forget(self, slot: Slot) -> None:
        pidfd = self._pidfds.pop(slot, None)
        if pidfd is not None:
            self._loop.remove_reader(pidfd)
            os.close(pidfd)

    def _ended(self, slot: Slot, owner: Owner) -> None:
        self._forget(slot)
        if slot.owner is owner:
            self._on_end(slot)
