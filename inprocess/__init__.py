"""Clients as threads of one process: several models share a GPU inside one program, one of them with priority.

    import orion.inprocess

    with orion.inprocess.Scheduler(clients=["be", "hp"], max_slowdown=1.3) as scheduler:

        def serve():
            with scheduler.client(1):
                ...  # CUDA as ever: torch, or anything else that uses the driver

Each client has a stream of its own, which stands for the default stream in its threads; launches of a best-effort
client wait in their own thread while a high-priority one has work, and nothing waits for anything else. The hook has to
be preloaded (`orion launch`, or ``LD_PRELOAD``); docs/threads.md has the rest.

    scheduler       Scheduler, its clients, what they did
    entry_points    the hook's C functions (hook/include/orion/inprocess.h) through ctypes

The standard library is all that is imported; torch is used where the program has imported it.
"""

from orion.inprocess.entry_points import SchedulerError
from orion.inprocess.scheduler import Client, Figures, Scheduler

__all__ = ["Client", "Figures", "Scheduler", "SchedulerError"]
