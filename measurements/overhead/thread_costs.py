"""What another process's threads cost: CPU time and instructions of each thread, read while they run.

CPU time comes from /proc. Instructions come from the CPU's counters (perf_event_open); many machines do not let
programs read these, and then there is CPU time alone.
"""

import ctypes
import os
import platform
import struct
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

PERF_EVENT_OPEN = {"x86_64": 298, "aarch64": 241}.get(platform.machine())
ATTRIBUTES_SIZE = 112
TYPE_HARDWARE, INSTRUCTIONS, USER_MODE_ONLY = 0, 1, 1 << 5 | 1 << 6  # type, config, flags of struct perf_event_attr
CLOSE_ON_EXEC = 8


@dataclass(frozen=True)
class Cost:
    """What threads have used so far, or during a time."""

    cpu_s: float
    instructions: int | None
    """ In user mode; None: this machine does not count them. """

    def since(self, before: "Cost") -> "Cost":
        """Return the cost of the time since an earlier reading."""
        both = self.instructions is not None and before.instructions is not None
        instructions = (self.instructions or 0) - (before.instructions or 0) if both else None
        return Cost(self.cpu_s - before.cpu_s, instructions)


class Threads:
    """The threads of a process; a context manager. Threads that start later are counted from the next reading on."""

    def __init__(self, process_id: int) -> None:
        self._folder = Path(f"/proc/{process_id}/task")
        self._counters: dict[int, int | None] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        for counter in self._counters.values():
            if counter is not None:
                os.close(counter)

    def read(self) -> tuple[Cost, Cost]:
        """Return the cost of all threads, and that of the hook's threads among them.

        A thread that has ended is in neither: read only processes that keep their threads.
        """
        of_all, of_hook = [], []
        for folder in self._folder.iterdir():
            try:
                cpu_s = int((folder / "schedstat").read_text().split()[0]) / 1e9
                name = (folder / "comm").read_text()
            except OSError:  # the thread has just ended
                continue
            cost = Cost(cpu_s, self._instructions(int(folder.name)))
            of_all.append(cost)
            if name.startswith("orion"):
                of_hook.append(cost)
        return _sum(of_all), _sum(of_hook)

    def _instructions(self, thread_id: int) -> int | None:
        if thread_id not in self._counters:
            self._counters[thread_id] = _open_counter(thread_id)
        counter = self._counters[thread_id]
        return None if counter is None else int.from_bytes(os.read(counter, 8), "little")


def _sum(costs: list[Cost]) -> Cost:
    counted = [cost.instructions for cost in costs if cost.instructions is not None]
    return Cost(sum(cost.cpu_s for cost in costs), sum(counted) if len(counted) == len(costs) else None)


def _open_counter(thread_id: int) -> int | None:
    """Count a thread's instructions from now on; None: the machine does not allow it."""
    if PERF_EVENT_OPEN is None:
        return None
    head = struct.pack("<IIQQQQQ", TYPE_HARDWARE, ATTRIBUTES_SIZE, INSTRUCTIONS, 0, 0, 0, USER_MODE_ONLY)
    attributes = ctypes.create_string_buffer(head, ATTRIBUTES_SIZE)
    call = ctypes.CDLL(None, use_errno=True).syscall
    call.restype = ctypes.c_long
    arguments = (ctypes.c_long(value) for value in (thread_id, -1, -1, CLOSE_ON_EXEC))
    opened = int(call(ctypes.c_long(PERF_EVENT_OPEN), attributes, *arguments))
    return opened if opened >= 0 else None
