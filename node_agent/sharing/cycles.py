"""Plans the next cycle of turns from what each slot is due and owed. turns.py decides when it begins."""

from collections.abc import Mapping, Sequence

from orion.node_agent.pages.plans import Plan
from orion.node_agent.sharing.accounts import Accounts, total
from orion.node_agent.sharing.around_windows import Turn, clipped, fill, gaps, origin
from orion.node_agent.sharing.joint import Window
from orion.node_agent.sharing.planned import Planned
from orion.node_agent.sharing.turn_lengths import ALTERNATING, TOGETHER, TurnLengths, next_lengths

PLAN_NS = 750_000_000
""" How long a plan holds that the agent does not renew. """

_CORRECTED = 0.7
""" The part of a balance that the next cycle corrects. """
_REPEATED = 2.0
""" Cycles repeat until the next check. If they do so more often than this, each corrects less; else shares would swing.
"""
_VARIED, _VARIED_BESIDE_HP = 0.2, 0.4
""" The length of cycles varies by this part. Else a slot's pieces would end too late, or too early, in each of its
turns. Beside an hp client whose period is about the cycle, the turns of some slots would also coincide with its work
for long. What hp takes of turns comes back (beside_hp.py), but later. """
_GOLDEN = 0.618_034
_CLOSED_UP, _CLOSE = 3, 0.99
""" Limits allow less in a shorter cycle, which is then shorter again: so often at most, and not for the last part. """
_FORGOTTEN = 0.9
""" At each check, the longest time between checks of late counts for this part of what it did. """


class Cycles:
    """The next cycles of a GPU.

    Args:
        lengths: of turns, as the node's settings ask for.
        accounts: of the slots.
    """

    def __init__(self, lengths: TurnLengths, accounts: Accounts) -> None:
        self._bounds, self._accounts = lengths, accounts
        self.shortest_ns = lengths.shortest_ns
        self.joint_ns = 0
        """ The length of joint cycles. """
        self._average_ns = 0
        self._mode = ALTERNATING
        self._between_ns = 0.0
        """ The time between checks: the longest of late. """
        self._golden, self._varied = 0.5, 1.0

    def look(self, between_ns: float, together: bool, joint_ns: int, average_ns: int, beside_hp: bool) -> None:
        """Note what holds from this check on.

        Args:
            between_ns: the time since the previous check.
            together: the contexts of the clients run together (MPS).
            joint_ns: the length of joint cycles.
            average_ns: how long turns are at least on average.
            beside_hp: hp took time from be since the previous check.
        """
        self._between_ns = max(between_ns, self._between_ns * _FORGOTTEN)
        self._mode = TOGETHER if together else ALTERNATING
        self.joint_ns, self._average_ns = joint_ns, average_ns
        self._golden = (self._golden + _GOLDEN) % 1
        self._varied = 1 + (_VARIED_BESIDE_HP if beside_hp else _VARIED) * (self._golden - 0.5)

    def plan(self, order: Sequence[str], now_ns: int, begin_ns: int, turns: Mapping[str, Turn]) -> Planned:
        """Return the plans.

        Args:
            order: of the turns in a cycle; all slots.
            now_ns: the present time.
            begin_ns: when the cycle begins.
            turns: those until then.
        """
        shares = self._accounts.shares
        positive = {name: share for name, share in shares.items() if share > 0}
        cycle = self._next_cycle(positive)
        corrected = _CORRECTED * min(1.0, _REPEATED * cycle / max(self._between_ns, 1.0))
        corrections = self._corrections(corrected, now_ns, begin_ns, turns)
        if self._accounts.taken:
            return self._around(order, now_ns, begin_ns, turns, corrections)
        cycle, lengths = self._closed_up(cycle, positive, corrections)
        at, until = begin_ns, now_ns + PLAN_NS
        plans = {}
        lasting = [name for name, share in positive.items() if share > 0.999_999]
        if lasting and self._accounts[lasting[0]].ceiling >= 1:
            turns, lengths = _one_that_lasts(lasting[0], now_ns, begin_ns, until, turns), {}
        for name in order:
            length = lengths.get(name, 0)
            plans[name] = self._planned(name, turns, (at, at + length), cycle, until)
            at += length
        return Planned(plans, begin_ns, cycle)

    def _closed_up(
        self, cycle_ns: int, shares: Mapping[str, float], corrections: Mapping[str, float]
    ) -> tuple[int, dict[str, int]]:
        """Return the lengths of turns, and of the cycle: turns of whole pieces may be shorter together than planned."""
        lengths = next_lengths(self._accounts, shares, corrections, cycle_ns, self.shortest_ns)
        limits_fill = self._accounts.are_full and all(self._accounts[name].ceiling < 1 for name in shares)
        for _ in range(_CLOSED_UP):
            ceilings, together = [self._accounts[name].ceiling for name in lengths], sum(lengths.values())
            if not lengths or (max(ceilings) < 1 and not limits_fill):
                break
            if together > _CLOSE * cycle_ns or min(ceilings) >= 1:
                return together, lengths
            cycle_ns = together
            self._expect(cycle_ns)
            lengths = next_lengths(self._accounts, shares, corrections, cycle_ns, self.shortest_ns)
        return cycle_ns, lengths

    def _planned(self, name: str, turns: Mapping[str, Turn], turn: Turn, cycle_ns: int, until_ns: int) -> Plan:
        """Return the plan of a slot that has ``turn`` in each cycle, or once before the plan ends: its limit says."""
        once = name not in self._accounts.taken and self._accounts[name].allowance(self.shortest_ns)[1]
        repeated_ns = PLAN_NS + turn[1] - turn[0] if once else cycle_ns
        return Plan(turns.get(name, (0, 0)), turn, repeated_ns, until_ns, self._mode.early_ns)

    def _corrections(self, part: float, now_ns: int, begin_ns: int, turns: Mapping[str, Turn]) -> dict[str, float]:
        """Return a part of the slots' balances at ``begin_ns``, after their turns in the cycle under way."""
        rest = {
            name: max(0.0, min(end, begin_ns) - max(begin + self._accounts[name].handover_ns, now_ns))
            for name, (begin, end) in turns.items()
            if name in self._accounts
        }
        apart = self._accounts.apart
        full = self._accounts.are_full and apart
        whole = total(rest, apart) / sum(apart.values()) if full else begin_ns - now_ns
        return {
            name: part * (account.owed_ns + apart.get(name, 0.0) * whole - rest.get(name, 0))
            for name, account in self._accounts.items()
        }

    def _next_cycle(self, shares: Mapping[str, float]) -> int:
        """Return the length of the next cycles, and tell the accounts what depends on it."""
        # Alone, a slot has turns after pauses only.
        handover = self._mode.handover_ns if len(shares) > 1 else ALTERNATING.handover_ns
        pieces = {name: self._accounts[name].piece_ns for name in shares}
        usual = self._bounds.cycle(self._mode, shares, pieces, handover) if shares else self._mode.cycle_ns
        usual = max(usual, len(shares) * self._average_ns)
        varied = round(usual * self._varied)
        cycle = self.joint_ns if self._accounts.taken else varied
        self._expect(cycle, handover)
        return cycle

    def _expect(self, cycle_ns: int, handover_ns: float | None = None) -> None:
        """Tell the accounts the length of the next cycles, and what a handover costs as a rule; None: as before."""
        repeats = max(1.0, self._between_ns / cycle_ns)
        for account in self._accounts.values():
            account.expect(cycle_ns, repeats, account.usual_handover_ns if handover_ns is None else handover_ns)

    def _around(
        self,
        order: Sequence[str],
        now_ns: int,
        begin_ns: int,
        turns: Mapping[str, Turn],
        corrections: Mapping[str, float],
    ) -> Planned:
        """Make the plans around the windows of jobs, from the cycle on that begins at ``begin_ns``."""
        taken, cycle = self._accounts.taken, self.joint_ns
        spaces = [(round(each.begin * cycle), round(each.end * cycle)) for each in gaps(taken.values())]
        left = sum(end - begin for begin, end in spaces)
        parts = {name: min(1.0, share * cycle / left) for name, share in self._accounts.apart.items()} if left else {}
        lengths = next_lengths(self._accounts, parts, corrections, left, self.shortest_ns)
        ordered = {name: lengths[name] for name in order if name in lengths}
        growing = {name for name in ordered if self._accounts[name].ceiling >= 1}
        spans = fill(spaces, ordered, growing, self.shortest_ns) | self._spans_of_windows(taken)
        until, plans = now_ns + PLAN_NS, {}
        for name in order:
            begin, end = spans.get(name, (0, 0))
            plans[name] = self._planned(name, turns, (begin_ns + begin, begin_ns + end), cycle, until)
        return Planned(plans, begin_ns, cycle)

    def windows_from(self, begin_ns: int, planned: Mapping[str, Turn]) -> dict[str, Turn]:
        """Return the windows of the joint cycle that begins at ``begin_ns``; one that a limit has cut keeps its end."""
        found = {}
        for name, (begin, end) in self._spans_of_windows(self._accounts.taken).items():
            known = planned.get(name, (0, 0))
            same = known[0] == begin_ns + begin and known[1] <= begin_ns + end
            found[name] = known if same else (begin_ns + begin, begin_ns + end)
        return found

    def _spans_of_windows(self, taken: Mapping[str, Window]) -> dict[str, Turn]:
        """Return the windows in nanoseconds after the cycle's begin; a limit may end them early."""
        first, spans = origin(taken.values()), {}
        for name, window in taken.items():
            begin = (window.begin - first) * self.joint_ns if window.length > 0 else 0.0
            length = min(window.length * self.joint_ns, self._accounts[name].allowance(0.0)[0])
            spans[name] = round(begin), round(begin + length)
        return spans


def _one_that_lasts(name: str, now_ns: int, begin_ns: int, until_ns: int, turns: Mapping[str, Turn]) -> dict[str, Turn]:
    """Return one turn that lasts, so that its client does not hand it back in each cycle. Other turns end before it."""
    begin, end = turns.get(name, (0, 0))
    begin = begin if begin < end and now_ns < end else begin_ns
    return clipped(turns, begin) | {name: (begin, until_ns)}
