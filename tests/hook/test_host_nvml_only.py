"""A process that uses NVML only, as nvidia-smi does, sees the grant and is no client."""

import os
import signal
import socket
import time
from collections.abc import Callable

import pytest

from orion.hook import join, layout
from tests.hook.fake_agent import FakeAgent, page
from tests.hook.harness import Machine
from tests.hook.monitor import GPU, LIMIT, MIB, Start, client, ways
from tests.hook.scripted_client import eventually


def clients(machine: Machine) -> list[int]:
    return [shown.process_id for slot in machine.gpu().slots for shown in slot.clients]


def test_a_process_that_uses_nvml_only_sees_the_grant_and_is_no_client(limited: Machine, start: Start) -> None:
    monitor, other = start("be-0"), limited.start("be-0")
    assert monitor.memory() == (LIMIT, 0, LIMIT)
    other.must(f"alloc {200 * MIB}")
    eventually(lambda: monitor.memory() == (LIMIT, 200 * MIB, LIMIT - 200 * MIB), "the slot's sum is shown")
    assert [pid for pid, _ in monitor.do("look")["processes"]] == [other.pid]
    assert clients(limited) == [other.pid]
    assert monitor.said == []


def test_threads_and_forked_children_of_a_monitor_see_the_grant(limited: Machine, start: Start) -> None:
    monitor = start("be-0")
    assert monitor.do("crowd 16") == [LIMIT] * 16
    assert monitor.do("fork") == LIMIT
    assert client(start).do("fork") == LIMIT
    assert len(clients(limited)) == 1


def test_a_monitor_becomes_a_client_when_it_uses_cuda(limited: Machine, start: Start) -> None:
    monitor = start("be-0")
    assert monitor.memory() == (LIMIT, 0, LIMIT)
    monitor.do("context")
    monitor.do(f"allocate {100 * MIB}")
    assert monitor.memory() == (LIMIT, 100 * MIB, LIMIT - 100 * MIB)
    eventually(lambda: clients(limited) == [monitor.process.pid], "it is a client")


def test_a_monitor_sees_changes_and_the_next_agent(limited: Machine, start: Start) -> None:
    monitor = start("be-0")
    assert monitor.memory()[0] == LIMIT
    limited.agent.set_grant(limited.uuids[0], "be-0", memory_limit_bytes=0)
    eventually(lambda: monitor.memory()[0] == GPU, "the GPU's memory is shown")
    limited.agent.set_grant(limited.uuids[0], "be-0", memory_limit_bytes=LIMIT)
    eventually(lambda: monitor.memory()[0] == LIMIT, "the limit is shown")
    limited.kill_agent()
    assert monitor.memory()[0] == LIMIT
    limited.start_agent()
    limited.agent.set_grant(limited.uuids[0], "be-0", memory_limit_bytes=LIMIT // 2)
    eventually(lambda: monitor.memory()[0] == LIMIT // 2, "the next agent's limit is shown")


def test_a_monitor_without_an_agent_sees_the_gpu_and_the_limit_later(bare_machine: Machine, start: Start) -> None:
    monitor = start("be-0")
    assert monitor.memory() == (GPU, 0, GPU)
    bare_machine.start_agent()
    bare_machine.agent.set_grant(bare_machine.uuids[0], "be-0", memory_limit_bytes=LIMIT)
    eventually(lambda: monitor.memory()[0] == LIMIT, "the limit is shown")
    assert monitor.said == []


def test_a_monitor_without_a_slot_on_the_gpu_sees_the_gpu(limited: Machine, start: Start) -> None:
    root = limited.folder / "empty"
    root.mkdir()
    assert {total for total, _, _ in ways(limited, root).values()} == {GPU}


@pytest.mark.quiet
def test_a_silent_agent_delays_a_monitor_once_in_a_second(limited: Machine, start: Start) -> None:
    limited.start("be-0").must(f"alloc {200 * MIB}")
    os.kill(limited.agent_pid, signal.SIGSTOP)
    monitor, began = start("be-0"), time.monotonic()
    assert monitor.memory() == (LIMIT, 0, LIMIT)  # only an agent knows what others hold
    assert time.monotonic() - began < 15
    for _ in range(10):
        began = time.monotonic()
        monitor.memory()
        assert time.monotonic() - began < 2.5
    os.kill(limited.agent_pid, signal.SIGCONT)
    eventually(lambda: monitor.memory() == (LIMIT, 200 * MIB, LIMIT - 200 * MIB), "the slot's sum is shown")


def _shows(machine: Machine, **wrong: int) -> Callable[[socket.socket], None]:
    """Answer with a page that has a limit, and what is wrong with it."""
    limit = layout.offset(layout.GrantPage, "copy") + layout.offset(layout.Grant, "memory_limit_bytes")

    def serve(connection: socket.socket) -> None:
        connection.recv(join.MESSAGE_MAX)
        shown = join.Shown(join.Message(join.MESSAGE_MAGIC, join.MessageType.SHOWN))
        granted = page(machine, layout.PageKind.GRANT, **wrong)
        if "size" not in wrong:
            os.pwrite(granted, LIMIT.to_bytes(8, "little"), limit)
        socket.send_fds(connection, [bytes(shown)], [granted])

    return serve


def _monitor_of(machine: Machine, start: Start, serve: Callable[[socket.socket], None]) -> tuple[int, int, int]:
    """Return what a monitor sees whose agent answers like this."""
    folder = machine.root / "gpus" / machine.uuids[0] / "be-0"
    folder.mkdir(parents=True)
    agent = FakeAgent(folder, serve)
    seen = start("be-0").memory()
    assert agent.connections == 1
    agent.close()
    return seen


def test_a_monitor_asks_with_one_message(bare_machine: Machine, start: Start) -> None:
    assert _monitor_of(bare_machine, start, _shows(bare_machine)) == (LIMIT, 0, LIMIT)


@pytest.mark.parametrize(
    "wrong",
    [
        {"kind": layout.PageKind.POLICY},
        {"seals": 0},
        {"gpu": 1},
        {"size": 100},
        {"layout": layout.LAYOUT_NEWEST + 2},
    ],
    ids=["another kind", "not sealed", "another GPU", "too small", "another layout"],
)
def test_a_monitor_ignores_a_page_that_is_no_grant(bare_machine: Machine, start: Start, wrong: dict[str, int]) -> None:
    assert _monitor_of(bare_machine, start, _shows(bare_machine, **wrong)) == (GPU, 0, GPU)


def test_an_earlier_agent_ends_the_connection_and_a_monitor_sees_the_gpu(bare_machine: Machine, start: Start) -> None:
    assert _monitor_of(bare_machine, start, lambda connection: connection.close()) == (GPU, 0, GPU)


def test_every_way_leads_a_monitor_to_the_hook(limited: Machine) -> None:
    assert set(map(tuple, ways(limited, limited.client_root("be-0")).values())) == {(LIMIT, 0, LIMIT)}
