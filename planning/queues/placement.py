"""Mechanisms: which of the ordered jobs run in a round, where, and with how much (Synergy, OSDI 2022, section 4).

fair    each job gets the fair share of its GPUs
greedy  each job gets what it can use, or waits although GPUs are free
tune    each job gets what it can use; if that does not fit, the job gets its fair share; if the fair share does not fit
        either, other jobs on the same servers give back what they have beyond their own fair shares

Each mechanism walks the jobs in order. A job that does not fit is left out, and later ones may fit (backfilling).
"""

import heapq
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from operator import attrgetter

from .fit import FreeResources
from .resources import Demand, Parts, Server


@dataclass(frozen=True)
class Wish:
    """What one job asks for.

    Attributes:
        job: the number by which the caller knows the job.
        fair: the job's fair share.
        best: the demand with which the job is fastest.
        choices: the demands that an integer program may choose from; each is at least as fast as the fair share.
        wants_more: whether `best` exceeds the fair share in anything.
    """

    job: int
    fair: Demand
    best: Demand
    choices: tuple[Demand, ...] = ()
    wants_more: bool = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "wants_more", exceeds(self.best, self.fair))


Placed = dict[int, tuple[Parts, Demand]]
""" The place and the resources of each running job, by the job's number, in the order in which jobs were placed. """


NoRoom = Callable[[Demand], None]
""" Called once for each demand that has no room for the rest of the round: the caller may leave its other jobs out. """


def _ignore(demand: Demand) -> None:
    """Leave no job out."""


def fair(
    wishes: Iterable[Wish], servers: Sequence[Server], *, is_packed: bool = False, no_room: NoRoom = _ignore
) -> Placed:
    """Place jobs with their fair shares."""
    return _first_fit(wishes, attrgetter("fair"), FreeResources(servers, is_packed=is_packed), no_room)


def greedy(
    wishes: Iterable[Wish], servers: Sequence[Server], *, is_packed: bool = False, no_room: NoRoom = _ignore
) -> Placed:
    """Place jobs with what they can use."""
    return _first_fit(wishes, attrgetter("best"), FreeResources(servers, is_packed=is_packed), no_room)


def _first_fit(wishes: Iterable[Wish], asked: Callable[[Wish], Demand], free: FreeResources, no_room: NoRoom) -> Placed:
    placed, without_room = Placed(), set[Demand]()
    for wish, demand, parts in free.take_in_turn(wishes, asked):
        if parts is not None:
            placed[wish.job] = parts, demand
        elif demand not in without_room:
            without_room.add(demand)  # nothing is given back in this round
            no_room(demand)
    return placed


def tune(
    wishes: Iterable[Wish], servers: Sequence[Server], *, is_packed: bool = False, no_room: NoRoom = _ignore
) -> Placed:
    """Place jobs with what they can use, or else with their fair shares.

    Other jobs give back surplus to make room for a fair share.
    """
    free = FreeResources(servers, is_packed=is_packed)
    tuning, too_large = _Tuning(free), set[Demand]()
    placed, on = tuning.placed, tuning.on
    for wish, best, parts in free.take_in_turn(wishes, attrgetter("best")):
        if parts is not None:
            placed[wish.job] = parts, best
            for server, _ in parts:
                on[server].append(wish)
        elif best.gpus <= free.gpus_free:
            tuning.place(wish)
        elif best not in too_large:
            too_large.add(best)
            no_room(best)
    return placed


class _Tuning:
    """Decides one round with the mechanism tune."""

    def __init__(self, free: FreeResources) -> None:
        self.free = free
        self.placed: Placed = {}
        self.on: list[list[Wish]] = [[] for _ in free.gpus]
        """ Jobs by server, in the order of placing; `_make_room` sorts the jobs of its server. """

    def place(self, wish: Wish) -> None:
        """Place a job whose best has no room, or leave it out."""
        free, demand = self.free, wish.fair if wish.wants_more else wish.best
        parts = free.take_first(demand) if wish.wants_more else None
        if parts is None:
            for server, gpus in self._servers_with_gpus(demand.gpus):
                self._make_room(server, demand, gpus)
            parts = free.take_first(demand)
        if parts is not None:
            self.placed[wish.job] = parts, demand
            for server, _ in parts:
                self.on[server].append(wish)

    def _servers_with_gpus(self, wanted: int) -> list[tuple[int, int]]:
        """Return servers that together have enough free GPUs, each with the number of GPUs to use on it.

        If one server has enough GPUs for a job of several GPUs, the first such server is used alone. Otherwise the
        servers with the fewest free GPUs come first.
        """
        gpus = self.free.gpus
        if wanted > 1:
            for server, count in enumerate(gpus):
                if count >= wanted:
                    return [(server, wanted)]
        heap = [(count, server) for server, count in enumerate(gpus) if count]
        heapq.heapify(heap)
        found = []
        while wanted > 0 and heap:
            count, server = heapq.heappop(heap)
            found.append((server, min(count, wanted)))
            wanted -= count
        return found

    def _make_room(self, server: int, demand: Demand, gpus: int) -> None:
        """Reduce jobs on a server to their fair shares until the server has room for `gpus` GPUs of a demand."""
        free = self.free
        cpus = max(0.0, gpus * demand.cpus_per_gpu - free.cpus[server])
        memory_gb = max(0.0, gpus * demand.memory_gb_per_gpu - free.memory_gb[server])
        if not cpus and not memory_gb:
            return
        self.on[server].sort(key=self._surplus_first)
        for wish in self.on[server]:
            parts, has = self.placed[wish.job]
            own = wish.fair
            count = dict(parts)[server]
            cpus = max(0.0, cpus - max(0.0, count * (has.cpus_per_gpu - own.cpus_per_gpu)))
            memory_gb = max(0.0, memory_gb - max(0.0, count * (has.memory_gb_per_gpu - own.memory_gb_per_gpu)))
            if exceeds(has, own):
                free.give_back(parts, has)
                fits = all(free.room(at, own) >= count for at, count in parts)
                kept = own if fits else has
                free.take(parts, kept)
                self.placed[wish.job] = parts, kept
            if not cpus and not memory_gb:
                return

    def _surplus_first(self, wish: Wish) -> tuple[int, float, float]:
        """Return the key by which jobs give back surplus.

        Jobs on few servers come first, then jobs with many CPUs for each GPU, then jobs with much memory.
        """
        parts, demand = self.placed[wish.job]
        return len(parts), -demand.cpus_per_gpu, -demand.memory_gb_per_gpu


def exceeds(demand: Demand, fair_share: Demand) -> bool:
    """Return whether a demand asks for more of any resource than its fair share."""
    return (
        demand.cpus > fair_share.cpus
        or demand.memory_gb > fair_share.memory_gb
        or demand.storage_mbps > fair_share.storage_mbps
    )


FROM_EMPTY = {"fair": fair, "greedy": greedy, "tune": tune}
""" What the published simulator does in each round. """

MECHANISMS = (*FROM_EMPTY, "opt")
