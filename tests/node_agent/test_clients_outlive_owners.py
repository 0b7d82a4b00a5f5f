"""A slot whose owner has ended remains that of the processes which the owner has started, until the last has ended."""

import contextlib
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from orion.node_agent.api import agent_pb2
from orion.node_agent.api.client import AgentClient
from tests.node_agent.conftest import GPU, AgentProcess, eventually
from tests.node_agent.job_ranks import rank, same_memory
from tests.node_agent.owning_process import process
from tests.node_agent.protocol_client import ProtocolClient, current_grant

GIB = 1 << 30
SECOND = GPU[:-1] + "1"


def end(agent: AgentProcess, owner: subprocess.Popen[bytes], *slots: agent_pb2.Slot) -> None:
    """End the owner of slots that have clients, and wait until the agent has seen it."""
    owner.kill()
    owner.wait()
    sentences = [f"slot: {slot.gpu} {slot.name} stays" for slot in slots]
    eventually(lambda: all(each in agent.log() for each in sentences), "the agent says that the slots stay")


@pytest.fixture
def administrator(agent: AgentProcess) -> Iterator[AgentClient]:
    with AgentClient(agent.root) as asked:
        yield asked


def shown(administrator: AgentClient, name: str) -> agent_pb2.Slot:
    return next(slot for slot in administrator.snapshot().gpus[0].slots if slot.name == name)


@pytest.mark.parametrize(("role", "name"), [(agent_pb2.BE, "be-0"), (agent_pb2.HP, "hp-0")])
def test_a_permanent_slot_keeps_its_grant_until_its_last_client_ends(
    agent: AgentProcess, administrator: AgentClient, role: "agent_pb2.Role", name: str
) -> None:
    with process() as owner, ProtocolClient(agent.slot(name)).join() as first:
        slot = administrator.open_slot(
            GPU, role, name=name, owner_process_id=owner.pid, limit=0.3, memory_limit_bytes=GIB
        )
        with ProtocolClient(agent.slot(name)).join() as second:
            end(agent, owner, slot)
            first.sock.close()
            eventually(lambda: len(shown(administrator, name).clients) == 1, "one client is left")
            assert current_grant(second.grant).memory_limit_bytes == GIB
            assert shown(administrator, name).limit == 0.3
    eventually(lambda: shown(administrator, name).limit == 0, "the slot is reset")
    with process() as other:
        administrator.open_slot(GPU, role, name=name, owner_process_id=other.pid, limit=0.5)
    eventually(lambda: shown(administrator, name).limit == 0, "the end of the next owner is seen")


def test_a_slot_made_for_a_process_is_closed_with_its_last_client(
    agent: AgentProcess, administrator: AgentClient
) -> None:
    with process() as owner:
        slot = administrator.open_slot(GPU, agent_pb2.BE, owner_process_id=owner.pid)
        with ProtocolClient(agent.slot(slot.name)).join() as client, ProtocolClient(agent.slot("hp-0")).join() as hp:
            client.receive_until({hp.key})
            end(agent, owner, slot)
            hp.sock.close()
            client.receive_until(set())
            with ProtocolClient(agent.slot("hp-0")).join() as later:  # it is protected from the client, too
                client.receive_until({later.key})
                with ProtocolClient(agent.slot(slot.name)).join():
                    pass
        eventually(lambda: not agent.slot(slot.name).exists(), "the slot is closed")


def test_the_next_agent_keeps_the_slot_for_clients_that_return(agent: AgentProcess, administrator: AgentClient) -> None:
    with process() as owner:
        slot = administrator.open_slot(GPU, agent_pb2.BE, owner_process_id=owner.pid, memory_limit_bytes=GIB)
        with ProtocolClient(agent.slot(slot.name)).join() as client:
            end(agent, owner, slot)
            agent.kill()
            agent.start()
            client.return_to_agent()
            assert current_grant(client.grant).memory_limit_bytes == GIB
        eventually(lambda: not agent.slot(slot.name).exists(), "the slot is closed")


def test_processes_that_outlive_their_launcher_remain_one_job(
    stopped_agent: AgentProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ORION_SIM_GPUS", "2")
    stopped_agent.start("--be-slots", "0")
    with process() as owner, AgentClient(stopped_agent.root) as administrator, contextlib.ExitStack() as stack:
        slots = [administrator.open_slot(gpu, agent_pb2.BE, owner_process_id=owner.pid) for gpu in (GPU, SECOND)]
        first, second = (rank(stack, Path(slot.directory)) for slot in slots)
        page = first.receive_job()[1]
        assert same_memory(page, second.receive_job()[1])
        end(stopped_agent, owner, *slots)
        third = rank(stack, Path(slots[0].directory))
        assert same_memory(page, third.receive_job()[1])
