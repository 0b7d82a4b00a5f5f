"""Asks the driver what each process holds of each GPU's memory, for the credits of the slots (`clients/credit.py`).

The driver is asked in a thread of its own, once a second where a slot has a limit or may be parked, and ten times a
second while a client is young: it makes its contexts and loads its code, hundreds of MiB that its hook does not count.
Others of its slot must not spend them, and the client needs room for them when it comes back. Elsewhere people only
look at the answers, so the driver is asked seldom: an answer takes locks of the driver, for which programs may wait.
If answers take much time, the agent asks less often.
"""

import asyncio
import contextlib
import time
from collections.abc import Mapping

from orion.node_agent.gpus.asking import AskingThread
from orion.node_agent.gpus.interface import Gpu, GpuSource
from orion.node_agent.pacing.tolerating import Tolerating
from orion.node_agent.sharing.served import ServedGpu

_LOOK_SECONDS = 1.0
_LOOK_AT_YOUNG_SECONDS = 0.1
_SELDOM_SECONDS = 10.0
""" Between two looks at a GPU on which no slot has a limit or may be parked. """
_LOOKING_MAX, _WAITING_MAX = 0.005, 0.05
""" The maximum part of a CPU core that the questions may use, and of the time that they may take. """
_YOUNG_MORE = 4.0
""" So many times as much while a client is young. """


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
        self._woken = asyncio.Event()

    def wake(self) -> None:
        """Look sooner if a client is young: clients have joined."""
        self._woken.set()

    async def run(self) -> None:
        """Ask until cancelled."""
        tolerating = Tolerating("gpus: what each process holds of their memory")
        while True:
            with tolerating:
                await self.look()
            await self._rest()

    async def _rest(self) -> None:
        """Wait until it is time for the next look, which is earlier if a client joins meanwhile."""
        began = time.monotonic()
        while True:
            self._woken.clear()
            young = any(served.joining.credit.has_young for served in self._gpus.values())
            shortest, part = (_LOOK_AT_YOUNG_SECONDS, _YOUNG_MORE) if young else (_LOOK_SECONDS, 1.0)
            left = began + max(shortest, self._pause_seconds / part) - time.monotonic()
            if left <= 0:
                return
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(left):
                    await self._woken.wait()

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
        return credit.has_clients and (credit.needs_driver or seldom)

    def _ask(self, gpus: list[Gpu]) -> list[dict[int, int | None] | None]:
        before, began = time.thread_time(), time.monotonic()
        answers = [self._source.memory_of_processes(gpu) for gpu in gpus]
        used, took = time.thread_time() - before, time.monotonic() - began
        self._pause_seconds = max(used / _LOOKING_MAX, took / _WAITING_MAX)
        return answers
