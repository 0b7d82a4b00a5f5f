"""A lock for two groups that exclude each other: measurements, and starts and ends of processes.

The driver holds locks of the whole host while a process starts or ends, on whichever GPU: a request that is measured on
another one then takes tens of milliseconds longer. So nobody measures while anybody changes something. It is a
readers-writer lock whose writers do not exclude each other, since an exclusive phase idles all GPUs and one that many
use costs no more than one that a single GPU uses (in the literature: group mutual exclusion, with two groups).

* A change that waits keeps further measurements out (writers are preferred), and comes when the last of them has ended.
* A change joins a phase of changes that goes on; while measurements wait, each party may do so once a phase.
* After a phase of changes all measurements that waited begin, even if further changes wait.

So phases alternate where both groups wait, and neither starves.
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
    """A wish to be inside."""

    kind: Kind
    party: Hashable
    granted: bool = False


class Phases:
    """The rules alone, without waiting; not for several threads at once."""

    def __init__(self) -> None:
        self._kind: Kind = "measure"
        """Of the phase that goes on, or was the last."""
        self._inside: list[Ticket] = []
        self._waiting: list[Ticket] = []
        self._served: set[Hashable] = set()
        """Parties that came in during this phase."""

    def ask(self, kind: Kind, party: Hashable) -> Ticket:
        """Take a ticket; it may be granted at once, or by a later `give_back`."""
        ticket = Ticket(kind, party)
        self._waiting.append(ticket)
        self._grant()
        return ticket

    def give_back(self, ticket: Ticket) -> None:
        """Go out, or wait no longer."""
        (self._inside if ticket.granted else self._waiting).remove(ticket)
        self._grant()

    def wished(self, kind: Kind) -> bool:
        """Say whether anybody is inside, or waits, for this."""
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
    """The lock, for threads that each act for one party; nobody may ask while inside."""

    def __init__(self, tick: Callable[[], None] = lambda: None) -> None:
        """Args: tick is called ten times a second while waiting; what it raises ends the wait."""
        self._phases = Phases()
        self._changed = threading.Condition()
        self._tick = tick

    @property
    def change_wished(self) -> bool:
        """Whether somebody changes something, or waits for it: who begins a measurement now would wait."""
        with self._changed:
            return self._phases.wished("change")

    @contextlib.contextmanager
    def inside(self, kind: Kind, party: Hashable) -> Iterator[None]:
        """Wait for a phase of this kind, and hold it up for the length of the block."""
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
