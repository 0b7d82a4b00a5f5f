"""Sharing the window out among the be clients that use it, and seeing who does.

The window is one for the GPU: the be work that an hp client may have to wait for. It is divided by the agent,
not by the clients, so that a launch reads nobody else's page; first among the slots, then among a slot's clients, so
that a tenant with many processes takes from itself. A share never goes below 50 us, or nobody could launch anything
at once; with more clients than that allows, the sum exceeds the window.
"""

import time
from collections import Counter, deque

from orion.hook import layout
from orion.node_agent.boards import Board

_SMALLEST_SHARE_NS = 50_000
_ACTIVE_NS = 200_000_000
""" A be client counts for so long after it last launched or waited; in its own slot, after it joined too. """
_RATIO_NS = 1_000_000_000


class Activity:
    """Who uses a GPU; reads three words of each client's record."""

    def __init__(self, board: Board) -> None:
        self._board = board
        self._looked_ns = time.monotonic_ns()
        self._samples: deque[tuple[int, int]] = deque()
        """ Elapsed and hp-busy nanoseconds of each look in the last second. """

    def look(self) -> bool:
        """Read the records; return whether anything happened since the last look."""
        now = time.monotonic_ns()
        elapsed, self._looked_ns = now - self._looked_ns, now
        anything, busy = False, 0
        for client in self._board.clients.values():
            record = client.record
            launches = record.launches
            if launches != client.last_launches or record.wants_gpu:
                client.last_launches = launches
                client.last_wanted_ns = now
                anything = True
            if client.role is layout.Role.HP:
                total = record.busy_ns(now)
                busy += max(0, total - client.last_busy_ns)
                client.last_busy_ns = total
        self._samples.append((elapsed, min(busy, elapsed)))
        self._rate()
        return anything

    def share_out(self) -> None:
        """Give each be client its part of the window, where that has changed.

        A slot that is not active has the share that it would get if it became so: its first launches come before
        the next look.
        """
        since = time.monotonic_ns() - _ACTIVE_NS
        wanting: Counter[str] = Counter()
        joined: Counter[str] = Counter()
        for client in self._board.clients.values():
            if client.role is layout.Role.BE:
                wanting[client.slot.name] += client.last_wanted_ns >= since
                joined[client.slot.name] += client.joined_ns >= since > client.last_wanted_ns
        active_slots = sum(count > 0 for count in wanting.values())
        for slot in self._board.slots.values():
            if slot.role is not layout.Role.BE:
                continue
            slots = active_slots + (wanting[slot.name] == 0)
            clients = max(1, wanting[slot.name] + joined[slot.name])
            share = self._board.policy.window_ns // (slots * clients)
            slot.set(window_share_ns=max(share, _SMALLEST_SHARE_NS))

    def _rate(self) -> None:
        whole = sum(elapsed for elapsed, _ in self._samples)
        while len(self._samples) > 1 and whole - self._samples[0][0] >= _RATIO_NS:
            whole -= self._samples.popleft()[0]
        self._board.hp_busy_ratio = sum(busy for _, busy in self._samples) / whole if whole else 0.0
