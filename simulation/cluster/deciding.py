"""Asks `planning` to decide each round of a run.

It keeps what the next decision needs, and reuses the last decision if the next one cannot differ.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

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


class Decider:
    """Decides the rounds of one run."""

    def __init__(self, scheduler: Scheduler, rules: Rules, ledger: Ledger) -> None:
        self._rules, self._ledger = rules, ledger
        self._policy, self._mechanism = scheduler.policy, scheduler.mechanism
        self._key = (compatible.KEYS if rules.is_compatible else POLICIES)[scheduler.policy]
        self._standing: Standing | None = None
        self._last: tuple[Positions, bool, Decision] | None = None
        """ The jobs that the last decision looked at, in their order; whether one more job might run; the decision. """
        self._staying = 0
        self._solved: dict[tuple[float, ...], list[Demand]] = {}
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

    def note_ended(self, jobs: int) -> None:
        """Note how many jobs of the last round have ended."""
        self._staying -= jobs

    def _decide_on(self, ordered: Positions, servers: Sequence[Server]) -> Decision:
        """Return the decision of the next round, in which running jobs keep their GPUs."""
        if (decision := self._unchanged(ordered, servers)) is not None:
            return decision
        wishes: Iterable[Wish] = _Walk(self._ledger.wishes, ordered.tolist())
        bound, mechanism, kinds = None, self._mechanism, None
        if mechanism == "opt":
            wishes, bound = self._optimal(list(wishes), servers)
            mechanism = "tune"
        else:
            kinds = self._kinds(ordered)  # under opt, jobs of one kind may ask for different demands
        standing = continuing.decide(
            wishes, self._standing, servers, mechanism,
            is_strict=self._policy in STRICT, is_packed=self._rules.is_packed,
            staying=self._staying, kinds=kinds,
        )  # fmt: skip
        before: Placed = self._standing.placed if self._standing is not None else {}
        decision = self._decision(standing.placed, before, servers, bound)
        self._standing, self._staying = standing, len(standing.placed)
        self._last = ordered, standing.free.gpus_free > 0, decision
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
        looked_at, is_open, decision = self._last
        is_same_end = not is_open or len(ordered) == len(looked_at)
        return decision if is_same_end and np.array_equal(ordered[: len(looked_at)], looked_at) else None

    def _kinds(self, ordered: Positions) -> int:
        """Return how many different demands these jobs have."""
        return int(np.count_nonzero(np.bincount(self._ledger.kind[ordered])))

    def _optimal(self, wishes: Sequence[Wish], servers: Sequence[Server]) -> tuple[list[Wish], float]:
        """Return the wishes, each with the integer program's demand as `best`, and the bound of the sum of speeds."""
        usable = [server for server in servers if server.speed > 0]
        first = compatible.first_by_gpus(wishes, sum(server.gpus for server in usable))
        given = self._shares(first, usable)
        best = {wish.job: Wish(wish.job, wish.fair, has, wish.choices) for wish, has in zip(first, given, strict=True)}
        return [best.get(wish.job, wish) for wish in wishes], sum(has.speed for has in given)

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
        jobs = iter(ordered.tolist())
        wishes: Iterator[Wish] = map(self._ledger.wishes.__getitem__, jobs)
        gpus = sum(server.gpus for server in servers)
        if self._mechanism == "opt":
            first = compatible.first_by_gpus(wishes, gpus)
            nowhere: Parts = ()
            shares = self._shares(first, servers)
            placed = {wish.job: (nowhere, has) for wish, has in zip(first, shares, strict=True)}
            bound = sum(has.speed for has in shares)
        else:
            if self._policy == "LAS":
                wishes = iter(compatible.least_attained_first(wishes, gpus, self._mechanism))
            bound, kinds = None, self._kinds(ordered)
            placed = FROM_EMPTY[self._mechanism](wishes, servers, is_packed=self._rules.is_packed, kinds=kinds)
        left = jobs.__length_hint__()
        decision = self._decision(placed, None, servers, bound)
        self._last = ordered[: len(ordered) - left], not left, decision
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
