"""The driver is asked often what processes hold while a client is young, and seldom otherwise."""

import asyncio
import contextlib
import threading
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from orion.node_agent.clients.credit import Credit
from orion.node_agent.gpus.asking import AskingThreads
from orion.node_agent.sharing import driver_memory
from orion.node_agent.sharing.driver_memory import DriverMemory
from orion.node_agent.slots.memory_sharing import MemorySharing
from tests.waiting import DEADLINE

GPU = "GPU-1"


class Source:
    """In place of the driver."""

    def __init__(self) -> None:
        self.asked = 0

    def memory_of_processes(self, gpu: object) -> dict[int, int | None]:
        self.asked += 1
        return {}


def gpu(uuid: str) -> tuple[Any, Any]:
    """Return the credit of a GPU, and the GPU."""
    answers: list[object] = []
    credit = SimpleNamespace(
        has_clients=True,
        needs_driver=True,
        hurries=False,
        asks=lambda: None,
        answered=answers.append,
        answers=answers,
    )
    shared_gpu = SimpleNamespace(gpu=SimpleNamespace(uuid=uuid))
    return credit, SimpleNamespace(shared_gpu=shared_gpu, joining=SimpleNamespace(credit=credit))


def test_a_client_that_joins_is_looked_at_at_once_and_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver_memory, "_LOOK_SECONDS", 1e6)
    monkeypatch.setattr(driver_memory, "_LOOK_IN_A_HURRY_SECONDS", 0.001)
    monkeypatch.setattr(driver_memory, "_LOOKING_MAX", 1.0)
    credit, served = gpu(GPU)
    source: Any = Source()

    async def run() -> None:
        memory = DriverMemory(source, {GPU: served}, AskingThreads("a test asks"))
        running = asyncio.create_task(memory.run())

        async def until(count: int) -> None:
            async with asyncio.timeout(20):
                while source.asked < count:
                    await asyncio.sleep(0)

        await until(1)
        credit.hurries = True
        memory.wake()
        await until(5)
        running.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await running

    asyncio.run(run())


def test_a_driver_that_hangs_for_one_gpu_still_answers_about_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver_memory, "_ANSWER_SECONDS", 0.05)
    monkeypatch.setattr(driver_memory, "_LOOKING_MAX", 1e6)
    monkeypatch.setattr(driver_memory, "_WAITING_MAX", 1e6)
    monkeypatch.setattr(driver_memory, "_LOOK_SECONDS", 0.0)
    (hanging, first), (healthy, second) = gpu("GPU-0"), gpu(GPU)
    answers = threading.Event()

    def memory_of_processes(about: Any) -> dict[int, int | None]:
        if about.uuid != GPU:
            assert answers.wait(DEADLINE)
        return {}

    source: Any = SimpleNamespace(memory_of_processes=memory_of_processes)

    async def until(enough: Callable[[], bool]) -> None:
        async with asyncio.timeout(DEADLINE):
            while not enough():
                await memory.look()
                await asyncio.sleep(0)

    memory = DriverMemory(source, {"GPU-0": first, GPU: second}, AskingThreads("a test asks"))

    async def run() -> None:
        await until(lambda: len(healthy.answers) == 3)
        assert not hanging.answers
        answers.set()
        await until(lambda: bool(hanging.answers))

    asyncio.run(run())


async def test_an_answer_that_one_gpu_cannot_take_is_lost_to_no_other(caplog: pytest.LogCaptureFixture) -> None:
    gpus = {f"GPU-{number}": gpu(f"GPU-{number}") for number in range(3)}

    def fails(held: object) -> None:
        raise RuntimeError("broken")

    for credit, _ in gpus.values():
        credit.hurries = True
    gpus["GPU-0"][0].answered = fails
    source: Any = Source()
    memory = DriverMemory(source, {uuid: served for uuid, (_, served) in gpus.items()}, AskingThreads("a test asks"))
    async with asyncio.timeout(DEADLINE):
        while not all(gpus[uuid][0].answers for uuid in ("GPU-1", "GPU-2")):
            memory._pauses.clear()
            await memory.look()
    logged = {record.message for record in caplog.records if record.exc_info}
    assert logged == {"GPU-0: what each process holds of its memory failed; the agent tries again"}


def test_a_client_that_hurries_on_one_gpu_lets_nobody_ask_more_often_about_another(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = 0.0
    clock = SimpleNamespace(monotonic=lambda: now, thread_time=lambda: 0.0)
    monkeypatch.setattr(driver_memory, "time", clock)
    (hurried, first), (calm, second) = gpu("GPU-0"), gpu(GPU)
    hurried.hurries = True
    memory = DriverMemory(Source(), {"GPU-0": first, GPU: second}, AskingThreads("a test asks"))  # type: ignore[arg-type]

    async def run() -> None:
        nonlocal now
        for _ in range(21):
            await memory.look()
            now += 0.125

    asyncio.run(run())
    assert (len(hurried.answers), len(calm.answers)) == (21, 3)


def test_an_answer_that_is_late_once_does_not_end_the_questions(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0

    def memory_of_processes(about: object) -> dict[int, int | None]:
        nonlocal now
        now += 600 if not credit.answers else 0
        return {}

    clock = SimpleNamespace(monotonic=lambda: now, thread_time=lambda: 0.0)
    monkeypatch.setattr(driver_memory, "time", clock)
    credit, served = gpu(GPU)
    source: Any = SimpleNamespace(memory_of_processes=memory_of_processes)
    memory = DriverMemory(source, {GPU: served}, AskingThreads("a test asks"))

    async def run() -> None:
        nonlocal now
        for seconds in (0, 10):
            now += seconds
            await memory.look()

    asyncio.run(run())
    assert len(credit.answers) == 2


@pytest.mark.parametrize(("limit", "parks"), [(0, False), (1, False), (0, True)])
def test_the_driver_matters_soon_where_a_slot_has_a_limit_or_parks(limit: int, parks: bool) -> None:
    slot = SimpleNamespace(grant=SimpleNamespace(memory_limit_bytes=limit), memory_sharing=MemorySharing(parks=parks))
    client = SimpleNamespace(slot=slot, joined_ns=time.monotonic_ns())
    shared_gpu: Any = SimpleNamespace(slots={"be-0": slot}, clients={0: client})
    credit = Credit(shared_gpu)
    assert (credit.needs_driver, credit.hurries) == (bool(limit) or parks,) * 2
