"""Simulates the rounds of one run: jobs arrive, `deciding` chooses who runs, and jobs progress until all are done.

There are two modes. In the default mode, a job ends when its work ends, and each move costs the job `restart_cost_s`.
The compatible mode does what Synergy's published simulator does: a job makes only whole iterations, it ends at the end
of a round, and moves cost nothing.
"""

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from orion.errors import Conflict
from orion.planning.queues.demands import Profile
from orion.planning.queues.resources import Server

from .deciding import Decider, Decision
from .jobs import Job, reference, wishes, within_reach
from .ledger import Floats, Ledger
from .rules import Round, Rules
from .schedulers import Scheduler

MOST_IDLE_S = 2 * 86400.0
""" A cluster whose hp load leaves nothing by day may run jobs by night; after two days nothing will change. """

MOST_ROUNDS = 10_000_000
""" A job that needs more is a mistake: at 300 s a round, these are 95 years. """

MOST_YEARS = 10
YEAR_S = 365 * 86400.0
""" A job that hp load makes longer than this is refused: the run would take too long to simulate. """

ServersAt = Callable[[float], Sequence[Server]]
""" Returns the servers at a time in seconds: high-priority tenants have more to do at noon. """


@dataclass(frozen=True)
class Outcome:
    """The result of one run.

    Attributes:
        ledger: the jobs, with their times.
        rounds: the resources that jobs got in each round.
        bounds: the largest sum of speeds that was possible in each round; empty unless the mechanism is opt.
    """

    ledger: Ledger
    rounds: list[Round] = field(default_factory=list)
    bounds: list[float] = field(default_factory=list)


def run(
    jobs: Sequence[Job],
    profiles: Mapping[str, Profile],
    servers_at: ServersAt,
    scheduler: Scheduler,
    rules: Rules,
    progress: Callable[[int], None] = lambda finished: None,
) -> Outcome:
    """Run all jobs to their ends.

    Args:
        jobs: the jobs, each of which fits the cluster.
        profiles: profiles by model.
        servers_at: returns the servers at a time.
        scheduler: the policy and the mechanism.
        rules: the settings of the run.
        progress: called after each round with the number of finished jobs.

    Raises:
        Conflict: jobs wait that no round can run, or a job is too long.
    """
    servers = servers_at(0.0)
    jobs = sorted(jobs, key=lambda job: (job.arrival_s, job.number))
    asked = wishes(jobs, profiles, reference(servers), is_compatible=rules.is_compatible)
    if not rules.is_compatible:
        shapes = {id(shape): shape for shape in [servers_at(hour * 3600.0) for hour in range(24)]}
        asked = within_reach(asked, list(shapes.values()))
    ledger = Ledger(jobs, profiles, asked, servers)
    _check_lengths(ledger, servers_at, rules.round_s)
    outcome, decider = Outcome(ledger), Decider(scheduler, rules, ledger, servers)
    work = _Compatible(ledger, rules) if rules.is_compatible else _Default(ledger, rules)
    counted = np.array([rules.counts(job.number) for job in jobs], dtype=bool)
    unfinished = int(counted.sum())
    arrived, now_s, idle_s = 0, _first_round(ledger.arrival_s, rules), 0.0
    runnable = np.empty(0, dtype=np.intp)
    while unfinished:
        if not len(runnable):
            now_s = _next_round(now_s, ledger.arrival_s[arrived], rules.round_s)
        here = int(np.searchsorted(ledger.arrival_s, now_s, side="right"))
        if here > arrived:
            runnable = np.concatenate((runnable, np.arange(arrived, here)))
            arrived = here
        decision = decider.decide(runnable, servers_at(now_s), now_s)
        runnable, running = decider.ordered, len(decision.running)
        idle_s = 0.0 if running else idle_s + rules.round_s
        if idle_s > MOST_IDLE_S and arrived == len(jobs):
            raise Conflict(_why_stalled(scheduler, jobs[int(runnable.min())], now_s))
        outcome.rounds.append(Round(now_s, len(runnable) - running, running, *decision.total))
        if decision.bound is not None:
            outcome.bounds.append(decision.bound)
        ended = work.go_on(decision, now_s)
        if len(ended):
            unfinished -= int(counted[ended].sum())
            runnable = runnable[np.isnan(ledger.finish_s[runnable])]
        now_s += rules.round_s
        progress(arrived - len(runnable))
    return outcome


def _check_lengths(ledger: Ledger, servers_at: ServersAt, round_s: float) -> None:
    if not len(ledger.jobs):
        return
    least_s = ledger.fair_s / np.maximum(ledger.best_speed, 1.0)
    longest, rounds = int(least_s.argmax()), float(least_s.max() / round_s)
    if rounds > MOST_ROUNDS:
        raise Conflict(
            f"job {ledger.jobs[longest].number} takes {rounds:.3g} rounds, and {MOST_ROUNDS} are possible: "
            "correct its length, or give a longer --round"
        )
    speeds, gpus = _day_speeds(servers_at)
    fastest = np.argsort(-speeds, kind="stable")
    needed = np.minimum(np.searchsorted(np.cumsum(gpus[fastest]), ledger.gpus), len(fastest) - 1)
    slowest = fastest[needed]
    with np.errstate(divide="ignore"):
        years = least_s / speeds[slowest] / YEAR_S
    beneath = np.flatnonzero((speeds[slowest] < 1) & (least_s <= MOST_YEARS * YEAR_S) & (years > MOST_YEARS))
    beneath = beneath[speeds[slowest[beneath]] > 0]  # if nothing is left at all, the run finds out that it stands still
    if len(beneath):
        job = int(beneath[0])
        raise Conflict(
            f"job {ledger.jobs[job].number} would take {years[job]:.3g} years: hp leaves training "
            f"{speeds[slowest[job]]:.2g} of the speed of server {slowest[job] + 1}: give less hp load there, or set "
            "busy: 1 so that no job runs there"
        )


def _day_speeds(servers_at: ServersAt) -> tuple[Floats, Floats]:
    """Return each server's mean speed over a day, and its number of GPUs."""
    shapes = [servers_at(minute * 60.0) for minute in range(0, 24 * 60, 5)]
    counted = {id(shape): shape for shape in shapes}
    count = Counter(map(id, shapes))
    total = sum(count[key] * np.array([server.speed for server in shape]) for key, shape in counted.items())
    return np.asarray(total) / len(shapes), np.array([float(server.gpus) for server in shapes[0]])


def _why_stalled(scheduler: Scheduler, job: Job, now_s: float) -> str:
    return (
        f"{scheduler}: no job can run any more at {now_s:.0f} s; the first that waits is job {job.number} "
        f"({job.gpus} GPUs): give servers with more CPUs, memory or storage, or leave it out"
    )


def _first_round(arrival_s: Floats, rules: Rules) -> float:
    if rules.is_static:
        return 1.0
    return math.ceil(arrival_s[0] / rules.round_s) * rules.round_s if len(arrival_s) else 0.0


def _next_round(now_s: float, arrival_s: float, round_s: float) -> float:
    """Return the first time at or after an arrival that is a whole number of rounds after `now_s`."""
    return now_s + math.ceil(max(0.0, arrival_s - now_s) / round_s) * round_s


class _Compatible:
    """The compatible mode: jobs make whole iterations in each round, and end at the end of a round."""

    def __init__(self, ledger: Ledger, rules: Rules) -> None:
        self._ledger, self._round_s = ledger, rules.round_s
        self._decision: Decision | None = None
        self._steps = np.empty(0)

    def go_on(self, decision: Decision, now_s: float) -> np.ndarray:
        """Let jobs work for one round; return those that ended."""
        ledger, running = self._ledger, decision.running
        if decision is not self._decision:
            self._change(decision, now_s)
        ledger.done[running] += self._steps
        ledger.attain(running, decision.share, self._round_s)
        is_done = ledger.done[running] >= ledger.iterations[running]
        ended = running[is_done]
        if len(ended):
            ledger.done[ended] = ledger.iterations[ended]
            ledger.finish_s[ended] = now_s + self._round_s
        return ended

    def _change(self, decision: Decision, now_s: float) -> None:
        ledger, running = self._ledger, decision.running
        if self._decision is not None:
            before = self._decision.running
            ledger.expected_speed[before] = ledger.best_speed[before]
        if decision.bound is None:
            ledger.expected_speed[running] = decision.speed
        self._steps = np.floor(self._round_s / (ledger.iteration_s[running] / decision.speed))
        if not self._steps.all():  # the original would go on for ever
            job = ledger.jobs[int(running[self._steps == 0][0])]
            raise Conflict(f"an iteration of job {job.number} is longer than a round: give a longer --round")
        is_new = np.isnan(ledger.start_s[running])
        ledger.start_s[running[is_new]] = now_s
        self._decision = decision


class _Default:
    """The default mode: a job ends when its work ends, and loses time when it moves."""

    def __init__(self, ledger: Ledger, rules: Rules) -> None:
        self._ledger, self._rules = ledger, rules

    def go_on(self, decision: Decision, now_s: float) -> np.ndarray:
        """Let jobs work for one round; return those that ended."""
        ledger, running, round_s = self._ledger, decision.running, self._rules.round_s
        is_new = np.isnan(ledger.start_s[running])
        ledger.start_s[running[is_new]] = now_s
        is_restarted = decision.is_moved & ~is_new
        ledger.restarts[running[is_restarted]] += 1
        lost_s = np.where(is_restarted, self._rules.restart_cost_s, 0.0)
        iteration_s = ledger.iteration_s[running] / decision.speed
        needed_s = lost_s + (ledger.iterations[running] - ledger.done[running]) * iteration_s
        is_done = needed_s <= round_s * (1 + 1e-12)
        ledger.done[running] += np.maximum(0.0, round_s - lost_s) / iteration_s
        ledger.attain(running, decision.share, np.minimum(needed_s, round_s))
        ended = running[is_done]
        ledger.done[ended] = ledger.iterations[ended]
        ledger.finish_s[ended] = now_s + needed_s[is_done]
        return ended
