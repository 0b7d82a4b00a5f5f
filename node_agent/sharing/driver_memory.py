"""Asks the driver what each process holds of each GPU's memory, for the credits of the slots (`clients/credit.py`).

The driver is asked in a thread of its own, once a second where a slot has a limit. Elsewhere people only look at the
answers, so it is asked seldom: an answer takes locks of the driver, for which programs may wait. If answers take much
time, the agent asks less often.
"""

import asyncio
import time
from collections.abc import Mapping

from orion.node_agent.gpus.asking import AskingThread
from orion.node_agent.gpus.interface import Gpu, GpuSource
from orion.node_agent.pacing.tolerating import Tolerating
from orion.node_agent.sharing.served import ServedGpu

_LOOK_SECONDS = 1.0
_SELDOM_SECONDS = 10.0
""" Between two looks at a GPU on which no slot has a limit. """
_LOOKING_MAX, _WAITING_MAX = 0.005, 0.05
""" The maximum part of a CPU core that the questions may use, and of the time that they may take. """


class DriverMemory:
    """The questions about all GPUs of one agent.

    Args:
        source: finds and queries the GPUs.
        gpus: by UUID; more may come later.
        thread: asks the driver.
    """

    def __init__(self, source: GpuSource, gpus: Mapping[str, ServedGpu], thread: AskingThread) -> None:
        self._source, self._gpus = source, gpus
        self._pause_seconds = 0.0
        self._asked: dict[str, float] = {}
        """ When each GPU was asked about last, by UUID; monotonic seconds. """
        self._thread = thread

    async def run(self) -> None:
        """Ask until cancelled."""
        tolerating = Tolerating("gpus: what each process holds of their memory")
        while True:
            with tolerating:
                await self.look()
            await asyncio.sleep(max(_LOOK_SECONDS, self._pause_seconds))

    async def look(self) -> None:
        """Ask once about each GPU for which it is time. A driver that hangs blocks only this call."""
        asked = [served for uuid, served in self._gpus.items() if self._is_due(uuid, served)]
        if not asked:
            return
        self._asked |= {served.shared_gpu.gpu.uuid: time.monotonic() for served in asked}
        for served in asked:
            served.joining.credit.asks()
        gpus = [served.shared_gpu.gpu for served in asked]
        answers = await asyncio.wrap_future(self._thread.submit(self._ask, gpus))
        for served, answer in zip(asked, answers, strict=True):
            if self._gpus.get(served.shared_gpu.gpu.uuid) is served:
                served.joining.credit.answered(answer)

    def _is_due(self, uuid: str, served: ServedGpu) -> bool:
        credit = served.joining.credit
        seldom = time.monotonic() - self._asked.get(uuid, float("-inf")) >= _SELDOM_SECONDS
        return credit.has_clients and (credit.has_limits or seldom)

    def _ask(self, gpus: list[Gpu]) -> list[dict[int, int | None] | None]:
        before, began = time.thread_time(), time.monotonic()
        answers = [self._source.memory_of_processes(gpu) for gpu in gpus]
        used, took = time.thread_time() - before, time.monotonic() - began
        self._pause_seconds = max(used / _LOOKING_MAX, took / _WAITING_MAX)
        return answers
