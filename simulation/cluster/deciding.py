"""Asks `planning` to decide each round of a run.

It keeps what the next decision needs, and reuses the last decision if the next one cannot differ.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from operator import itemgetter

import numpy as np
from numpy.typing import NDArray

from orion.errors import Conflict
from orion.planning.queues import compatible, continuing, optimal
from orion.planning.queues.holdings import Standing
from orion.planning.queues.order import POLICIES, STRICT, order
from orion.planning.queues.placement import FROM_EMPTY, Placed, Wish
from orion.planning.queues.resources import Demand, Server
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


STEP = 128
""" So many jobs at a time are looked up before kinds that were left out meanwhile are removed from the rest. """


class _OneWalk:
    """Iterates once over the wishes of jobs in an order; the caller may leave out kinds of jobs on the way.

    Attributes:
        seen: how many jobs of the order the walk has passed.
        is_left_out: for each kind of jobs, whether it is left out.
    """

    def __init__(self, ledger: Ledger, order: Positions) -> None:
        self.seen = 0
        self.is_left_out = np.zeros(len(ledger.kind_of), dtype=bool)
        self._ledger, self._order, self._left_out = ledger, order, set[int]()

    def __iter__(self) -> Iterator[Wish]:
        wishes, order, left_out = self._ledger.wishes, self._order, self._left_out
        kinds = self._ledger.kind[order]
        left = np.arange(len(order))
        while len(left):
            part, left = left[:STEP], left[STEP:]
            for at, job, kind in zip(part.tolist(), order[part].tolist(), kinds[part].tolist(), strict=True):
                if kind not in left_out:
                    self.seen = at + 1
                    yield wishes[job]
            left = left[~self.is_left_out[kinds[left]]]

    def leave_out(self, demand: Demand) -> None:
        """Pass over the other jobs whose best demand this is."""
        kind = self._ledger.kind_of.get(demand)
        if kind is not None:
            self.is_left_out[kind] = True
            self._left_out.add(kind)


class Decider:
    """Decides the rounds of one run.

    Attributes:
        ordered: the jobs of the last round in their order.
    """

    def __init__(self, scheduler: Scheduler, rules: Rules, ledger: Ledger, servers: Sequence[Server]) -> None:
        self._rules, self._ledger = rules, ledger
        self._policy, self._mechanism = scheduler.policy, scheduler.mechanism
        self.ordered: Positions = np.empty(0, dtype=np.intp)
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
        self._takes_first = (
            scheduler.mechanism == "opt"
            or scheduler.policy == "LAS"
            or (scheduler.mechanism == "fair" and self._has_fair_room)
        )
        """ Whether, in the compatible mode, only the first jobs that the cluster has GPUs for take part. """
        self._asked = list(ledger.wishes)
        self._best = ledger.best
        """ What jobs ask for in this round, and their bests. """

    def decide(self, runnable: Positions, servers: Sequence[Server], now_s: float) -> Decision:
        """Return who runs in the round that begins now.

        Args:
            runnable: the jobs that may run; those of the round before in their order of that round.
            servers: the servers as they are now.
            now_s: the time.
        """
        waiting = View(self._ledger, runnable, at_fair_share=self._mechanism == "fair")
        self.ordered = ordered = order(runnable, self._key(waiting, now_s))
        if self._rules.is_compatible:
            return self._decide_compatibly(ordered, servers)
        return self._decide_on(ordered, servers)

    def _decide_on(self, ordered: Positions, servers: Sequence[Server]) -> Decision:
        """Return the decision of the next round, in which running jobs keep their GPUs."""
        if (decision := self._unchanged(ordered, servers)) is not None:
            return decision
        ledger, bound, mechanism, kinds = self._ledger, None, self._mechanism, None
        if mechanism == "opt":
            bound, mechanism = self._optimal(ordered, servers), "tune"
        else:
            kinds = self._kinds(ordered)  # under opt, jobs of one kind may ask for different demands
        staying = ordered[self._is_placed[ordered]]
        standing = continuing.decide(
            _Walk(self._asked, ordered.tolist()), self._standing, servers, mechanism,
            is_strict=self._policy in STRICT, is_packed=self._rules.is_packed,
            staying=list(map(self._asked.__getitem__, staying.tolist())), kinds=kinds,
        )  # fmt: skip
        running = _jobs(standing.placed)
        decision = self._decision(
            running, ledger.indices(map(itemgetter(1), standing.placed.values())),
            slowed=self._slowed(standing),
            is_moved=np.fromiter(map(standing.moved.__contains__, standing.placed), dtype=bool, count=len(running)),
            bound=bound,
        )  # fmt: skip
        for jobs, is_placed in ((staying, False), (running, True)):
            self._is_placed[jobs] = is_placed
            ledger.pause_cost_s[jobs] = is_placed * self._rules.restart_cost_s
        self._standing = standing
        has_gpus = standing.free.gpus_free > 0
        self._last = ordered, np.zeros(len(ledger.kind_of), dtype=bool) if has_gpus else None, decision
        return decision

    def _slowed(self, standing: Standing) -> Floats | float:
        """Return by how much the jobs' servers change the speed of each running job; one number if all are equal."""
        servers = standing.servers
        if all(server.speed == 1 for server in servers):
            return 1.0
        speeds = [speed_together(servers[at].speed for at, _ in parts) for parts, _ in standing.placed.values()]
        return np.array(speeds)

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

    def _optimal(self, ordered: Positions, servers: Sequence[Server]) -> float:
        """Let the first jobs ask for what the integer program gives them; return the largest possible sum of speeds."""
        ledger, usable = self._ledger, [server for server in servers if server.speed > 0]
        first = ordered[compatible.first_by_gpus(ledger.gpus[ordered], sum(server.gpus for server in usable))]
        shares, best = self._shares(first, usable), ledger.best.copy()
        best[first] = ledger.indices(shares)
        for job in np.flatnonzero(best != self._best).tolist():
            self._asked[job] = replace(ledger.wishes[job], best=ledger.demands[best[job]])
        self._best = best
        return sum(has.speed for has in shares)

    def _shares(self, jobs: Positions, servers: Sequence[Server]) -> list[Demand]:
        """Return the demands that the integer program gives."""
        try:
            return optimal.shares(self._ledger.kind[jobs].tolist(), self._ledger.choices, servers)
        except optimal.Unsolved as error:
            raise Conflict(f"{error}: give servers with more CPUs or memory, or leave opt out") from error

    def _decide_compatibly(self, ordered: Positions, servers: Sequence[Server]) -> Decision:
        if (repeated := self._repeated(ordered)) is not None:
            return repeated
        ledger, mechanism, gpus = self._ledger, self._mechanism, sum(server.gpus for server in servers)
        first, looked_at = ordered, ordered
        if self._takes_first:
            taken = compatible.first_by_gpus(ledger.gpus[ordered], gpus)
            first = ordered[taken]
            if ledger.gpus[first].sum() == gpus:
                looked_at = ordered[: taken[-1] + 1]
        if self._policy == "LAS" and mechanism == "tune":
            first = first[np.argsort(-ledger.gpus[first], kind="stable")]
        walk = _OneWalk(ledger, first)
        if mechanism == "opt":
            shares = self._shares(first, servers)
            decision = self._decision(first, ledger.indices(shares), bound=sum(has.speed for has in shares))
        elif mechanism == "fair" and self._has_fair_room:
            decision = self._decision(first, ledger.fair[first])
        else:
            place, is_packed = FROM_EMPTY[mechanism], self._rules.is_packed
            placed = place(walk, servers, is_packed=is_packed, no_room=walk.leave_out)
            decision = self._decision(_jobs(placed), ledger.indices(map(itemgetter(1), placed.values())))
            if not self._takes_first:
                looked_at = ordered[: walk.seen]
        self._last = looked_at, walk.is_left_out if decision.total[0] < gpus else None, decision
        return decision

    def _decision(
        self,
        running: Positions,
        demands: Positions,
        *,
        slowed: Floats | float = 1.0,
        is_moved: np.ndarray | None = None,
        bound: float | None = None,
    ) -> Decision:
        """Return a decision; without `is_moved`, all jobs count as moved."""
        rows = self._ledger.rows[demands]
        got, speed, share = rows[:, :4], rows[:, 4] * slowed, rows[:, 5]
        total = (*got.sum(axis=0).tolist(), float(speed.sum()))
        is_moved = np.ones(len(running), dtype=bool) if is_moved is None else is_moved
        return Decision(running, got, speed, total, share, is_moved, bound)


def _jobs(placed: Placed) -> Positions:
    return np.fromiter(placed, dtype=np.intp, count=len(placed))
