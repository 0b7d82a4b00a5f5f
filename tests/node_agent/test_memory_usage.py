"""How much memory is in use, as `MemoryUsage` asks the driver."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from orion.node_agent.gpus import usage as module
from orion.node_agent.gpus.usage import MemoryUsage
from tests.node_agent.asking_thread import Thread

GPU: Any = SimpleNamespace(uuid="GPU-1")


def test_a_driver_that_hangs_costs_no_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_WAIT_SECONDS", 0.001)
    source: Any = SimpleNamespace(memory_used_bytes=lambda gpu: 5)
    usage, thread = MemoryUsage(source), Thread()
    usage.close()
    monkeypatch.setattr(usage._questions, "_threads", SimpleNamespace(of=lambda uuid: thread))

    async def run() -> None:
        await usage.refresh([GPU])
        assert usage.known(GPU) == 5
        thread.hangs = True
        for _ in range(20):
            await usage.refresh([GPU])
        assert usage.known(GPU) == 5, "the last answer stays valid"

    asyncio.run(run())
    assert [answer.waiting for answer in thread.answers] == [1, 1]
