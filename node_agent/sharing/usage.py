"""What each slot of a GPU was due, was charged, used and waited: totals for metrics, parts of the time for people.

The agent adds to the totals at each check, which is often, and copies them once a second. Parts of the last second and
of the last ten seconds are the differences to such a copy; they are computed when somebody asks for them.

While be slots take turns, due and charged come from their accounts (accounts.py). While they take none, a slot is due
what the requests and limits of the slots with work say, and it is charged what its clients report. hp comes first, so
it is due what it uses. Totals begin at 0 when the slot's first client joins, and end when its last client has left.
"""

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace

from orion.node_agent.sharing.accounts import Accounts
from orion.node_agent.sharing.windows import Look
from orion.planning.sharing.due import Claim, due

_SAMPLE_NS = 1_000_000_000
_MOST_ROOM_NS = 2_000_000_000
""" Reports may be so late. """
_SECOND_NS, RECENT_NS = 1_000_000_000, 10_000_000_000


@dataclass(slots=True)
class Totals:
    """Times of one slot in nanoseconds, or as parts of a time."""

    due: float = 0.0
    charged: float = 0.0
    measured: float = 0.0
    """ What its clients report, and never more than the time that has passed. """
    waited: float = 0.0
    """ While at least one of its launches waited for a turn or for hp. """
    wanted: float = 0.0
    """ While it had work for the GPU. """
    shut: float = 0.0
    """ While it got no turns, since it had made no progress in earlier ones. """


@dataclass(frozen=True)
class Parts:
    """What happened in about the last second or the last ten: parts of that time.

    Args:
        seconds: how long that time is; shorter if the slot's clients joined in it.
        slot: the slot's times.
        hp: while hp used the GPU.
        turns: while be slots took turns.
    """

    seconds: float = 0.0
    slot: Totals = field(default_factory=Totals)
    hp: float = 0.0
    turns: float = 0.0


@dataclass(frozen=True)
class SlotUsage:
    """A slot's totals in nanoseconds, and its parts of the last second and of the last ten seconds."""

    totals: Totals = field(default_factory=Totals)
    second: Parts = Parts()
    recent: Parts = Parts()


@dataclass(slots=True)
class _Slot:
    since_ns: int
    hp_before_ns: float
    turns_before_ns: float
    """ For how long hp had used the GPU, and be slots had taken turns, when the slot's first client joined. """
    totals: Totals = field(default_factory=Totals)
    room_ns: float = 0.0
    """ The time that has passed, less what was measured: a client may report any number. """

    def add(self, reported_ns: int, waited_ns: int, elapsed_ns: int) -> float:
        """Add what the slot's clients report and for how long they waited; return how much of the report counts."""
        totals = self.totals
        totals.waited += min(waited_ns, elapsed_ns)
        self.room_ns = min(self.room_ns + elapsed_ns, _MOST_ROOM_NS)
        counted = min(reported_ns, self.room_ns)
        self.room_ns -= counted
        totals.measured += counted
        return counted


@dataclass(frozen=True, slots=True)
class _Sample:
    now_ns: int
    hp_ns: float
    turns_ns: float
    slots: Mapping[str, Totals]


class Usage:
    """The usage of the slots of one GPU."""

    def __init__(self) -> None:
        self._now_ns = 0
        self._hp_ns = self._turns_ns = 0.0
        self._before = (0.0, 0.0)
        """ Both of them as the previous check left them. """
        self._slots: dict[str, _Slot] = {}
        self._samples: deque[_Sample] = deque()

    @property
    def slots(self) -> set[str]:
        """The slots that have clients."""
        return set(self._slots)

    def look(self, look: Look, accounts: Accounts | None) -> None:
        """Add what has happened since the previous check.

        Args:
            look: what the clients did.
            accounts: of the be slots; None: they took no turns.
        """
        self._now_ns, self._before = look.now_ns, (self._hp_ns, self._turns_ns)
        self._hp_ns += (1.0 - look.left) * look.elapsed_ns
        for name, used in look.hp_used_ns.items():
            self._add_hp(self._slot(name, look), used, look.waited_ns[name], look.elapsed_ns)
        if accounts is None:
            self._add_without_turns(look)
        else:
            self._turns_ns += look.elapsed_ns
            self._add_accounts(look, accounts)
        if len(self._slots) > len(look.demands) + len(look.hp_used_ns):
            for name in self._slots.keys() - look.demands.keys() - look.hp_used_ns.keys():
                del self._slots[name]
        self._sample_if_due()

    def skip(self, elapsed_ns: int) -> None:
        """Note that nobody has used or wanted the GPU since the previous check."""
        self._now_ns += elapsed_ns
        self._sample_if_due()

    def of(self, name: str) -> SlotUsage:
        """Return the usage of a slot; a slot without clients has none."""
        slot = self._slots.get(name)
        if slot is None:
            return SlotUsage()
        return SlotUsage(replace(slot.totals), self._parts(name, slot, _SECOND_NS), self._parts(name, slot, RECENT_NS))

    # -- Adding --------------------------------------------------------------------------------------------------------

    def _slot(self, name: str, look: Look) -> _Slot:
        slot = self._slots.get(name)
        if slot is None:
            slot = self._slots[name] = _Slot(look.now_ns - look.elapsed_ns, *self._before)
        return slot

    @staticmethod
    def _add_hp(slot: _Slot, used_ns: int, waited_ns: int, elapsed_ns: int) -> None:
        used = slot.add(used_ns, waited_ns, elapsed_ns)
        slot.totals.due += used
        slot.totals.charged += used
        slot.totals.wanted += min(used + waited_ns, elapsed_ns)

    def _add_accounts(self, look: Look, accounts: Accounts) -> None:
        elapsed = look.elapsed_ns
        for name, demand in look.demands.items():
            slot, account = self._slots.get(name) or self._slot(name, look), accounts[name]
            totals = slot.totals
            totals.due += account.was_due_ns
            totals.charged += account.was_charged_ns
            if account.wants:
                totals.wanted += elapsed
            elif look.now_ns < account.progress.shut_until_ns:
                totals.shut += elapsed
            slot.add(demand.reported_ns, look.waited_ns[name], elapsed)

    def _add_without_turns(self, look: Look) -> None:
        claims = {
            name: Claim(demand.request, demand.limit, demand.launched or demand.waiting)
            for name, demand in look.demands.items()
        }
        for name, share in due(claims).items():
            slot = self._slot(name, look)
            slot.totals.due += share * look.left * look.elapsed_ns
            slot.totals.wanted += look.elapsed_ns if claims[name].wants else 0
            slot.totals.charged += slot.add(look.demands[name].reported_ns, look.waited_ns[name], look.elapsed_ns)

    # -- Parts ---------------------------------------------------------------------------------------------------------

    def _sample_if_due(self) -> None:
        if self._samples and self._now_ns - self._samples[-1].now_ns < _SAMPLE_NS:
            return
        copies = {name: replace(slot.totals) for name, slot in self._slots.items()}
        self._samples.append(_Sample(self._now_ns, self._hp_ns, self._turns_ns, copies))
        while len(self._samples) > 1 and self._now_ns - self._samples[1].now_ns >= RECENT_NS:
            self._samples.popleft()

    def _parts(self, name: str, slot: _Slot, span_ns: int) -> Parts:
        """Return the parts of the time since the latest sample that is at least ``span_ns`` old."""
        old = [each for each in self._samples if self._now_ns - each.now_ns >= span_ns] or [self._samples[0]]
        sample = old[-1]
        elapsed = self._now_ns - max(sample.now_ns, slot.since_ns)
        if elapsed <= 0:
            return Parts()
        before, hp_ns, turns_ns = sample.slots.get(name), sample.hp_ns, sample.turns_ns
        if sample.now_ns < slot.since_ns:
            before, hp_ns, turns_ns = None, slot.hp_before_ns, slot.turns_before_ns
        parts = {
            each.name: _part(getattr(slot.totals, each.name) - getattr(before or Totals(), each.name), elapsed)
            for each in fields(Totals)
        }
        hp, turns = self._hp_ns - hp_ns, self._turns_ns - turns_ns
        return Parts(elapsed / 1e9, Totals(**parts), _part(hp, elapsed), _part(turns, elapsed))


def _part(time_ns: float, whole_ns: int) -> float:
    return min(1.0, max(0.0, time_ns / whole_ns))
