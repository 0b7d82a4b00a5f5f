"""Turns of jobs that use several GPUs: they begin and end on all GPUs of the job at the same time.

A collective runs on all GPUs of its job or on none. If each GPU planned turns by itself, the job would seldom have the
turn on all of them. So the GPUs of an agent agree on a window for each such job: when it has the turn in each joint
cycle, which begins at the multiples of its length of CLOCK_MONOTONIC. Each GPU then plans the turns of its other
slots around its windows. No message and no common state machine is necessary: a window follows from what the job is due
on each of its GPUs.

GPUs are checked in turn. What they note in one round of checks counts in the next, so all get the same windows.

A window is as long as the least that the job is due on one of its GPUs, because the other GPUs would wait for that one.
There the other slots have the rest. Early ends of turns pass on with the next joint cycle.

While hp holds one of its GPUs, a job makes no progress on the others. So it is not judged for each GPU by itself.

A piece that is longer than the window runs on into the turns of others. That is a debt, and the job pays it with whole
windows: on all of its GPUs at once, until it has paid on the one where it owes most.

Refused: one state machine for all GPUs of a job. The turns of a GPU would depend on clients of all others.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from orion.node_agent.sharing.joint_parts import JointParts

_CYCLE_NS = 40_000_000
""" The usual length of a joint cycle. With many slots it is this times a power of two. """
_AVERAGE_TURN_NS = 5_000_000
_PATIENCE_NS = 4_000_000_000
""" A job that makes no progress on any GPU for so long has windows in every second such time only. """
_EPOCH_CYCLES = 4
""" For so many joint cycles a job has its windows or forgoes them, if it owes so much. """
_MOST_FORGOTTEN_NS = 1_000_000_000
""" A job that owes more forgoes windows, however long they are. """


@dataclass(frozen=True)
class Window:
    """When a job has the turn: begin and end as parts of a joint cycle, 0 to 1.

    Args:
        begin: of the window.
        end: of the window.
        forgone: how long the window was to be that the job forgoes, since it is in debt.
    """

    begin: float
    end: float
    forgone: float = 0.0

    @property
    def length(self) -> float:
        """The part of a joint cycle."""
        return self.end - self.begin


_NONE = Window(0.0, 0.0)
_NOTHING: Mapping[str, float] = MappingProxyType({})


class Agreement:
    """The windows of all jobs that use several GPUs of one agent."""

    def __init__(self) -> None:
        self._due: dict[str, dict[str, float]] = {}
        """ What each job is due on each of its GPUs; 0: it has no work there. """
        self._slots: dict[str, int] = {}
        """ How many be slots each GPU has that such a job uses. """
        self._debts: dict[str, Mapping[str, float]] = {}
        """ Of the jobs on each GPU, in nanoseconds. """
        self._pays: dict[str, tuple[int, bool]] = {}
        """ The last epoch in which a GPU asked for a job's window, and whether the job forgoes its windows in it. """
        self._progressed: dict[str, int] = {}
        """ When each job last made progress on any GPU. """
        self._windows: dict[str, Window] = {}
        self._asked: set[str] = set()
        self._agreed: dict[str, Window] = {}
        """ The GPUs that have asked in this round of checks, and what all of them get. What they note meanwhile
        counts in the next round, which begins when a GPU asks again. """
        self.cycle_ns = _CYCLE_NS
        """ The length of joint cycles in this round. They begin at its multiples. """
        self.hp_parts = JointParts()
        """ Of jobs of hp that have limits. """

    def note(self, gpu: str, due: Mapping[str, float], slots: int, debts: Mapping[str, float] = _NOTHING) -> None:
        """Note what jobs are due on a GPU.

        Args:
            gpu: its UUID.
            due: the part of the time, by job; all jobs with several GPUs that use this one.
            slots: the number of its be slots that have clients.
            debts: what jobs have used beyond what they were due on this GPU, in nanoseconds, by job.
        """
        self._debts[gpu] = debts
        self._slots.pop(gpu, None)
        if due:
            self._slots[gpu] = slots
        before = {job: parts[gpu] for job, parts in self._due.items() if gpu in parts}
        if before == due:
            return
        for job in before.keys() - due.keys():
            del self._due[job][gpu]
        for job, part in due.items():
            if part > 0 and not any(self._due.get(job, {}).values()):
                self._progressed.pop(job, None)  # it begins to work, and is not to blame for its pause
            self._due.setdefault(job, {})[gpu] = part
        self._due = {job: parts for job, parts in self._due.items() if parts}
        self._progressed = {job: when for job, when in self._progressed.items() if job in self._due}
        self._pays = {job: each for job, each in self._pays.items() if job in self._due}
        self._windows = windows(self._due)

    def progressed(self, job: str, now_ns: int) -> None:
        """Note that a job makes progress on one of its GPUs."""
        self._progressed[job] = now_ns

    def windows(self, gpu: str, now_ns: int) -> dict[str, Window]:
        """Return the windows of the jobs that use a GPU, by job; an empty one: the job must wait."""
        if gpu in self._asked or not self._asked:
            self._asked = set()
            needed = max(self._slots.values(), default=0) * _AVERAGE_TURN_NS
            self.cycle_ns = _CYCLE_NS << max(0, (needed - 1) // _CYCLE_NS).bit_length()
            self._agreed = {job: self._window(job, window, now_ns) for job, window in self._windows.items()}
        self._asked.add(gpu)
        return {job: window for job, window in self._agreed.items() if gpu in self._due.get(job, {})}

    def _window(self, job: str, window: Window, now_ns: int) -> Window:
        epoch_ns = _EPOCH_CYCLES * self.cycle_ns
        epoch, pays = self._pays.get(job, (-1, False))
        if epoch != now_ns // epoch_ns:
            debt = max((debts.get(job, 0.0) for debts in self._debts.values()), default=0.0)
            pays = debt > min(window.length * epoch_ns, _MOST_FORGOTTEN_NS)
            self._pays[job] = now_ns // epoch_ns, pays
        if pays:
            self.progressed(job, now_ns)
            return Window(0.0, 0.0, window.length)
        return _NONE if (now_ns - self._progressed.setdefault(job, now_ns)) // _PATIENCE_NS % 2 else window


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
