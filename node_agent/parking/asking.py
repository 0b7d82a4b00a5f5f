"""Asks the driver what is free on GPUs and what their processes hold, and never waits long.

Each GPU has a thread of its own: where the driver hangs for one GPU, it still answers about the others.
"""

import asyncio
from collections.abc import Collection, Mapping

from orion.node_agent.clients.client import Client
from orion.node_agent.gpus.asking import AskingThreads
from orion.node_agent.gpus.interface import Gpu, GpuSource
from orion.node_agent.parking.gpu_room import GpuRoom
from orion.node_agent.parking.present import Listed

_ANSWER_SECONDS = 0.2
""" A driver that takes longer is not waited for. """


class Asking:
    """What the driver has said.

    Args:
        source: queries the GPUs.
        threads: ask the driver.
    """

    def __init__(self, source: GpuSource, threads: AskingThreads) -> None:
        self._source, self._threads = source, threads
        self._listed: dict[str, Mapping[int, int | None]] = {}
        self._answered: dict[str, float] = {}
        """ When the driver was asked about each GPU before its last answer. """
        self._answers: dict[str, asyncio.Future[None]] = {}
        """ The answer to the last question about each GPU. """

    @property
    def listed(self) -> Listed:
        """What the processes hold, as of the last answer about each GPU."""
        return self._listed

    async def ask(self, now: float, gpus: Collection[tuple[Gpu, GpuRoom]], moving: Collection[str]) -> None:
        """Ask what is free on GPUs, and on those where it matters what each process holds (`moving`), that too."""
        asked = []
        for gpu, room in gpus:
            uuid = gpu.uuid
            if uuid not in self._answers or self._answers[uuid].done():
                taken = room.question()
                answer = self._threads.of(uuid).submit(self._answer, gpu, room, uuid in moving, now, taken)
                self._answers[uuid] = asyncio.wrap_future(answer)
                asked.append(self._answers[uuid])
        # An answer that is late already is not waited for beside others, which would have to wait with it.
        await asyncio.wait(asked or [self._answers[gpu.uuid] for gpu, _ in gpus], timeout=_ANSWER_SECONDS)

    def _answer(self, gpu: Gpu, room: GpuRoom, is_moving: bool, now: float, taken: Mapping[Client, int]) -> None:
        """Run in the GPU's thread."""
        before = found = None
        if is_moving:
            before, found = self._source.memory_free_bytes(gpu), self._source.memory_of_processes(gpu)
        # After the list: what comes in between is then counted twice, and nobody gets room that is taken.
        free = self._source.memory_free_bytes(gpu)
        room.answered(free, found, now, before, taken)
        if found is None:
            self._listed.pop(gpu.uuid, None)
        else:
            self._listed[gpu.uuid] = found
        self._answered[gpu.uuid] = now

    def answered(self, uuids: Collection[str]) -> float:
        """Return when the driver was asked before its last answers about these GPUs, in seconds: the earliest time."""
        return min(self._answered.get(uuid, float("-inf")) for uuid in uuids)
