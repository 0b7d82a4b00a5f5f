"""Sharing be's GPU time among slots, in proportion to their weights: who has to wait until the others have caught up.

Each slot has a virtual time: its GPU time over its weight. A slot that is ahead of the least served one by more than a
quantum is held until it is nearly level. A state machine of plain numbers, without clocks or pages.

What a slot used is its clients' own word, and what it wants a guess, so two rules bound what lying, dawdling or dying
does to the others:

    time is charged     where the reports do not add up to most of the time, the difference is charged to those who
                        report least; late reports are set off against it. So who reports too little is charged too, and
                        while others are held for its sake, it pays for the time whether it uses it or not
    no credit           others wait only for a slot that is hungry: it nearly always has work waiting, and when others
                        last waited for it, it did use the time. Any other slot moves along with the least served hungry
                        one, so who wants little, is stopped or reports nothing keeps the GPU from nobody

A slot that reports a part of what it uses can gain by that, though not much more than half of its share. Where contexts
run together (MPS), reports add up to more than the time, and the first rule has less to go by.

Rejected: fixed time slots (a slot that starts late wastes its time), and holding by the window's size (with
work queued ahead, the window does not decide who runs).
"""

from collections.abc import Mapping
from dataclasses import dataclass

QUANTUM_NS = 30_000_000
""" Virtual time that a slot may be ahead. """
LEVEL_NS = 10_000_000
""" A held slot goes on once it is ahead by no more than this. """
DEBT_MAX_NS = 2_000_000_000
""" Virtual time: what is beyond is forgiven. """
HELD_MAX_NS = 2_000_000_000
""" A slot held for so long goes on, whatever the numbers say. """

_REPORT_MAX_NS = 1_000_000_000
_DENSITY = 0.65
""" So much of the time is reported when all is well; the rest is gaps between kernels and changes of context. """
_LATE_NS = 100_000_000
""" Reports that come late by so much in all are no cause for charges. """
_PREPAID_LEAK_NS = 1_600_000_000
_HUNGER_NS = 400_000_000
""" Time constant of how often a slot has work waiting. """
_HUNGRY, _FED = 0.75, 0.6
""" Shares of the time with work waiting at which a slot becomes hungry, and stops being so. """
_USUAL_NS = 1_000_000_000
""" Time constant of what a slot, and all of them, usually use. """
_TRIAL_NS = 200_000_000
""" Others were held for so long: it is judged what that was good for. """
_USED, _MORE = 0.8, 0.85
""" A slot has its fill if less of that time was used than the first of what is usual, and the slot itself usually uses
more than the second of what it used then. """
_SATED_NS, _SATED_MAX_NS = 1_000_000_000, 32_000_000_000
""" Then nobody waits for it for so long; twice as long after each further trial with that outcome. """


@dataclass(frozen=True)
class Demand:
    """What an active slot's clients say at one look.

    Args:
        weight_milli: its part is in proportion to this.
        reported_ns: GPU time completed since the look before.
        waiting: whether work waits or is in flight right now.
    """

    weight_milli: int
    reported_ns: int
    waiting: bool


class _Account:
    """What is known of one slot."""

    def __init__(self, virtual_ns: float) -> None:
        self.virtual_ns = virtual_ns
        self.prepaid_ns = 0.0
        """ Charged, but not reported yet. """
        self.wanting = 0.5
        self.hungry = False
        self.held_since_ns: int | None = None
        self._usual = 0.0
        self._trial_ns = self._trial_usable_ns = self._trial_used_ns = self._trial_own_ns = 0.0
        """ Time for which others were held, what all should have used of it and did, and what this one did. """
        self._sated_until_ns = 0
        self._sated_ns = _SATED_NS

    @property
    def is_served(self) -> bool:
        """Whether the GPU's time may be its."""
        return self.hungry and self.held_since_ns is None

    def report(self, reported_ns: int) -> float:
        """Set a report off against what was charged already; return the rest, to be charged."""
        offset = min(float(reported_ns), self.prepaid_ns)
        self.prepaid_ns -= offset
        return reported_ns - offset

    def learn_use(self, now_ns: int, available_ns: int, reported_ns: int, trial: tuple[float, float] | None) -> None:
        """Learn what it uses of a time.

        Args:
            now_ns: at the end of that time.
            available_ns: how much time.
            reported_ns: what it used.
            trial: what all usually use of so much time and what they did, if others were held for it; else None.
        """
        if not available_ns:
            return
        self._usual += (reported_ns / available_ns - self._usual) * min(1.0, available_ns / _USUAL_NS)
        if trial is not None:
            self._trial_ns += available_ns
            self._trial_usable_ns += trial[0]
            self._trial_used_ns += trial[1]
            self._trial_own_ns += reported_ns
        if self._trial_ns < _TRIAL_NS:
            return
        idle = self._trial_used_ns < _USED * self._trial_usable_ns
        if idle and self._usual >= _MORE * self._trial_own_ns / self._trial_ns:
            self._sated_until_ns = now_ns + self._sated_ns
            self._sated_ns = min(2 * self._sated_ns, _SATED_MAX_NS)
        else:
            self._sated_ns = _SATED_NS
        self._trial_ns = self._trial_usable_ns = self._trial_used_ns = self._trial_own_ns = 0.0

    def learn_hunger(self, now_ns: int, elapsed_ns: int, waiting: bool) -> None:
        """Learn whether others may have to wait for it."""
        self.wanting += (waiting - self.wanting) * min(1.0, elapsed_ns / _HUNGER_NS)
        self.prepaid_ns *= max(0.0, 1 - elapsed_ns / _PREPAID_LEAK_NS)
        self.hungry = now_ns >= self._sated_until_ns and self.wanting > (_FED if self.hungry else _HUNGRY)

    def decide(self, now_ns: int, least_ns: float, waiting: bool) -> None:
        """Hold it, or let it go."""
        ahead = self.virtual_ns - least_ns
        if self.held_since_ns is None:
            if waiting and ahead > QUANTUM_NS:
                self.held_since_ns = now_ns
        elif ahead <= LEVEL_NS or not waiting:
            self.held_since_ns = None
        elif now_ns - self.held_since_ns > HELD_MAX_NS:
            self.held_since_ns = None
            self.virtual_ns = least_ns


class Fairness:
    """The be slots of one GPU."""

    def __init__(self) -> None:
        self._accounts: dict[str, _Account] = {}
        self._density = 1.0
        """ What is usually reported of the time. """
        self._nobodys_ns = 0.0
        """ Below 0: reported beyond what the time asks for, so that later time may lack as much. """

    def look(self, now_ns: int, elapsed_ns: int, available_ns: int, demands: Mapping[str, Demand]) -> frozenset[str]:
        """Take in what the active slots did; return those that have to wait.

        Args:
            now_ns: of a clock that does not go back.
            elapsed_ns: since the look before.
            available_ns: how much of it hp left to be.
            demands: by slot name, of the active ones alone.
        """
        self._settle(demands)
        reports = {name: min(demand.reported_ns, _REPORT_MAX_NS) for name, demand in demands.items()}
        self._judge(now_ns, available_ns, reports)
        self._charge(available_ns, reports, demands)
        for name, demand in demands.items():
            self._accounts[name].learn_hunger(now_ns, elapsed_ns, demand.waiting)
        least = self._least()
        if least is None:
            return self.rest()
        for name, account in self._accounts.items():
            if not account.hungry:
                account.virtual_ns = max(account.virtual_ns, least)
            account.virtual_ns = min(account.virtual_ns, least + DEBT_MAX_NS)
            account.decide(now_ns, least, demands[name].waiting)
        return frozenset(name for name, account in self._accounts.items() if account.held_since_ns is not None)

    def rest(self) -> frozenset[str]:
        """Hold nobody, and let them begin again from level."""
        for account in self._accounts.values():
            account.held_since_ns = None
            account.virtual_ns = 0.0
        return frozenset()

    def ahead_ns(self) -> dict[str, float]:
        """Return how far each active slot is ahead of the one that is served least, in virtual time."""
        least = min((account.virtual_ns for account in self._accounts.values()), default=0.0)
        return {name: account.virtual_ns - least for name, account in self._accounts.items()}

    def _settle(self, demands: Mapping[str, Demand]) -> None:
        """Forget slots that are no longer active; begin new ones at the least served one's time."""
        self._accounts = {name: account for name, account in self._accounts.items() if name in demands}
        least = self._least()
        if least is None:
            least = min((account.virtual_ns for account in self._accounts.values()), default=0.0)
        for name in demands:
            if name not in self._accounts:
                self._accounts[name] = _Account(least)

    def _least(self) -> float | None:
        return min((account.virtual_ns for account in self._accounts.values() if account.hungry), default=None)

    def _judge(self, now_ns: int, available_ns: int, reports: Mapping[str, int]) -> None:
        """See how those for whom others were held used the time."""
        free = {name: account for name, account in self._accounts.items() if account.held_since_ns is None}
        if available_ns:
            density = min(1.0, sum(reports.values()) / available_ns)
            self._density += (density - self._density) * min(1.0, available_ns / _USUAL_NS)
        trial = self._density * available_ns, sum(reports[name] for name in free)
        for name, account in free.items():
            kept = account.is_served and len(free) < len(self._accounts)
            account.learn_use(now_ns, available_ns, reports[name], trial if kept else None)

    def _charge(self, available_ns: int, reports: Mapping[str, int], demands: Mapping[str, Demand]) -> None:
        charges = {name: self._accounts[name].report(reported) for name, reported in reports.items()}
        weights = {name: demands[name].weight_milli for name in demands if self._accounts[name].is_served}
        nobodys = self._nobodys_ns + _DENSITY * available_ns - sum(charges.values())
        self._nobodys_ns = max(min(nobodys, 0.0), -_LATE_NS)
        level = _level({name: charges[name] / weight for name, weight in weights.items()}, weights, nobodys)
        for name, weight in weights.items():
            unreported = max(0.0, level * weight - charges[name])
            charges[name] += unreported
            self._accounts[name].prepaid_ns += unreported
        for name, charge in charges.items():
            self._accounts[name].virtual_ns += charge * 1_000 / demands[name].weight_milli


def _level(used: Mapping[str, float], weights: Mapping[str, int], spare: float) -> float:
    """Return how high ``spare`` fills vessels of widths ``weights`` that are filled to ``used``, lowest first."""
    level, width = 0.0, 0
    ordered = sorted(used, key=lambda name: used[name])
    for name in ordered:
        if width and (used[name] - level) * width >= spare:
            break
        spare -= (used[name] - level) * width
        level, width = used[name], width + weights[name]
    return level + spare / width if width and spare > 0 else 0.0
