"""Shares be's GPU time among slots in proportion to their weights: decides which slots must wait for the others.

Each slot has a virtual time: its GPU time divided by its weight. A slot that is ahead of the least served slot by more
than a quantum is held: it must wait until it is nearly level. This module is a state machine of numbers; it reads no
clocks and no pages.

The GPU time of a slot is what its clients report, and whether a slot has work waiting is an estimate. So two rules
limit how much a slot that lies, is slow or dies can cost the others:

    time is charged     If the reports add up to much less than the available time, the agent charges the difference to
                        the slots that report least. So a slot that reports too little is charged too. A late report is
                        subtracted from what the slot was charged before. While other slots are held for a slot, the
                        agent charges that slot for the time even if the slot does not use the time.
    no credit           Other slots wait only for a hungry slot. A slot is hungry if it nearly always has work waiting,
                        and if it used the time when other slots last waited for it. The virtual time of a slot that is
                        not hungry is at least that of the least served hungry slot. So a slot that wants little, is
                        stopped or reports nothing blocks no other slot.

A slot that reports only a part of what it uses can gain time, but little more than half of its share. Where contexts
run together (MPS), the reports add up to more than the time, so the first rule detects less.

Two alternatives are worse. With fixed time slots, a slot that starts late wastes its time. Windows of different sizes
have no effect, because with work queued ahead, the window does not decide who runs.
"""

from collections.abc import Mapping
from dataclasses import dataclass

QUANTUM_NS = 30_000_000
""" How much virtual time a slot may be ahead. """
LEVEL_NS = 10_000_000
""" A held slot is released when its virtual time is ahead by at most this. """
DEBT_MAX_NS = 2_000_000_000
""" The maximum lead in virtual time; a larger lead is reduced to this. """
HELD_MAX_NS = 2_000_000_000
""" The longest hold: a slot is released after this time. """

_REPORT_MAX_NS = 1_000_000_000
_DENSITY = 0.65
""" The part of the time that is normally reported; the rest is gaps between kernels and context switches. """
_LATE_NS = 100_000_000
""" Late reports up to this sum cause no charges. """
_PREPAID_LEAK_NS = 1_600_000_000
_HUNGER_NS = 400_000_000
""" Time constant of the average of whether a slot has work waiting. """
_HUNGRY, _FED = 0.75, 0.6
""" A slot becomes hungry when it has work waiting for more than the first part of the time. It is no longer hungry when
it has work waiting for less than the second part. """
_USUAL_NS = 1_000_000_000
""" Time constant of the average use, of one slot and of all slots. """
_TRIAL_NS = 200_000_000
""" A trial: when other slots have been held for a slot for this time, the agent judges how the slot used that time. """
_USED, _MORE = 0.8, 0.85
""" After a trial the slot is sated, so other slots need not wait for it, if two conditions hold: all slots used less of
the trial's time than the first factor times their usual use; and the slot's usual use is at least the second factor
times its use in the trial. """
_SATED_NS, _SATED_MAX_NS = 1_000_000_000, 32_000_000_000
""" How long others do not wait for a sated slot. The first value doubles with each such trial, up to the second. """


@dataclass(frozen=True)
class Demand:
    """What an active slot's clients report at one check.

    Args:
        weight_milli: the slot's weight; its share of the time is in proportion to it.
        reported_ns: GPU time completed since the previous check.
        waiting: whether work is waiting or in flight now.
    """

    weight_milli: int
    reported_ns: int
    waiting: bool


class _Account:
    """The state of one slot."""

    def __init__(self, virtual_ns: float) -> None:
        self.virtual_ns = virtual_ns
        self.prepaid_ns = 0.0
        """ Charged time that was not reported yet. """
        self.wanting = 0.5
        self.hungry = False
        self.held_since_ns: int | None = None
        self._usual = 0.0
        self._trial_ns = self._trial_usable_ns = self._trial_used_ns = self._trial_own_ns = 0.0
        """ Sums over the current trial: its length, what all slots usually use of such a time, what all slots used,
        and what this slot used. """
        self._sated_until_ns = 0
        self._sated_ns = _SATED_NS

    @property
    def is_served(self) -> bool:
        """Whether the slot is hungry and not held, so that it may use the GPU's time."""
        return self.hungry and self.held_since_ns is None

    def report(self, reported_ns: int) -> float:
        """Subtract what was charged already from a report; return the rest, which must be charged."""
        offset = min(float(reported_ns), self.prepaid_ns)
        self.prepaid_ns -= offset
        return reported_ns - offset

    def learn_use(self, now_ns: int, available_ns: int, reported_ns: int, trial: tuple[float, float] | None) -> None:
        """Update the averages of the slot's use.

        Args:
            now_ns: the end of the interval.
            available_ns: the time available to be in the interval.
            reported_ns: what the slot used of it.
            trial: what all slots usually use of such an interval and what they used, if others were held; else None.
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
        """Update whether the slot is hungry, so that other slots may have to wait for it."""
        self.wanting += (waiting - self.wanting) * min(1.0, elapsed_ns / _HUNGER_NS)
        self.prepaid_ns *= max(0.0, 1 - elapsed_ns / _PREPAID_LEAK_NS)
        self.hungry = now_ns >= self._sated_until_ns and self.wanting > (_FED if self.hungry else _HUNGRY)

    def decide(self, now_ns: int, least_ns: float, waiting: bool) -> None:
        """Hold or release the slot."""
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
    """Decides which be slots of one GPU must wait."""

    def __init__(self) -> None:
        self._accounts: dict[str, _Account] = {}
        self._density = 1.0
        """ The part of the available time that is usually reported. """
        self._surplus_ns = 0.0
        """ Zero or negative: minus the time that was reported beyond the expected `_DENSITY`. Later reports may fall
        short by as much. """

    def look(self, now_ns: int, elapsed_ns: int, available_ns: int, demands: Mapping[str, Demand]) -> frozenset[str]:
        """Process what the active slots did; return the slots that must wait.

        Args:
            now_ns: from a monotonic clock.
            elapsed_ns: time since the previous check.
            available_ns: the part of this time that hp left to be.
            demands: by slot name, of active slots only.
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
        """Release all slots, and make their virtual times equal."""
        for account in self._accounts.values():
            account.held_since_ns = None
            account.virtual_ns = 0.0
        return frozenset()

    def ahead_ns(self) -> dict[str, float]:
        """Return how far each active slot is ahead of the least served one, in virtual time."""
        least = min((account.virtual_ns for account in self._accounts.values()), default=0.0)
        return {name: account.virtual_ns - least for name, account in self._accounts.items()}

    def _settle(self, demands: Mapping[str, Demand]) -> None:
        """Remove slots that are no longer active; start new ones at the least served slot's virtual time."""
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
        """Update the averages of use. If slots are held, learn how the slots for which they wait used the time."""
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
        unreported_ns = self._surplus_ns + _DENSITY * available_ns - sum(charges.values())
        self._surplus_ns = max(min(unreported_ns, 0.0), -_LATE_NS)
        level = _level({name: charges[name] / weight for name, weight in weights.items()}, weights, unreported_ns)
        for name, weight in weights.items():
            unreported = max(0.0, level * weight - charges[name])
            charges[name] += unreported
            self._accounts[name].prepaid_ns += unreported
        for name, charge in charges.items():
            self._accounts[name].virtual_ns += charge * 1_000 / demands[name].weight_milli


def _level(used: Mapping[str, float], weights: Mapping[str, int], spare: float) -> float:
    """Return the level such that ``spare`` suffices to raise every lower ``used`` value to it.

    Raising a value costs the difference times its weight in ``weights``.
    """
    level, width = 0.0, 0
    ordered = sorted(used, key=lambda name: used[name])
    for name in ordered:
        if width and (used[name] - level) * width >= spare:
            break
        spare -= (used[name] - level) * width
        level, width = used[name], width + weights[name]
    return level + spare / width if width and spare > 0 else 0.0
