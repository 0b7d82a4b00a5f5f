"""Makes threads of one process clients: several models share a GPU in one program, and one of them has priority.

    import orion.inprocess

    with orion.inprocess.Scheduler(clients=["be", "hp"], max_slowdown=1.3) as scheduler:

        def serve():
            with scheduler.client(1):
                ...  # unchanged CUDA code: torch, or anything else that uses the driver

Each client has its own stream, which replaces the default stream in the client's threads. A launch of a best-effort
client waits in its own thread while a high-priority client has work. No other thread waits. The hook must be preloaded
(`orion launch`, or ``LD_PRELOAD``). See docs/threads.md.

    scheduler       the scheduler, its clients, and the figures of each client
    entry_points    the hook's C functions (hook/include/orion/inprocess.h) through ctypes

The package imports only the standard library. It uses torch if the program has imported torch.
"""

from orion.inprocess.entry_points import SchedulerError
from orion.inprocess.scheduler import Client, Figures, Scheduler

__all__ = ["Client", "Figures", "Scheduler", "SchedulerError"]
