"""What jobs hold while `continuing` decides a round in which running jobs keep their GPUs."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from .fit import FreeResources
from .placement import Placed, Wish
from .resources import Demand, Parts, Server


@dataclass(frozen=True)
class Standing:
    """The decision of one round; it does not change afterwards.

    Attributes:
        servers: the servers' resources in that round.
        placed: the GPUs and the demand of each job.
        free: the resources that no job has.
        moved: the jobs that have GPUs which they did not have in the round before.
    """

    servers: Sequence[Server]
    placed: Placed
    free: FreeResources
    moved: frozenset[int]


class Holdings:
    """The jobs that have places, and what is left of the servers.

    Args:
        wishes: the jobs that may run, in the policy's order; walked several times.
        before: the previous round; None in the first round.
        servers: what the servers have; the same object as before if nothing has changed there.
        is_packed: whether jobs go to the fullest servers.
    """

    def __init__(
        self, wishes: Iterable[Wish], before: Standing | None, servers: Sequence[Server], *, is_packed: bool
    ) -> None:
        if before is not None and before.servers is servers:
            self.free = before.free.copy()
        else:
            self.free = FreeResources(servers, is_packed=is_packed)
        self.wishes = wishes
        self.placed: Placed = {}
        self.new: set[int] = set()
        """ Jobs that got a place in this round. """
        self.lacking: set[int] = set()
        """ Jobs that run with another demand than their best. """
        self._on: dict[int, list[Wish]] | None = None
        """ Jobs by server; made when somebody first asks. """

    def put(self, wish: Wish, parts: Parts, demand: Demand) -> None:
        """Give a job a place."""
        self.free.take(parts, demand)
        self._record(wish, parts, demand)
        self.new.add(wish.job)
        if self._on is not None:
            for server, _ in parts:
                self._on[server].append(wish)

    def remove(self, wish: Wish) -> Parts:
        """Free the GPUs of a job, and return them."""
        parts, demand = self.placed.pop(wish.job)
        self.lacking.discard(wish.job)
        self.free.give_back(parts, demand)
        if self._on is not None:
            for server, _ in parts:
                self._on[server].remove(wish)
        return parts

    def exchange(self, wish: Wish, demand: Demand) -> None:
        """Give a job another demand on the same GPUs, if there is room for it."""
        parts, has = self.placed[wish.job]
        if self.free.exchange(parts, has, demand):
            self._record(wish, parts, demand)

    def _record(self, wish: Wish, parts: Parts, demand: Demand) -> None:
        self.placed[wish.job] = parts, demand
        if demand is wish.best:
            self.lacking.discard(wish.job)
        else:
            self.lacking.add(wish.job)

    def jobs_on(self, server: int) -> list[Wish]:
        """Return the jobs that have GPUs of a server.

        They are in the policy's order. Jobs that were placed after the first call follow at the end.
        """
        if self._on is None:
            self._on = {each: [] for each in range(len(self.free.gpus))}
            for wish in self.wishes:
                if wish.job in self.placed:
                    for each, _ in self.placed[wish.job][0]:
                        self._on[each].append(wish)
        return list(self._on[server])
