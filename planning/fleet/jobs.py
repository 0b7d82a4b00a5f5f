"""Training and batches into the free time of GPUs, one after the other in a given order.

A training job holds its GPUs at once and runs as fast as on the slowest of them. It keeps its GPUs from its begin to
its end if one free time is long enough. Otherwise it moves, which costs `RESTART_H` each time: it fills a free time
that is too short, and has its rest before or after that (Sahni's rule for jobs with deadlines, Operations Research 27,
1979); or it goes on from GPU to GPU. A batch fills free time in its window, on any number of GPUs.

Jobs of several GPUs use blocks: GPUs that follow each other in the order of their speeds. So the GPUs of a job are
equally fast, and the free time of a block stays in one piece. Refused: any set of GPUs, because small sets leave free
times that no large job can use.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import chain

from .fleets import RESTART_H, TOLERANCE_H, Fleet
from .gaps import Gap, Gaps, Run
from .supply import Supply, Track

LEAST_PIECE_H = 3 * RESTART_H
""" A job moves only for a piece that is longer than its restart. """
_TRIED = 8  # free times that a job tries to fill
_HALVINGS = 30


@dataclass(frozen=True)
class Job:
    """One job of a training, or a batch.

    Attributes:
        name: the workload's name.
        copy: the job's number in its training.
        gpus: GPUs at once; 0: any number, so the job is a batch.
        work_h: hours alone on these GPUs; for a batch: GPU-hours.
        from_h: the earliest begin.
        by_h: the latest end.
        memory_gb: GPU memory on each GPU.
        closed: a time in between at which a batch must not run; its window begins after that, goes on over midnight
            at `from_h`, and ends before that.
    """

    name: str
    copy: int
    gpus: int
    work_h: float
    from_h: float
    by_h: float
    memory_gb: float
    closed: Gap | None = None

    @property
    def window(self) -> tuple[Gap, ...]:
        """The times at which the job may run, in the window's order."""
        if self.closed is None:
            return ((self.from_h, self.by_h),)
        return (self.closed[1], self.by_h), (self.from_h, self.closed[0])

    @property
    def window_h(self) -> float:
        """The length of the window."""
        return sum(to_h - from_h for from_h, to_h in self.window)

    def end_h(self, runs: Iterable[Run]) -> float:
        """Return when the last of some runs ends; after midnight, in hours of the day of the window's begin."""
        early_h = -1.0 if self.closed is None else self.closed[0] + TOLERANCE_H
        ends = (run.to_h + (self.by_h if run.to_h <= early_h else 0.0) for run in runs)
        return max(ends, default=self.window[0][0])

    @property
    def gpu_h(self) -> float:
        """The work in GPU-hours."""
        return self.work_h * max(1, self.gpus)


@dataclass(frozen=True)
class Rule:
    """How free time is chosen.

    Attributes:
        is_early: take the earliest end; otherwise the free time that fits most tightly.
        fills: fill free times that are too short before longer ones are begun.
    """

    is_early: bool = False
    fills: bool = False


Placed = dict[tuple[str, int], tuple[Run, ...]]


def all_jobs(fleet: Fleet) -> list[Job]:
    """Return every job of a fleet, in the fleet's order."""
    jobs = []
    for batch in fleet.batches:
        closed = batch.closed(fleet.hours)
        span = (batch.from_h, batch.to_h) if closed is None else (0.0, fleet.hours)
        jobs.append(Job(batch.name, 0, 0, batch.work_gpu_h, *span, batch.memory_gb, closed))
    for each in fleet.training:
        jobs += [Job(each.name, copy, each.gpus, each.alone_h, 0.0, each.by_h, each.memory_gb)
                 for copy in range(each.count)]  # fmt: skip
    return jobs


class Placer:
    """Places jobs on a supply; holds what has been placed."""

    def __init__(self, supply: Supply, rule: Rule) -> None:
        self.gaps, self._rule, self._supply = Gaps(supply), rule, supply
        alone = {gpu: supply.track((gpu,), 0.0).done_h[-1] for gpu in range(supply.gpus)}
        self._order = sorted(alone, key=lambda gpu: (-alone[gpu], gpu))
        self._blocks: dict[int, list[tuple[int, ...]]] = {}

    def place(self, job: Job) -> tuple[Run, ...] | None:
        """Place a job and return its runs; None if it does not fit."""
        if job.work_h <= TOLERANCE_H:
            return ()
        runs = self._batch(job) if job.gpus == 0 else self._training(job)
        for run in runs or ():
            self.gaps.hold(run)
        return runs

    def _units(self, gpus: int) -> list[tuple[int, ...]]:
        if gpus not in self._blocks:
            order = self._order
            self._blocks[gpus] = [
                tuple(sorted(order[at : at + gpus])) for at in range(0, len(order) - gpus + 1, max(1, gpus))
            ]
        return self._blocks[gpus]

    def _free(self, job: Job, from_h: float, to_h: float) -> list["_Free"]:
        found = []
        for gpus in self._units(max(1, job.gpus)):
            track = self._supply.track(gpus, job.memory_gb)
            for begin_h, end_h in self.gaps.free(gpus, track, from_h, to_h):
                if (work_h := track.work(begin_h, end_h)) > TOLERANCE_H:
                    found.append(_Free(gpus, track, begin_h, end_h, work_h))
        return found

    def _training(self, job: Job) -> tuple[Run, ...] | None:
        free = self._free(job, job.from_h, job.by_h)
        ways = (self._filling, self._kept) if self._rule.fills else (self._kept, self._filling)
        for way in (*ways, self._moving):
            if runs := way(job, free):
                return runs
        return None

    def _kept(self, job: Job, free: Sequence["_Free"]) -> tuple[Run, ...] | None:
        """Return a run on GPUs that the job keeps."""
        fitting = [each for each in free if each.work_h >= job.work_h - TOLERANCE_H]
        if not fitting:
            return None
        if self._rule.is_early:
            return (min((each.run(job.work_h) for each in fitting), key=lambda run: (run.to_h, run.gpus)),)
        return (min(fitting, key=lambda each: (each.work_h, each.from_h, each.gpus)).run(job.work_h),)

    def _filling(self, job: Job, free: Sequence["_Free"]) -> tuple[Run, ...] | None:
        """Fill a free time that is too short; the rest of the job runs wholly before it or after it."""
        if any(abs(each.work_h - job.work_h) <= TOLERANCE_H for each in free):
            return None  # it fits exactly without a move
        short = [each for each in free if LEAST_PIECE_H <= each.work_h < job.work_h]
        for each in sorted(short, key=lambda one: (-one.work_h, one.from_h, one.gpus))[:_TRIED]:
            rest_h = job.work_h + RESTART_H - each.work_h
            for from_h, to_h in ((job.from_h, each.from_h), (each.to_h, job.by_h)):
                if to_h - from_h < rest_h:
                    continue
                fitting = [one for one in self._free(job, from_h, to_h) if one.work_h >= rest_h - TOLERANCE_H]
                if fitting:
                    best = min(fitting, key=lambda one: (one.work_h, one.from_h, one.gpus)).run(rest_h)
                    return _in_turn(best, Run(each.gpus, each.from_h, each.to_h))
        return None

    def _moving(self, job: Job, free: Sequence["_Free"]) -> tuple[Run, ...] | None:
        """Go on from GPU to GPU; at each move, take the one that does the most work before the next move."""
        runs: list[Run] = []
        now_h, left_h = job.from_h, job.work_h
        while left_h > TOLERANCE_H:
            lost_h = RESTART_H if runs else 0.0
            here = [(each.track.work(now_h, each.to_h), each) for each in free if each.from_h <= now_h < each.to_h]
            usable = [each for each in here if each[0] >= min(left_h + lost_h - TOLERANCE_H, LEAST_PIECE_H)]
            if not usable:
                later = [each.from_h for each in free if each.from_h > now_h]
                if not later:
                    return None
                now_h = min(later)
                continue
            work_h, best = max(usable, key=lambda each: (each[0], [-gpu for gpu in each[1].gpus]))
            if work_h >= left_h + lost_h - TOLERANCE_H:
                ends = [(each.track.end_h(now_h, left_h + lost_h), each.gpus) for work_h, each in usable
                        if work_h >= left_h + lost_h - TOLERANCE_H]  # fmt: skip
                end_h, gpus = min(ends)
                return (*runs, Run(gpus, now_h, end_h, lost_h))
            runs.append(Run(best.gpus, now_h, best.to_h, lost_h))
            left_h -= work_h - lost_h
            now_h = best.to_h
        return tuple(runs)

    def _batch(self, job: Job) -> tuple[Run, ...] | None:
        """Fill free times in the window: the shortest first, or all of them up to the earliest end."""
        by_part = [self._free(job, from_h, to_h) for from_h, to_h in job.window]
        if sum(each.work_h for free in by_part for each in free) < job.work_h - TOLERANCE_H:
            return None
        free = _until_the_earliest_end(job, by_part) if self._rule.is_early else list(chain(*by_part))
        runs, left_h = [], job.work_h
        for each in sorted(free, key=lambda one: (one.work_h, one.from_h, one.gpus)):
            if left_h > TOLERANCE_H and each.work_h > TOLERANCE_H:
                runs.append(each.run(min(each.work_h, left_h)))
                left_h -= min(each.work_h, left_h)
        return tuple(runs)


@dataclass(frozen=True)
class _Free:
    """A free time of some GPUs, and the hours of work that a job can do in it."""

    gpus: tuple[int, ...]
    track: Track
    from_h: float
    to_h: float
    work_h: float

    def run(self, work_h: float) -> Run:
        """Return a run from the begin of the free time."""
        return Run(self.gpus, self.from_h, min(self.track.end_h(self.from_h, work_h), self.to_h))

    def until(self, end_h: float) -> "_Free":
        """Return the part of the free time before an end."""
        to_h = min(self.to_h, end_h)
        return replace(self, to_h=to_h, work_h=self.track.work(self.from_h, to_h))


def _in_turn(one: Run, other: Run) -> tuple[Run, Run]:
    first, second = (one, other) if one.from_h < other.from_h else (other, one)
    return first, replace(second, lost_h=RESTART_H)


def _until_the_earliest_end(job: Job, by_part: Sequence[Sequence[_Free]]) -> list[_Free]:
    """Return the free times of a batch's window, part by part, up to the earliest end."""
    kept: list[_Free] = []
    left_h = job.work_h
    for part, free in zip(job.window, by_part, strict=True):
        there_h = sum(each.work_h for each in free)
        if left_h > TOLERANCE_H:
            end_h = part[1] if there_h < left_h else _earliest(free, part, left_h)
            kept += [each.until(end_h) for each in free if each.from_h < end_h]
            left_h -= there_h
    return kept


def _earliest(free: Sequence[_Free], within: Gap, work_h: float) -> float:
    low, high = within
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        if sum(each.until(middle).work_h for each in free if each.from_h < middle) >= work_h:
            high = middle
        else:
            low = middle
    return high
