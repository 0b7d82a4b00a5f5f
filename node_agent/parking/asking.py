"""Asks the driver what is free on GPUs and what their processes hold, in a thread of its own, and never waits long."""

import asyncio
from collections.abc import Collection, Mapping

from orion.node_agent.gpus.asking import AskingThread
from orion.node_agent.gpus.interface import Gpu, GpuSource
from orion.node_agent.parking.gpu_room import GpuRoom
from orion.node_agent.parking.present import Listed

_ANSWER_SECONDS = 0.2
""" A driver that takes longer is not waited for. """


class Asking:
    """What the driver has said.

    Args:
        source: queries the GPUs.
        thread: asks the driver.
    """

    def __init__(self, source: GpuSource, thread: AskingThread) -> None:
        self._source, self._thread = source, thread
        self.listed: Listed = {}
        """ As of the last answer about each GPU. """
        self._asked: dict[str, float] = {}
        self._answered: dict[str, float] = {}
        """ When the driver was last asked about each GPU, and when it was asked before its last answer. """
        self._answer: asyncio.Future[None] | None = None

    async def ask(self, now: float, gpus: Collection[tuple[Gpu, GpuRoom]], moving: Collection[str]) -> None:
        """Ask what is free on GPUs, and on those where it matters what each process holds (`moving`), that too."""
        self._asked |= {gpu.uuid: now for gpu, _ in gpus}
        if self._answer is None or self._answer.done():
            self._answer = asyncio.wrap_future(self._thread.submit(self._answers, list(gpus), set(moving), now))
        await asyncio.wait([self._answer], timeout=_ANSWER_SECONDS)

    def _answers(self, gpus: Collection[tuple[Gpu, GpuRoom]], moving: set[str], now: float) -> None:
        """Run in the asking thread."""
        listed: dict[str, Mapping[int, int | None]] = dict(self.listed)
        for gpu, room in gpus:
            before = found = None
            if gpu.uuid in moving:
                before, found = self._source.memory_free_bytes(gpu), self._source.memory_of_processes(gpu)
            # After the list: what comes in between is then counted twice, and nobody gets room that is taken.
            free = self._source.memory_free_bytes(gpu)
            listed.pop(gpu.uuid, None)
            if found is not None:
                listed[gpu.uuid] = found
            room.answered(free, found, now, before)
        self.listed, self._answered = listed, self._answered | {gpu.uuid: now for gpu, _ in gpus}

    def answered(self, uuids: Collection[str]) -> float:
        """Return when the driver was asked before its last answers about these GPUs, in seconds: the earliest time."""
        return min(self._answered.get(uuid, float("-inf")) for uuid in uuids)

    def is_slow(self, uuids: Collection[str]) -> bool:
        """Return whether the driver has yet to answer the last question about one of these GPUs."""
        return any(self._answered.get(uuid, float("-inf")) < self._asked.get(uuid, float("-inf")) for uuid in uuids)
