"""hp clients whose pages a test writes as the hook does, and the agent's look at them by a clock that the test sets."""

from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from orion.hook import layout
from orion.node_agent.clients.client import Client
from orion.node_agent.clients.connections import Connection
from orion.node_agent.clients.shared_gpu import SharedGpu
from orion.node_agent.gpus.interface import Gpu
from orion.node_agent.pages import policy_words
from orion.node_agent.pages.client_pages import BusyPage, RecordPage
from orion.node_agent.sharing import windows
from orion.node_agent.slots.slot import Slot

GPU = "GPU-00000000-0000-4000-8000-000000000000"


class HpClient:
    """The pages of an hp client.

    Args:
        writes_periods: as the hook does; an earlier hook only counts them.
    """

    def __init__(self, slot: Slot, number: int, writes_periods: bool) -> None:
        self._memory, busy = bytearray(layout.PAGE_SIZE), bytearray(layout.PAGE_SIZE)
        self.record, self.busy = layout.RecordPage.from_buffer(self._memory), layout.BusyPage.from_buffer(busy)
        self._writes_periods = writes_periods
        self.client = Client(
            slot=slot,
            key=(number, number),
            process_id=number,
            command="",
            busy_id=(0, 0),
            record_id=(0, 0),
            busy=BusyPage(memoryview(busy)),
            record=RecordPage(memoryview(self._memory)),
            connection=cast("Connection", None),
        )

    def open(self, begin: int) -> None:
        """Begin a busy period."""
        self.record.busy_since_ns = begin

    def close(self, end: int) -> None:
        """End the busy period."""
        begin, self.record.busy_since_ns = self.record.busy_since_ns, 0
        if self._writes_periods:
            period = self.record.period[self.record.busy_periods % layout.BUSY_PERIODS]
            period.begin_ns, period.end_ns = begin, end
        self.record.busy_ns += end - begin
        self.record.busy_periods += 1

    def was_busy(self, begin: int, end: int) -> None:
        """Be busy between these times."""
        self.open(begin)
        self.close(end)


class LookedAt:
    """One GPU with hp clients, and the agent's look at them."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 1_000_000_000_000
        monkeypatch.setattr(windows, "time", SimpleNamespace(monotonic_ns=lambda: self.now))
        self._folder = folder
        self.shared_gpu = SharedGpu(Gpu(GPU, 0, "A name", 1 << 30), policy_words.DEFAULT)
        self.activity = windows.Activity(self.shared_gpu)

    def slot(self, name: str, role: layout.Role = layout.Role.HP) -> Slot:
        """Return a slot; make it if it does not exist."""
        if name not in self.shared_gpu.slots:
            self.shared_gpu.slots[name] = Slot(
                GPU, name, role, self._folder / name, self._folder / f"{name}-known", True
            )
        return self.shared_gpu.slots[name]

    def client(self, slot: str = "hp-0", writes_periods: bool = True) -> HpClient:
        """Return a new client of a slot."""
        made = HpClient(self.slot(slot), len(self.shared_gpu.clients), writes_periods)
        self.shared_gpu.add(made.client)
        return made

    def look(self, now: int) -> windows.Look:
        """Look at the clients at that time."""
        self.now = now
        return self.activity.look()
