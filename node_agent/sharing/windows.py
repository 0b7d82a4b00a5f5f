"""Divides the window among the clients of each be slot, and reads what the clients of a GPU do.

A GPU has one window: the be work for which an hp client may have to wait. The slots take turns (turns.py), and the slot
that has the turn has the whole window. The agent divides it among the slot's clients, so that a tenant gains nothing by
many processes, and no client reads the pages of another at a launch. A client's share is at least 50 us, because with
less it could start no launch at once. So with very many clients, the sum of the shares exceeds the window.

Rejected: a wider window while hp is idle for long. It gives no throughput, because with the valve a be process queues
32 windows ahead, whatever the window is. It also delays hp when hp returns, which cannot be predicted.
"""

import time
from collections import defaultdict, deque
from collections.abc import Collection, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field

from orion.hook import layout
from orion.node_agent.clients.client import Client
from orion.node_agent.clients.shared_gpu import SharedGpu
from orion.node_agent.sharing import policies
from orion.node_agent.sharing.busy_union import Busy, is_sound, merged, union_ns
from orion.node_agent.sharing.closed_gate import closed
from orion.node_agent.sharing.demand import Demand
from orion.node_agent.slots.slot import Slot

_SMALLEST_SHARE_NS = 50_000
_ACTIVE_NS = 200_000_000
""" How long a be client counts as active after it last launched or waited. When its slot's share is divided, the client
also counts as active for this time after it joined. """
_RATIO_NS = 1_000_000_000
_PERIODS_MOST, _PERIODS_ALONE = 512, 20
""" How many busy periods of a slot's hp clients the agent reads at each check, so that checks stay short; and how many
of a client that was busy alone. """
CLOSED_MOST = 16
""" If be's gate was closed more often since the previous check, turns do not know when: it takes time, and such short
times coincide with the turns of all slots. """


@dataclass
class Look:
    """What has happened on a GPU since the previous check, in nanoseconds."""

    now_ns: int
    elapsed_ns: int
    hp_busy_ns: int = 0
    hp_used_ns: MutableMapping[str, int] = field(default_factory=lambda: defaultdict(int))
    """ The busy time of each hp slot that has clients. """
    hp_took_ns: int = 0
    """ For how long hp closed be's gate: in its busy time, except that of clients that have stalled, and its lingers.
    """
    closed: Sequence[tuple[int, int]] = ()
    """ When that was; empty: often. """
    hp_stall_ns: int = 0
    """ For how long a be process may wait for hp clients that have stalled, one after the other, since it first saw the
    first one; 0: none has, or be does not wait. """
    be_waits: bool = True
    """ be waits for hp, so that hp takes its busy time from be. """
    together: bool = True
    """ The contexts of all be clients run together (MPS); one that lies changes nothing for the others. """
    anything: bool = False
    demands: dict[str, Demand] = field(default_factory=dict)
    """ What the be slots that have clients did and want, by slot name. """
    waited_ns: MutableMapping[str, int] = field(default_factory=lambda: defaultdict(int))
    """ For how long launches of each slot waited. """

    @property
    def left(self) -> float:
        """The part of the time that hp left to be."""
        if not self.be_waits:
            return 1.0
        return 1.0 - self.hp_took_ns / self.elapsed_ns if self.elapsed_ns else 0.0


@dataclass(frozen=True, slots=True)
class _Used:
    """What an hp client did since the previous check.

    Args:
        client: it.
        busy_ns: for how long it was busy.
        stalled: it makes no progress, and be does not wait for it.
        lingers: it is not busy at this moment, but be still waits.
    """

    client: Client
    busy_ns: int
    stalled: bool
    lingers: bool


class Activity:
    """Who uses a GPU; reads a few words of each client's record."""

    def __init__(self, shared_gpu: SharedGpu) -> None:
        self._shared_gpu = shared_gpu
        self._looked_ns = time.monotonic_ns()
        self._samples: deque[tuple[int, int, int]] = deque()
        """ Nanoseconds of each check in the last second: elapsed, of hp's busy time, and of what hp took from be. """
        self._whole_ns = self._busy_ns = self._took_ns = 0

    def look(self) -> Look:
        """Read the clients' records."""
        now = time.monotonic_ns()
        look = Look(now, now - self._looked_ns, be_waits=policies.gates(self._shared_gpu.policy))
        self._looked_ns = now
        busy: defaultdict[str, list[_Used]] = defaultdict(list)
        for client in self._shared_gpu.clients.values():
            record = client.record
            launches, wants = record.launches, record.wants_gpu and not client.is_parked
            launched = launches != client.last_launches
            if launched or wants:
                client.last_launches = launches
                client.last_wanted_ns = now
                look.anything = True
            waited = record.waited_ns(now)
            look.waited_ns[client.slot.name] += max(0, waited - client.last_waited_ns)
            client.last_waited_ns = waited
            if client.role is layout.Role.HP:
                if used := self._look_at_hp(client, look):
                    busy[client.slot.name].append(used)
            else:
                self._look_at_be(client, look, launched, wants)
        self._add_up(busy, look)
        self._rate(look)
        return look

    def rests(self) -> bool:
        """Return whether no client works, or has said anything since the last call."""
        resting = [client.rests() for client in self._shared_gpu.clients.values()]  # each remembers what it has said
        return all(resting)

    def skip(self) -> int:
        """Note that nothing has happened since the previous check; return for how long, in nanoseconds."""
        now = time.monotonic_ns()
        elapsed, self._looked_ns = now - self._looked_ns, now
        self._rate(Look(now, elapsed))
        return elapsed

    def _look_at_hp(self, client: Client, look: Look) -> _Used | None:
        total = client.record.busy_ns(look.now_ns)
        busy = max(0, total - client.last_busy_ns)
        client.last_busy_ns = total
        look.hp_used_ns[client.slot.name] += 0
        if client in self._shared_gpu.stopped:  # be does not wait for it, and its page stays as it was
            return None
        state = client.busy.state
        progress = None if state is layout.BusyState.IDLE else client.busy.progress
        if progress != client.last_progress:
            client.last_progress, client.progressed_ns = progress, look.now_ns
        stalled = progress is not None and look.now_ns - client.progressed_ns > self._shared_gpu.policy.stall_ns
        if stalled:
            look.hp_stall_ns += self._shared_gpu.policy.stall_ns if look.be_waits else 0
        lingers = not stalled and state in (layout.BusyState.CLOSING, layout.BusyState.LINGER)
        return _Used(client, busy, stalled, lingers) if busy or lingers else None

    def _add_up(self, busy: Mapping[str, Sequence[_Used]], look: Look) -> None:
        """Add up what the hp clients of each slot used, and for how long they closed be's gate.

        A time in which several were busy counts once. A kernel without progress is its slot's use. But be does not wait
        for it, so it takes no time from be.
        """
        now, since = look.now_ns, look.now_ns - look.elapsed_ns
        longest_ns = self._shared_gpu.policy.linger_ceiling_ns
        several = sum(map(len, busy.values())) > 1
        all_busy: list[list[Busy]] = []
        took: list[list[Busy]] = []
        for name, clients in busy.items():
            most = _PERIODS_MOST // len(clients) if several else _PERIODS_ALONE
            all_busy.append([])
            took.append([])
            for each in clients:
                linger_ns = min(each.client.record.linger_ns, longest_ns)
                read = each.client.record.busy_periods(since - linger_ns, now, most)
                used = Busy(each.busy_ns, read.since(since))
                all_busy[-1].append(used)
                if not each.stalled:
                    took[-1].append(closed(used, read, linger_ns, each.lingers, since, now))
            look.hp_used_ns[name] = union_ns(all_busy[-1:], since, now)
        look.hp_busy_ns = union_ns(all_busy, since, now)
        look.hp_took_ns = union_ns(took, since, now)
        spans = [span for clients in took for each in clients if is_sound(each) for span in each.periods.periods]
        united = merged(spans)
        look.closed = united if look.be_waits and len(united) <= CLOSED_MOST else ()

    def _look_at_be(self, client: Client, look: Look, launched: bool, wants: bool) -> None:
        look.together &= client.record.shares_context
        total = client.record.gpu_ns
        reported = max(0, total - client.last_gpu_ns)
        client.last_gpu_ns = total
        total = client.record.ran_on_ns
        ran_on = max(0, total - client.last_ran_on_ns)
        client.last_ran_on_ns = total
        slot = client.slot
        others = look.demands.get(slot.name) or self._granted(slot, look)
        look.demands[slot.name] = others._replace(
            reported_ns=reported + others.reported_ns,
            ran_on_ns=ran_on + others.ran_on_ns,
            piece_ns=max(client.record.piece_ns, others.piece_ns),
            launched=launched or others.launched,
            waiting=wants or others.waiting,
            clients=1 + others.clients,
        )

    def without_clients(self, look: Look, debtors: Collection[str] = ()) -> dict[str, Demand]:
        """Return the be slots without clients that have a limit or debts, which hold for a client that joins, too."""
        return {
            slot.name: self._granted(slot, look)
            for slot in self._shared_gpu.slots.values()
            if slot.role is layout.Role.BE and (slot.grant.limit_milli or slot.name in debtors)
            and slot.name not in look.demands
        }  # fmt: skip

    def _granted(self, slot: Slot, look: Look) -> Demand:
        """Return the demand of a slot without clients."""
        limit = (slot.grant.limit_milli or 1_000) / 1_000
        return Demand(slot.grant.request_milli / 1_000, self._of_what_hp_leaves(limit, look), clients=0, ceiling=limit)

    def _of_what_hp_leaves(self, limit: float, look: Look) -> float:
        """Return a limit, which is a part of the GPU's time, as a part of the time that hp leaves to be."""
        if not look.be_waits:
            return limit
        return limit / max(limit, 1.0 - _ratio(self._took_ns, self._whole_ns))

    def share_out(self) -> None:
        """Update each be client's part of the window."""
        since, window_ns = time.monotonic_ns() - _ACTIVE_NS, self._shared_gpu.policy.window_ns
        active: defaultdict[str, int] = defaultdict(int)
        for client in self._shared_gpu.clients.values():
            active[client.slot.name] += client.last_wanted_ns >= since or client.joined_ns >= since
        for slot in self._shared_gpu.slots.values():
            if slot.role is layout.Role.BE:
                share = max(window_ns // max(1, active[slot.name]), _SMALLEST_SHARE_NS)
                if share != slot.grant.window_share_ns:
                    slot.set(window_share_ns=share)

    def _rate(self, look: Look) -> None:
        self._samples.append((look.elapsed_ns, look.hp_busy_ns, look.hp_took_ns))
        self._whole_ns += look.elapsed_ns
        self._busy_ns += look.hp_busy_ns
        self._took_ns += look.hp_took_ns
        while len(self._samples) > 1 and self._whole_ns - self._samples[0][0] >= _RATIO_NS:
            whole, busy, took = self._samples.popleft()
            self._whole_ns -= whole
            self._busy_ns -= busy
            self._took_ns -= took
        self._shared_gpu.hp_busy_ratio = _ratio(self._busy_ns, self._whole_ns)


def _ratio(part_ns: int, whole_ns: int) -> float:
    return part_ns / whole_ns if whole_ns else 0.0
