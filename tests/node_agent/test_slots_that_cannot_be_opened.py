"""The agent does not advertise a slot whose socket it cannot open (no descriptors are left); it serves the others."""

import contextlib
import os
import socket
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import pytest_asyncio

from orion.hook import layout
from orion.node_agent.agent import Agent
from orion.node_agent.clients import connections
from orion.node_agent.cluster.holders.holders import ClusterHolders
from orion.node_agent.cluster.holders.resolving import ResolvedHolder
from orion.node_agent.slots.holders import Holder
from tests.node_agent.one_gpu import GPU, agent_of_one_gpu


def held_open(folder: Path) -> set[tuple[int, int]]:
    """Return the device and inode numbers of the pages, and of the files in a folder, that this process has open.

    A number of descriptors would not do: pages of earlier tests are closed whenever Python collects them.
    """
    found = set()
    for each in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):
            if os.readlink(each).startswith(("/memfd:", str(folder))):
                status = each.stat()
                found.add((status.st_dev, status.st_ino))
    return found


@pytest_asyncio.fixture
async def agent() -> AsyncIterator[Agent]:
    with agent_of_one_gpu() as made:
        yield made


async def test_a_slot_without_a_socket_keeps_its_directory_and_is_opened_later(agent: Agent) -> None:
    obstacle = agent.root.slot(GPU, "be-12") / "agent.sock"
    obstacle.mkdir(parents=True)
    slots_before = agent.advertising.look().gpus[0].slots
    inode = obstacle.parent.stat().st_ino
    before = held_open(agent.root.slot(GPU, "be-12"))
    for _ in range(3):
        with pytest.raises(OSError, match="directory"):
            agent.slots.open_permanent(GPU, "be-12", layout.Role.BE)
    assert "be-12" not in agent.gpus[GPU].shared_gpu.slots
    assert agent.advertising.look().gpus[0].slots == slots_before
    assert held_open(agent.root.slot(GPU, "be-12")) <= before
    obstacle.rmdir()
    agent.slots.open_permanent(GPU, "be-12", layout.Role.BE)
    assert obstacle.is_socket()
    assert obstacle.parent.stat().st_ino == inode  # a container may have it mounted
    agent.slots.close(GPU, "be-12")


async def test_a_slot_whose_directory_cannot_be_made_keeps_no_descriptor(agent: Agent) -> None:
    obstacle = agent.root.slot(GPU, "be-12")
    obstacle.write_text("")
    before = held_open(obstacle)
    for _ in range(3):
        with pytest.raises(FileExistsError):
            agent.slots.open_permanent(GPU, "be-12", layout.Role.BE)
    assert held_open(obstacle) <= before
    obstacle.unlink()


def test_a_socket_that_cannot_be_made_keeps_no_descriptor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def none_left(*_: object) -> None:
        raise OSError("no descriptors left")

    monkeypatch.setattr("orion.node_agent.clients.connections.socket.socket", none_left)
    before = held_open(tmp_path)
    with pytest.raises(OSError, match="no descriptors"):
        connections.bind(tmp_path, "agent.sock", 0o666, socket.SOCK_SEQPACKET)
    assert held_open(tmp_path) <= before


async def test_grants_are_applied_even_if_opening_slots_fails(agent: Agent, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails() -> None:
        raise KeyError("be-12")

    unused: Any = SimpleNamespace(away="")  # stands for the operator and the kubelet, which the test does not query
    holders = ClusterHolders(agent, unused, unused)
    annotation = '{"format": 1, "priority": "be", "containers": {"main": {"slots": 1, "memoryLimitBytes": 4096}}}'
    holders.identity.holders = {(GPU, "be-0"): ResolvedHolder(Holder("n", "a", "main", "u"), "1", annotation)}
    notified: list[bool] = []
    holders.on_change(lambda: notified.append(True))
    monkeypatch.setattr(agent.advertising, "look", fails)
    holders.start()
    assert agent.gpus[GPU].shared_gpu.slots["be-0"].grant.memory_limit_bytes == 4096
    assert notified == [True]
