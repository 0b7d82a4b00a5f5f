"""Asks the driver what each process holds of each GPU's memory, for the credits of the slots (`clients/credit.py`).

The driver is asked in a thread for each GPU, once a second where a slot has a limit or may be parked, and ten times a
second while a client is young: it makes its contexts and loads its code, hundreds of MiB that its hook does not count.
Others of its slot must not spend them, and the client needs room for them when it comes back. A client also hurries
that waits for what a process held that has just ended. Elsewhere people only look at the answers, so the driver is
asked seldom: an answer takes locks of the driver, for which programs may wait.
If answers about a GPU take much time, the agent asks about it less often, but not less than every ten seconds: one
answer may be late that says nothing about the next one.
"""

import asyncio
import contextlib
import time
from collections.abc import Mapping
from functools import partial

from orion.node_agent.gpus.asking import AskingThreads, Questions
from orion.node_agent.gpus.interface import GpuSource
from orion.node_agent.pacing.tolerating import Tolerating
from orion.node_agent.sharing.served import ServedGpu

_LOOK_SECONDS = 1.0
_LOOK_IN_A_HURRY_SECONDS = 0.1
_SELDOM_SECONDS = 10.0
""" Between two looks at a GPU on which no slot has a limit or may be parked. """
_LOOKING_MAX, _WAITING_MAX = 0.005, 0.05
""" The maximum part of a CPU core that all questions may use, and of the time that those about one GPU may take. """
_HURRIED_MORE = 4.0
""" So many times as much while a client hurries. """
_ANSWER_SECONDS = 0.2
""" A driver that takes longer is not waited for. """

_Held = dict[int, int | None] | None
""" What each process holds, by its id; None: the driver does not say. """


class DriverMemory:
    """The questions about all GPUs of one agent.

    Args:
        source: finds and queries the GPUs.
        gpus: by UUID; more may come later.
        threads: ask the driver, one for each GPU.
    """

    def __init__(self, source: GpuSource, gpus: Mapping[str, ServedGpu], threads: AskingThreads) -> None:
        self._source, self._gpus = source, gpus
        self._pauses: dict[str, float] = {}
        """ How long not to ask about each GPU after a question, in seconds. """
        self._asked: dict[str, float] = {}
        """ When each GPU was asked about last, by UUID; monotonic seconds. """
        self._questions = Questions[tuple[ServedGpu, _Held]]("what processes hold", _ANSWER_SECONDS, threads)
        self._tolerating: dict[str, Tolerating] = {}
        self._woken = asyncio.Event()

    def wake(self) -> None:
        """Look sooner if a client hurries: it has joined, or waits."""
        self._woken.set()

    async def run(self) -> None:
        """Ask until cancelled."""
        tolerating = Tolerating("gpus: what each process holds of their memory")
        while True:
            with tolerating:
                await self.look()
            await self._rest()

    async def _rest(self) -> None:
        """Wait until it is time for the next look, which is earlier if a client hurries meanwhile."""
        began = time.monotonic()
        while True:
            self._woken.clear()
            hurries = any(served.joining.credit.hurries for served in self._gpus.values())
            left = began + (_LOOK_IN_A_HURRY_SECONDS if hurries else _LOOK_SECONDS) - time.monotonic()
            if left <= 0:
                return
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(left):
                    await self._woken.wait()

    async def look(self) -> None:
        """Ask once about each GPU for which it is time. One whose answer fails or does not come keeps back no other."""
        due = {uuid: served for uuid, served in self._gpus.items() if self._is_due(uuid, served)}
        for uuid, served in due.items():
            self._asked[uuid] = time.monotonic()
            served.joining.credit.asks()
        answers = await self._questions.ask({uuid: partial(self._held, served) for uuid, served in due.items()})
        for uuid, (served, held) in answers.items():
            with self._tolerating.setdefault(uuid, Tolerating(f"{uuid}: what each process holds of its memory")):
                if self._gpus.get(uuid) is served:
                    served.joining.credit.answered(held)

    def _is_due(self, uuid: str, served: ServedGpu) -> bool:
        credit = served.joining.credit
        if self._questions.is_open(uuid) or not credit.has_clients:
            return False
        pause = self._pauses.get(uuid, 0.0) / (_HURRIED_MORE if credit.hurries else 1.0)
        least = 0.0 if credit.hurries else _LOOK_SECONDS if credit.needs_driver else _SELDOM_SECONDS
        return time.monotonic() - self._asked.get(uuid, float("-inf")) >= max(pause, least)

    def _held(self, served: ServedGpu) -> tuple[ServedGpu, _Held]:
        """Run in the GPU's thread."""
        gpu, before, began = served.shared_gpu.gpu, time.thread_time(), time.monotonic()
        answer = self._source.memory_of_processes(gpu)
        used, took = time.thread_time() - before, time.monotonic() - began
        pause = max(used * len(self._gpus) / _LOOKING_MAX, took / _WAITING_MAX)
        self._pauses[gpu.uuid] = min(pause, _SELDOM_SECONDS)
        return served, answer
