"""The agent's current snapshot, and a notifier for the tasks that pass it on."""

import asyncio
import time

from orion.injection.snapshot import Snapshot


class Notifier:
    """Wakes all tasks that wait for the next change.

    To miss no change, a task takes `next`, then reads the state, and then waits for the event.
    """

    def __init__(self) -> None:
        self._event = asyncio.Event()

    @property
    def next(self) -> asyncio.Event:
        """The event that the next change sets."""
        return self._event

    def notify(self) -> None:
        """Wake the tasks that wait."""
        self._event.set()
        self._event = asyncio.Event()


class CurrentSnapshot:
    """The current snapshot; None before the first."""

    def __init__(self) -> None:
        self.snapshot: Snapshot | None = None
        self.received_at: float = 0.0
        """ The monotonic time at which the agent last sent a snapshot to this process; 0: it has not sent one. """
        self.changed = Notifier()

    def take(self, snapshot: Snapshot, *, from_agent: bool = True) -> bool:
        """Use a snapshot from now on; return whether it differs from the one before."""
        if from_agent:
            self.received_at = time.monotonic()
        if snapshot == self.snapshot:
            return False
        self.snapshot = snapshot
        self.changed.notify()
        return True

    async def first(self) -> Snapshot:
        """Return the snapshot; wait for the first one."""
        while self.snapshot is None:
            await self.changed.next.wait()
        return self.snapshot
