"""Asks the driver what each process holds of each GPU's memory, for the credits of the slots (`clients/credit.py`).

The driver is asked in a thread of its own, once a second. If its answers cost more CPU time than that allows, the agent
asks less often.
"""

import asyncio
import time
from collections.abc import Mapping

from orion.node_agent.gpus.asking import AskingThread
from orion.node_agent.gpus.interface import Gpu, GpuSource
from orion.node_agent.pacing.tolerating import Tolerating
from orion.node_agent.sharing.served import ServedGpu

_LOOK_SECONDS = 1.0
_LOOKING_MAX = 0.005
""" The maximum part of a CPU core that the questions may use. """


class DriverMemory:
    """The questions about all GPUs of one agent.

    Args:
        source: finds and queries the GPUs.
        gpus: by UUID; more may come later.
    """

    def __init__(self, source: GpuSource, gpus: Mapping[str, ServedGpu]) -> None:
        self._source, self._gpus = source, gpus
        self._cost_seconds = 0.0
        self._thread = AskingThread("memory")

    async def run(self) -> None:
        """Ask until cancelled."""
        tolerating = Tolerating("gpus: what each process holds of their memory")
        while True:
            with tolerating:
                await self.look()
            await asyncio.sleep(max(_LOOK_SECONDS, self._cost_seconds / _LOOKING_MAX))

    async def look(self) -> None:
        """Ask once about each GPU that has clients. A driver that hangs blocks only this call."""
        asked = [served for served in self._gpus.values() if served.joining.credit.has_clients]
        if not asked:
            return
        for served in asked:
            served.joining.credit.asks()
        gpus = [served.shared_gpu.gpu for served in asked]
        answers = await asyncio.wrap_future(self._thread.submit(self._ask, gpus))
        for served, answer in zip(asked, answers, strict=True):
            if self._gpus.get(served.shared_gpu.gpu.uuid) is served:
                served.joining.credit.answered(answer)

    def close(self) -> None:
        """End the thread; does not wait for a call that is running."""
        self._thread.close()

    def _ask(self, gpus: list[Gpu]) -> list[dict[int, int | None] | None]:
        before = time.thread_time()
        answers = [self._source.memory_of_processes(gpu) for gpu in gpus]
        self._cost_seconds = time.thread_time() - before
        return answers
