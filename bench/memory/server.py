"""An hp server: requests of one kernel each, and a cache that grows while they are served."""

import sys
import threading
import time
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from orion.bench.memory import gpu
from orion.bench.workers import commands
from orion.bench.workload import NoTrace, Trace
from orion.bench.workloads.driver import call

_SWITCH_SECONDS = 50e-6
""" How long a thread may hold the interpreter while another one waits; Python's default is as long as a request. """


class Server:
    """An hp server.

    Args:
        simulated: on the simulated GPU.
        mib: the memory that it holds from the start.
        kernel_ms: how long a request takes.
    """

    unit, amount = "requests", 1.0

    def __init__(self, simulated: bool, mib: int, kernel_ms: float) -> None:
        self.gpu, self._context = gpu.take()
        self.trace: Trace = NoTrace()
        self.details: dict[str, Any] = {"mib": mib, "step_ms": kernel_ms}
        self._launch = gpu.kernel(simulated, kernel_ms)
        self._held = gpu.blocks(mib)
        self._cache: list[int] = []
        sys.setswitchinterval(_SWITCH_SECONDS)
        self.step()

    def step(self) -> None:
        """Serve one request."""
        self._launch(0)
        self.finish()

    def finish(self) -> None:
        """Wait for all queued work."""
        gpu.wait()

    def throughout(self) -> AbstractContextManager[Any]:
        """Return a null context."""
        return nullcontext()

    def grow(self, begin: float, arrivals: list[float], block_mib: int, blocks: int, every: float) -> dict[str, Any]:
        """Serve requests while the cache grows by one block at a time.

        Args:
            begin: CLOCK_MONOTONIC, in seconds.
            arrivals: of requests, in seconds from begin.
            block_mib: size of a block.
            blocks: how many.
            every: seconds between two blocks.

        Returns:
            starts, ends: of the requests. allocations: when each allocation began, how long it took, its CUresult.
        """
        allocations: list[tuple[float, float, int]] = []
        thread = threading.Thread(target=self._grow, args=(begin, block_mib, blocks, every, allocations))
        thread.start()
        reply = commands.serve(self, begin, arrivals, None)
        thread.join()
        return {**reply, "allocations": allocations}

    def _grow(self, begin: float, block_mib: int, blocks: int, every: float, allocations: list[Any]) -> None:
        call("cuCtxSetCurrent", self._context)
        for number in range(blocks):
            time.sleep(max(0.0, begin + number * every - time.monotonic()))
            start = time.monotonic()
            status, address = gpu.allocate(block_mib * gpu.MIB)
            allocations.append((start - begin, time.monotonic() - start, status))
            if status == 0:
                self._cache.append(address)

    def shrink(self) -> dict[str, Any]:
        """Free the cache."""
        for address in self._cache:
            gpu.free(address)
        self._cache.clear()
        return {}
