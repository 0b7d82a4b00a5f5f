"""How much memory of each GPU is in use; a caller never waits long for a driver."""

import asyncio

from orion.node_agent.gpus.asking import AskingThread
from orion.node_agent.gpus.interface import Gpu, GpuSource

_WAIT_SECONDS = 0.2


class MemoryUsage:
    """The last answers of the driver.

    A driver in trouble may not answer for minutes. The last answer stays valid then, and only one thread waits.
    """

    def __init__(self, source: GpuSource) -> None:
        self._source = source
        self._known: dict[str, int] = {}
        self._asking: asyncio.Future[None] | None = None
        self._thread = AskingThread("usage")

    def known(self, gpu: Gpu) -> int:
        """Return the last answer in bytes; 0 before the first."""
        return self._known.get(gpu.uuid, 0)

    async def refresh(self, gpus: list[Gpu]) -> None:
        """Query all these GPUs, and wait a short time for the answers."""
        if self._asking is None or self._asking.done():
            self._asking = asyncio.wrap_future(self._thread.submit(self._ask, gpus))
        await asyncio.wait([self._asking], timeout=_WAIT_SECONDS)

    def close(self) -> None:
        """End the thread; does not wait for a call that is running."""
        self._thread.close()

    def _ask(self, gpus: list[Gpu]) -> None:
        for gpu in gpus:
            self._known[gpu.uuid] = self._source.memory_used_bytes(gpu)
