"""Divides the window among the be clients that use it, and detects which clients are active.

A GPU has one window: the be work for which an hp client may have to wait. The agent gives each be client a share of the
window, so a client need not read the other clients' pages at a launch. The agent divides the window first among the
slots and then among a slot's clients, so a tenant gains nothing by many processes. A share is at least 50 us, because a
client with less could start no launch at once. So with very many clients, the sum of the shares exceeds the window.

Two alternatives are worse. A wider window while hp is idle for long gives no throughput, because with the valve a be
process queues 32 windows ahead, whatever the window is. It also delays hp when hp returns, which cannot be predicted.
Division by weight has no effect: with work queued ahead, the window does not decide who gets how much time (fairness.py
does).
"""

import time
from collections import Counter, deque
from dataclasses import dataclass, field

from orion.hook import layout
from orion.node_agent.clients.client import Client
from orion.node_agent.clients.shared_gpu import SharedGpu
from orion.node_agent.sharing.fairness import Demand

_SMALLEST_SHARE_NS = 50_000
_ACTIVE_NS = 200_000_000
""" How long a be client counts as active after it last launched or waited. When its slot's share is divided, the client
also counts as active for this time after it joined. """
_RATIO_NS = 1_000_000_000


@dataclass
class Look:
    """What has happened on a GPU since the previous check, in nanoseconds."""

    now_ns: int
    elapsed_ns: int
    hp_busy_ns: int = 0
    hp_lingers: bool = False
    """ hp is not busy at this moment, but be still waits. """
    anything: bool = False
    demands: dict[str, Demand] = field(default_factory=dict)
    """ What the active be slots did and want, by slot name. """

    @property
    def available_ns(self) -> int:
        """The time that hp left to be."""
        return 0 if self.hp_lingers else self.elapsed_ns - self.hp_busy_ns


class Activity:
    """Who uses a GPU; reads a few words of each client's record."""

    def __init__(self, shared_gpu: SharedGpu) -> None:
        self._shared_gpu = shared_gpu
        self._looked_ns = time.monotonic_ns()
        self._samples: deque[tuple[int, int]] = deque()
        """ Elapsed and hp-busy nanoseconds of each check in the last second; the next two fields have the sums. """
        self._whole_ns = self._busy_ns = 0

    def look(self) -> Look:
        """Read the clients' records."""
        now = time.monotonic_ns()
        look = Look(now, now - self._looked_ns)
        self._looked_ns = now
        for client in self._shared_gpu.clients.values():
            record = client.record
            launches, wants = record.launches, record.wants_gpu
            if launches != client.last_launches or wants:
                client.last_launches = launches
                client.last_wanted_ns = now
                look.anything = True
            if client.role is layout.Role.HP:
                self._look_at_hp(client, look)
            else:
                self._look_at_be(client, look, wants)
        look.hp_busy_ns = min(look.hp_busy_ns, look.elapsed_ns)
        self._rate(look.elapsed_ns, look.hp_busy_ns)
        return look

    @staticmethod
    def _look_at_hp(client: Client, look: Look) -> None:
        total = client.record.busy_ns(look.now_ns)
        look.hp_busy_ns += max(0, total - client.last_busy_ns)
        client.last_busy_ns = total
        look.hp_lingers |= client.busy.state in (layout.BusyState.CLOSING, layout.BusyState.LINGER)

    @staticmethod
    def _look_at_be(client: Client, look: Look, wants: bool) -> None:
        total = client.record.gpu_ns
        reported = max(0, total - client.last_gpu_ns)
        client.last_gpu_ns = total
        if look.now_ns - client.last_wanted_ns > _ACTIVE_NS:
            return
        slot = client.slot
        others = look.demands.get(slot.name)
        if others is not None:
            reported, wants = reported + others.reported_ns, wants or others.waiting
        look.demands[slot.name] = Demand(slot.grant.weight_milli, reported, wants)

    def share_out(self) -> None:
        """Update each be client's part of the window.

        An inactive slot has the share that it would get if it were active: it may launch before the next check.
        """
        since = time.monotonic_ns() - _ACTIVE_NS
        wanting: Counter[str] = Counter()
        joined: Counter[str] = Counter()
        for client in self._shared_gpu.clients.values():
            if client.role is layout.Role.BE:
                wanting[client.slot.name] += client.last_wanted_ns >= since
                joined[client.slot.name] += client.joined_ns >= since > client.last_wanted_ns
        active_slots = sum(count > 0 for count in wanting.values())
        for slot in self._shared_gpu.slots.values():
            if slot.role is not layout.Role.BE:
                continue
            slots = active_slots + (wanting[slot.name] == 0)
            clients = max(1, wanting[slot.name] + joined[slot.name])
            share = self._shared_gpu.policy.window_ns // (slots * clients)
            share = max(share, _SMALLEST_SHARE_NS)
            if share != slot.grant.window_share_ns:
                slot.set(window_share_ns=share)

    def _rate(self, elapsed_ns: int, busy_ns: int) -> None:
        self._samples.append((elapsed_ns, busy_ns))
        self._whole_ns += elapsed_ns
        self._busy_ns += busy_ns
        while len(self._samples) > 1 and self._whole_ns - self._samples[0][0] >= _RATIO_NS:
            whole, busy = self._samples.popleft()
            self._whole_ns -= whole
            self._busy_ns -= busy
        self._shared_gpu.hp_busy_ratio = self._busy_ns / self._whole_ns if self._whole_ns else 0.0
