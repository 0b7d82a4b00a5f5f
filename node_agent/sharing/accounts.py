"""What the be slots of a GPU want and what they are owed: the bookkeeping of turns. account.py has that of one slot."""

from collections.abc import Collection, Iterable, Mapping
from functools import lru_cache
from types import MappingProxyType

from orion.node_agent.sharing.account import LONE_NS, LONG_PIECE_NS, Account
from orion.node_agent.sharing.demand import Demand
from orion.node_agent.sharing.joint import Window
from orion.planning.sharing.due import Claim, due


class Accounts(dict[str, Account]):
    """The accounts of the slots of a GPU, by slot name."""

    windows: Mapping[str, Window] = MappingProxyType({})
    """ Of the slots of jobs that use several GPUs. Such a slot gets its window and nothing else. """
    shares: Mapping[str, float] = MappingProxyType({})
    """ The part of be's time that each slot is due. """
    are_full: bool = False
    """ Whether the slots want all time, and no limits prevent that they get it. """
    taken: Mapping[str, Window] = MappingProxyType({})
    """ The windows of the slots that have work. """
    apart: Mapping[str, float] = MappingProxyType({})
    """ The shares of the slots that want the GPU and have no window. """

    def keep(self, names: Mapping[str, Demand]) -> None:
        """Drop the accounts of other slots, and open those that are missing."""
        for name in self.keys() - names.keys():
            del self[name]
        for name in names:
            self.setdefault(name, Account())

    def divide(self) -> None:
        """Divide the time again: what slots want has changed, or what they may have."""
        self.taken = {name: window for name, window in self.windows.items() if name in self and self[name].wants}
        left = max(0.0, 1.0 - sum([window.length for window in set(self.taken.values())])) if self.taken else 1.0
        apart = tuple([
            (name, each.request, each.limit, each.wants, bool(each.clients))
            for name, each in self.items() if name not in self.taken
        ])  # fmt: skip
        self.shares, self.apart, self.are_full = _divided(apart, left)
        if not self.taken:
            return
        # Two slots of one job have the same window on a GPU.
        of = list(self.taken.values())
        windows = {name: window.length / of.count(window) for name, window in self.taken.items()}
        self.shares = {**dict.fromkeys(self, 0.0), **self.shares, **windows}
        self.are_full = is_full(self.shares)

    def claims(self) -> dict[str, Claim]:
        """Return what each slot may claim of the GPU's time. A slot without clients claims nothing."""
        return {
            name: Claim(each.request, each.limit, each.wants)
            for name, each in self.items()
            if each.clients or each.wants
        }

    def due_to_jobs(self, now_ns: int, jobs: Mapping[str, str]) -> dict[str, float]:
        """Return what jobs that use several GPUs are due here: the part of the time.

        A job that pauses at the moment of a check keeps its window, else it would lose it until the next check.

        Args:
            now_ns: the present time.
            jobs: by slot.
        """
        claims = self.claims()
        for name in jobs.keys() & claims.keys():
            claims[name] = claims[name]._replace(wants=self[name].lately_wanted(now_ns))
        found, parts = dict.fromkeys(jobs.values(), 0.0), due(claims)
        for name, job in jobs.items():
            found[job] += parts.get(name, 0.0)
        return found

    def debts_of_jobs(self, jobs: Mapping[str, str]) -> dict[str, float]:
        """Return what jobs have used beyond what they were due here, and can pay; by job, in nanoseconds."""
        found = dict.fromkeys(jobs.values(), 0.0)
        for name, job in jobs.items():
            if self[name].wants:
                found[job] = max(found[job], self[name].debt_ns)
        return found

    @property
    def have_long_pieces(self) -> bool:
        """Whether work of a slot may run on long after its turns."""
        return any(account.piece_ns > LONG_PIECE_NS and account.wants for account in self.values())

    def are_idle(self, demands: Mapping[str, Demand]) -> bool:
        """Return whether no slot wants the GPU, nor did so at the last check, and none has a limit to keep."""
        return not any(
            self[name].wants or each.launched or each.waiting or each.ceiling < 1 for name, each in demands.items()
        )

    def compete(self, now_ns: int) -> bool:
        """Return whether turns are necessary: several slots want the GPU, or one that has a limit does."""
        wanting = [account for account in self.values() if now_ns - account.wanted_ns < LONE_NS]
        return len(wanting) > 1 or any(account.ceiling < 1 for account in wanting)

    def begin_to_compete(self, working: Collection[str]) -> None:
        """Let reports of work from before count for nothing: nobody else wanted that time.

        Args:
            working: slots that have work now; the last check may not have seen it.
        """
        for name, account in self.items():
            if account.wants or name in working:
                account.arrears_ns = float("inf")

    @property
    def debtors(self) -> list[str]:
        """The slots that have debts."""
        return [name for name, account in self.items() if account.balance_ns < 0]

    def pay(self, time_ns: float) -> None:
        """Lower the debts of slots that do not want the GPU by what they would be due if all of them wanted it.

        So a slot has its turns again neither sooner nor later if it pauses meanwhile.

        Args:
            time_ns: what hp has left to be since the last check.
        """
        pausing = {name: self[name] for name in self.debtors if not self[name].wants}
        if pausing:
            parts = due(self.claims() | {name: Claim(each.request, each.limit) for name, each in pausing.items()})
            for name, account in pausing.items():
                account.balance_ns = min(0.0, account.balance_ns + parts[name] * time_ns)

    def charge(
        self,
        now_ns: int,
        part: float,
        demands: Mapping[str, Demand],
        elapsed_ns: float,
        learn_ns: int = 0,
        hp_stall_ns: int = 0,
        parts: Mapping[str, float] = MappingProxyType({}),
    ) -> None:
        """Charge all slots for what has passed since the last check.

        Args:
            now_ns: the time of the check.
            part: the part of the time that hp left to be.
            demands: of all slots.
            elapsed_ns: the time since the last check.
            learn_ns: the length of cycles, if reports show what handovers cost; 0: they do not.
            hp_stall_ns: for so long slots may still wait for hp that makes no progress.
            parts: the part of its turns that hp left to a slot; if it is not here, ``part``.
        """
        reported = {name: account.counted(demands[name], elapsed_ns) for name, account in self.items()}
        held = {name: account.held_ns * parts.get(name, part) for name, account in self.items()}
        turned = {name: (account.turns, account.turns_ns) for name, account in self.items()}
        # Without turns nobody uses the time of others. Where hp left nothing, reports of the same time say nothing.
        ran_on, left = dict.fromkeys(held, 0.0), part
        if part and elapsed_ns:
            ran_on, left = self._beyond(part, held, reported, demands, elapsed_ns)
        beyond = {name: each * part for name, each in ran_on.items() if each}
        # Added up for each: a difference of large numbers may be 0 where a slot has had next to nothing.
        of_others = {name: sum([each for other, each in held.items() if other != name]) for name in beyond}
        for name, account in self.items():
            account.progress.judge(held[name], demands[name], name in self.windows, hp_stall_ns)
            # What one slot used beyond its turns, it took from the turns of the others, but for hp's part of it.
            lost = sum([each * held[name] / of_others[other] for other, each in beyond.items()
                        if other != name and held[name]]) if beyond else 0.0  # fmt: skip
            before = account.balance_ns
            lost = account.taken_from(lost, held[name])
            account.charge(now_ns - round(elapsed_ns), now_ns, left, held[name], ran_on[name], lost)
            # Also if it has no work any more: it was charged for its window, and was due nothing beside it.
            if window := self.windows.get(name):
                account.settle_window(before, ran_on[name], window.forgone * elapsed_ns * part)
                account.was_due_ns = self.shares.get(name, 0.0) * elapsed_ns * part
        self._forgive()
        # While work of a slot runs on after its turns, the GPU alternates between it and the next slot, whose work then
        # takes longer and is reported so. The clients of a slot with several alternate, too.
        learn = learn_ns and not self.have_long_pieces
        for name, account in self.items():
            if learn and account.wants and demands[name].clients == 1:
                account.learn_handover(*turned[name], reported[name], learn_ns)

    def _beyond(
        self,
        part: float,
        held: dict[str, float],
        reported: Mapping[str, float],
        demands: Mapping[str, Demand],
        elapsed_ns: float,
    ) -> tuple[dict[str, float], float]:
        """Add to ``held`` what slots used while hp closed be's gate, as hp waits for work in flight.

        Args:
            part: the part of the time in which hp did not close the gate.
            held: the time of the slots' turns, less hp's part.
            reported: what counts of the slots' reports.
            demands: of all slots.
            elapsed_ns: the time since the last check.

        Returns:
            what the slots used after their turns, and the part of the time that hp left.
        """
        ran_on, turns, more = dict[str, float](), 0.0, 0.0
        for name, account in self.items():
            closed = account.held_ns - held[name]
            through, ran_on[name] = account.beyond(held[name], closed, reported[name], demands[name], elapsed_ns)
            if name in self.apart:
                turns += held[name]
                more += through + ran_on[name] * (1.0 - part)
            held[name] += through
        return ran_on, part * (1.0 + more / turns) if self.are_full and turns else part

    def _forgive(self) -> None:
        """Forgive the least debt to all if all slots that want the GPU are in debt: nobody is owed that time."""
        wanting = [account for account in self.values() if account.wants]
        least_debt = max([account.balance_ns for account in wanting], default=0.0)
        if least_debt < 0 and self.are_full:
            for account in wanting:
                account.balance_ns -= least_debt


@lru_cache(maxsize=512)
def _divided(
    slots: tuple[tuple[str, float, float, bool, bool], ...], left: float
) -> tuple[Mapping[str, float], Mapping[str, float], bool]:
    """Return the shares of all slots, those of the slots that want the GPU, and whether they want all time.

    The same slots come again and again with the same claims, since they hand back and ask.

    Args:
        slots: name, request, limit, whether it wants the GPU and whether it has clients.
        left: the part of the time that they divide.
    """
    claims = {name: Claim(request, limit, wants) for name, request, limit, wants, has in slots if has or wants}
    found = due(claims, left)
    shares = {slot[0]: found.get(slot[0], 0.0) for slot in slots}
    apart = {name: share for name, share in found.items() if share > 0}
    return MappingProxyType(shares), MappingProxyType(apart), is_full(found)


def is_full(shares: Mapping[str, float]) -> bool:
    """Return whether the slots want all time, and no limits prevent that they get it."""
    return sum(shares.values()) > 0.999_999


def total(values: Mapping[str, float], names: Iterable[str]) -> float:
    """Return the sum of the values of ``names``."""
    return sum([values.get(name, 0.0) for name in names])
