"""A be trainer that holds memory, whose contents depend on each of its steps and on nothing else."""

import ctypes
import hashlib
import time
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from orion.bench.memory import gpu
from orion.bench.workload import NoTrace, Trace
from orion.bench.workloads.driver import call

_PAGE = 4096
_START_SECONDS = 1.0
""" Between the first use of the GPU and the first large allocation; a framework takes as long to load its code. """
_PATIENCE_SECONDS = 10.0
""" On a busy machine the first allocation may come before the agent has asked a new trainer to wait for room. """
_FACTOR = 2654435761  # an odd number of 32 bits, so that each step writes another word


class Trainer:
    """A step launches kernels, each of which works on one block of the memory, and changes one page.

    The first page of each MiB has contents. All of the memory would be more than a machine with a simulated GPU has.

    Args:
        simulated: on the simulated GPU.
        mib: the memory that it holds.
        kernels: of a step.
        kernel_ms: how long each takes.
        managed: its memory is managed memory.
    """

    unit, amount = "steps", 1.0

    def __init__(self, simulated: bool, mib: int, kernels: int, kernel_ms: float, managed: bool = False) -> None:
        self.gpu, _ = gpu.take()
        self.trace: Trace = NoTrace()
        self.details: dict[str, Any] = {"mib": mib, "step_ms": kernels * kernel_ms}
        self._launch, self._kernels = gpu.kernel(simulated, kernel_ms), range(kernels)
        time.sleep(_START_SECONDS)
        self._launch(0)
        self.finish()
        blocks = gpu.blocks(mib, _PATIENCE_SECONDS, managed)
        self._blocks = [address for address, _ in blocks]
        self._pages = [address + number * gpu.MIB for address, size in blocks for number in range(size)]
        for number, page in enumerate(self._pages):
            self._fill(page, number)
        self._steps = 0
        self.finish()

    def step(self) -> None:
        """Launch the kernels, change a page, wait."""
        for number in self._kernels:
            self._launch(self._blocks[number % len(self._blocks)])
        self._steps += 1
        self._fill(self._pages[self._steps % len(self._pages)], self._steps * _FACTOR)
        self.finish()

    def finish(self) -> None:
        """Wait for all queued work."""
        gpu.wait()

    def throughout(self) -> AbstractContextManager[Any]:
        """Return a null context."""
        return nullcontext()

    def digest(self) -> str:
        """Return a hash of all contents."""
        found, page = hashlib.sha256(), ctypes.create_string_buffer(_PAGE)
        for address in self._pages:
            call("cuMemcpyDtoH_v2", page, ctypes.c_uint64(address), ctypes.c_size_t(_PAGE))
            found.update(page.raw)
        return found.hexdigest()

    def _fill(self, page: int, word: int) -> None:
        words = ctypes.c_size_t(_PAGE // 4)
        call("cuMemsetD32Async", ctypes.c_uint64(page), ctypes.c_uint(word & 0xFFFFFFFF), words, ctypes.c_void_p(0))
