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
    return _first_fit(((wish.job, wish.fair) for wish in wishes), FreeResources(servers, is_packed=is_packed), no_room)


def greedy(
    wishes: Iterable[Wish], servers: Sequence[Server], *, is_packed: bool = False, no_room: NoRoom = _ignore
) -> Placed:
    """Place jobs with what they can use."""
    return _first_fit(((wish.job, wish.best) for wish in wishes), FreeResources(servers, is_packed=is_packed), no_room)


def _first_fit(demands: Iterable[tuple[int, Demand]], free: FreeResources, no_room: NoRoom) -> Placed:
    placed, without_room = Placed(), set[Demand]()
    for job, demand in demands:
        if demand in without_room:
            continue
        parts = free.take_first(demand)
        if parts is None:
            without_room.add(demand)  # nothing is given back in this round
            no_room(demand)
        else:
            placed[job] = parts, demand
            if not free.gpus_free:
                break
    return placed


def tune(
    wishes: Iterable[Wish], servers: Sequence[Server], *, is_packed: bool = False, no_room: NoRoom = _ignore
) -> Placed:
    """Place jobs with what they can use, or else with their fair shares.

    Other jobs give back surplus to make room for a fair share.
    """
    tuning, too_large = _Tuning(FreeResources(servers, is_packed=is_packed)), set[Demand]()
    for wish in wishes:
        if wish.fair.gpus <= tuning.free.gpus_free:
            tuning.place(wish)
            if not tuning.free.gpus_free:
                break
        elif wish.best not in too_large:
            too_large.add(wish.best)
            no_room(wish.best)
    return tuning.placed


class _Tuning:
    """Decides one round with the mechanism tune."""

    def __init__(self, free: FreeResources) -> None:
        self.free = free
        self.placed: Placed = {}
        self._fair: dict[int, Demand] = {}
        self._on: list[list[int]] = [[] for _ in free.gpus]
        """ Jobs by server, in the order of placing; `_make_room` sorts the jobs of its server. """

    def place(self, wish: Wish) -> None:
        """Place a job, or leave it out."""
        free, demand = self.free, wish.best
        parts = free.take_first(demand)
        if parts is None and wish.wants_more:
            demand = wish.fair
            parts = free.take_first(demand)
        if parts is None:
            for server, gpus in self._servers_with_gpus(demand.gpus):
                self._make_room(server, demand, gpus)
            parts = free.take_first(demand)
        if parts is not None:
            self._fair[wish.job] = wish.fair
            self.placed[wish.job] = parts, demand
            for server, _ in parts:
                self._on[server].append(wish.job)

    def _put(self, job: int, parts: Parts, demand: Demand) -> None:
        self.free.take(parts, demand)
        self.placed[job] = parts, demand

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
        self._on[server].sort(key=self._surplus_first)
        for job in list(self._on[server]):
            parts, has = self.placed[job]
            own = self._fair[job]
            count = dict(parts)[server]
            cpus = max(0.0, cpus - max(0.0, count * (has.cpus_per_gpu - own.cpus_per_gpu)))
            memory_gb = max(0.0, memory_gb - max(0.0, count * (has.memory_gb_per_gpu - own.memory_gb_per_gpu)))
            if exceeds(has, own):
                free.give_back(parts, has)
                fits = all(free.room(at, own) >= count for at, count in parts)
                self._put(job, parts, own if fits else has)
            if not cpus and not memory_gb:
                return

    def _surplus_first(self, job: int) -> tuple[int, float, float]:
        """Return the key by which jobs give back surplus.

        Jobs on few servers come first, then jobs with many CPUs for each GPU, then jobs with much memory.
        """
        parts, demand = self.placed[job]
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
