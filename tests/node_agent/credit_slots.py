"""A slot whose clients share a limit of memory, with stand-ins for the clients and for the driver."""

import os
import time
from types import SimpleNamespace
from typing import Any

from orion.hook.layout import ParkingState
from orion.node_agent.clients.credit import Credit
from orion.node_agent.pages import agent_pages
from orion.node_agent.pages.parking_words import ParkingAnswer

LIMIT = 512
MIB = 1 << 20


class Record:
    """A stand-in for a client's page: what the client holds at each of the agent's looks; the last one stays."""

    def __init__(self, *held: int) -> None:
        self.held = list(held)
        self.meanwhile: tuple[int, ...] = ()
        """ What it holds at other moments. """
        self.credit_epoch = 0
        self.parking = ParkingAnswer.of(ParkingState.RUNNING)

    @property
    def memory_mib(self) -> int:
        return self.held.pop(0) if len(self.held) > 1 else self.held[0]

    def memory_since_mib(self, question: int) -> tuple[int, int]:
        held = (self.memory_mib, *self.meanwhile)
        return min(held), max(held)


class StandIn(SimpleNamespace):
    """In place of a client."""

    def __hash__(self) -> int:  # type: ignore[override]
        return id(self)


class Slots:
    """One slot with clients, in place of a GPU.

    Args:
        is_new: no client has made a context yet; else the agent knows that contexts take nothing.
    """

    def __init__(self, is_new: bool = False) -> None:
        grant = SimpleNamespace(memory_limit_bytes=LIMIT * MIB)
        self.slot: Any = SimpleNamespace(name="be-0", page=agent_pages.GrantPage("GPU-1"), grant=grant)
        self.slots, self.clients, self.awaited = {"be-0": self.slot}, dict[int, Any](), dict[int, Any]()
        self.gpu = SimpleNamespace(memory_bytes=40 * LIMIT * MIB)
        self.credit = Credit(self)  # type: ignore[arg-type]
        if not is_new:
            self._learn()

    def _learn(self) -> None:
        self.credit.asked(self.join(1), 1)
        says(self, 1)
        self.clients.clear()

    def of_slot(self, slot: object) -> list[Any]:
        return list(self.clients.values())

    def join(self, *held: int, **given: Any) -> Any:
        """Add a client; its process is this one, which lives."""
        index = len(self.clients)
        client = StandIn(
            slot=self.slot, key=(index, 1), process_id=os.getpid(), program=None, record=Record(*held),
            keeps_credit=True, returned=False, awaits_driver=False, wished_ns=0, joined_ns=0, uncounted_mib=0,
            said_mib=0, last_uncounted_mib=None, is_listed=False, listed_mib=0, before_lowering=(0, 0),
            left_mib=None,
        )  # fmt: skip
        vars(client).update(given)
        self.clients[index] = client
        self.credit.joined(client)  # type: ignore[arg-type]
        return client

    def come_back(self, held: int) -> Any:
        """Add a client of an earlier agent; its process is another one than that of the others, and lives."""
        now = time.monotonic_ns()
        client = self.join(
            held, returned=True, awaits_driver=True, is_listed=True, joined_ns=now, process_id=os.getppid()
        )
        client.record.credit_epoch = self.slot.page.epoch
        return client

    def credit_of(self, client: Any) -> int:
        return self.slot.page.credit(client.key[0])  # type: ignore[no-any-return]

    def used(self) -> int:
        """Return what the slot's page says that its processes hold."""
        return self.slot.page._words[agent_pages.GrantPage._used]  # type: ignore[no-any-return]

    def give(self, client: Any, mib: int, *held: int) -> None:
        self.slot.page.set_credit(client.key[0], mib)
        client.record.held = list(held)


def says(slots: Slots, held_mib: int) -> None:
    """Let the driver say what this process, which is that of all clients, holds."""
    slots.credit.asks()
    slots.credit.answered({os.getpid(): held_mib * MIB})


def is_in(client: Any, state: ParkingState) -> None:
    """Let a client say where its memory is."""
    client.record.parking = ParkingAnswer.of(state)
