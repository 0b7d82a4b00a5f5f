"""A client: a process that has joined a slot, as the agent knows it."""

import contextlib
import json
import time
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

from orion.hook import layout
from orion.node_agent import descriptors, messages, pages
from orion.node_agent.connections import Connection

if TYPE_CHECKING:
    from orion.node_agent.slots import Slot

Seat = tuple[int, int]
""" Place and generation: names a client on its GPU for ever, since generations never repeat there. """


@dataclass(eq=False)
class Client:
    """A seat on a GPU's board, with the pages that its process writes.

    Descriptors: ``writable`` are the two pages' until they are sealed; ``busy_descriptor`` is read-only, kept for hp
    clients, to be handed to be clients.
    """

    slot: "Slot"
    seat: Seat
    process_id: int
    command: str
    busy_id: tuple[int, int]
    record_id: tuple[int, int]
    busy: pages.BusyPage
    record: pages.RecordPage
    connection: Connection
    busy_descriptor: int = -1
    writable: list[int] = field(default_factory=list)
    joined_ns: int = field(default_factory=time.monotonic_ns)
    ready: bool = False
    condition: str = ""
    sent: set[Seat] = field(default_factory=set)
    """ be: the hp clients whose pages it was given. """
    stale: set[Seat] = field(default_factory=set)
    """ be: hp clients that it may know from an agent before this one. """
    last_launches: int = 0
    last_wanted_ns: int = 0
    last_busy_ns: int = 0
    last_gpu_ns: int = 0

    @property
    def role(self) -> layout.Role:
        """The slot's role; a client has none of its own."""
        return self.slot.role

    @cached_property
    def text(self) -> str:
        """What adoption needs of it, as JSON (`state.RememberedClient`)."""
        place, generation = self.seat
        return json.dumps(
            {
                "slot": self.slot.name,
                "place": place,
                "generation": generation,
                "process_id": self.process_id,
                "command": self.command,
                "busy": self.busy_id,
                "record": self.record_id,
            }
        )

    def seal(self) -> None:
        """Let nobody else write its pages any more.

        Raises:
            OSError: the client has sealed them in another way.
        """
        for descriptor in self.writable:
            descriptors.seal_against_writers(descriptor)
        descriptors.close(self.writable)
        self.writable = []
        self.ready = True
        if self.role is not layout.Role.HP:
            self._close_busy()

    def inform(self) -> None:
        """Give it what its slot knows about kernels."""
        with contextlib.suppress(OSError):  # else it begins cold
            table = self.slot.knowledge.table()
            if table >= 0:
                self.connection.send(messages.knowledge(len(self.slot.knowledge)), [table])

    def release(self) -> None:
        """Give back its connection and descriptors."""
        self.connection.close()
        descriptors.close(self.writable)
        self.writable = []
        self._close_busy()

    def _close_busy(self) -> None:
        if self.busy_descriptor >= 0:
            descriptors.close([self.busy_descriptor])
            self.busy_descriptor = -1
