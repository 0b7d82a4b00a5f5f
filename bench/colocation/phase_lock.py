"""A lock for two groups that exclude each other: measurements and changes. A change starts or ends processes.

The driver holds locks of the whole host while a process starts or ends on any GPU. A request that is measured on
another GPU meanwhile takes tens of milliseconds longer. So no measurement runs during a change. The lock is like a
readers-writer lock, but changes of several GPUs run together: all GPUs are idle during a phase of changes, so they
should share the phase. (The literature calls this group mutual exclusion, here with two groups.) A party is the thread
of one GPU.

* A waiting change keeps new measurements out. The change begins when the last running measurement has ended.
* A change may join a running phase of changes. While measurements wait, each party may join once per phase.
* After a phase of changes, all waiting measurements begin, even if more changes wait.

So phases alternate if both groups wait, and neither group starves.
"""

import contextlib
import threading
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass
from typing import Literal

Kind = Literal["measure", "change"]
OTHER: dict[Kind, Kind] = {"measure": "change", "change": "measure"}
TICK_SECONDS = 0.1


@dataclass(eq=False)
class Ticket:
    """A request to enter a phase."""

    kind: Kind
    party: Hashable
    granted: bool = False


class Phases:
    """The rules of the lock, without waits; not thread-safe."""

    def __init__(self) -> None:
        self._kind: Kind = "measure"
        """Kind of the current or last phase."""
        self._inside: list[Ticket] = []
        self._waiting: list[Ticket] = []
        self._served: set[Hashable] = set()
        """Parties that entered during this phase."""

    def ask(self, kind: Kind, party: Hashable) -> Ticket:
        """Create a ticket; it is granted at once, or by a later `give_back` of another ticket."""
        ticket = Ticket(kind, party)
        self._waiting.append(ticket)
        self._grant()
        return ticket

    def give_back(self, ticket: Ticket) -> None:
        """Leave the phase or, if the ticket was not granted, stop waiting."""
        (self._inside if ticket.granted else self._waiting).remove(ticket)
        self._grant()

    def is_pending(self, kind: Kind) -> bool:
        """Return whether a ticket of this kind is in its phase, or waits for it."""
        return any(ticket.kind == kind for ticket in (*self._inside, *self._waiting))

    def _grant(self) -> None:
        waiting: dict[Kind, list[Ticket]] = {
            kind: [ticket for ticket in self._waiting if ticket.kind == kind] for kind in OTHER
        }
        fresh = not self._inside
        if fresh:
            self._served.clear()
            if waiting[OTHER[self._kind]]:
                self._kind = OTHER[self._kind]
        alone = not waiting[OTHER[self._kind]]
        for ticket in waiting[self._kind]:
            if fresh or alone or (self._kind == "change" and ticket.party not in self._served):
                ticket.granted = True
                self._served.add(ticket.party)
                self._waiting.remove(ticket)
                self._inside.append(ticket)


class PhaseLock:
    """The lock, for threads that each act for one party. A thread that is in a phase must not enter a second time."""

    def __init__(self, tick: Callable[[], None] = lambda: None) -> None:
        """Args: tick is called ten times a second during waits; an exception from tick ends the wait."""
        self._phases = Phases()
        self._changed = threading.Condition()
        self._tick = tick

    @property
    def change_pending(self) -> bool:
        """Whether a change runs or waits; a measurement that begins now would have to wait."""
        with self._changed:
            return self._phases.is_pending("change")

    @contextlib.contextmanager
    def inside(self, kind: Kind, party: Hashable) -> Iterator[None]:
        """Wait for a phase of this kind; the phase lasts at least until the block ends."""
        with self._changed:
            ticket = self._phases.ask(kind, party)
        try:
            while not self._wait(ticket):
                self._tick()
            yield
        finally:
            with self._changed:
                self._phases.give_back(ticket)
                self._changed.notify_all()

    def _wait(self, ticket: Ticket) -> bool:
        with self._changed:
            return ticket.granted or (self._changed.wait(TICK_SECONDS) and ticket.granted)
