"""Sends be clients the busy pages of all living hp clients of their GPU, their neighbours.

A busy page shows whether its hp client is busy. There is no queue of changes. For each be client, the agent remembers
which busy pages it has sent. An update sends the difference between these pages and the pages that exist now. So a be
client that does not read its socket uses no more memory over time, and the agent never sends pages of hp clients that
joined and left between two updates.

The agent collects changes for 20 ms, and longer if the last update of all be clients took long. So a process that joins
again and again uses only a limited part of the agent's time and of the be clients' time.
"""

import asyncio
import itertools
import time
from collections.abc import Iterable

from orion.hook import join, layout
from orion.node_agent.clients import messages
from orion.node_agent.clients.client import Client, ClientKey
from orion.node_agent.clients.shared_gpu import SharedGpu

_GATHER_SECONDS = 0.02
_DUTY = 10
""" Updates take at most 1/_DUTY of a CPU core. """


class Neighbours:
    """The updates of one GPU's be clients."""

    def __init__(self, shared_gpu: SharedGpu) -> None:
        self._shared_gpu = shared_gpu
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._not_before = 0.0

    def changed(self) -> None:
        """Update all be clients soon."""
        if self._timer is None:
            at = max(self._loop.time() + _GATHER_SECONDS, self._not_before)
            self._timer = self._loop.call_at(at, self._update_all)

    def introduce(self, client: Client) -> None:
        """Send a be client its first list of hp clients at once, even an empty list."""
        if not self._shared_gpu.living_hp:
            client.connection.send(messages.listing(join.MessageType.NEIGHBOURS, []))
        self.update(client)

    def update(self, client: Client) -> None:
        """Send a be client the changes since its last update, as many as its connection can take."""
        living = self._shared_gpu.living_hp
        if living.keys() == client.sent and not client.stale:
            return
        awaited = {each.key for each in self._shared_gpu.awaited.values()}
        gone = sorted((client.sent | client.stale) - living.keys() - awaited)
        for chunk in _chunks(gone):
            if client.connection.full:
                return
            client.connection.send(messages.listing(join.MessageType.GONE, chunk))
            client.sent.difference_update(chunk)
            client.stale.difference_update(chunk)
        if not awaited:
            client.stale.clear()
        for chunk in _chunks([key for key in living if key not in client.sent]):
            if client.connection.full:
                return
            pages = [living[key].busy_descriptor for key in chunk]
            client.connection.send(messages.listing(join.MessageType.NEIGHBOURS, chunk), pages)
            client.sent.update(chunk)

    def close(self) -> None:
        """Send no more updates."""
        if self._timer is not None:
            self._timer.cancel()

    def _update_all(self) -> None:
        self._timer = None
        began = time.thread_time()  # not the time of day: an agent that was stopped meanwhile has used none
        for client in self._shared_gpu.of_role(layout.Role.BE):
            self.update(client)
        self._not_before = self._loop.time() + _DUTY * (time.thread_time() - began)


def _chunks(keys: Iterable[ClientKey]) -> Iterable[list[ClientKey]]:
    rest = iter(keys)
    while chunk := list(itertools.islice(rest, join.FDS_MAX)):
        yield chunk
