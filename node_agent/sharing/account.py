"""What one be slot wants and what it is owed.

At each check a slot is charged the time of its turns by the agent's clock, less hp's part of it. The difference to what
it was due is its balance. What a slot did not want is not owed to it.

What a client reports counts in three ways only: for what a handover costs the slot, within narrow bounds; where its
long pieces run on after its turns, no more than the time that has passed; and where its work runs on while hp waits for
it, no more than hp's part of its turns. The hook writes these reports. A client that changes its own hook's words can
hide work that runs on, and can gain no other time.
"""

from dataclasses import dataclass, field

from orion.node_agent.sharing.demand import Demand
from orion.node_agent.sharing.last_second import SECOND_NS, LastSecond
from orion.node_agent.sharing.progress import Progress

LONG_PIECE_NS = 2_000_000
""" Clients close their valve half a piece before a turn ends. The agent charges what runs on of longer ones. """
LONE_NS = 1_000_000_000
""" A slot still competes for this time after it last wanted the GPU. """

_MOST_OWED_NS = 100_000_000
""" What a slot can be owed; a longer arrears is forgotten. """
_MOST_DEBT_NS = 2_000_000_000
_MOST_ARREARS_NS = 20_000_000
""" Reports may be so late, or as late as a piece is long. """
_SLACK_NS, _USED_NS = 30_000_000, 5_000_000
""" Turns may be longer by what a limit allows in so long, so that corrections stay possible; so little is no use. """
_LONG_CYCLE_NS = 60_000_000
""" In longer cycles, a limit allows no more than what a turn long ago frees. """
_IDLE_AFTER_NS = 100_000_000
""" A slot still wants the GPU for this time after its clients last had work, unless it hands its turn back. """
_PUBLISHED_NS = 300_000_000
""" Launches that are reported within this time after a turn was handed back may have come before that. """
_CORRECTION_MOST_NS, _CORRECTION_MOST_PART = 200_000, 0.01
""" By so much, and by this part of a cycle, a slot's handovers may cost more or less than usual. So a client that
reports nothing gains a point at most. """
_REMEMBERED = 0.97
""" What handovers cost is a mean in which each check counts for this part of the next one. """
_TURNS_LEAST = 5.0
""" Before so many turns the mean says nothing. """


@dataclass
class Account:
    """The state of one slot."""

    wants: bool = False
    wanted_ns: int = -LONE_NS
    handed_back_ns: int = -LONE_NS
    """ When it last wanted the GPU, and when it last handed its turn back. """
    balance_ns: float = 0.0
    """ What it was due, less what it was charged. """
    arrears_ns: float = 0.0
    """ The time of its turns, less its reports. """
    closed_ns: float = 0.0
    """ hp's part of its turns lately, less what the slot used of it. """
    room_ns: float = 0.0
    """ The time that has passed, less the reports that counted. """
    lost_ns: float = 0.0
    """ What others used of its turns, and what it was not yet credited for that. """
    progress: Progress = field(default_factory=Progress)
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
    second: LastSecond = field(default_factory=LastSecond)
    """ With a limit: how much it used the GPU in the second before the last check. """
    most_owed_ns: int = _MOST_OWED_NS
    """ Where memory moves, a slot without a turn is owed more within a cycle. """
    usual_turn_ns: float = 0.0
    """ How long its turns are if it is owed nothing. """
    cycle_ns: int = 0
    repeats: float = 1.0
    """ The length of the planned cycles, and how many of them pass until the next check. """
    request: float = 0.0
    limit: float = 1.0
    ceiling: float = 1.0
    piece_ns: int = 0
    clients: int = 0
    was_due_ns: float = 0.0
    was_charged_ns: float = 0.0
    """ What it was due and what it was charged between the last two checks. """

    @property
    def debt_ns(self) -> float:
        """What the slot has used beyond what it was due; it comes off its next turns."""
        return max(0.0, -self.balance_ns)

    @property
    def owed_ns(self) -> float:
        """The balance now, between two checks."""
        return self.balance_ns + self.due_ns - self.held_ns

    @property
    def held_ns(self) -> float:
        """What it is charged for its turns since the last check, before hp's part is subtracted."""
        held = self.turns_ns - self.handover_ns * self.turns
        return held if held > 0 else 0.0

    # -- Handovers -----------------------------------------------------------------------------------------------------

    def expect(self, cycle_ns: int, repeats: float, usual_handover_ns: float) -> None:
        """Note the next cycles' length and how many pass until the next check, and what a handover costs as a rule."""
        self.cycle_ns, self.repeats = cycle_ns, repeats
        if self.usual_handover_ns != usual_handover_ns:
            self.usual_handover_ns = self.handover_ns = usual_handover_ns
            self.measured_ns = self.measured_turns = 0.0

    def learn_handover(self, turns: int, turns_ns: int, reported_ns: float, cycle_ns: int) -> None:
        """Learn what a handover costs this slot.

        Args:
            turns: the number of its turns since the last check.
            turns_ns: their time.
            reported_ns: what its clients report of it.
            cycle_ns: the length of cycles.
        """
        self.measured_ns = self.measured_ns * _REMEMBERED + turns_ns - min(reported_ns, 2 * turns_ns)
        self.measured_turns = self.measured_turns * _REMEMBERED + turns
        if self.measured_turns > _TURNS_LEAST:
            most = min(_CORRECTION_MOST_NS, _CORRECTION_MOST_PART * cycle_ns)
            correction = self.measured_ns / self.measured_turns - self.usual_handover_ns
            self.handover_ns = max(0.0, self.usual_handover_ns + max(-most, min(correction, most)))

    # -- Limits --------------------------------------------------------------------------------------------------------

    def allowance(self, shortest_ns: float) -> tuple[float, bool]:
        """Return what its limit of the last second leaves to its next turns.

        It is what the limit allows in a cycle, and a part of what is left of the second. With a small limit that is
        shorter than any turn. Then one turn may be as long as all turns are at least. A long piece must fit into what
        is left. One that is longer than the limit allows in a second waits until the slot has used nothing for a
        second.

        Args:
            shortest_ns: turns are not shorter, unless the limit allows less in a second.

        Returns:
            how long each turn may be at most, in nanoseconds, 0: it must wait; and whether it may have only one.
        """
        if self.ceiling >= 1:
            return float("inf"), False
        used_ns = self.second.used_ns + self.held_ns
        left = self.ceiling * SECOND_NS - used_ns
        if self.piece_ns > LONG_PIECE_NS and self.piece_ns > left and used_ns > _USED_NS:
            return 0.0, False
        repeats = 1.0 if self.piece_ns > LONG_PIECE_NS else self.repeats
        in_cycle = self.ceiling * self.cycle_ns
        if self.cycle_ns > _LONG_CYCLE_NS:  # one turn counts for so much that it must wait until older ones do not
            in_cycle = min(in_cycle, self.second.begin_ns(self.cycle_ns))
        allowed = max(0.0, in_cycle + (left + self.ceiling * _SLACK_NS) / repeats)
        least = min(shortest_ns, self.ceiling * SECOND_NS)
        return (least, True) if allowed < least <= left else (allowed, False)

    def _note_use(self, since_ns: int, now_ns: int, used_ns: float) -> None:
        if self.ceiling < 1:
            self.second.add(since_ns, now_ns, used_ns)
        elif self.second:
            self.second = LastSecond()

    # -- Charges -------------------------------------------------------------------------------------------------------

    def counted(self, demand: Demand, elapsed_ns: float) -> float:
        """Return how much of what its clients report counts: no more than the time that has passed."""
        self.room_ns = min(self.room_ns + elapsed_ns, _MOST_DEBT_NS)
        counted = min(float(demand.reported_ns), self.room_ns)
        self.room_ns -= counted
        return counted

    def beyond(
        self, held_ns: float, closed_ns: float, reported_ns: float, demand: Demand, elapsed_ns: float
    ) -> tuple[float, float]:
        """Return what the slot used of hp's part of its turns, and what it used after its turns, by its own reports.

        hp waits for work in flight, and is busy meanwhile. So what a slot's clients report beyond its turns without
        hp's part is of that part first.

        Work that runs on after a turn is reported as long as it would have taken alone: meanwhile the GPU alternates
        with the next slot. So the excess is what the slot took from others. Where pieces fit into turns, their ends say
        what ran on. A longer piece may end long after its turn, so what its clients report is compared with all their
        turns.

        Args:
            held_ns: the time of its turns since the last check, less hp's part.
            closed_ns: hp's part.
            reported_ns: what its clients report.
            demand: its longest piece now may have begun since the last check.
            elapsed_ns: the time since the last check.
        """
        longest_ns = max(self.piece_ns, demand.piece_ns)
        fits = longest_ns <= max(LONG_PIECE_NS, self.usual_turn_ns)
        ran_on = min(float(demand.ran_on_ns), elapsed_ns) if fits and longest_ns > LONG_PIECE_NS else 0.0
        arrears = self.arrears_ns + held_ns + ran_on - reported_ns
        self.arrears_ns = max(0.0, min(arrears, max(_MOST_ARREARS_NS, min(longest_ns, _MOST_DEBT_NS))))
        self.closed_ns = min(self.closed_ns + closed_ns, _MOST_ARREARS_NS)
        excess = max(0.0, -arrears)
        through = min(excess, self.closed_ns)
        self.closed_ns -= through
        return through, ran_on if fits else excess - through

    def taken_from(self, lost_ns: float, held_ns: float) -> float:
        """Return how much of its turns the slot is not charged, because others used them.

        A long piece is reported when it ends. So it may have taken more than the slot's turns since the last check; the
        rest comes off later turns.

        Args:
            lost_ns: what others are now known to have used.
            held_ns: the time of its turns since the last check, less hp's part.
        """
        if not lost_ns and not self.lost_ns:
            return 0.0
        lost = min(self.lost_ns + lost_ns, _MOST_DEBT_NS)
        counted = min(lost, held_ns)
        self.lost_ns = lost - counted if self.wants else 0.0
        return counted

    def charge(self, since_ns: int, now_ns: int, part: float, held_ns: float, ran_on_ns: float, lost_ns: float) -> None:
        """Move what has passed since the last check into the balance.

        Args:
            since_ns: the time of the last check.
            now_ns: the time of this check.
            part: the part of the time that hp left to be.
            held_ns: the time of its turns, less hp's part.
            ran_on_ns: what the slot used beyond its turns.
            lost_ns: what others used of its turns.
        """
        used = held_ns + ran_on_ns
        self.was_due_ns, self.was_charged_ns = self.due_ns * part, max(0.0, used - lost_ns)
        self._note_use(since_ns, now_ns, used)
        balance = self.balance_ns + self.was_due_ns - self.was_charged_ns
        # The agent gave the turns, so turns alone leave no large debt. Work that runs on is the slot's own doing.
        least = max(-_MOST_DEBT_NS, min(self.balance_ns, -self.most_owed_ns) - ran_on_ns)
        self.balance_ns = max(least, min(balance, self.most_owed_ns if self.wants else 0.0))
        self.turns_ns, self.turns, self.due_ns = 0, 0, 0.0

    def settle_window(self, before_ns: float, ran_on_ns: float, forgone_ns: float) -> None:
        """Set the balance of a slot that has windows, which follow from what it is due: it owes what ran on.

        Args:
            before_ns: its balance at the last check.
            ran_on_ns: what it used beyond its window since then.
            forgone_ns: the windows that it was due and forwent.
        """
        self.balance_ns = max(-_MOST_DEBT_NS, min(0.0, before_ns - ran_on_ns + forgone_ns))

    def lately_wanted(self, now_ns: int) -> bool:
        """Return whether the slot wants the GPU, or handed it back a short while ago."""
        return self.wants or now_ns - self.wanted_ns < _IDLE_AFTER_NS

    # -- Demand --------------------------------------------------------------------------------------------------------

    def note(self, demand: Demand, now_ns: int, in_turn: bool, average_ns: int = 0) -> None:
        """Update what the slot wants.

        Args:
            demand: what its clients did.
            now_ns: the present time.
            in_turn: it has the turn.
            average_ns: memory moves with turns of this length, and a turn may wait for it; 0: none does.
        """
        self.request, self.limit, self.ceiling = demand.request, demand.limit, demand.ceiling
        self.piece_ns, self.clients = demand.piece_ns, demand.clients
        self.most_owed_ns = max(_MOST_OWED_NS, self.cycle_ns) if average_ns else _MOST_OWED_NS
        self.progress.look(now_ns, demand.piece_ns, average_ns)
        launches = demand.launched and in_turn and now_ns - self.handed_back_ns > _PUBLISHED_NS
        if demand.waiting or launches:
            self.wants, self.wanted_ns = True, now_ns
        is_open = now_ns >= self.progress.shut_until_ns and now_ns - self.wanted_ns < _IDLE_AFTER_NS
        self.wants &= is_open and demand.clients > 0

    def rest(self) -> None:
        """Forget what it is owed, but not its debt: nobody takes turns at present."""
        self.balance_ns = min(0.0, self.balance_ns)
        self.arrears_ns = self.closed_ns = self.due_ns = self.lost_ns = 0.0
        self.turns_ns = self.turns = 0
