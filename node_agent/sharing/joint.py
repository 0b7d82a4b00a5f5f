"""Turns of jobs that use several GPUs: they begin and end on all GPUs of the job at the same time.

A collective runs on all GPUs of its job or on none. If each GPU planned turns by itself, the job would seldom have the
turn on all of them. So the GPUs of an agent agree on a window for each such job: when it has the turn in each joint
cycle, which begins at the multiples of `JOINT_CYCLE_NS` of CLOCK_MONOTONIC. Each GPU then plans the turns of its other
slots around its windows. No message and no common state machine is necessary: a window follows from what the job is due
on each of its GPUs.

A window is as long as the least that the job is due on one of its GPUs, because the other GPUs would wait for that one.
There the other slots have the rest. Early ends of turns pass on with the next joint cycle.

Refused: one state machine for all GPUs of a job. The turns of a GPU would depend on clients of all others.
"""

from collections.abc import Mapping
from dataclasses import dataclass

JOINT_CYCLE_NS = 40_000_000


@dataclass(frozen=True)
class Window:
    """When a job has the turn: begin and end as parts of a joint cycle, 0 to 1."""

    begin: float
    end: float


class Agreement:
    """The windows of all jobs that use several GPUs of one agent."""

    def __init__(self) -> None:
        self._due: dict[str, dict[str, float]] = {}
        """ What each job is due on each of its GPUs; 0: it has no work there. """
        self._windows: dict[str, Window] = {}

    def note(self, gpu: str, due: Mapping[str, float]) -> None:
        """Note what jobs are due on a GPU.

        Args:
            gpu: its UUID.
            due: the part of the time, by job; all jobs with several GPUs that use this one.
        """
        before = {job: parts[gpu] for job, parts in self._due.items() if gpu in parts}
        if before == due:
            return
        for job in before.keys() - due.keys():
            del self._due[job][gpu]
        for job, part in due.items():
            self._due.setdefault(job, {})[gpu] = part
        self._due = {job: parts for job, parts in self._due.items() if parts}
        self._windows = windows(self._due)

    def windows(self, gpu: str) -> dict[str, Window]:
        """Return the windows of the jobs that use a GPU, by job."""
        return {job: window for job, window in self._windows.items() if gpu in self._due[job]}


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
            found[job] = Window(begin, begin + min(wanted))
    last = max((window.end for window in found.values()), default=0.0)
    scale = 1.0 / max(last, 1.0)  # three jobs, each two of which share a GPU, may need more than a cycle
    return {job: Window(window.begin * scale, window.end * scale) for job, window in found.items()}


def room(taken: Mapping[str, Window]) -> Window:
    """Return the longest time of a joint cycle at its begin or end that no window of a GPU takes."""
    first = min((window.begin for window in taken.values()), default=1.0)
    last = max((window.end for window in taken.values()), default=0.0)
    return Window(0.0, first) if first > 1.0 - last else Window(last, 1.0)
