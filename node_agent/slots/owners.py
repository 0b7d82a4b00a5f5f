"""Processes that own slots: a slot that was made for processes ends when the last of them has ended in any way.

Processes that they have started may outlive them and still use the slot. It then keeps its ended owner, which names its
job, until the last client has left.
"""

import asyncio
import os
from collections.abc import Callable, Iterable

from orion.node_agent.processes.liveness import Owner
from orion.node_agent.slots.slot import Slot

_AGAIN_SECONDS = 1.0


class Owners:
    """Detects the end of each owner by its pidfd. This needs no polling, and a reused process id does no harm.

    Args:
        on_end: called once for each slot whose last owner has ended.
    """

    def __init__(self, on_end: Callable[[Slot], None]) -> None:
        self._on_end = on_end
        self._loop = asyncio.get_running_loop()
        self._living: dict[tuple[Slot, Owner], int | None] = {}
        """ The pidfd of each owner whose end was not reported yet; None: it has none, because it has ended, or because
        none could be opened or waited for yet. """

    def set(self, slot: Slot, owner: Owner | None) -> None:
        """Set the process that owns a slot alone; None: no process."""
        self._forget_all(slot)
        slot.owner, slot.sharers = owner, ()
        if owner is not None:
            self._watch(slot, owner)

    def share(self, slot: Slot, owner: Owner) -> None:
        """Add a process to those that own a slot together."""
        if owner not in slot.sharers:
            slot.sharers = (*slot.sharers, owner)
        if (slot, owner) not in self._living:
            self._watch(slot, owner)

    def ended(self, slots: Iterable[Slot]) -> list[Slot]:
        """Return those of the slots whose owners have all ended."""
        living = {slot for slot, _ in self._living}
        return [slot for slot in slots if slot.owner is not None and slot not in living]

    def close(self) -> None:
        """Stop waiting; slots keep their owners for the next agent."""
        for slot, owner in list(self._living):
            self._forget(slot, owner)

    def _watch(self, slot: Slot, owner: Owner) -> None:
        self._living[slot, owner] = None
        try:
            pidfd = os.pidfd_open(owner.process_id)
            try:
                self._loop.add_reader(pidfd, self._ended, slot, owner)
            except OSError:
                os.close(pidfd)
                raise
        except ProcessLookupError:
            self._loop.call_soon(self._ended, slot, owner)
            return
        except OSError:  # the agent or the machine has no descriptor left, or may wait for no more of them
            self._loop.call_later(_AGAIN_SECONDS, self._watch_again, slot, owner)
            return
        self._living[slot, owner] = pidfd
        if Owner.of(owner.process_id) != owner:
            self._loop.call_soon(self._ended, slot, owner)

    def _watch_again(self, slot: Slot, owner: Owner) -> None:
        if self._living.get((slot, owner), 0) is None:  # not if nobody waits for its end any more
            self._watch(slot, owner)

    def _forget(self, slot: Slot, owner: Owner) -> None:
        pidfd = self._living.pop((slot, owner), None)
        if pidfd is not None:
            self._loop.remove_reader(pidfd)
            os.close(pidfd)

    def _forget_all(self, slot: Slot) -> None:
        for each, owner in list(self._living):
            if each is slot:
                self._forget(slot, owner)

    def _ended(self, slot: Slot, owner: Owner) -> None:
        if (slot, owner) not in self._living:
            return
        self._forget(slot, owner)
        slot.sharers = tuple(each for each in slot.sharers if each != owner)
        if not any(each is slot for each, _ in self._living):
            self._on_end(slot)
