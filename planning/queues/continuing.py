"""Decides one round in which running jobs keep their GPUs, because moving and pausing cost a job time.

Jobs of the previous round keep their GPUs. A new job takes free GPUs. If too few GPUs are free, jobs that come after
the new job in the policy's order lose theirs, the last job first. The mechanisms:

fair    each job gets its fair share
greedy  each job gets what it can use, or waits although GPUs are free
tune    each job gets what it can use if a server has room for that, and otherwise its fair share. To make room, jobs
        that have more than their fair share give the surplus back, the last job first. At the end, jobs get what is
        left, in their order. A job's CPUs and memory change without a restart of the job.

If servers have different speeds, a job moves when GPUs of a faster server are free. Refused: a decision from an empty
cluster, as in the compatible mode, because one new job would then move every job behind it.
"""

from collections.abc import Iterable, Sequence

from .holdings import Holdings, Standing
from .placement import Placed, Wish, exceeds
from .resources import Demand, Parts, Server


def decide(
    wishes: Iterable[Wish],
    before: Standing | None,
    servers: Sequence[Server],
    mechanism: str,
    *,
    is_strict: bool = False,
    is_packed: bool = False,
    staying: Sequence[Wish] | None = None,
    kinds: int | None = None,
) -> Standing:
    """Return who runs in a round, where and with how much.

    Args:
        wishes: the jobs that may run, in the policy's order; walked several times.
        before: the previous round; None in the first round. Its jobs that are not in `wishes` have ended.
        servers: what the servers have; the same object as before if nothing has changed there.
        mechanism: fair, greedy or tune.
        is_strict: whether no job may overtake one that does not fit.
        is_packed: whether jobs go to the fullest servers.
        staying: the jobs of `before` that are in `wishes`, in the same order; None: a walk over `wishes` finds them.
        kinds: how many different demands the wishes have; None: unknown. The number ends a loop over `wishes` early.
    """
    deciding = _Deciding(wishes, before, servers, mechanism, is_packed=is_packed)
    if before is not None:
        deciding.keep([wish for wish in wishes if wish.job in before.placed] if staying is None else staying)
    deciding.walk(is_strict, kinds)
    if mechanism == "tune":
        deciding.share_surplus()
    return deciding.standing(servers)


class _Deciding(Holdings):
    """Decides one round."""

    def __init__(
        self,
        wishes: Iterable[Wish],
        before: Standing | None,
        servers: Sequence[Server],
        mechanism: str,
        *,
        is_packed: bool,
    ) -> None:
        super().__init__(wishes, before, servers, is_packed=is_packed)
        self._is_same = before is not None and before.servers is servers
        self._before: Placed = before.placed if before is not None else {}
        self._is_fair, self._is_tune = mechanism == "fair", mechanism == "tune"
        self._fastest = max((server.speed for server in servers), default=0.0)
        self._has_speeds = any(server.speed != self._fastest for server in servers)
        self._held: list[Wish] = []
        """ Jobs that stay where they were, in the policy's order. """
        self._held_gpus = 0
        """ GPUs of those that the walk has not reached yet: jobs in front of them may take these. """

    def keep(self, staying: Sequence[Wish]) -> None:
        """Let jobs keep their GPUs, if these servers still have room for them."""
        before = self._before
        self._held = list(staying)
        jobs = [wish.job for wish in staying]
        self.placed = placed = dict(zip(jobs, map(before.__getitem__, jobs), strict=True))
        if not self._is_same:
            self._take_again()
        elif len(placed) < len(before):
            for job, (parts, demand) in before.items():
                if job not in placed:
                    self.free.give_back(parts, demand)
        self._held_gpus = self.free.gpus_in_all - self.free.gpus_free
        if not self._is_tune:
            return
        lacking = [
            (wish, had) for wish, (_, had) in zip(self._held, self.placed.values(), strict=True) if had is not wish.best
        ]
        self.lacking = {wish.job for wish, _ in lacking}
        for wish, had in lacking:
            if (wanted := self._first_demand(wish, had)) is not had:
                self.exchange(wish, wanted)

    def _take_again(self) -> None:
        """After a change of servers, let jobs take what they had; a job that no longer fits counts as new."""
        held, self._held = self._held, []
        for wish in held:
            parts, demand = self.placed.pop(wish.job)
            if all(self.free.room(server, demand) >= count for server, count in parts):
                self.put(wish, parts, demand)
                self._held.append(wish)

    def _first_demand(self, wish: Wish, had: Demand) -> Demand:
        """Return the demand with which a job that keeps its GPUs begins the round; at most what the job had."""
        if not exceeds(wish.best, had):
            return wish.best
        return had if exceeds(wish.fair, had) else wish.fair

    def walk(self, is_strict: bool, kinds: int | None) -> None:
        """Place the other jobs in the policy's order. A job that needs GPUs can take those of jobs behind it."""
        without_room: set[Demand] = set()
        placed, free, is_fair = self.placed, self.free, self._is_fair
        for wish in self.wishes:
            if wish.job in placed:
                self._held_gpus -= wish.fair.gpus
                if self._has_speeds:
                    self._move_to_faster(wish)
                continue
            behind = self._held_gpus
            if not behind and (not free.gpus_free or len(without_room) == kinds):
                break
            demand = wish.fair if is_fair else wish.best
            if wish.fair.gpus <= free.gpus_free + behind and (behind or demand not in without_room):
                if self._place(wish):
                    continue
                if not self._held_gpus:
                    without_room.add(demand)
            if is_strict:
                while self._held_gpus:
                    self._release_last()
                break

    def _place(self, wish: Wish) -> bool:
        if self._is_tune:
            while self.free.gpus_free < wish.fair.gpus and self._held_gpus:
                self._release_last()
            while not self._tune(wish):  # free GPUs may have too little memory
                if not self._held_gpus:
                    return False
                self._release_last()
            return True
        demand = wish.fair if self._is_fair else wish.best
        parts = self._find(wish, demand)
        while parts is None and self._held_gpus:
            released = self._release_last()
            if any(self.free.room(server, demand) for server, _ in released):
                parts = self._find(wish, demand)
        if parts is not None:
            self.put(wish, parts, demand)
        return parts is not None

    def _tune(self, wish: Wish) -> bool:
        for demand in (wish.best, wish.fair) if wish.wants_more else (wish.best,):
            parts = self._find(wish, demand)
            if parts is not None:
                self.put(wish, parts, demand)
                return True
        demand = wish.fair if wish.wants_more else wish.best
        if demand.gpus > self.free.gpus_free:
            return False
        wanted = demand.gpus
        gpus = self.free.gpus
        for server in sorted((s for s, count in enumerate(gpus) if count), key=lambda s: (-self.free.speeds[s], s)):
            if not self.free.suits(server, demand):
                continue
            self._take_surplus(server, demand, min(wanted, gpus[server]))
            wanted -= self.free.room(server, demand)
            if wanted <= 0:
                break
        parts = self.free.find(demand)
        if parts is not None:
            self.put(wish, parts, demand)
        return parts is not None

    def _find(self, wish: Wish, demand: Demand) -> Parts | None:
        """Return the GPUs on which a job ran before if they have room, else the first GPUs that fit the demand."""
        had = self._before.get(wish.job)
        if had and not self._has_speeds and all(self.free.room(server, demand) >= n for server, n in had[0]):
            return had[0]
        return self.free.find(demand)

    def _release_last(self) -> Parts:
        wish = self._held.pop()
        self._held_gpus -= wish.fair.gpus
        return self.remove(wish)

    def _move_to_faster(self, wish: Wish) -> None:
        parts, demand = self.placed[wish.job]
        slowest = min(self.free.speeds[server] for server, _ in parts)
        if slowest == self._fastest or not self.free.gpus_free:
            return
        found = self.free.find(demand)
        if found is not None and min(self.free.speeds[server] for server, _ in found) > slowest:
            self.remove(wish)
            self.put(wish, found, demand)

    def _take_surplus(self, server: int, demand: Demand, gpus: int) -> None:
        """Reduce jobs on a server to their fair shares, the last job first, until the server has room for a demand."""
        for wish in reversed(self.jobs_on(server)):
            if self.free.room(server, demand) >= gpus:
                return
            if exceeds(self.placed[wish.job][1], wish.fair):
                self.exchange(wish, wish.fair)

    def standing(self, servers: Sequence[Server]) -> Standing:
        """Return the decision."""
        placed, before = self.placed, self._before
        moved = (job for job in self.new if job in placed and (job not in before or before[job][0] != placed[job][0]))
        return Standing(servers, placed, self.free, frozenset(moved))

    def share_surplus(self) -> None:
        """Give each job what it can use, in their order, if its servers have room for that."""
        lacking = self.lacking.copy()
        for wish in self.wishes if lacking else ():
            if wish.job in lacking:
                lacking.discard(wish.job)
                self.exchange(wish, wish.best)
                if not lacking:
                    break
