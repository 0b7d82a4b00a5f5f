"""Gives be slots turns, so that each gets the part of the time that it is due: decides when each slot has the GPU.

Of the slots that want the GPU, one has the turn and all others wait. Turns follow one another in a cycle, each as long
as its slot is due. The plan is written ahead into the grants, so turns pass while the agent sleeps: see
hook/src/be/turns.h. This module is a state machine of numbers; it reads no clock and no page.

At each check a slot is charged the time of its turns by the agent's clock, less hp's part of it. The difference to what
it was due lengthens or shortens its later turns. A client cannot report less and so gain time. What a client reports
counts only where it shows that a slot's work ran on long after its turns.

A slot without work hands back its turn, and the next one begins at once. A slot that has no turn asks for one when it
launches. What a slot did not want is not owed to it.

Two alternatives are worse. Holding slots that are ahead of the others, with all others at work together: the GPU
alternates between their contexts every 2 ms, each of them has a kernel in flight when hp comes, and shares are off by
several points within a second. A turn for each check of the agent: its timers are late by more than a handover costs.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from orion.node_agent.pages.plans import Plan
from orion.planning.sharing.due import Claim, due

CYCLE_NS = 20_000_000
""" The time in which each slot has one turn. In a longer one handovers cost less, and a second's shares vary more. """
PLAN_NS = 750_000_000
""" How long a plan holds that the agent does not renew. """

_LONE_NS = 1_000_000_000
""" Turns end when only one slot has wanted the GPU for this time. """
_HANDOVER_NS, _REOPENED_NS = 300_000, 200_000
""" The part of a turn in which the GPU does nothing for the slot, after a turn of another slot and after a pause. The
first value is a mean on an H200 (docs/results/quotas.md). Turns are longer by as much, and it is not charged. """
_TOGETHER_NS = 30_000
""" The same where contexts run together (MPS). """
_AVERAGE_TURN_NS = 5_000_000
""" With many slots the cycle is so long that turns have this length on average. """
_LEAST_TURN_NS = 800_000
_BALANCE_MOST_NS = 5 * CYCLE_NS
""" What a slot can be owed; a longer arrears is forgotten. """
_DEBT_MOST_NS = 2_000_000_000
_CORRECTED = 0.7
""" The part of a balance that the next cycle corrects. """
_LONG_PIECE_NS = 2_000_000
""" Clients close their valve half a piece before a turn ends. For longer pieces the agent counts what runs on, too. """
_ARREARS_MOST_NS = CYCLE_NS
""" Reports may be so late. """
_VARIED = 0.3
""" The length of cycles varies by this part. Else the turns of some slots would coincide with the work of an hp client
whose period divides the cycle, and a slot's pieces would end too late, or too early, in each of its turns. """
_GOLDEN = 0.618_034
_IDLE_AFTER_NS = 100_000_000
""" A slot still wants the GPU for this time after its clients last had work, unless it hands its turn back. """
_FRUITLESS_NS = 5 * CYCLE_NS
""" A slot that had so much time in turns without any progress gets no turns for a while, whatever its clients say. """
_FRUITLESS_PIECES, _FRUITLESS_MOST_NS = 4, 4_000_000_000
""" If its pieces are long, this number of pieces, up to this time, is not without progress. """
_SHUT_NS, _SHUT_MOST_NS = 1_000_000_000, 4_000_000_000
""" How long it gets none: the first value doubles each time, up to the second. """


@dataclass(frozen=True)
class Demand:
    """A slot at one check.

    Args:
        request: the part of the time that the slot is sure to get; 0: none.
        limit: the part of the time that it gets at most.
        reported_ns: GPU time that its clients completed since the previous check.
        piece_ns: the longest work of its clients that no stop can interrupt.
        launched: whether its clients launched since the previous check.
        waiting: whether work waits or is in flight now.
    """

    request: float = 0.0
    limit: float = 1.0
    reported_ns: int = 0
    piece_ns: int = 0
    launched: bool = False
    waiting: bool = False


@dataclass
class _Account:
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
    held_ns: int = 0
    due_ns: float = 0.0
    """ The time of its turns since the last check, and what it was due. """
    claim: Claim = field(default_factory=Claim)


class Turns:
    """The turns of the be slots of one GPU.

    Args:
        cycle_ns: the time in which each slot has one turn.
    """

    def __init__(self, cycle_ns: int = CYCLE_NS) -> None:
        self._cycle_ns = self._length_ns = cycle_ns
        """ The usual length of a cycle, and that of the cycles in the plans. """
        self._varied = 0.5
        self._exchanged = 0
        self._accounts: dict[str, _Account] = {}
        self.plans: dict[str, Plan] = {}
        """ By slot; empty: the slots take no turns. """
        self._order: list[str] = []
        """ The order of turns in a cycle. """
        self._boundary_ns = 0
        """ When the planned cycle begins; until then the turns of `Plan.turn` hold. """
        self._together = False
        self._handover_ns = _HANDOVER_NS
        self._settled_ns = 0

    def look(
        self,
        now_ns: int,
        part: float,
        demands: Mapping[str, Demand],
        together: bool = False,
    ) -> None:
        """Charge the slots, and plan their next turns.

        Args:
            now_ns: from a monotonic clock.
            part: the part of the time since the previous check that hp left to be, 0 to 1.
            demands: by slot name; all slots that have clients.
            together: the contexts of the clients run together (MPS).
        """
        self._together = together
        self._accounts = {name: self._accounts.get(name) or _Account() for name in demands}
        self._settle(now_ns)
        self._charge(part, demands)
        for name, demand in demands.items():
            self._note(self._accounts[name], self.plans.get(name), demand, now_ns)
        self._varied = (self._varied + _GOLDEN) % 1
        if self._compete(now_ns):
            self._plan(now_ns)
        else:
            self.rest()

    def hand_back(self, name: str, now_ns: int) -> bool:
        """Note that a slot has no more work; return whether turns have changed."""
        account = self._accounts.get(name)
        alone = sum(each.wants for each in self._accounts.values()) < 2
        if account is None or not account.wants or not self.plans or alone:
            return False
        self._settle(now_ns)
        account.wants = False
        holder = self._holder(now_ns)
        if holder in (None, name):
            self._restart(now_ns, now_ns, after=name)
        else:
            self._restart(now_ns, self._end_of_turn(holder, now_ns), after=holder, kept=holder)
        return True

    def ask(self, name: str, now_ns: int) -> bool:
        """Note that a slot without a turn has work; return whether turns have changed."""
        account = self._accounts.get(name)
        if account is None or not self.plans or account.wants or now_ns < account.shut_until_ns:
            return False
        self._settle(now_ns)
        account.wants, account.wanted_ns = True, now_ns
        holder = self._holder(now_ns)
        self._restart(now_ns, self._end_of_turn(holder, now_ns), after=holder, first=name, kept=holder)
        return True

    def rest(self) -> None:
        """End the turns; nobody waits, and nothing is owed."""
        self.plans = {}
        for account in self._accounts.values():
            account.balance_ns = account.arrears_ns = account.due_ns = 0.0
            account.held_ns = 0

    def shares(self) -> dict[str, float]:
        """Return the part of be's time that each slot is due now."""
        return due({name: replace(account.claim, wants=account.wants) for name, account in self._accounts.items()})

    # -- What slots did ------------------------------------------------------------------------------------------------

    def _settle(self, now_ns: int) -> None:
        """Add the turns that have passed, and what was due meanwhile. Call it before the plans change."""
        span = self._settled_ns, now_ns
        times = {
            name: max(0, plan.time(*span) - self._handover_ns * plan.begun(*span))
            for name, plan in self.plans.items()
            if name in self._accounts
        }
        shares = self.shares()
        # If all slots that want the GPU are at their limits, the GPU may have been idle. Else all time was somebody's.
        whole = sum(times.values()) if self._is_full(shares) else now_ns - self._settled_ns
        for name, time in times.items():
            self._accounts[name].held_ns += time
            self._accounts[name].due_ns += shares[name] * whole
        self._settled_ns = now_ns

    def _charge(self, part: float, demands: Mapping[str, Demand]) -> None:
        held = {name: account.held_ns * part for name, account in self._accounts.items()}
        overruns = {name: self._overrun(account, held[name], demands[name]) for name, account in self._accounts.items()}
        turns = sum(held.values())
        for name, account in self._accounts.items():
            # What one slot used beyond its turns, it took from the turns of the others.
            lost = sum(each * held[name] / (turns - held[other]) for other, each in overruns.items()
                       if other != name and held[name])  # fmt: skip
            balance = account.balance_ns + account.due_ns * part - held[name] - overruns[name] + lost
            account.balance_ns = max(-_DEBT_MOST_NS, min(balance, _BALANCE_MOST_NS if account.wants else 0.0))
            account.held_ns, account.due_ns = 0, 0.0
        self._forgive()

    def _forgive(self) -> None:
        """Forgive the least debt to all if all slots that want the GPU are in debt: nobody is owed that time."""
        wanting = [account for account in self._accounts.values() if account.wants]
        least_debt = max((account.balance_ns for account in wanting), default=0.0)
        if least_debt < 0 and self._is_full(self.shares()):
            for account in wanting:
                account.balance_ns -= least_debt

    @staticmethod
    def _overrun(account: _Account, held_ns: float, demand: Demand) -> float:
        """Return what a slot has used beyond its turns, by its own reports."""
        progress = demand.reported_ns or demand.launched
        account.fruitless_ns = 0.0 if progress else account.fruitless_ns + held_ns
        if progress:
            account.shut_ns, account.shut_until_ns = _SHUT_NS, 0
        if demand.piece_ns <= _LONG_PIECE_NS:
            return 0.0
        arrears = account.arrears_ns + held_ns - min(demand.reported_ns, _DEBT_MOST_NS)
        account.arrears_ns = max(0.0, min(arrears, _ARREARS_MOST_NS))
        return max(0.0, -arrears)

    @staticmethod
    def _note(account: _Account, plan: Plan | None, demand: Demand, now_ns: int) -> None:
        """Update what a slot wants."""
        account.claim = Claim(demand.request, demand.limit)
        if account.fruitless_ns > max(_FRUITLESS_NS, min(_FRUITLESS_PIECES * demand.piece_ns, _FRUITLESS_MOST_NS)):
            account.fruitless_ns = 0.0
            account.shut_until_ns = now_ns + account.shut_ns
            account.shut_ns = min(2 * account.shut_ns, _SHUT_MOST_NS)
        in_turn = plan is not None and plan.has_turn(now_ns)
        if demand.waiting or (demand.launched and in_turn):
            account.wants, account.wanted_ns = True, now_ns
        account.wants &= now_ns >= account.shut_until_ns and now_ns - account.wanted_ns < _IDLE_AFTER_NS

    def _compete(self, now_ns: int) -> bool:
        wanting = [account for account in self._accounts.values() if now_ns - account.wanted_ns < _LONE_NS]
        return len(wanting) > 1 or any(account.claim.limit < 1 for account in wanting)

    # -- Who has the next turns ----------------------------------------------------------------------------------------

    def _holder(self, now_ns: int) -> str | None:
        return next((name for name, plan in self.plans.items() if plan.has_turn(now_ns)), None)

    def _end_of_turn(self, holder: str | None, now_ns: int) -> int:
        """Return when a slot's turn ends; a turn that lasts ends once it was as long as others."""
        if holder is None:
            return now_ns
        begin, end = self._turn_under_way(holder, now_ns)
        return max(now_ns, min(end, begin + round(self.shares()[holder] * self._length_ns) + self._handover_ns))

    def _turn_under_way(self, name: str, now_ns: int) -> tuple[int, int]:
        """Return a slot's turn in the cycle under way."""
        plan = self.plans[name]
        begin, end = plan.next
        if now_ns < self._boundary_ns or begin == end:
            return plan.turn
        past = (now_ns - self._boundary_ns) // self._length_ns * self._length_ns
        return begin + past, end + past

    def _lengths(self, owed: Mapping[str, float]) -> dict[str, int]:
        """Return the lengths of the next turns, corrected by what the slots will be owed when they begin."""
        shares = {name: share for name, share in self.shares().items() if share}
        usable = self._length_ns - len(shares) * self._handover_ns
        is_full = self._is_full(shares)
        whole = usable if is_full else self._length_ns
        wished = {name: share * whole + _CORRECTED * owed[name] for name, share in shares.items()}
        # A slot whose turn would be too short has none, until it is owed enough.
        wished = {name: length for name, length in wished.items() if length >= _LEAST_TURN_NS}
        if not wished and is_full:
            wished = {max(shares, key=lambda name: owed[name]): _LEAST_TURN_NS}
        total = sum(wished.values())
        scale = usable / total if total > usable or is_full else 1.0
        return {name: round(length * scale) + self._handover_ns for name, length in wished.items()}

    @staticmethod
    def _is_full(shares: Mapping[str, float]) -> bool:
        """Return whether the slots want all time, and no limits prevent that they get it."""
        return sum(shares.values()) > 0.999_999

    def _owed(self, now_ns: int, begin_ns: int, turns: Mapping[str, tuple[int, int]]) -> dict[str, float]:
        """Return the slots' balances at ``begin_ns``, after their turns in the cycle under way."""
        shares = self.shares()
        rest = {
            name: max(0, min(end, begin_ns) - max(begin + self._handover_ns, now_ns))
            for name, (begin, end) in turns.items()
        }
        whole = sum(rest.values()) if self._is_full(shares) else begin_ns - now_ns
        passed = {
            name: account.balance_ns + account.due_ns - account.held_ns for name, account in self._accounts.items()
        }
        return {name: each + shares[name] * whole - rest.get(name, 0) for name, each in passed.items()}

    def _plan(self, now_ns: int) -> None:
        """Plan the next cycle. The turns of the cycle under way stay."""
        past = max(0, now_ns - self._boundary_ns) // self._length_ns + 1
        boundary = self._boundary_ns if now_ns < self._boundary_ns else self._boundary_ns + past * self._length_ns
        if not self.plans:
            boundary = now_ns
        self._order = [name for name in self._order if name in self._accounts]
        self._order += [name for name in self._accounts if name not in self._order]
        self._exchange()
        turns = {name: self._turn_under_way(name, now_ns) for name in self.plans}
        self._write(now_ns, boundary, {name: (begin, min(end, boundary)) for name, (begin, end) in turns.items()})

    def _exchange(self) -> None:
        """Let two neighbours change places, so that no slot always comes after one whose work runs on."""
        last = len(self._order) - 1
        if last > 1:
            self._exchanged = (self._exchanged + 1) % last
            at = self._exchanged
            self._order[at], self._order[at + 1] = self._order[at + 1], self._order[at]

    def _restart(
        self, now_ns: int, begin_ns: int, after: str | None, first: str | None = None, kept: str | None = None
    ) -> None:
        """Begin a cycle at ``begin_ns``: ``first``, then the slot behind ``after``. ``kept`` runs until then."""
        order = [name for name in self._order if name != first]
        index = order.index(after) + 1 if after in order else 0
        self._order = [*([first] if first else []), *order[index:], *order[:index]]
        self._write(now_ns, begin_ns, {kept: (self._turn_under_way(kept, now_ns)[0], begin_ns)} if kept else {})

    def _write(self, now_ns: int, begin_ns: int, turns: Mapping[str, tuple[int, int]]) -> None:
        """Make the plans: ``turns`` in the cycle under way, then cycles from ``begin_ns`` on."""
        shares = self.shares()
        count = sum(share > 0 for share in shares.values())
        usual = max(self._cycle_ns, count * _AVERAGE_TURN_NS)
        self._length_ns = round(usual * (1 + _VARIED * (self._varied - 0.5)))
        self._handover_ns = _REOPENED_NS if count == 1 else _TOGETHER_NS if self._together else _HANDOVER_NS
        lengths = self._lengths(self._owed(now_ns, begin_ns, turns))
        at, until = begin_ns, now_ns + PLAN_NS
        plans = {}
        for name in self._order:
            turn, length = turns.get(name, (0, 0)), lengths.get(name, 0)
            if shares[name] > 0.999_999:  # one turn that lasts, so that its client does not hand it back in each cycle
                begin = turn[0] if turn[0] < turn[1] and now_ns < turn[1] else begin_ns
                plans[name] = Plan((begin, until), (0, 0), self._length_ns, until)
            else:
                plans[name] = Plan(turn, (at, at + length), self._length_ns, until)
                at += length
        self.plans, self._boundary_ns = plans, begin_ns
