"""Whether a process lives, is stopped, or dumps core, from /proc.

A client's death closes its socket. If a forked child keeps the socket open, the client's robust futex shows the death.
Neither shows that a process is stopped: a stopped hp client stays busy in its page. So a be client asks the agent to
check the process when the heartbeat of the hp client that it waits for is stale. A process that merely gets little CPU
time is not stopped.
"""

import contextlib
from dataclasses import dataclass
from pathlib import Path

from orion.node_agent.processes.cgroup_folders import PROC

_STOPPED = frozenset("Tt")
_ENDED = frozenset("ZX")
_EXITING, _KILLED = 0x4, 1 << 8
""" The kernel's PF_EXITING among the flags; the bit of SIGKILL among the pending signals. """
_STATE, _FLAGS, _THREADS, _START_TIME, _STACK, _PENDING = 0, 6, 17, 19, 25, 28
""" Positions in /proc/PID/stat after the command, which ends with the last ')'. """


@dataclass(frozen=True)
class Stat:
    """What the file `stat` in the folder of a process or a thread says; not all fields are there if it has gone."""

    command: str
    fields: tuple[str, ...]

    @classmethod
    def of(cls, folder: Path) -> "Stat":
        """Read a folder in /proc."""
        with contextlib.suppress(OSError):
            head, _, tail = (folder / "stat").read_bytes().decode("ascii", "replace").rpartition(")")
            return cls(head.partition("(")[2], tuple(tail.split()))
        return cls("", ())

    @property
    def started(self) -> int | None:
        """When it started, in clock ticks since boot; None: it has gone."""
        return int(self.fields[_START_TIME]) if len(self.fields) > _START_TIME else None

    @property
    def is_stopped(self) -> bool:
        """Whether it is stopped by a signal or a tracer."""
        return bool(self.fields) and self.fields[_STATE] in _STOPPED

    @property
    def stack(self) -> int | None:
        """Where the program's stack begins, if the kernel says it; None: all threads have ended."""
        if len(self.fields) <= _STACK or (self.fields[_STATE] in _ENDED and int(self.fields[_THREADS]) <= 1):
            return None  # a process whose first thread alone has ended looks like a zombie, too
        return int(self.fields[_STACK])

    @property
    def is_doomed(self) -> bool:
        """Whether the thread, or the process's first one, runs no more of its program."""
        if len(self.fields) <= _PENDING or self.fields[_STATE] in _ENDED:
            return True
        return bool(int(self.fields[_FLAGS]) & _EXITING or int(self.fields[_PENDING]) & _KILLED)


def start_time(process_id: int) -> int | None:
    """Return when the process started, in clock ticks since boot; None: there is no such process."""
    return Stat.of(PROC / str(process_id)).started


def is_ending(folder: Path) -> bool:
    """Return whether no thread of a process runs on: the kernel takes it down, or has done so.

    That takes seconds where the driver frees much memory. The first thread may end long before the others.

    Args:
        folder: of the process, in /proc.
    """
    if not Stat.of(folder).is_doomed:
        return False
    with contextlib.suppress(OSError):
        return all(Stat.of(thread).is_doomed for thread in (folder / "task").iterdir())
    return True


@dataclass(frozen=True)
class Owner:
    """The process for which a slot was made; its start time distinguishes it from a later process with the same id."""

    process_id: int
    started: int

    @classmethod
    def of(cls, process_id: int) -> "Owner | None":
        """Return the living process of that id as an owner; None: no such process lives."""
        started = start_time(process_id)
        return None if started is None else cls(process_id, started)


@dataclass(frozen=True)
class Program:
    """A process and the program in it. After exec, the process is the same and the program another one."""

    process_id: int
    started: int
    stack: int
    """ Where the program's stack begins, which is random; 0: the kernel does not say, or the first thread has no memory
    any more, because the process ends. """

    @classmethod
    def of(cls, process_id: int) -> "Program | None":
        """Return what runs in a process; None: there is no such process, or it has ended."""
        stat = Stat.of(PROC / str(process_id))
        if stat.started is None or stat.stack is None:
            return None
        return cls(process_id, stat.started, stat.stack)


def has_ended(program: Program) -> bool:
    """Return whether the kernel has closed a program's files: it has ended, or its process has executed another one.

    A thread gives up its memory before its files, and the first thread of a process may do so long before the last one.
    """
    now = Program.of(program.process_id)
    return now is None or now.started != program.started or now.stack not in (0, program.stack)


def ends(program: Program) -> bool:
    """Return whether a program has ended, or no thread of it runs on."""
    return has_ended(program) or is_ending(PROC / str(program.process_id))


def is_stopped(process_id: int) -> bool:
    """Return whether the process is stopped by a signal or a tracer, or is dumping core."""
    folder = PROC / str(process_id)
    if Stat.of(folder).is_stopped:
        return True
    with contextlib.suppress(OSError):
        return b"\nCoreDumping:\t1\n" in (folder / "status").read_bytes()
    return False
