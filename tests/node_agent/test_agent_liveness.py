"""Clients that die, stop and continue."""

import contextlib
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from orion.hook import layout
from orion.node_agent.api.client import AgentClient
from orion.node_agent.processes import liveness
from tests.node_agent.conftest import GPU, AgentProcess, eventually
from tests.node_agent.protocol_client import ProtocolClient

CHILD = """
    import sys
    sys.path.insert(0, sys.argv[1])
    from pathlib import Path
    from tests.node_agent.protocol_client import ProtocolClient
    client = ProtocolClient(Path(sys.argv[2])).join()
    print(*client.key, flush=True)
    input()
"""


@contextlib.contextmanager
def other_process(directory: Path) -> Iterator[tuple[subprocess.Popen[str], tuple[int, int]]]:
    command = [sys.executable, "-c", textwrap.dedent(CHILD), str(Path(__file__).parents[2]), str(directory)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        place, generation = map(int, process.stdout.readline().split())
        try:
            yield process, (place, generation)
        finally:
            process.kill()


@pytest.mark.quiet
def test_a_killed_client_is_removed_at_once(agent: AgentProcess) -> None:
    with ProtocolClient(agent.slot("be-0")).join() as be, other_process(agent.slot("hp-0")) as (hp, key):
        be.receive_until({key})
        began = time.monotonic()
        hp.kill()
        be.receive_until(set())
        assert time.monotonic() - began < 1.0  # normally 25 ms


def test_the_robust_futex_shows_a_death_if_the_socket_stays_open(agent: AgentProcess) -> None:
    with ProtocolClient(agent.slot("be-0")).join() as be, ProtocolClient(agent.slot("hp-0")).join() as hp:
        be.receive_until({hp.key})
        hp.busy.set(layout.BusyPage, "alive", layout.FUTEX_OWNER_DIED | 0x8000_0000 | os.getpid())
        be.receive_until(set())
        assert hp.sock.recv(1) == b""


def test_a_stopped_hp_client_is_marked_until_it_continues(agent: AgentProcess) -> None:
    with ProtocolClient(agent.slot("be-0")).join() as be, other_process(agent.slot("hp-0")) as (hp, key):
        be.receive_until({key})

        def mark() -> int:
            at = layout.offset(layout.PolicyPage, "stopped") + 4 * key[0]
            return int.from_bytes(be.policy.memory[at : at + 4], "little")

        be.suspect(key)
        assert mark() == 0  # an idle or slow client is not stopped
        hp.send_signal(signal.SIGSTOP)
        eventually(lambda: liveness.is_stopped(hp.pid), "the process is stopped")
        be.suspect((key[0], key[1] + 1))
        assert mark() == 0
        be.suspect(key)
        assert mark() == key[1]
        with AgentClient(agent.root) as administrator:
            slots = {slot.name: slot for slot in administrator.snapshot().gpus[0].slots}
            assert slots["hp-0"].clients[0].state == "stopped"
            assert slots["hp-0"].clients[0].process_id == hp.pid
        hp.send_signal(signal.SIGCONT)
        eventually(lambda: mark() == 0, "the mark goes when the process continues")
        hp.send_signal(signal.SIGSTOP)
        eventually(lambda: liveness.is_stopped(hp.pid), "the process is stopped again")
        be.suspect(key)
        assert mark() == key[1]
        hp.kill()
        be.receive_until(set())
        assert mark() == 0


def test_preparing_a_slot_removes_its_clients(agent: AgentProcess) -> None:
    with ProtocolClient(agent.slot("hp-0")).join() as old, ProtocolClient(agent.slot("be-0")).join() as be:
        be.receive_until({old.key})
        with AgentClient(agent.root) as administrator:
            administrator.set_grant(GPU, "hp-0", memory_limit_bytes=1)
            slot = administrator.prepare_slot(GPU, "hp-0").slot
        assert (slot.memory_limit_bytes, len(slot.clients)) == (0, 0)
        assert old.sock.recv(1) == b""
        be.receive_until(set())


def test_processes_that_do_not_exist_are_not_stopped() -> None:
    assert not liveness.is_stopped(0)
    assert not liveness.is_stopped(-1)
    assert not liveness.is_stopped(2**22 + 1)
    assert liveness.start_time(2**22 + 1) is None
    assert not liveness.is_stopped(os.getpid())
