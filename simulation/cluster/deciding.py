"""Asks `planning` to decide each round of a run.

It keeps what the next decision needs, and reuses the last decision if the next one cannot differ.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from orion.errors import Conflict
from orion.planning.queues import compatible, continuing, optimal
from orion.planning.queues.holdings import Standing
from orion.planning.queues.order import POLICIES, STRICT, order
from orion.planning.queues.placement import FROM_EMPTY, Placed, Wish
from orion.planning.queues.resources import Demand, Parts, Server
from orion.planning.sharing.harvest import speed_together

from .ledger import Floats, Ledger, Positions, View
from .rules import Rules
from .schedulers import Scheduler


@dataclass(frozen=True)
class Decision:
    """Who runs in a round.

    Attributes:
        running: the jobs that run.
        got: what each running job gets, as a row of GPUs, CPUs, memory and storage bandwidth.
        speed: the speed of each running job; 1 is the speed at its fair share on GPUs that it does not share.
        total: the sums of the columns of `got`, and the sum of `speed`.
        share: the largest part of the cluster's GPUs, CPUs or memory that each running job has.
        is_moved: for each running job, whether it did not run in the previous round, or ran on other GPUs.
        bound: the largest sum of speeds that the cluster's capacities allow; None: the mechanism does not compute it.
    """

    running: Positions
    got: Floats
    speed: Floats
    total: tuple[float, ...]
    share: Floats
    is_moved: np.ndarray
    bound: float | None = None


class _Walk:
    """Iterates over the wishes of jobs in an order, and looks up each wish only when the caller reaches it."""

    def __init__(self, wishes: Sequence[Wish], order: Sequence[int]) -> None:
        self._wishes, self._order = wishes, order

    def __iter__(self) -> Iterator[Wish]:
        return map(self._wishes.__getitem__, self._order)


class _OneWalk:
    """Iterates once over the wishes of jobs in an order; the caller may leave out kinds of jobs on the way.

    Attributes:
        seen: how many jobs of the order the walk has passed.
        is_left_out: for each kind of jobs, whether it is left out.
    """

    def __init__(self, ledger: Ledger, order: Positions) -> None:
        self.seen = 0
        self.is_left_out = np.zeros(len(ledger.kind_of), dtype=bool)
        self._ledger, self._order, self._kind = ledger, order, ledger.kind[order]
        self._left = np.arange(len(order))

    def __iter__(self) -> Iterator[Wish]:
        wishes = self._ledger.wishes
        while len(self._left):
            left = self._left
            for index, job in zip(left.tolist(), self._order[left].tolist(), strict=True):
                self.seen = index + 1
                yield wishes[job]
                if self._left is not left:
                    break
            else:
                return

    def leave_out(self, demand: Demand) -> None:
        """Pass over the other jobs whose best demand this is."""
        kind = self._ledger.kind_of.get(demand)
        if kind is not None:
            self.is_left_out[kind] = True
            self._left = self._left[np.searchsorted(self._left, self.seen) :]
            self._left = self._left[self._kind[self._left] != kind]


class Decider:
    """Decides the rounds of one run."""

    def __init__(self, scheduler: Scheduler, rules: Rules, ledger: Ledger, servers: Sequence[Server]) -> None:
        self._rules, self._ledger = rules, ledger
        self._policy, self._mechanism = scheduler.policy, scheduler.mechanism
        self._key = (compatible.KEYS if rules.is_compatible else POLICIES)[scheduler.policy]
        self._standing: Standing | None = None
        self._last: tuple[Positions, NDArray[np.bool_] | None, Decision] | None = None
        """ The jobs that the last decision looked at, in their order; for each kind of jobs, whether no further job of
        that kind can run (None: no further job at all); and the decision. """
        self._is_placed = np.zeros(len(ledger.jobs), dtype=bool)
        self._has_fair_room = rules.is_compatible and all(
            server.storage_mbps >= server.gpus * compatible.STORAGE_MBPS_PER_GPU for server in servers
        )
        """ Whether a job has room for its fair share wherever GPUs are free. """
        self._solved: dict[tuple[float, ...], list[Demand]] = {}
        self._asked: dict[int, Wish] = {}
        """ What jobs ask for after the integer program gave them a demand. """
        ledger.register(demand for wish in ledger.wishes for demand in (wish.fair, wish.best, *wish.choices))

    def decide(self, runnable: Positions, servers: Sequence[Server], now_s: float) -> Decision:
        """Return who runs in the round that begins now.

        Args:
            runnable: the jobs that may run, ascending.
            servers: the servers as they are now.
            now_s: the time.
        """
        waiting = View(self._ledger, runnable, at_fair_share=self._mechanism == "fair")
        ordered = runnable[order(self._key, waiting, now_s)]
        if self._rules.is_compatible:
            return self._decide_compatibly(ordered, servers)
        return self._decide_on(ordered, servers)

    def _decide_on(self, ordered: Positions, servers: Sequence[Server]) -> Decision:
        """Return the decision of the next round, in which running jobs keep their GPUs."""
        if (decision := self._unchanged(ordered, servers)) is not None:
            return decision
        ledger, bound, mechanism, kinds = self._ledger, None, self._mechanism, None
        asked = ledger.wishes
        if mechanism == "opt":
            asked, bound = self._optimal(ordered, servers)
            mechanism = "tune"
        else:
            kinds = self._kinds(ordered)  # under opt, jobs of one kind may ask for different demands
        staying = ordered[self._is_placed[ordered]]
        standing = continuing.decide(
            _Walk(asked, ordered.tolist()), self._standing, servers, mechanism,
            is_strict=self._policy in STRICT, is_packed=self._rules.is_packed,
            staying=list(map(asked.__getitem__, staying.tolist())), kinds=kinds,
        )  # fmt: skip
        before: Placed = self._standing.placed if self._standing is not None else {}
        decision = self._decision(standing.placed, before, servers, bound)
        for jobs, is_placed in ((staying, False), (decision.running, True)):
            self._is_placed[jobs] = is_placed
            ledger.pause_cost_s[jobs] = is_placed * self._rules.restart_cost_s
        self._standing = standing
        has_gpus = standing.free.gpus_free > 0
        self._last = ordered, np.zeros(len(ledger.kind_of), dtype=bool) if has_gpus else None, decision
        return decision

    def _unchanged(self, ordered: Positions, servers: Sequence[Server]) -> Decision | None:
        """Return the last decision, without moves, if the only change is that new jobs wait and no GPU is free."""
        if self._last is None or self._standing is None or self._standing.servers is not servers:
            return None
        decision = self._repeated(ordered)
        if decision is not None and decision.is_moved.any():
            decision = replace(decision, is_moved=np.zeros_like(decision.is_moved))
            self._last = *self._last[:2], decision
        return decision

    def _repeated(self, ordered: Positions) -> Decision | None:
        """Return the last decision if it looked at the same jobs in the same order, and no job behind them matters."""
        if self._last is None:
            return None
        looked_at, cannot_run, decision = self._last
        is_same = np.array_equal(ordered[: len(looked_at)], looked_at)
        if is_same and cannot_run is not None:
            is_same = bool(cannot_run[self._ledger.kind[ordered[len(looked_at) :]]].all())
        return decision if is_same else None

    def _kinds(self, ordered: Positions) -> int:
        """Return how many different demands these jobs have."""
        return int(np.count_nonzero(np.bincount(self._ledger.kind[ordered])))

    def _optimal(self, ordered: Positions, servers: Sequence[Server]) -> tuple[Sequence[Wish], float]:
        """Return the wishes of all jobs, with the integer program's demand as `best` of those that it gives one.

        The second result is the largest possible sum of speeds.
        """
        usable = [server for server in servers if server.speed > 0]
        walk = _Walk(self._ledger.wishes, ordered.tolist())
        first = compatible.first_by_gpus(walk, sum(server.gpus for server in usable))
        given = self._shares(first, usable)
        asked = list(self._ledger.wishes)
        for wish, has in zip(first, given, strict=True):
            known = self._asked.get(wish.job)
            if known is None or known.best is not has:
                self._asked[wish.job] = known = replace(wish, best=has)
            asked[wish.job] = known
        return asked, sum(has.speed for has in given)

    def _shares(self, wishes: Sequence[Wish], servers: Sequence[Server]) -> list[Demand]:
        """Return the demands that the integer program gives; a known sequence of groups reuses the known result."""
        if not wishes:
            return []
        capacity = sum(server.cpus for server in servers), sum(server.memory_gb for server in servers)
        key = (*capacity, *(id(wish.choices) for wish in wishes))
        if key not in self._solved:
            try:
                self._solved = {key: optimal.shares(wishes, servers)}
            except optimal.Unsolved as error:
                raise Conflict(f"{error}: give servers with more CPUs or memory, or leave opt out") from error
        return self._solved[key]

    def _decide_compatibly(self, ordered: Positions, servers: Sequence[Server]) -> Decision:
        if (repeated := self._repeated(ordered)) is not None:
            return repeated
        ledger, mechanism = self._ledger, self._mechanism
        bound: float | None = None
        walk, gpus = _OneWalk(ledger, ordered), sum(server.gpus for server in servers)
        nowhere: Parts = ()
        if mechanism == "opt":
            first = compatible.first_by_gpus(walk, gpus)
            shares = self._shares(first, servers)
            placed = {wish.job: (nowhere, has) for wish, has in zip(first, shares, strict=True)}
            bound = sum(has.speed for has in shares)
        elif mechanism == "fair" and self._has_fair_room:
            placed = {wish.job: (nowhere, wish.fair) for wish in compatible.first_by_gpus(walk, gpus)}
        else:
            wishes: Iterable[Wish] = walk
            if self._policy == "LAS":
                wishes = compatible.least_attained_first(walk, gpus, mechanism)
            place, is_packed = FROM_EMPTY[mechanism], self._rules.is_packed
            placed = place(wishes, servers, is_packed=is_packed, no_room=walk.leave_out)
        decision = self._decision(placed, None, servers, bound)
        self._last = ordered[: walk.seen], walk.is_left_out if decision.total[0] < gpus else None, decision
        return decision

    def _decision(
        self, placed: Placed, before: Placed | None, servers: Sequence[Server], bound: float | None
    ) -> Decision:
        """Return the placed jobs as a decision; without `before`, all jobs count as moved."""
        running = np.fromiter(placed, dtype=np.intp, count=len(placed))
        rows = self._ledger.given((has for _, has in placed.values()), len(placed))
        got, speed = rows[:, :4], rows[:, 4]
        if any(server.speed != 1 for server in servers):
            places = (speed_together(servers[at].speed for at, _ in parts) for parts, _ in placed.values())
            speed = speed * np.fromiter(places, dtype=np.float64, count=len(placed))
        is_moved = np.ones(len(placed), dtype=bool)
        if before is not None:
            moves = ((had := before.get(job)) is None or had[0] != parts for job, (parts, _) in placed.items())
            is_moved = np.fromiter(moves, dtype=bool, count=len(placed))
        share = (got[:, :3] / self._ledger.capacity[:3]).max(axis=1, initial=0.0)
        total = (*got.sum(axis=0).tolist(), float(speed.sum()))
        return Decision(running, got, speed, total, share, is_moved, bound)
