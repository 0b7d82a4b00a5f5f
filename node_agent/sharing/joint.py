"""Turns of jobs that use several GPUs: they begin and end on all GPUs of the job at the same time.

A collective runs on all GPUs of its job or on none. If each GPU planned turns by itself, the job would seldom have the
turn on all of them. So the GPUs of an agent agree on a window for each such job: when it has the turn in each joint
cycle, which begins at the multiples of its length of CLOCK_MONOTONIC. Each GPU then plans the turns of its other
slots around its windows. No message and no common state machine is necessary: a window follows from what the job is due
on each of its GPUs.

A window is as long as the least that the job is due on one of its GPUs, because the other GPUs would wait for that one.
There the other slots have the rest. Early ends of turns pass on with the next joint cycle.

While hp holds one of its GPUs, a job makes no progress on the others. So it is not judged for each GPU by itself.

Refused: one state machine for all GPUs of a job. The turns of a GPU would depend on clients of all others.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

_CYCLE_NS = 40_000_000
""" The usual length of a joint cycle. With many slots it is this times a power of two. """
_AVERAGE_TURN_NS = 5_000_000
_PATIENCE_NS = 4_000_000_000
""" A job that makes no progress on any GPU for so long has windows in every second such time only. """


@dataclass(frozen=True)
class Window:
    """When a job has the turn: begin and end as parts of a joint cycle, 0 to 1."""

    begin: float
    end: float

    @property
    def length(self) -> float:
        """The part of a joint cycle."""
        return self.end - self.begin


_NONE = Window(0.0, 0.0)


class Agreement:
    """The windows of all jobs that use several GPUs of one agent."""

    def __init__(self) -> None:
        self._due: dict[str, dict[str, float]] = {}
        """ What each job is due on each of its GPUs; 0: it has no work there. """
        self._slots: dict[str, int] = {}
        """ How many be slots each GPU has that such a job uses. """
        self._progressed: dict[str, int] = {}
        """ When each job last made progress on any GPU. """
        self._windows: dict[str, Window] = {}

    @property
    def cycle_ns(self) -> int:
        """The length of joint cycles, which begin at its multiples."""
        needed = max(self._slots.values(), default=0) * _AVERAGE_TURN_NS
        return _CYCLE_NS << max(0, (needed - 1) // _CYCLE_NS).bit_length()

    def note(self, gpu: str, due: Mapping[str, float], slots: int) -> None:
        """Note what jobs are due on a GPU.

        Args:
            gpu: its UUID.
            due: the part of the time, by job; all jobs with several GPUs that use this one.
            slots: the number of its be slots that have clients.
        """
        self._slots.pop(gpu, None)
        if due:
            self._slots[gpu] = slots
        before = {job: parts[gpu] for job, parts in self._due.items() if gpu in parts}
        if before == due:
            return
        for job in before.keys() - due.keys():
            del self._due[job][gpu]
        for job, part in due.items():
            self._due.setdefault(job, {})[gpu] = part
        self._due = {job: parts for job, parts in self._due.items() if parts}
        self._progressed = {job: when for job, when in self._progressed.items() if job in self._due}
        self._windows = windows(self._due)

    def progressed(self, job: str, now_ns: int) -> None:
        """Note that a job makes progress on one of its GPUs."""
        self._progressed[job] = now_ns

    def windows(self, gpu: str, now_ns: int) -> dict[str, Window]:
        """Return the windows of the jobs that use a GPU, by job; an empty one: the job must wait."""
        return {
            job: _NONE if (now_ns - self._progressed.setdefault(job, now_ns)) // _PATIENCE_NS % 2 else window
            for job, window in self._windows.items()
            if gpu in self._due[job]
        }


def windows(due: Mapping[str, Mapping[str, float]]) -> dict[str, Window]:
    """Return when each job has the turn; no two jobs that share a GPU have it at the same time.

    Args:
        due: what each job is due, by job and by GPU; 0: it has no work there.
    """
    found: dict[str, Window] = {}
    for job, parts in sorted(due.items()):
        wanted = [part for part in parts.values() if part > 0]
        if len(parts) > 1 and wanted:
            begin = max((each.end for other, each in found.items() if due[other].keys() & parts.keys()), default=0.0)
            found[job] = Window(begin, begin + min(1.0, *wanted))
    # Three jobs, each two of which share a GPU, may need more than a cycle.
    return {job: _scaled(window, _last_end(job, found, due)) for job, window in found.items()}


def _scaled(window: Window, last: float) -> Window:
    return window if last <= 1.0 else Window(window.begin / last, window.end / last)


def _last_end(job: str, found: Mapping[str, Window], due: Mapping[str, Mapping[str, float]]) -> float:
    """Return when the last window ends of the jobs that a job has to do with, directly or through others."""
    related, gpus = {job}, set(due[job])
    while more := {other for other in found if other not in related and gpus & due[other].keys()}:
        related |= more
        gpus.update(*(due[other] for other in more))
    return max(found[other].end for other in related)


def room(taken: Collection[Window]) -> Window:
    """Return the longest time of a joint cycle at its begin or end that no window of a GPU takes; it may be empty."""
    first = min((window.begin for window in taken), default=1.0)
    last = max((window.end for window in taken), default=0.0)
    return Window(0.0, first) if first > 1.0 - last else Window(min(last, 1.0), 1.0)
