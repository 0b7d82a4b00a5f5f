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

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

from orion.node_agent.pages.plans import Plan
from orion.node_agent.sharing.account import Account
from orion.node_agent.sharing.accounts import Accounts, total
from orion.node_agent.sharing.around_windows import Turn, UnderWay, clipped, origin
from orion.node_agent.sharing.beside_hp import BesideHp
from orion.node_agent.sharing.cycles import PLAN_NS, Cycles
from orion.node_agent.sharing.demand import Demand
from orion.node_agent.sharing.joint import Window
from orion.node_agent.sharing.planned import Planned
from orion.node_agent.sharing.turn_lengths import TurnLengths

LOOK_NS, STEADY_LOOK_NS, LONG_PIECES_LOOK_NS = 70_000_000, 200_000_000, 25_000_000
""" The time until the next check: while hp, limits or joint turns ask for corrections; while nothing does; and while
work runs on after its turns. """
_SHORT_PIECE_NS = 500_000
""" Clients spread the errors of shorter pieces among turns (hook/src/process/plan.c). Else cycles must vary often. """
_UNDISTURBED = 0.999
""" What handovers cost is learnt while hp leaves this part of the time. """
_USUAL = TurnLengths()
_NONE: Mapping[str, Window] = MappingProxyType({})


class Turns:
    """The turns of the be slots of one GPU.

    Args:
        lengths: how long they are.
    """

    def __init__(self, lengths: TurnLengths = _USUAL) -> None:
        self._accounts = Accounts()
        self._cycles = Cycles(lengths, self._accounts)
        self._planned = Planned()
        self._beside_hp = BesideHp()
        self.competing = False
        """ Whether slots take turns. """
        self.look_ns = LOOK_NS
        """ The time until the next check, while slots take turns: the longer, the longer the plans stay right. """
        self._order: list[str] = []
        """ The order of turns in a cycle: all accounts. """
        self._settled_ns = 0
        self._looked_ns = self._restarted_ns = 0
        """ When the last check was (0: there was none), and when a slot last handed back or asked. """
        self._part = 1.0
        """ The part of the time that hp left to be before the last check. """

    @property
    def plans(self) -> Mapping[str, Plan]:
        """The plans by slot; a slot that is not here launches when it likes."""
        return self._planned.plans

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
        average_ns: int = 0,
        hp_stall_ns: int = 0,
        closed: Sequence[tuple[int, int]] = (),
    ) -> None:
        """Charge the slots, and plan their next turns.

        Args:
            now_ns: from a monotonic clock.
            part: the part of the time since the previous check that hp left to be, 0 to 1.
            demands: by slot name; all slots that have clients.
            together: the contexts of the clients run together (MPS).
            windows: of the slots of jobs that use several GPUs.
            joint_ns: the length of joint cycles.
            average_ns: how long turns are at least on average.
            hp_stall_ns: for so long slots may still wait for hp that makes no progress; 0: all hp makes progress.
            closed: times since the previous check at which hp left nothing to be, as far as they are known.
        """
        elapsed, self._looked_ns, self._part = now_ns - (self._looked_ns or now_ns), now_ns, part
        between = min(elapsed, PLAN_NS) if self.competing else 0
        self._accounts.keep(demands)
        self._accounts.pay(elapsed * part)
        self._order = self._ordered()
        self._settle(now_ns)
        dividing = self._accounts.apart if self._accounts.are_full else ()
        parts = self._beside_hp.parts(part, now_ns - elapsed, now_ns, closed, dividing)
        if not self.plans and self._accounts.are_idle(demands):
            return
        learn_ns = self._planned.length_ns if part > _UNDISTURBED and not together else 0
        self._accounts.charge(now_ns, part, demands, between, learn_ns, hp_stall_ns, parts)
        self._accounts.windows = windows
        for name, demand in demands.items():
            plan = self.plans.get(name)
            self._accounts[name].note(demand, now_ns, plan is not None and plan.has_turn(now_ns), average_ns)
        before = self._accounts.shares
        self._accounts.divide()
        self.look_ns = self._next_look_ns(part)
        self._cycles.look(max(between, self.look_ns), together, joint_ns, average_ns, part <= _UNDISTURBED)
        self.competing = self._accounts.compete(now_ns)
        if self.competing:
            if not self._are_fresh(now_ns, before):
                self._plan(now_ns)
        else:
            self._wait(now_ns)

    def _are_fresh(self, now_ns: int, before: Mapping[str, float]) -> bool:
        """Return whether the plans may stay: a slot has just handed back or asked, and nothing asks for corrections.

        Args:
            now_ns: the present time.
            before: the shares until now.
        """
        is_steady = self.look_ns == STEADY_LOOK_NS and self._accounts.shares is before
        return is_steady and now_ns - self._restarted_ns < STEADY_LOOK_NS // 2

    def _next_look_ns(self, part: float) -> int:
        """Return the time until the next check.

        Turns that nothing disturbs pass as planned, whatever slots hand back and ask for meanwhile: each new plan makes
        up for that at once.
        """
        if self._accounts.have_long_pieces:
            return LONG_PIECES_LOOK_NS
        accounts = self._accounts.values()
        short = all(each.ceiling >= 1 and (each.piece_ns <= _SHORT_PIECE_NS or not each.wants) for each in accounts)
        return STEADY_LOOK_NS if short and part > _UNDISTURBED and not self._accounts.windows else LOOK_NS

    def hand_back(self, name: str, now_ns: int) -> bool:
        """Note that a slot has no more work; return whether turns have changed."""
        account = self._accounts.get(name)
        alone = sum([each.wants for each in self._accounts.values()]) < 2
        if account is None or not account.wants or not self.competing:
            return False
        account.wants, account.handed_back_ns = False, now_ns
        if alone:  # it keeps the turn until another slot asks
            return False
        self._settle(now_ns)
        self._accounts.divide()
        holder = self._planned.holder(now_ns)
        if holder in (None, name):
            self._restart(now_ns, now_ns, after=name)
        else:
            self._restart(now_ns, self._end_of_turn(holder, now_ns), after=holder, kept=holder)
        return True

    def ask(self, name: str, now_ns: int, working: Collection[str] = ()) -> bool:
        """Note that a slot without a turn has work; return whether turns have changed.

        Args:
            name: the slot.
            now_ns: the present time.
            working: other slots that have work now; they matter while no slots take turns.
        """
        account = self._accounts.get(name)
        if account is None or not self.plans or account.wants or not account.progress.asks(now_ns):
            return False
        self._settle(now_ns)
        if not self.competing:
            self._accounts.pay((now_ns - self._looked_ns) * self._part)
            self.competing, self._looked_ns = True, now_ns
            self._accounts.begin_to_compete(working)
        account.wants, account.wanted_ns = True, now_ns
        self._accounts.divide()
        holder = self._planned.holder(now_ns)
        self._restart(now_ns, self._end_of_turn(holder, now_ns), after=holder, first=name, kept=holder)
        return True

    def _wait(self, now_ns: int) -> None:
        """Plan nothing but that slots with a limit, and those that come back with a debt, ask before they launch."""
        self.competing = False
        for account in self._accounts.values():
            account.rest()
        plan = Plan((0, 0), (0, 0), self._planned.length_ns, now_ns + PLAN_NS)
        asking = [
            name for name, each in self._accounts.items() if each.ceiling < 1 or (each.debt_ns and not each.wants)
        ]
        self._planned = replace(self._planned, plans=dict.fromkeys(asking, plan))

    def forget(self, name: str) -> float:
        """Forget what a slot owes, is owed and used: another owner gets it. Return its debt, in nanoseconds."""
        account = self._accounts.get(name)
        if account is None:
            return 0.0
        self._accounts[name] = Account()
        return account.debt_ns

    def owe(self, name: str, debt_ns: float) -> None:
        """Let a slot have a debt again that was forgotten: it has got its owner back."""
        account = self._accounts.setdefault(name, Account())
        account.balance_ns = min(account.balance_ns, -debt_ns)

    def _settle(self, now_ns: int) -> None:
        """Add the turns that have passed, and what was due meanwhile. Call it before the plans change."""
        # After the plans' end nobody waits, and nobody is charged.
        since, until, times = self._settled_ns, max(self._settled_ns, self._planned.until(now_ns)), {}
        self._beside_hp.note(self._planned.plans, since, until)
        for name, plan in self._planned.plans.items():
            if account := self._accounts.get(name):
                time, begun = plan.passed(since, until)
                account.turns_ns += time
                account.turns += begun
                held = time - account.handover_ns * begun
                times[name] = held if held > 0 else 0.0
        shares = self._accounts.apart
        # If all slots that want the GPU are at their limits, the GPU may have been idle. Else all time was somebody's.
        passed = until - since
        whole = total(times, shares) / sum(shares.values()) if self._accounts.are_full and shares else passed
        for name in times.keys() & shares.keys():
            self._accounts[name].due_ns += shares[name] * whole
        self._settled_ns = now_ns

    # -- Who has the next turns ----------------------------------------------------------------------------------------

    def _end_of_turn(self, holder: str | None, now_ns: int) -> int:
        """Return when a slot's turn ends: one that lasts, when it was as long as others; one handed back, at once."""
        if holder is None or not self._accounts[holder].wants:
            return now_ns
        begin, end = self._planned.turn_under_way(holder, now_ns)
        usual = round(self._accounts.shares[holder] * self._planned.length_ns + self._accounts[holder].handover_ns)
        return max(now_ns, min(end, begin + usual))

    def _plan(self, now_ns: int) -> None:
        """Plan the next cycle. The turns of the cycle under way stay, but one of a slot that wants nothing ends."""
        if self._accounts.taken:
            self._plan_around(now_ns)
            return
        holder, wanting = self._planned.holder(now_ns), self._accounts.apart
        if holder is not None and wanting and holder not in wanting:
            self._restart(now_ns, now_ns, after=holder)
            return
        boundary = self._planned.end_of_cycle(now_ns)
        self._write(now_ns, boundary, clipped(self._planned.under_way(now_ns), boundary))

    def _plan_around(self, now_ns: int, first: str | None = None, kept: str | None = None) -> None:
        """Plan the next joint cycle, and close up the turns until then."""
        taken, apart = self._accounts.taken, self._accounts.apart
        joint = self._cycles.joint_ns
        offset = round(origin(taken.values()) * joint)
        boundary = ((now_ns - offset) // joint + 1) * joint + offset
        turns = self._planned.under_way(now_ns)
        if kept is not None:
            turns[kept] = turns[kept][0], self._end_of_turn(kept, now_ns)
        # The windows of the cycle under way are those that all GPUs of the jobs agree on now.
        turns |= self._cycles.windows_from(boundary - joint, turns)
        growing = {name for name in apart if self._accounts[name].ceiling >= 1}
        wanting = sorted(apart, key=lambda name: -self._accounts[name].owed_ns)
        under_way = UnderWay(turns, taken, wanting, growing)
        asking = None
        if first is not None and first in apart:
            usual = apart[first] * joint + min(0.0, self._accounts[first].owed_ns)
            asking = (first, round(usual)) if usual >= self._cycles.shortest_ns else None
        self._write(now_ns, boundary, under_way.closed_up(now_ns, boundary, asking))

    def _write(self, now_ns: int, begin_ns: int, turns: Mapping[str, Turn]) -> None:
        self._planned = self._cycles.plan(self._order, now_ns, begin_ns, turns)

    def _ordered(self) -> list[str]:
        """Return the slots in the order of their turns; new ones come last."""
        known = [name for name in self._order if name in self._accounts]
        return [*known, *(name for name in self._accounts if name not in known)]

    def _before(self, asking: str, kept: str | None) -> list[str]:
        """Return the slots that go before one that asks: they are owed more than it, and more than a turn of theirs.

        Without them, slots that ask a few times in each cycle would always come before one that works all the time.
        """
        accounts, shares = self._accounts, self._accounts.shares
        least, cycle_ns = accounts[asking].owed_ns, self._planned.length_ns
        owed = {name: each.owed_ns for name, each in accounts.items() if each.wants and name not in (asking, kept)}
        late = [name for name, each in owed.items() if each > max(least, shares.get(name, 0.0) * cycle_ns)]
        return sorted(late, key=lambda name: -owed[name])

    def _restart(
        self, now_ns: int, begin_ns: int, after: str | None, first: str | None = None, kept: str | None = None
    ) -> None:
        """Begin a cycle at ``begin_ns``: ``first``, then the slot behind ``after``. ``kept`` runs until then."""
        self._restarted_ns = now_ns
        before = self._before(first, kept) if first else []
        if self._accounts.taken:
            self._plan_around(now_ns, None if before else first, kept)
            return
        ahead = [*before, *([first] if first else [])]
        order = [name for name in self._order if name not in ahead]
        index = order.index(after) + 1 if after in order else 0
        self._order = [*ahead, *order[index:], *order[:index]]
        self._write(now_ns, begin_ns, {kept: (self._planned.turn_under_way(kept, now_ns)[0], begin_ns)} if kept else {})
