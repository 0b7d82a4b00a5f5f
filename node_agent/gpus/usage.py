"""How much memory of each GPU is in use; a caller never waits long for a driver."""

from functools import partial

from orion.node_agent.gpus.asking import Questions
from orion.node_agent.gpus.interface import Gpu, GpuSource

_WAIT_SECONDS = 0.2


class MemoryUsage:
    """The last answers of the driver.

    A driver in trouble may not answer about a GPU for minutes. The last answer stays valid then, and only one thread
    waits.
    """

    def __init__(self, source: GpuSource) -> None:
        self._source = source
        self._known: dict[str, int] = {}
        self._questions = Questions[int]("used memory", _WAIT_SECONDS)

    def known(self, gpu: Gpu) -> int:
        """Return the last answer in bytes; 0 before the first."""
        return self._known.get(gpu.uuid, 0)

    async def refresh(self, gpus: list[Gpu]) -> None:
        """Query all these GPUs, and wait a short time for the answers."""
        self._known |= await self._questions.ask(
            {gpu.uuid: partial(self._source.memory_used_bytes, gpu) for gpu in gpus}
        )

    def close(self) -> None:
        """End the threads; does not wait for a call that is running."""
        self._questions.close()
