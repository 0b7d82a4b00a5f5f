"""Gives be slots turns, so that each gets the part of the time that it is due: decides when each slot has the GPU.

Of the slots that want the GPU, one has the turn and all others wait. Turns follow one another in a cycle, each as long
as its slot is due. The plan is written ahead into the grants, so turns pass while the agent sleeps: see
hook/src/be/turns.h. This module is a state machine of numbers; it reads no clock and no page.

What slots are owed (accounts.py) lengthens or shortens their next turns. A slot without work hands back its turn, and
the next one begins at once. A slot that has no turn asks for one when it launches.

Two alternatives are worse. Holding slots that are ahead of the others, with all others at work together: the GPU
alternates between their contexts every 2 ms, each of them has a kernel in flight when hp comes, and shares are off by
several points within a second. A turn for each check of the agent: its timers are late by more than a handover costs.
"""

from collections.abc import Iterable, Mapping
from types import MappingProxyType

from orion.node_agent.pages.plans import Plan
from orion.node_agent.sharing.account import Demand
from orion.node_agent.sharing.accounts import Accounts, is_full
from orion.node_agent.sharing.joint import Window, room
from orion.node_agent.sharing.turn_lengths import CYCLE_NS, TurnLengths, next_lengths

PLAN_NS = 750_000_000
""" How long a plan holds that the agent does not renew. """

_HANDOVER_NS = 200_000
""" The part of a turn in which the GPU does nothing for the slot, after a turn of another slot and after a pause, if
nothing is known: 0.16 to 0.3 ms on an H100 (docs/results/quotas.md). Turns are longer by it, and it is not charged. """
_EARLY_NS = 150_000
""" Clients may launch so long before their turns begin. Then less time is lost: on an H100 the throughputs of three
slots added up to 0.957 instead of 0.946, and to 0.953 with twice this time (docs/results/quotas.md). """
_UNDISTURBED = 0.999
""" What handovers cost is learnt while hp leaves this part of the time. """
_TOGETHER_NS = 30_000
""" The same where contexts run together (MPS). """
_CORRECTED = 0.7
""" The part of a balance that the next cycle corrects. """
_REPEATED = 2.0
""" Cycles repeat until the next check. If they do so more often than this, each corrects less; else shares would swing.
"""
_FORGOTTEN = 0.9
""" At each check, the longest time between checks of late counts for this part of what it did. """
_VARIED = 0.2
""" The length of cycles varies by this part. Else the turns of some slots would coincide with the work of an hp client
whose period divides the cycle, and a slot's pieces would end too late, or too early, in each of its turns. """
_GOLDEN = 0.618_034


_USUAL = TurnLengths()
_NONE: Mapping[str, Window] = MappingProxyType({})


class Turns:
    """The turns of the be slots of one GPU.

    Args:
        lengths: how long they are.
    """

    def __init__(self, lengths: TurnLengths = _USUAL) -> None:
        self._bounds = lengths
        self._length_ns = CYCLE_NS
        """ The length of the cycles in the plans. """
        self._varied = 0.5
        self._accounts = Accounts()
        self.plans: dict[str, Plan] = {}
        """ By slot; a slot that is not here launches when it likes. """
        self.competing = False
        """ Whether slots take turns. """
        self._order: list[str] = []
        """ The order of turns in a cycle. """
        self._boundary_ns = 0
        """ When the planned cycle begins; until then the turns of `Plan.turn` hold. """
        self._together = False
        self._joint_ns = 0
        self._settled_ns = 0
        self._looked_ns = 0
        self._between_ns = 0.0
        """ The time between checks: the longest of late. """

    @property
    def accounts(self) -> Accounts:
        """The accounts of the slots that have clients."""
        return self._accounts

    def look(
        self,
        now_ns: int,
        part: float,
        demands: Mapping[str, Demand],
        together: bool = False,
        windows: Mapping[str, Window] = _NONE,
        joint_ns: int = 0,
    ) -> None:
        """Charge the slots, and plan their next turns.

        Args:
            now_ns: from a monotonic clock.
            part: the part of the time since the previous check that hp left to be, 0 to 1.
            demands: by slot name; all slots that have clients.
            together: the contexts of the clients run together (MPS).
            windows: of the slots of jobs that use several GPUs.
            joint_ns: the length of joint cycles.
        """
        self._together = together
        between = min(now_ns - self._looked_ns, PLAN_NS) if self.competing else 0
        self._between_ns, self._looked_ns = max(between, self._between_ns * _FORGOTTEN), now_ns
        self._accounts.keep(demands)
        self._settle(now_ns)
        learn_ns = self._length_ns if part > _UNDISTURBED and not together else 0
        self._accounts.charge(now_ns, part, demands, between, learn_ns)
        self._accounts.windows, self._joint_ns = windows, joint_ns
        for name, demand in demands.items():
            plan = self.plans.get(name)
            self._accounts[name].note(demand, now_ns, plan is not None and plan.has_turn(now_ns))
        self._varied = (self._varied + _GOLDEN) % 1
        self.competing = self._accounts.compete(now_ns)
        if self.competing:
            self._plan(now_ns)
        else:
            self._wait(now_ns)

    def hand_back(self, name: str, now_ns: int) -> bool:
        """Note that a slot has no more work; return whether turns have changed."""
        account = self._accounts.get(name)
        alone = sum(each.wants for each in self._accounts.values()) < 2
        if account is None or not account.wants or not self.competing or alone:
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
        if not self.competing:
            self.competing, self._looked_ns = True, now_ns
        account.wants, account.wanted_ns = True, now_ns
        holder = self._holder(now_ns)
        self._restart(now_ns, self._end_of_turn(holder, now_ns), after=holder, first=name, kept=holder)
        return True

    def _wait(self, now_ns: int) -> None:
        """Plan nothing but that slots with a limit ask before they launch."""
        self.rest()
        limited = [name for name, account in self._accounts.items() if account.ceiling < 1]
        self.plans = {name: Plan((0, 0), (0, 0), self._length_ns, now_ns + PLAN_NS) for name in limited}

    def rest(self) -> None:
        """End the turns; nobody waits, and nothing is owed."""
        self.plans, self.competing = {}, False
        for account in self._accounts.values():
            account.rest()

    def _settle(self, now_ns: int) -> None:
        """Add the turns that have passed, and what was due meanwhile. Call it before the plans change."""
        # After the plans' end nobody waits, and nobody is charged.
        end = min([now_ns, *(plan.until_ns for plan in self.plans.values())])
        span, times = (self._settled_ns, max(self._settled_ns, end)), {}
        for name, plan in self.plans.items():
            if account := self._accounts.get(name):
                time, begun = plan.time(*span), plan.begun(*span)
                account.turns_ns += time
                account.turns += begun
                times[name] = max(0.0, time - account.handover_ns * begun)
        shares = self._apart()
        # If all slots that want the GPU are at their limits, the GPU may have been idle. Else all time was somebody's.
        passed = span[1] - span[0]
        whole = _sum(times, shares) / _sum(shares, shares) if is_full(self._accounts.shares()) and shares else passed
        for name in times.keys() & shares.keys():
            self._accounts[name].due_ns += shares[name] * whole
        self._settled_ns = now_ns

    def _apart(self) -> dict[str, float]:
        """Return the shares of the slots that want the GPU and have no window."""
        taken = self._accounts.taken()
        return {name: share for name, share in self._accounts.shares().items() if share > 0 and name not in taken}

    # -- Who has the next turns ----------------------------------------------------------------------------------------

    def _holder(self, now_ns: int) -> str | None:
        return next((name for name, plan in self.plans.items() if plan.has_turn(now_ns)), None)

    def _end_of_turn(self, holder: str | None, now_ns: int) -> int:
        """Return when a slot's turn ends; a turn that lasts ends once it was as long as others."""
        if holder is None:
            return now_ns
        begin, end = self._turn_under_way(holder, now_ns)
        usual = round(self._accounts.shares()[holder] * self._length_ns + self._accounts[holder].handover_ns)
        return max(now_ns, min(end, begin + usual))

    def _turn_under_way(self, name: str, now_ns: int) -> tuple[int, int]:
        """Return a slot's turn in the cycle under way."""
        plan = self.plans[name]
        begin, end = plan.next
        if now_ns < self._boundary_ns or begin == end:
            return plan.turn
        past = (now_ns - self._boundary_ns) // self._length_ns * self._length_ns
        return begin + past, end + past

    def _owed(
        self, shares: Mapping[str, float], now_ns: int, begin_ns: int, turns: Mapping[str, tuple[int, int]]
    ) -> dict[str, float]:
        """Return the slots' balances at ``begin_ns``, after their turns in the cycle under way."""
        rest = {
            name: max(0.0, min(end, begin_ns) - max(begin + self._accounts[name].handover_ns, now_ns))
            for name, (begin, end) in turns.items()
            if name in self._accounts
        }
        apart = self._apart()
        full = is_full(shares) and apart
        whole = _sum(rest, apart) / _sum(apart, apart) if full else begin_ns - now_ns
        passed = {
            name: account.balance_ns + account.due_ns - account.held_ns for name, account in self._accounts.items()
        }
        return {name: each + apart.get(name, 0.0) * whole - rest.get(name, 0) for name, each in passed.items()}

    def _plan(self, now_ns: int) -> None:
        """Plan the next cycle. The turns of the cycle under way stay."""
        past = max(0, now_ns - self._boundary_ns) // self._length_ns + 1
        boundary = self._boundary_ns if now_ns < self._boundary_ns else self._boundary_ns + past * self._length_ns
        if self._accounts.taken():
            boundary = (now_ns // self._joint_ns + 1) * self._joint_ns
        elif not self.plans:
            boundary = now_ns
        self._order = self._ordered()
        turns = {name: self._turn_under_way(name, now_ns) for name in self.plans}
        self._write(now_ns, boundary, {name: (begin, min(end, boundary)) for name, (begin, end) in turns.items()})

    def _ordered(self) -> list[str]:
        """Return the slots in the order of their turns; new ones come last."""
        known = [name for name in self._order if name in self._accounts]
        return [*known, *(name for name in self._accounts if name not in known)]

    def _restart(
        self, now_ns: int, begin_ns: int, after: str | None, first: str | None = None, kept: str | None = None
    ) -> None:
        """Begin a cycle at ``begin_ns``: ``first``, then the slot behind ``after``. ``kept`` runs until then."""
        if self._accounts.taken():
            self._plan(now_ns)
            return
        order = [name for name in self._ordered() if name != first]
        index = order.index(after) + 1 if after in order else 0
        self._order = [*([first] if first else []), *order[index:], *order[:index]]
        self._write(now_ns, begin_ns, {kept: (self._turn_under_way(kept, now_ns)[0], begin_ns)} if kept else {})

    def _write(self, now_ns: int, begin_ns: int, turns: Mapping[str, tuple[int, int]]) -> None:
        """Make the plans: ``turns`` in the cycle under way, then cycles from ``begin_ns`` on."""
        shares = self._accounts.shares()
        positive = {name: share for name, share in shares.items() if share > 0}
        handover = _TOGETHER_NS if self._together and len(positive) > 1 else _HANDOVER_NS
        for account in self._accounts.values():
            account.expect_handover(handover)
        pieces = {name: self._accounts[name].piece_ns for name in positive}
        usual = self._bounds.cycle(positive, pieces, handover) if positive else CYCLE_NS
        self._length_ns = round(usual * (1 + _VARIED * (self._varied - 0.5)))
        owed = self._owed(shares, now_ns, begin_ns, turns)
        corrected = _CORRECTED * min(1.0, _REPEATED * self._length_ns / max(self._between_ns, 1.0))
        corrections = {name: corrected * balance for name, balance in owed.items()}
        if taken := self._accounts.taken():
            self._write_around(taken, now_ns, begin_ns, turns, corrections)
            return
        lengths = next_lengths(self._accounts, positive, corrections, self._length_ns, self._bounds.shortest_ns)
        if lengths and all(account.ceiling >= 1 for account in self._accounts.values()):
            # Turns of whole pieces may be shorter together.
            self._length_ns = sum(lengths.values())
        at, until = begin_ns, now_ns + PLAN_NS
        early, plans = 0 if self._together else _EARLY_NS, {}
        for name in self._order:
            turn, length = turns.get(name, (0, 0)), lengths.get(name, 0)
            if shares[name] > 0.999_999:  # one turn that lasts, so that its client does not hand it back in each cycle
                begin = turn[0] if turn[0] < turn[1] and now_ns < turn[1] else begin_ns
                plans[name] = Plan((begin, until), (0, 0), self._length_ns, until, early)
            else:
                plans[name] = Plan(turn, (at, at + length), self._length_ns, until, early)
                at += length
        self.plans, self._boundary_ns = plans, begin_ns

    def _write_around(
        self,
        taken: Mapping[str, Window],
        now_ns: int,
        begin_ns: int,
        turns: Mapping[str, tuple[int, int]],
        corrections: Mapping[str, float],
    ) -> None:
        """Make the plans around the windows of jobs, from the joint cycle on that begins at ``begin_ns``."""
        cycle = self._length_ns = self._joint_ns
        left = room(set(taken.values()))
        parts = {name: min(1.0, share / left.length) for name, share in self._apart().items()} if left.length else {}
        lengths = next_lengths(self._accounts, parts, corrections, left.length * cycle, self._bounds.shortest_ns)
        spans = {name: (round(each.begin * cycle), round(each.end * cycle)) for name, each in taken.items()}
        at = round(left.begin * cycle)
        for name in self._order:
            if name in lengths:
                spans[name] = at, at + lengths[name]
                at += lengths[name]
        until, early = now_ns + PLAN_NS, 0 if self._together else _EARLY_NS
        self.plans = {}
        for name in self._order:
            begin, end = spans.get(name, (0, 0))
            self.plans[name] = Plan(turns.get(name, (0, 0)), (begin_ns + begin, begin_ns + end), cycle, until, early)
        self._boundary_ns = begin_ns


def _sum(values: Mapping[str, float], names: Iterable[str]) -> float:
    return sum(values.get(name, 0.0) for name in names)
