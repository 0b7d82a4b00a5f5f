"""The progress of each job: one array for each fact, with one entry for each job. Each run has its own ledger."""

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from orion.planning.queues.demands import Profile
from orion.planning.queues.placement import Wish
from orion.planning.queues.resources import Demand, Server

from .jobs import ANY, Job

Floats = NDArray[np.float64]
Positions = NDArray[np.intp]

RESOURCES = ("gpus", "cpus", "memory_gb", "storage_mbps")


class Ledger:
    """The jobs of one run, by arrival and number, and their progress.

    Times are in seconds; `nan` means that the event has not happened.
    """

    def __init__(
        self, jobs: Sequence[Job], profiles: Mapping[str, Profile], wishes: Sequence[Wish], servers: Sequence[Server]
    ) -> None:
        self.jobs, self.wishes = jobs, wishes
        self.arrival_s = np.array([job.arrival_s for job in jobs], dtype=np.float64)
        self.gpus = np.array([job.gpus for job in jobs], dtype=np.float64)
        self.iteration_s = np.array([(profiles[job.model] if job.model else ANY).iteration_s for job in jobs])
        self.iterations = np.array([job.iterations for job in jobs], dtype=np.float64)
        self.fair_s = self.iterations * self.iteration_s
        self.done = np.zeros(len(jobs))
        self.attained_s = np.zeros(len(jobs))
        self.attained_share = np.zeros(len(jobs))
        self.pause_cost_s = np.zeros(len(jobs))
        self.start_s = np.full(len(jobs), np.nan)
        self.finish_s = np.full(len(jobs), np.nan)
        self.restarts = np.zeros(len(jobs), dtype=np.int64)
        best = dict.fromkeys(wish.best for wish in wishes)
        self.kind_of: dict[Demand, int] = {each: index for index, each in enumerate(best)}
        self.kind = np.array([self.kind_of[wish.best] for wish in wishes], dtype=np.intp)
        """ Jobs of one kind ask for the same. """
        self.best_speed = np.array([wish.best.speed for wish in wishes])
        self.expected_speed = self.best_speed.copy()
        """ What `remaining_s` of the jobs assumes. """
        capacity = [sum(getattr(server, name) for server in servers) for name in RESOURCES]
        self.capacity = np.array([each or np.inf for each in capacity], dtype=np.float64)
        self.choices = list({wish.best: wish.choices for wish in wishes}.values())
        """ For each kind, the demands that the integer program may choose. """
        demands = dict.fromkeys(demand for wish in wishes for demand in (wish.fair, wish.best, *wish.choices))
        self.demands = list(demands)
        """ All demands that a job may get. """
        self._index = {demand: index for index, demand in enumerate(demands)}
        self.rows = np.array([_row(demand, self.capacity) for demand in demands]).reshape(-1, 6)
        """ For each demand: GPUs, CPUs, memory, storage bandwidth, speed, and the largest part of the cluster's GPUs,
        CPUs or memory. """
        self.fair, self.best = self.indices(wish.fair for wish in wishes), self.indices(wish.best for wish in wishes)
        """ The indices of each job's demands in `demands`. """
        parts = self.rows[self.best, :3] / self.capacity[:3]
        self.demand_share: Floats = parts.max(axis=1, initial=0.0)
        self.demand_sum: Floats = parts.sum(axis=1)
        """ The largest and the sum of the parts of the cluster's GPUs, CPUs and memory that each job asks for. """

    def indices(self, demands: Iterable[Demand]) -> Positions:
        """Return the index of each demand in `demands`."""
        return np.array(list(map(self._index.__getitem__, demands)), dtype=np.intp)

    def attain(self, running: Positions, share: Floats, seconds: Floats | float) -> None:
        """Record that jobs ran for `seconds`, each with its `share` of the cluster."""
        self.attained_s[running] += seconds
        self.attained_share[running] += share * seconds


def _row(demand: Demand, capacity: Floats) -> list[float]:
    has = [getattr(demand, name) for name in RESOURCES]
    return [*has, demand.speed, max((has[:3] / capacity[:3]).tolist())]


class View:
    """The facts about waiting jobs that policies use (`planning.queues.order.Waiting`), computed on access."""

    def __init__(self, ledger: Ledger, runnable: Positions, *, at_fair_share: bool) -> None:
        self._ledger, self._runnable, self._at_fair_share = ledger, runnable, at_fair_share

    @property
    def arrival_s(self) -> Floats:
        """The time at which each job arrived."""
        return self._ledger.arrival_s[self._runnable]

    @property
    def gpus(self) -> Floats:
        """The number of GPUs that each job asks for."""
        return self._ledger.gpus[self._runnable]

    @cached_property
    def remaining_s(self) -> Floats:
        """The time that each job still needs at the speed that the job can expect."""
        ledger, runnable = self._ledger, self._runnable
        remaining_s = ledger.iteration_s[runnable] * (ledger.iterations[runnable] - ledger.done[runnable])
        return remaining_s if self._at_fair_share else remaining_s / ledger.expected_speed[runnable]

    @property
    def alone_s(self) -> Floats:
        """The time that each job needs from its start to its end, alone and at its fair share."""
        alone_s: Floats = self._ledger.fair_s[self._runnable]
        return alone_s

    @property
    def attained_s(self) -> Floats:
        """The time that each job has run."""
        return self._ledger.attained_s[self._runnable]

    @property
    def pause_cost_s(self) -> Floats:
        """The time that each job would lose if it had to pause; 0 for jobs that do not run."""
        return self._ledger.pause_cost_s[self._runnable]

    @property
    def attained_share(self) -> Floats:
        """The largest part of the cluster's GPUs, CPUs or memory that each job had, integrated over its run time."""
        return self._ledger.attained_share[self._runnable]

    @property
    def demand_share(self) -> Floats:
        """The largest part of the cluster's GPUs, CPUs or memory that each job asks for."""
        return self._ledger.demand_share[self._runnable]

    @property
    def demand_sum(self) -> Floats:
        """The sum of the parts of the cluster's GPUs, CPUs and memory that each job asks for."""
        return self._ledger.demand_sum[self._runnable]
