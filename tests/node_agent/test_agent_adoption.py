"""After an agent ends, the next one takes running clients back with their indexes, grants and policies."""

import contextlib
import json
import os
import subprocess
import sys
import time

import pytest

from orion.hook import join, layout
from orion.node_agent.api import agent_pb2
from orion.node_agent.api.client import AgentClient
from orion.node_agent.processes.liveness import start_time
from tests.node_agent.conftest import GPU, AgentProcess, eventually
from tests.node_agent.protocol_client import ProtocolClient, Refused, current_grant, current_policy
from tests.waiting import DEADLINE


@pytest.mark.parametrize("end", ["kill", "terminate"])
def test_the_next_agent_takes_all_clients_back(agent: AgentProcess, end: str) -> None:
    with contextlib.ExitStack() as stack:
        hp = stack.enter_context(ProtocolClient(agent.slot("hp-0")).join())
        crowd = [stack.enter_context(ProtocolClient(agent.slot("be-3")).join()) for _ in range(40)]
        with AgentClient(agent.root) as administrator:
            administrator.set_policy(GPU, policy="none", window_us=700)
            administrator.set_grant(GPU, "be-3", memory_limit_bytes=1 << 30)
        getattr(agent, end)()
        hp.busy.set(layout.BusyPage, "state", layout.BusyState.BUSY)  # pages work without an agent
        agent.start()
        for client in [hp, *crowd]:
            answer = client.return_to_agent()
            assert (answer.returned, answer.client_index, answer.generation) == (1, *client.key)
        for client in crowd:
            client.receive_until({hp.key})
        policy = current_policy(hp.policy)
        assert (policy.kind, policy.window_ns) == (layout.PolicyKind.NONE, 700_000)
        assert current_grant(crowd[0].grant).memory_limit_bytes == 1 << 30
        with AgentClient(agent.root) as administrator:
            slots = {slot.name: slot for slot in administrator.snapshot().gpus[0].slots}
            assert slots["hp-0"].clients[0].state == "busy"
            assert len(slots["be-3"].clients) == 40
        with ProtocolClient(agent.slot("be-0")).join() as new:
            assert new.key[1] > max(client.key[1] for client in crowd)
            assert new.key[0] not in {client.key[0] for client in [hp, *crowd]}


def test_a_client_killed_between_welcome_and_ready_can_still_return(agent: AgentProcess) -> None:
    with ProtocolClient(agent.slot("hp-0")).join(ready=False) as hp:
        agent.kill()
        agent.start()
        assert hp.return_to_agent().returned == 1
        with ProtocolClient(agent.slot("be-0")).join() as be:
            be.receive_until({hp.key})
        with pytest.raises(PermissionError):
            os.pwrite(hp.busy.fd, b"\xff", 64)


def test_a_client_that_does_not_return_is_removed_and_its_neighbours_notified(agent: AgentProcess) -> None:
    with ProtocolClient(agent.slot("hp-0")).join() as hp, ProtocolClient(agent.slot("be-0")).join() as be:
        be.receive_until({hp.key})
        agent.kill()
        agent.start()
        be.return_to_agent()
        be.sock.settimeout(DEADLINE)
        be.receive_until(set())
        with pytest.raises(Refused) as refusal:
            hp.return_to_agent()
        assert refusal.value.code is join.Refusal.PAGES


def test_a_client_returns_only_to_its_own_slot(agent: AgentProcess) -> None:
    with ProtocolClient(agent.slot("be-0")).join() as client:
        agent.kill()
        agent.start()
        client.directory = agent.slot("be-1")
        with pytest.raises(Refused) as refusal:
            client.return_to_agent()
        assert refusal.value.code is join.Refusal.PAGES
        client.directory = agent.slot("be-0")
        assert client.return_to_agent().returned == 1


def test_a_client_whose_connection_broke_returns_at_once(agent: AgentProcess) -> None:
    with ProtocolClient(agent.slot("hp-0")).join() as hp, ProtocolClient(agent.slot("be-0")).join() as be:
        be.receive_until({hp.key})
        old = hp.sock
        hp.sock = old.dup()
        assert hp.return_to_agent().returned == 1  # while the old connection is still open
        old.close()
        be.sock.settimeout(0.3)
        with pytest.raises(TimeoutError):
            be.receive_message()


@pytest.mark.parametrize("content", [b"", b"{", b'{"version":1}', b"\xff" * 100, b'{"version":1,"boot":"x","gpus":[]}'])
def test_an_unusable_state_file_is_ignored(stopped_agent: AgentProcess, content: bytes) -> None:
    stopped_agent.root.mkdir()
    (stopped_agent.root / "state.json").write_bytes(content)
    stopped_agent.start()
    with ProtocolClient(stopped_agent.slot("be-0")).join() as client:
        assert client.welcome.generation >= 1
    assert json.loads((stopped_agent.root / "state.json").read_text())["version"] == 1


def test_a_client_of_an_agent_that_did_not_save_when_it_started_returns(agent: AgentProcess) -> None:
    with ProtocolClient(agent.slot("be-0")).join() as client:
        agent.kill()
        state = json.loads((agent.root / "state.json").read_text())
        assert state["gpus"][0]["clients"][0].pop("started") == start_time(os.getpid())
        (agent.root / "state.json").write_text(json.dumps(state))
        agent.start()
        assert client.return_to_agent().returned == 1


def test_a_root_has_one_agent(agent: AgentProcess) -> None:
    second = subprocess.run(agent.command(), capture_output=True, text=True, timeout=30)
    assert second.returncode == 1
    assert f"another agent (process {agent.pid}) serves {agent.root}" in second.stderr
    with ProtocolClient(agent.slot("be-0")).join():
        pass


def test_a_slot_ends_with_its_owner_under_the_next_agent_too(agent: AgentProcess) -> None:
    owners = [subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) for _ in range(2)]
    with AgentClient(agent.root) as administrator:
        first, second = (administrator.open_slot(GPU, agent_pb2.BE, owner_process_id=each.pid) for each in owners)
    with ProtocolClient(agent.slot(second.name)).join() as client:
        agent.kill()
        owners[0].communicate()
        agent.start()
        client.return_to_agent()  # the agent waits for it for a limited time
        eventually(lambda: not agent.slot(first.name).exists(), "the slot of the ended owner is closed")
    owners[1].communicate()
    eventually(lambda: not agent.slot(second.name).exists(), "the slot ends with its owner")


def test_a_long_root_works(stopped_agent: AgentProcess) -> None:
    stopped_agent.root = stopped_agent.root / ("long" * 40)
    stopped_agent.start()
    with ProtocolClient(stopped_agent.slot("be-0")).join() as client, AgentClient(stopped_agent.root) as administrator:
        client.receive_message()
        assert administrator.snapshot().agent_process_id == stopped_agent.pid


@pytest.mark.quiet
def test_a_killed_agent_is_replaced_quickly(agent: AgentProcess) -> None:
    agent.kill()
    began = time.monotonic()
    agent.start()
    assert time.monotonic() - began < 10.0  # normally 0.3 to 1 s
