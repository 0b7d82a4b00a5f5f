"""Programs that join by an id follow the agent's resource file: tested with a real agent, its sockets and its pages."""

import itertools
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import grpc
import pytest

from orion.hook import layout
from orion.node_agent.api import agent_pb2
from orion.node_agent.api.client import AgentClient, RequestRefused
from tests.hook.harness import figure
from tests.node_agent.conftest import GPU, AgentProcess, eventually
from tests.node_agent.owning_process import process
from tests.node_agent.protocol_client import ProtocolClient, current_grant

MIB = 1 << 20
Write = Callable[[str], None]


@pytest.fixture
def path(socket_folder: Path) -> Path:
    return socket_folder / "rules"


@pytest.fixture
def write(path: Path) -> Write:
    """A function that replaces the resource file."""

    def replace(text: str) -> None:
        fresh = path.with_name("fresh")
        fresh.write_text(text)
        fresh.replace(path)

    replace(f"2\na 0.2 0.5 {64 * MIB}\nb 0.4 1 {128 * MIB}\n")
    return replace


@pytest.fixture
def ruled(stopped_agent: AgentProcess, path: Path, write: Write) -> AgentProcess:
    stopped_agent.start("--resource-config", str(path), "--be-slots", "0")
    return stopped_agent


@pytest.fixture
def administrator(ruled: AgentProcess) -> Iterator[AgentClient]:
    with AgentClient(ruled.root) as client:
        yield client


def open_for(administrator: AgentClient, rule: str, owner: int = 0) -> agent_pb2.Slot:
    return administrator.open_slot(GPU, agent_pb2.BE, rule=rule, owner_process_id=owner)


def slots(administrator: AgentClient) -> dict[str, tuple[float, float, int]]:
    """Return what each id was granted."""
    found = {slot.rule: slot for slot in administrator.snapshot().gpus[0].slots if slot.rule}
    return {rule: (slot.request, slot.limit, slot.memory_limit_bytes // MIB) for rule, slot in found.items()}


def conditions(administrator: AgentClient) -> dict[str, str]:
    return {each.reason: each.message for each in administrator.snapshot().gpus[0].conditions}


def test_the_rule_decides_the_grant_and_a_change_reaches_it(administrator: AgentClient, write: Write) -> None:
    open_for(administrator, "a")
    open_for(administrator, "b")
    assert slots(administrator) == {"a": (0.2, 0.5, 64), "b": (0.4, 0, 128)}
    write(f"[b]\nMinUtil = 0.3\n\n[a]\nMaxUtil = 0.25\nMemoryLimit = {32 * MIB}\n")
    eventually(lambda: slots(administrator) == {"a": (0, 0.25, 32), "b": (0.3, 0, 1024)}, "both slots follow")


@pytest.mark.quiet
def test_a_change_holds_within_100_ms(administrator: AgentClient, write: Write) -> None:
    slot = open_for(administrator, "a")
    with ProtocolClient(Path(slot.directory)).join() as client:
        client.record.set(layout.RecordPage, "in_flight_ns", 100_000)
        launches = itertools.count(1)

        def holds(limit: float) -> bool:
            """Make progress, and return whether grant and turns follow the limit."""
            client.record.set(layout.RecordPage, "launches", next(launches))
            grant = current_grant(client.grant)
            turn = grant.next_end_ns - grant.next_begin_ns
            follows = grant.cycle_ns and (turn > grant.cycle_ns / 2) == (limit > 0.5)
            return bool(follows) and grant.compute_limit_milli == round(limit * 1_000)

        client.record.set(layout.RecordPage, "in_flight_ns", 100_000)
        eventually(lambda: holds(0.5) or current_grant(client.grant).cycle_ns, "the client takes turns")
        took = []
        for limit in [0.2, 0.8] * 5:
            write(f"1\na 0.1 {limit} {64 * MIB}\n")
            began = time.monotonic()
            eventually(lambda limit=limit: holds(limit), f"turns follow the limit {limit}")  # type: ignore[misc]
            took.append(1_000 * (time.monotonic() - began))
        figure("a changed resource file holds after", took, "ms")
        assert sorted(took)[5] < 100, took


def test_programs_with_one_id_share_a_slot_that_ends_with_the_last(
    ruled: AgentProcess, administrator: AgentClient, path: Path
) -> None:
    with process() as first, process() as second, process() as third:
        slot = open_for(administrator, "a", first.pid)
        assert open_for(administrator, "a", second.pid).name == slot.name
        assert open_for(administrator, "b", third.pid).name != slot.name
        first.kill()
        first.wait()
        third.kill()
        eventually(lambda: list(slots(administrator)) == ["a"], "the slot of the third process is closed")
        # The next agent knows the owners, too.
        ruled.kill()
        ruled.start("--resource-config", str(path), "--be-slots", "0")
        with AgentClient(ruled.root) as again:
            assert slots(again) == {"a": (0.2, 0.5, 64)}
            assert open_for(again, "a", second.pid).name == slot.name
            second.kill()
            eventually(lambda: not slots(again), "the slot is closed")


def test_the_next_agent_applies_what_has_changed_meanwhile(ruled: AgentProcess, path: Path, write: Write) -> None:
    with process() as owner:
        with AgentClient(ruled.root) as administrator:
            open_for(administrator, "a", owner.pid)
        ruled.kill()
        write(f"1\na 0.3 0.6 {16 * MIB}\n")
        ruled.start("--resource-config", str(path), "--be-slots", "0")
        with AgentClient(ruled.root) as administrator:
            assert slots(administrator) == {"a": (0.3, 0.6, 16)}


def test_a_rule_that_vanishes_leaves_the_grant_and_lets_nobody_join(
    ruled: AgentProcess, administrator: AgentClient, write: Write, path: Path
) -> None:
    open_for(administrator, "a")
    write(f"1\nb 0.1 1 {128 * MIB}\n")
    eventually(lambda: "keeps its grant until its programs end" in ruled.log(), "the agent reports it")
    assert slots(administrator) == {"a": (0.2, 0.5, 64)}
    with pytest.raises(RequestRefused, match=f"{path} has no id 'a'; its ids are: b") as refused:
        open_for(administrator, "a")
    assert refused.value.code is grpc.StatusCode.NOT_FOUND
    write(f"1\na 0.1 1 {128 * MIB}\n")
    eventually(lambda: slots(administrator) == {"a": (0.1, 0, 128)}, "the rule is back")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("1\na 0.8 0.5 9999999\n", "line 2: request 0.8 is above limit 0.5: lower the request, or exchange"),
        ("2\na 0.1 0.5 9999999\n", "line 1: it announces 2 ids, and 1 line follows"),
        ("1\na 0.1 0.5 99", "line 2: the line does not end"),
        ("\x7fELF\x02\x01\n", "line 1: the byte 7f"),
        ("", "line 1: the file is empty"),
    ],
)
def test_a_faulty_file_changes_nothing_and_the_error_names_the_line(
    ruled: AgentProcess, administrator: AgentClient, write: Write, path: Path, text: str, says: str
) -> None:
    open_for(administrator, "a")
    write(text)
    eventually(lambda: f"{path}, {says}" in ruled.log(), "the log names the line")
    assert slots(administrator) == {"a": (0.2, 0.5, 64)}
    assert f"{path}, {says}" in conditions(administrator)["ResourceFile"]
    assert "the last good rules stay in force" in conditions(administrator)["ResourceFile"]
    open_for(administrator, "b")
    assert [each.faulty for each in administrator.rules().gpus] == [True]
    write(f"1\na 0.1 0.5 {64 * MIB}\n")
    eventually(lambda: not conditions(administrator), "the condition is over")
    assert slots(administrator)["a"] == (0.1, 0.5, 64)


def test_a_file_that_vanishes_changes_nothing(ruled: AgentProcess, administrator: AgentClient, path: Path) -> None:
    open_for(administrator, "a")
    path.unlink()
    eventually(lambda: f"{path} cannot be read: No such file" in ruled.log(), "the log names the file")
    assert slots(administrator) == {"a": (0.2, 0.5, 64)}
    assert str(path) in conditions(administrator)["ResourceFile"]


def test_requests_of_more_than_the_gpu_are_scaled_and_reported(administrator: AgentClient, write: Write) -> None:
    write("2\na 0.9 1 9999999\nb 0.6 1 9999999\n")
    eventually(lambda: "add up to 1.5" in conditions(administrator).get("ResourceFile", ""), "a condition")
    assert open_for(administrator, "a").request == 0.9


def test_a_folder_that_appears_later_with_a_file_for_each_gpu(stopped_agent: AgentProcess, socket_folder: Path) -> None:
    folder = socket_folder / "not" / "yet"
    stopped_agent.start("--resource-config", str(folder))
    with AgentClient(stopped_agent.root) as administrator:
        with pytest.raises(RequestRefused, match="no id is known yet"):
            open_for(administrator, "default/pod")
        folder.mkdir(parents=True)
        (folder / GPU).write_text("1\ndefault/pod 0.2 0.5 67108864\n")
        eventually(lambda: not administrator.rules().gpus[0].faulty, "the folder is read")
        open_for(administrator, "default/pod")
        assert slots(administrator) == {"default/pod": (0.2, 0.5, 64)}


def test_slots_with_and_without_an_id_are_not_mixed_up(administrator: AgentClient) -> None:
    slot = open_for(administrator, "a")
    with pytest.raises(RequestRefused, match="for programs that join by the id a"):
        administrator.open_slot(GPU, agent_pb2.BE, name=slot.name)
    with pytest.raises(RequestRefused, match="rule: it decides"):
        administrator.open_slot(GPU, agent_pb2.BE, rule="a", limit=0.5)
    with pytest.raises(RequestRefused, match="rule: the ids of a resource file are for be"):
        administrator.open_slot(GPU, agent_pb2.HP, rule="a")


def test_an_agent_without_a_resource_file_says_how_to_give_one(agent: AgentProcess) -> None:
    with AgentClient(agent.root) as administrator:
        with pytest.raises(RequestRefused, match="start it with --resource-config FILE"):
            open_for(administrator, "a")
        with pytest.raises(RequestRefused, match="start it with --resource-config FILE"):
            administrator.rules()
