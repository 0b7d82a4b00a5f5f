"""What the agent knows of one tenant, from one look to the next. Times in seconds, memory in bytes."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from orion.node_agent.clients.client import Client
from orion.node_agent.parking.answers import SLOWEST
from orion.node_agent.parking.view import Place

_DEFAULT_RATE = 2 << 30
""" Bytes a second: how fast a tenant leaves that has never left. """
_MOST_SECONDS = 2.0
""" A change that took longer than this and the slowest way together was disturbed. """
_SIMILAR = 2
""" A change of a tenant says how long one takes that moves so many times as much, but no more. """
_SHORTEST = 0.8
""" A change takes at least so many times as long as the last one, as a rule. """
_AT_ONCE_SECONDS = 1.0
""" A tenant that begins to leave later does so because of a new process, and not because it was asked. """
HOST_MEMORY_SHORT = "HostMemoryShort"
COUNTED = {"ParkRefused": "refused", HOST_MEMORY_SHORT: "host_memory_short", "ParkLost": "lost"}
""" As which result each reason counts. """
_PASSING_SECONDS, _AGAIN_SECONDS = 10.0, 2.0
""" For so long hp that waits has one asked again that refused for a reason that passes, and how soon each time. """
YOUNG_SECONDS = 60.0
""" After it has been here for so long, a tenant has shown how much it holds. """
PEAK_SECONDS = 600.0
""" The most that a tenant has held counts for so long of its time here at least, and at most for twice as long. """


@dataclass
class Known:
    """One tenant's history."""

    began: float
    place: Place = Place.HERE
    since: float = 0.0
    """ Since when it is there. """
    moved: float = float("-inf")
    """ When it was last seen to have left or come back, or to have given that up. """
    asked: float = 0.0
    """ When it was last asked to leave or allowed to come back. """
    came: float = float("-inf")
    """ When it came back last, if no person has moved it since. """
    has_returned: bool = False
    refused_until: float = float("-inf")
    again_for_hp: float = float("inf")
    """ When it may be asked again before that, as in its `Tenant`. """
    failed_since: float | None = None
    """ Since when it has not left, each time that it was asked. """
    is_refused_for_good: bool = False
    """ Asking it again would change nothing. """
    keeps_room: bool = False
    """ Others still need the room that it should have left, and asking it again has been of no use. """
    needed: float = float("-inf")
    """ When others needed its room last. """
    away_until: float = float("-inf")
    """ It did not come back, and is not let back before. """
    stuck_since: float | None = None
    """ Since when it finds no room to come back, although no hp needs it. """
    is_stuck: bool = False
    """ That has lasted, so people should know. """
    is_half: bool = False
    is_lost: bool = False
    leave_seconds: float | None = None
    back_seconds: float | None = None
    """ How long it took to leave and to come back last; None: not known. """
    away_since: float | None = None
    away_seconds: float = 0.0
    """ How long it was away when it came back last. """
    away_total: float = 0.0
    noted: float = 0.0
    """ When its time here was last added. """
    here_seconds: float = 0.0
    clock: float = float("-inf")
    """ How much it has had of what it is due, as in its `Tenant`. """
    clocked_seconds: float = 0.0
    """ How long it had been here when its clock was read. """
    peak: dict[str, int] = field(default_factory=dict)
    """ The most that it has held in this period of its time here and in the one before, by GPU. """
    peak_of_period: dict[str, int] = field(default_factory=dict)
    """ The same in this period alone. """
    period_began: float = 0.0
    """ How long it had been here then. """
    moves_bytes: int = 0
    """ What it held when it was asked to leave: that much moves. """
    silent: dict[Client, tuple[object, ...]] = field(default_factory=dict)
    """ Clients that have not answered, each with the words in its record by which it will show life. """
    lacks: dict[str, int] = field(default_factory=dict)
    """ What it has not got because its allocations found no room, by GPU; what it holds counts as if it had. """
    untaken: dict[str, int] = field(default_factory=dict)
    """ What it lacked when it left, by GPU, and takes now that it is back. """
    parked: dict[Client, float] = field(default_factory=dict)
    """ Since when each client says that it has left, or that its memory is lost. """
    happened: list[tuple[str, float]] = field(default_factory=list)
    problems: dict[Client, tuple[str, str]] = field(default_factory=dict)
    """ What people should know of each client: a reason and a sentence. """

    @property
    def is_young(self) -> bool:
        """Whether it may still come to hold much more."""
        return self.here_seconds < YOUNG_SECONDS

    def take_here_seconds(self) -> float:
        """Return how long it has been here since the last call."""
        before, self.clocked_seconds = self.clocked_seconds, self.here_seconds
        return self.here_seconds - before

    def note_held(self, held: Mapping[str, int]) -> None:
        """Note what it holds while it is here, by GPU: the most counts for a while, since it may need as much again."""
        if self.here_seconds - self.period_began >= PEAK_SECONDS:
            self.peak, self.peak_of_period, self.period_began = self.peak_of_period, {}, self.here_seconds
        for uuid, amount in held.items():
            if amount > self.peak_of_period.get(uuid, -1):
                self.peak_of_period[uuid] = amount
                self.peak[uuid] = max(amount, self.peak.get(uuid, 0))

    def is_refusing(self, now: float) -> bool:
        """Whether it is passed over when somebody must leave."""
        return bool(self.silent) or now < self.refused_until

    def note_failure(self, now: float, retry_seconds: float, for_good: bool = False, passes: bool = False) -> None:
        """Note that it does not leave, and is not asked again for some time. `passes`: the reason may pass soon."""
        if self.failed_since is None or now - self.refused_until > retry_seconds:  # else it was asked again
            self.failed_since = now
        self.is_refused_for_good = for_good
        self.refused_until = now + retry_seconds
        is_passing = passes and now - self.failed_since < _PASSING_SECONDS
        self.again_for_hp = now + _AGAIN_SECONDS if is_passing else float("inf")

    def refuse(self, now: float, clients: Collection[Client], retry_seconds: float, problem: tuple[str, str]) -> None:
        """Note that it cannot be asked to leave, and why: a reason and a sentence."""
        reason, why = problem
        self.note_failure(now, retry_seconds)
        self.happened.append((COUNTED[reason], 0.0))
        self.problems |= dict.fromkeys(clients, (reason, f"{why}; this is looked at again after {retry_seconds:g} s"))

    def forget_refusal(self, reason: str) -> bool:
        """Let it be asked again at once if it was refused for that reason; return whether it was."""
        found = any(each == reason for each, _ in self.problems.values())
        self.refused_until = float("-inf") if found else self.refused_until
        return found

    def is_due(self, now: float, retry_seconds: float) -> bool:
        """Return whether it has been asked in vain for long enough, or would be for ever."""
        if self.place is not Place.HERE or not self.is_refusing(now) or self.failed_since is None:
            return False
        return self.is_refused_for_good or now - self.failed_since >= retry_seconds

    def note_need(self, now: float, retry_seconds: float, is_needed: bool) -> None:
        """Note whether others need its room now; a need of a moment counts until it would be asked again."""
        self.needed = now if is_needed else self.needed
        self.keeps_room = self.is_due(now, retry_seconds) and now - self.needed < retry_seconds

    def note_stuck(self, now: float, patience: float, finds_no_room: bool) -> None:
        """Note whether there is no room to come back; memory that a program has just freed may take a while."""
        self.stuck_since = (now if self.stuck_since is None else self.stuck_since) if finds_no_room else None
        self.is_stuck = self.stuck_since is not None and now - self.stuck_since >= patience

    def stays_away(self, now: float) -> bool:
        """Whether it did not come back when it could, and is not let back yet."""
        return now < self.away_until or (self.place is Place.AWAY and bool(self.silent) and not self.is_half)

    def note_silence(self, clients: Collection[Client], silent: Collection[Client]) -> None:
        """Note which clients do not answer; a client that is not stopped counts its launches."""
        self.silent = {each: was for each, was in self.silent.items() if each in clients and _life(each) == was}
        for client in silent:
            self.silent.setdefault(client, _life(client))

    def leaving_seconds(self, held: int) -> float:
        """Return how long it takes to leave, as measured last, else as expected."""
        measured = self.leave_seconds if self._is_measured(held) else None
        return held / _DEFAULT_RATE if measured is None else measured

    @property
    def done_at(self) -> float:
        """When it may have left or come back at the earliest, if that takes about as long as last."""
        took = self.leave_seconds if self.place is Place.LEAVING else self.back_seconds
        return self.asked + _SHORTEST * (took or 0.0)

    def change_seconds(self, held: int) -> float:
        """Return how long it takes to leave and come back, as measured last, else as expected."""
        measured = self.back_seconds if self._is_measured(held) else None
        return self.leaving_seconds(held) + (held / _DEFAULT_RATE / 2 if measured is None else measured)

    def _is_measured(self, held: int) -> bool:
        """Return whether its last change says how long one with so much takes: it may have left with less."""
        return held <= _SIMILAR * self.moves_bytes

    def move(self, place: Place, now: float) -> None:
        """Note where the tenant is now."""
        if place is self.place:
            return
        if place is Place.AWAY and self.place is Place.LEAVING and self.since - self.asked < _AT_ONCE_SECONDS:
            self.leave_seconds = self._took(now)
        if place is Place.AWAY and self.away_since is None:
            self.away_since = now
            self.happened.append(("left", now - self.asked))
        if place is Place.HERE:
            self._come_back(now)
            self.untaken = self.lacks if self.place is Place.RETURNING else {}
        if self.place in (Place.LEAVING, Place.RETURNING):
            self.moved = now
        self.place, self.since = place, now

    def _come_back(self, now: float) -> None:
        if self.place is not Place.RETURNING or self.away_since is None:
            return
        self.has_returned, self.came, self.back_seconds = True, now, self._took(now)
        self.away_seconds, self.away_since = now - self.away_since, None
        self.away_total += self.away_seconds
        self.happened.append(("returned", now - self.asked))

    def _took(self, now: float) -> float:
        """Return how long a change took, but no more than any should: a tenant that dawdles earns no longer stay."""
        return min(now - self.asked, _MOST_SECONDS + self.moves_bytes / SLOWEST)

    def take_untaken(self) -> dict[str, int]:
        """Return what it has come back for and takes now, by GPU, once for each return."""
        untaken, self.untaken = self.untaken, {}
        return untaken

    def take_happened(self) -> list[tuple[str, float]]:
        """Return what has happened since the last call, each with the time that it took."""
        happened, self.happened = self.happened, []
        return happened


def _life(client: Client) -> tuple[object, ...]:
    return client.record.counted_ns, client.record.parking
