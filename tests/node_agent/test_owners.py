"""The agent reports the end of a process that owns a slot, and only the end."""

import asyncio
import errno
import os
import subprocess
from typing import Any

import pytest

from orion.node_agent.processes.liveness import Owner
from orion.node_agent.slots import owners
from tests.waiting import eventually_async


async def test_without_a_descriptor_an_owner_lives_on_and_its_end_is_seen_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ended: list[object] = []
    opened = os.pidfd_open
    asked: list[int] = []

    def none_left(process_id: int) -> int:
        asked.append(process_id)
        if len(asked) < 3:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        return opened(process_id)

    monkeypatch.setattr(os, "pidfd_open", none_left)
    monkeypatch.setattr(owners, "_AGAIN_SECONDS", 0.001)
    slot: Any = type("Slot", (), {"owner": None, "sharers": ()})()
    watched = owners.Owners(ended.append)
    with subprocess.Popen(["sleep", "600"]) as process:
        watched.set(slot, Owner.of(process.pid))
        await eventually_async(lambda: len(asked) == 3, "a descriptor is there")
        await asyncio.sleep(0)
        assert ended == []
        process.kill()
    await eventually_async(lambda: ended == [slot], "the end is reported")
    watched.close()


async def test_an_owner_that_the_loop_cannot_wait_for_yet_lives_on_and_its_end_is_seen_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ended: list[object] = []
    loop = asyncio.get_running_loop()
    waits_for, refused = loop.add_reader, list[int]()

    def none_left(pidfd: int, *arguments: Any) -> None:
        if len(refused) < 2:
            refused.append(pidfd)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        waits_for(pidfd, *arguments)

    monkeypatch.setattr(loop, "add_reader", none_left)
    monkeypatch.setattr(owners, "_AGAIN_SECONDS", 0.001)
    slot: Any = type("Slot", (), {"owner": None, "sharers": ()})()
    watched = owners.Owners(ended.append)
    with subprocess.Popen(["sleep", "5"]) as process:
        watched.set(slot, Owner.of(process.pid))
        with pytest.raises(OSError, match="descriptor"):
            os.fstat(refused[0])
        await eventually_async(lambda: len(refused) == 2, "it is tried again")
        assert ended == []
        process.kill()
    await eventually_async(lambda: ended == [slot], "the end is reported")
    watched.close()
