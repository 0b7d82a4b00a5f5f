"""Administrators' requests, and the error messages that they get."""

import stat
from collections.abc import Callable
from pathlib import Path

import grpc
import pytest

from orion.hook import KNOWN_LIMIT
from orion.node_agent.api import agent_pb2
from orion.node_agent.api.client import AgentClient, NoAgent, RequestRefused
from tests.node_agent.conftest import GPU, AgentProcess
from tests.node_agent.protocol_client import ProtocolClient, current_grant


def test_a_snapshot_shows_gpus_slots_and_clients(agent: AgentProcess) -> None:
    with ProtocolClient(agent.slot("be-2")).join() as client, AgentClient(agent.root) as administrator:
        client.receive_message()
        snapshot = administrator.snapshot()
        (gpu,) = snapshot.gpus
        assert snapshot.agent_process_id == agent.pid
        assert (gpu.uuid, gpu.model, gpu.simulated, gpu.memory_bytes) == (GPU, "A name", True, 8 << 30)
        assert (gpu.policy, gpu.window_us) == ("orion", 400)
        assert [slot.name for slot in gpu.slots] == ["hp-0", *(f"be-{number}" for number in range(8))]
        assert gpu.slots[3].directory == str(agent.slot("be-2"))
        (shown,) = gpu.slots[3].clients
        assert (shown.command, shown.state, shown.launches) == ("test", "idle", 0)
        watched = administrator.watch(0.1)
        assert next(watched).gpus[0].uuid == next(watched).gpus[0].uuid == GPU


def test_slots_are_opened_changed_and_closed(agent: AgentProcess) -> None:
    with AgentClient(agent.root) as administrator:
        slot = administrator.open_slot(GPU, agent_pb2.BE, memory_limit_bytes=5)
        assert (slot.name, slot.memory_limit_bytes) == ("be-8", 5)
        assert administrator.open_slot(GPU, agent_pb2.BE, name="be-8", memory_limit_bytes=6).memory_limit_bytes == 6
        with ProtocolClient(Path(slot.directory)).join() as client:
            client.receive_message()
            administrator.set_grant(GPU, "be-8", memory_limit_bytes=7)
            assert current_grant(client.grant).memory_limit_bytes == 7
            administrator.close_slot(GPU, "be-8")
            assert client.sock.recv(1) == b""
        assert not Path(slot.directory).exists()
        assert administrator.open_slot(GPU, agent_pb2.HP).name == "hp-1"


Request = Callable[[AgentClient], object]
REFUSED: list[tuple[Request, grpc.StatusCode, str]] = [
    (lambda agent: agent.open_slot("GPU-1", agent_pb2.BE), grpc.StatusCode.NOT_FOUND, "the GPUs are: GPU-0000"),
    (lambda agent: agent.close_slot(GPU, "x"), grpc.StatusCode.NOT_FOUND, "has no slot 'x'; its slots are: be-0"),
    (lambda agent: agent.open_slot(GPU, agent_pb2.ROLE_UNSPECIFIED), grpc.StatusCode.INVALID_ARGUMENT, "^role: "),
    (lambda agent: agent.open_slot(GPU, agent_pb2.BE, name="../x"), grpc.StatusCode.INVALID_ARGUMENT, "not '../x'"),
    (lambda agent: agent.open_slot(GPU, agent_pb2.BE, name="hp-0"), grpc.StatusCode.FAILED_PRECONDITION, "is hp"),
    (lambda agent: agent.open_slot(GPU, agent_pb2.BE, owner_process_id=2**22 + 1), grpc.StatusCode.NOT_FOUND, "to own"),
    (
        lambda agent: agent.set_policy(GPU, policy="x"),
        grpc.StatusCode.INVALID_ARGUMENT,
        "^policy: there is no policy 'x'; there are orion, gate",
    ),
    (
        lambda agent: agent.set_policy(GPU, window_us=49),
        grpc.StatusCode.INVALID_ARGUMENT,
        "^window_us: .*or equal to 50",
    ),
    (lambda agent: agent.set_policy(GPU, window_us=2**40), grpc.StatusCode.INVALID_ARGUMENT, "^window_us: "),
    (lambda agent: agent.set_policy(GPU, linger_floor_us=9999), grpc.StatusCode.INVALID_ARGUMENT, "ceiling"),
]


@pytest.mark.parametrize(("request_", "code", "sentence"), REFUSED, ids=range(len(REFUSED)))
def test_invalid_requests_are_refused_with_a_sentence(
    refusing_agent: AgentProcess, request_: Request, code: grpc.StatusCode, sentence: str
) -> None:
    with AgentClient(refusing_agent.root) as administrator, pytest.raises(RequestRefused, match=sentence) as refused:
        request_(administrator)
    assert refused.value.code is code


def test_only_administrators_reach_the_socket(agent: AgentProcess) -> None:
    assert stat.S_IMODE((agent.root / "agent.sock").stat().st_mode) == 0o600
    assert stat.S_IMODE((agent.slot("be-0") / "agent.sock").stat().st_mode) == 0o666
    assert stat.S_IMODE(agent.slot("be-0").stat().st_mode) == 0o755


def test_the_error_without_an_agent_says_what_to_do(agent: AgentProcess, socket_folder: Path) -> None:
    with pytest.raises(NoAgent, match=r"no agent listens at .*; start one with `orion agent --root"):
        AgentClient(socket_folder)
    root = agent.root
    agent.kill()  # the socket file stays
    with pytest.raises(NoAgent, match="no agent listens"):
        AgentClient(root, timeout=0.5)


def test_a_slots_directory_has_its_limit_of_memory(agent: AgentProcess) -> None:
    """Processes that have not joined read it, whoever they are."""
    with AgentClient(agent.root) as administrator:
        directory = Path(administrator.open_slot(GPU, agent_pb2.BE, memory_limit_bytes=5).directory)
        limit = directory / KNOWN_LIMIT
        assert (limit.read_text(), stat.S_IMODE(limit.stat().st_mode)) == ("5\n", 0o644)
        administrator.set_grant(GPU, directory.name, memory_limit_bytes=6)
        assert [each.name for each in directory.iterdir() if each.is_file()] == [KNOWN_LIMIT]
        limit.unlink()  # as the device plugin does while no agent answers
        administrator.set_grant(GPU, directory.name, memory_limit_bytes=6)
        assert limit.read_text() == "6\n"
        agent.kill()
        limit.write_bytes(b"\xff")
    agent.start()
    assert limit.read_text() == "6\n"
    with AgentClient(agent.root) as administrator:
        administrator.set_grant(GPU, directory.name, memory_limit_bytes=0)
        assert not limit.exists()


def test_the_next_agent_does_not_write_a_limit_again_that_was_removed(agent: AgentProcess) -> None:
    """The slot got another container while no agent answered, or just before: the limit is that of the one before."""
    with AgentClient(agent.root) as administrator:
        administrator.set_grant(GPU, "be-0", memory_limit_bytes=6)
        limit = agent.slot("be-0") / KNOWN_LIMIT
        limit.unlink()  # as the device plugin does
        agent.kill()
    agent.start()
    assert not limit.exists()
    with AgentClient(agent.root) as administrator:
        administrator.set_grant(GPU, "be-0", memory_limit_bytes=6)
    assert limit.read_text() == "6\n"


def test_an_agent_without_its_state_removes_limits_that_no_longer_hold(agent: AgentProcess) -> None:
    agent.kill()
    (agent.root / "state.json").unlink()
    limit = agent.slot("be-0") / KNOWN_LIMIT
    limit.write_text("7\n")
    agent.start()
    assert not limit.exists()
