"""What be slots want and what they are owed: the bookkeeping of turns.

At each check a slot is charged the time of its turns by the agent's clock, less hp's part of it. The difference to what
it was due is its balance. A client cannot report less and so gain time. What a client reports counts in two ways only:
where a slot's work ran on long after its turns, and for what a handover costs the slot, within narrow bounds. What a
slot did not want is not owed to it.
"""

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import NamedTuple

from orion.node_agent.sharing.joint import Window
from orion.planning.sharing.due import Claim, due

MOST_OWED_NS = 100_000_000
""" What a slot can be owed; a longer arrears is forgotten. """

_MOST_DEBT_NS = 2_000_000_000
_LONG_PIECE_NS = 2_000_000
""" Clients close their valve half a piece before a turn ends. For longer pieces the agent counts what runs on, too. """
_MOST_ARREARS_NS = 20_000_000
""" Reports may be so late. """
_SECOND_NS, _USED_NS = 1_000_000_000, 5_000_000
""" The time in which limits hold; and a slot that used less in it used nothing. """
_IDLE_AFTER_NS = 100_000_000
""" A slot still wants the GPU for this time after its clients last had work, unless it hands its turn back. """
_LONE_NS = 1_000_000_000
""" A slot still competes for this time after it last wanted the GPU. """
_FRUITLESS_NS = 100_000_000
""" A slot that had so much time in turns without any progress gets no turns for a while, whatever its clients say. """
_FRUITLESS_PIECES, _MOST_FRUITLESS_NS = 4, 4_000_000_000
""" If its pieces are long, this number of pieces, up to this time, is not without progress. """
_SHUT_NS, _MOST_SHUT_NS = 1_000_000_000, 4_000_000_000
""" How long it gets none: the first value doubles each time, up to the second. """


_CORRECTION_MOST_NS = 200_000
""" By so much a slot's handovers may cost more or less than usual. In a cycle of 20 ms a client that reports nothing
gains half a point by it. """
_REMEMBERED = 0.97
""" What handovers cost is a mean in which each check counts for this part of the next one. """
_TURNS_LEAST = 5.0
""" Before so many turns the mean says nothing. """


class Demand(NamedTuple):
    """A slot at one check.

    Args:
        request: the part of the time that the slot is sure to get; 0: none.
        limit: the part of the time that it gets at most.
        reported_ns: GPU time that its clients completed since the previous check.
        piece_ns: the longest work of its clients that no stop can interrupt.
        launched: whether its clients launched since the previous check.
        waiting: whether work waits or is in flight now.
        clients: how many it has.
    """

    request: float = 0.0
    limit: float = 1.0
    reported_ns: int = 0
    piece_ns: int = 0
    launched: bool = False
    waiting: bool = False
    clients: int = 1


@dataclass
class Account:
    """The state of one slot."""

    wants: bool = False
    wanted_ns: int = -_LONE_NS
    balance_ns: float = 0.0
    """ What it was due, less what it was charged. """
    arrears_ns: float = 0.0
    """ The time of its turns, less its reports. """
    fruitless_ns: float = 0.0
    """ The time that it was charged since it last made progress. """
    shut_until_ns: int = 0
    shut_ns: int = _SHUT_NS
    turns_ns: int = 0
    turns: int = 0
    """ The time and the number of its turns since the last check. """
    due_ns: float = 0.0
    """ What it was due since the last check. """
    handover_ns: float = 0.0
    """ The part of each of its turns in which the GPU does nothing for it. It is not charged. """
    usual_handover_ns: float = 0.0
    measured_ns: float = 0.0
    measured_turns: float = 0.0
    """ By how much turns were longer than the reported work, and how many turns; earlier ones count less. """
    second: deque[tuple[float, float]] = field(default_factory=deque)
    """ With a limit: what the slot was charged between two checks, and how much time there was; of the last second. """
    request: float = 0.0
    limit: float = 1.0
    piece_ns: int = 0
    was_due_ns: float = 0.0
    was_charged_ns: float = 0.0
    """ What it was due and what it was charged between the last two checks. """

    @property
    def debt_ns(self) -> float:
        """What the slot has used beyond what it was due; it comes off its next turns."""
        return max(0.0, -self.balance_ns)

    @property
    def held_ns(self) -> float:
        """What it is charged for its turns since the last check, before hp's part is subtracted."""
        return max(0.0, self.turns_ns - self.handover_ns * self.turns)

    def expect_handover(self, usual_ns: float) -> None:
        """Set what a handover costs if nothing else is known."""
        if self.usual_handover_ns != usual_ns:
            self.usual_handover_ns = self.handover_ns = usual_ns
            self.measured_ns = self.measured_turns = 0.0

    def learn_handover(self, reported_ns: int) -> None:
        """Learn what a handover costs this slot, from its turns and its reports since the last check."""
        self.measured_ns = self.measured_ns * _REMEMBERED + self.turns_ns - min(reported_ns, 2 * self.turns_ns)
        self.measured_turns = self.measured_turns * _REMEMBERED + self.turns
        if self.measured_turns > _TURNS_LEAST:
            correction = self.measured_ns / self.measured_turns - self.usual_handover_ns
            self.handover_ns = self.usual_handover_ns + max(-_CORRECTION_MOST_NS, min(correction, _CORRECTION_MOST_NS))

    @property
    def has_budget(self) -> bool:
        """Whether a long piece fits into what is left of the limit of the last second; if not, it waits.

        A piece that is longer than the limit allows in a second waits until the slot has used nothing for a second.
        """
        if self.limit >= 1 or self.piece_ns <= _LONG_PIECE_NS:
            return True
        used = sum(charged for charged, _ in self.second)
        return used < _USED_NS or used + self.piece_ns <= self.limit * _SECOND_NS

    def charge(self, part: float, ran_on_ns: float, lost_ns: float, elapsed_ns: float) -> None:
        """Move what has passed since the last check into the balance.

        Args:
            part: the part of the time that hp left to be.
            ran_on_ns: what the slot used beyond its turns.
            lost_ns: what others used of its turns.
            elapsed_ns: the time since the last check.
        """
        self.was_due_ns = self.due_ns * part
        self.was_charged_ns = self.held_ns * part + ran_on_ns - lost_ns
        if self.limit < 1:
            self.second.append((self.was_charged_ns, elapsed_ns * part))
            while sum(there for _, there in self.second) > _SECOND_NS and len(self.second) > 1:
                self.second.popleft()
        balance = self.balance_ns + self.was_due_ns - self.was_charged_ns
        self.balance_ns = max(-_MOST_DEBT_NS, min(balance, MOST_OWED_NS if self.wants else 0.0))
        self.turns_ns, self.turns, self.due_ns = 0, 0, 0.0

    def ran_on(self, held_ns: float, demand: Demand) -> float:
        """Return what the slot has used beyond its turns, by its own reports; note whether it makes progress.

        Work that runs on is reported as long as it would have taken alone: meanwhile the GPU alternates with the next
        slot. So the excess is what the slot took from others.

        Args:
            held_ns: the time of its turns since the last check, less hp's part.
            demand: what its clients report.
        """
        if demand.reported_ns or demand.launched:
            self.fruitless_ns, self.shut_ns, self.shut_until_ns = 0.0, _SHUT_NS, 0
        else:
            self.fruitless_ns += held_ns
        if demand.piece_ns <= _LONG_PIECE_NS:
            return 0.0
        arrears = self.arrears_ns + held_ns - min(demand.reported_ns, _MOST_DEBT_NS)
        self.arrears_ns = max(0.0, min(arrears, _MOST_ARREARS_NS))
        return max(0.0, -arrears)

    def note(self, demand: Demand, now_ns: int, in_turn: bool) -> None:
        """Update what the slot wants."""
        self.request, self.limit, self.piece_ns = demand.request, demand.limit, demand.piece_ns
        if self.fruitless_ns > max(_FRUITLESS_NS, min(_FRUITLESS_PIECES * demand.piece_ns, _MOST_FRUITLESS_NS)):
            self.fruitless_ns = 0.0
            self.shut_until_ns = now_ns + self.shut_ns
            self.shut_ns = min(2 * self.shut_ns, _MOST_SHUT_NS)
        if demand.waiting or (demand.launched and in_turn):
            self.wants, self.wanted_ns = True, now_ns
        self.wants &= now_ns >= self.shut_until_ns and now_ns - self.wanted_ns < _IDLE_AFTER_NS

    def rest(self) -> None:
        """Forget what is owed."""
        self.balance_ns = self.arrears_ns = self.due_ns = 0.0
        self.turns_ns = self.turns = 0


class Accounts(dict[str, Account]):
    """The accounts of the slots of a GPU, by slot name."""

    windows: Mapping[str, Window] = MappingProxyType({})
    """ Of the slots of jobs that use several GPUs. Such a slot gets its window and nothing else. """
    _known: tuple[object, ...] = ()
    _shares: Mapping[str, float] = MappingProxyType({})
    """ The last result of `shares`, and its arguments. They change seldom, and shares are asked for at each turn's end.
    """

    def keep(self, names: Mapping[str, Demand]) -> None:
        """Drop the accounts of other slots, and open those that are missing."""
        for name in self.keys() - names.keys():
            del self[name]
        for name in names:
            self.setdefault(name, Account())

    def shares(self) -> Mapping[str, float]:
        """Return the part of be's time that each slot is due now."""
        arguments = tuple(self), self.windows, tuple((each.request, each.limit, each.wants) for each in self.values())
        if arguments != self._known:
            taken = {name: window.end - window.begin for name, window in self.taken().items()}
            others = {name: claim for name, claim in self.claims().items() if name not in taken}
            self._known, self._shares = arguments, due(others, 1.0 - sum(taken.values())) | taken
        return self._shares

    def claims(self) -> dict[str, Claim]:
        """Return what each slot may claim of the GPU's time."""
        return {name: Claim(each.request, each.limit, each.wants) for name, each in self.items()}

    def taken(self) -> dict[str, Window]:
        """Return the windows of the slots that have work."""
        return {name: window for name, window in self.windows.items() if name in self and self[name].wants}

    @property
    def have_long_pieces(self) -> bool:
        """Whether a slot's work may run on long after its turns."""
        return any(account.piece_ns > _LONG_PIECE_NS for account in self.values())

    def compete(self, now_ns: int) -> bool:
        """Return whether turns are necessary: several slots want the GPU, or one that has a limit does."""
        wanting = [account for account in self.values() if now_ns - account.wanted_ns < _LONE_NS]
        return len(wanting) > 1 or any(account.limit < 1 for account in wanting)

    def charge(self, part: float, demands: Mapping[str, Demand], elapsed_ns: float) -> None:
        """Charge all slots for what has passed since the last check."""
        held = {name: account.held_ns * part for name, account in self.items()}
        ran_on = {name: account.ran_on(held[name], demands[name]) for name, account in self.items()}
        turns = sum(held.values())
        for name, account in self.items():
            # What one slot used beyond its turns, it took from the turns of the others.
            lost = sum(each * held[name] / (turns - held[other]) for other, each in ran_on.items()
                       if other != name and held[name])  # fmt: skip
            account.charge(part, ran_on[name], lost, elapsed_ns)
        self._forgive()

    def learn_handovers(self, demands: Mapping[str, Demand]) -> None:
        """Learn what handovers cost, from what has passed since the last check; call it before `charge`.

        While work of a slot runs on after its turns, the GPU alternates between it and the next slot, whose work then
        takes longer and is reported so. The clients of a slot with several alternate, too.
        """
        if self.have_long_pieces:
            return
        for name, account in self.items():
            if account.wants and demands[name].clients == 1:
                account.learn_handover(demands[name].reported_ns)

    def _forgive(self) -> None:
        """Forgive the least debt to all if all slots that want the GPU are in debt: nobody is owed that time."""
        wanting = [account for account in self.values() if account.wants]
        least_debt = max((account.balance_ns for account in wanting), default=0.0)
        if least_debt < 0 and is_full(self.shares()):
            for account in wanting:
                account.balance_ns -= least_debt


def is_full(shares: Mapping[str, float]) -> bool:
    """Return whether the slots want all time, and no limits prevent that they get it."""
    return sum(shares.values()) > 0.999_999
