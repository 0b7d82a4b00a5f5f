"""Whether a process lives, is stopped, or dumps core, from /proc.

A client's death closes its socket. If a forked child keeps the socket open, the client's robust futex shows the death.
Neither shows that a process is stopped: a stopped hp client stays busy in its page. So a be client asks the agent to
check the process when the heartbeat of the hp client that it waits for is stale. A process that merely gets little CPU
time is not stopped.
"""

import contextlib
from dataclasses import dataclass
from pathlib import Path

_STOPPED = frozenset("Tt")
_ENDED = frozenset("ZX")
_STATE, _THREADS, _START_TIME, _STACK = 0, 17, 19, 25
""" Positions in /proc/PID/stat after the command, which ends with the last ')'. """


def _stat(process_id: int) -> list[str]:
    if process_id <= 0:
        return []
    with contextlib.suppress(OSError):
        return Path(f"/proc/{process_id}/stat").read_bytes().rpartition(b")")[2].decode("ascii", "replace").split()
    return []


def start_time(process_id: int) -> int | None:
    """Return when the process started, in clock ticks since boot; None: there is no such process."""
    fields = _stat(process_id)
    return int(fields[_START_TIME]) if len(fields) > _START_TIME else None


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
        fields = _stat(process_id)
        if len(fields) <= _STACK or _is_zombie(fields):
            return None
        return cls(process_id, int(fields[_START_TIME]), int(fields[_STACK]))


def has_ended(program: Program) -> bool:
    """Return whether the kernel has closed a program's files: it has ended, or its process has executed another one.

    A thread gives up its memory before its files, and the first thread of a process may do so long before the last one.
    """
    now = Program.of(program.process_id)
    return now is None or now.started != program.started or now.stack not in (0, program.stack)


def _is_zombie(fields: list[str]) -> bool:
    """Return whether all threads have ended: a process whose first thread alone has ended looks like a zombie, too."""
    return fields[_STATE] in _ENDED and int(fields[_THREADS]) <= 1


def is_stopped(process_id: int) -> bool:
    """Return whether the process is stopped by a signal or a tracer, or is dumping core."""
    fields = _stat(process_id)
    if not fields:
        return False
    if fields[_STATE] in _STOPPED:
        return True
    with contextlib.suppress(OSError):
        return b"\nCoreDumping:\t1\n" in Path(f"/proc/{process_id}/status").read_bytes()
    return False
