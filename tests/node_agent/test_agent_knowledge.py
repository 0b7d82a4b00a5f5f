"""The agent keeps what a slot's clients learnt for later clients of the slot, also after a restart of the agent."""

import fcntl
import os
import stat
import struct
from dataclasses import dataclass
from pathlib import Path

import pytest

from orion.hook import identity, join, layout
from orion.node_agent.api import agent_pb2
from orion.node_agent.api.client import AgentClient, RequestRefused
from orion.node_agent.slots import knowledge
from orion.node_agent.slots.knowledge import Knowledge
from tests.node_agent.conftest import GPU, AgentProcess, eventually
from tests.node_agent.protocol_client import ProtocolClient, head

ENTRY = struct.Struct("<QIHBB")
Entry = tuple[int, int, int, int, int]


@dataclass(frozen=True)
class Kernel:
    identity: int
    duration_ns: int = 1_800_000
    sms: int = 132
    kernel_class: int = layout.KernelClass.COMPUTE


def key(number: int) -> int:
    return identity.mix(number) & ~3 | 1


def learnt(*entries: Entry, count: int | None = None) -> join.Learnt:
    message = join.Learnt(head(join.MessageType.LEARNT), len(entries) if count is None else count, 0)
    for index, entry in enumerate(entries):
        message.entries[index] = join.KnowledgeEntry(*entry)
    return message


def entries_in(table: bytes) -> list[Entry]:
    header = join.KnowledgeHeader.from_buffer_copy(table)
    assert (header.magic, header.layout) == (join.KNOWLEDGE_MAGIC, join.KNOWLEDGE_LAYOUT)
    entries = list(ENTRY.iter_unpack(table[16:]))
    assert header.count == len(entries) <= join.KNOWLEDGE_ENTRIES
    return entries


def table_of(known: Knowledge) -> bytes:
    return os.pread(known.table(), 1 << 20, 0)


def test_only_plausible_entries_are_merged(tmp_path: Path) -> None:
    known = Knowledge(tmp_path / "be-0")
    good: list[Entry] = [(key(1), 50, 12, 2, 0), (key(2), 600_000_000, 0, 0, 0)]
    bad: list[Entry] = [
        (0, 50, 1, 0, 0),
        (key(3) | identity.LOCAL, 50, 1, 0, 0),
        (key(4) & ~1, 50, 1, 0, 0),
        (key(5), 0, 1, 0, 0),
        (key(6), 600_000_001, 1, 0, 0),
        (key(7), 50, 1025, 0, 0),
        (key(8), 50, 1, 3, 0),
        (key(9), 50, 1, 0, join.KNOWN_PROFILE),
    ]
    assert known.table() == -1
    assert known.merge(learnt(*good, *bad)) == 2
    assert entries_in(table_of(known)) == good
    assert known.merge(learnt(*good, count=2**32 - 1)) == 2


def test_the_newest_entry_wins_and_the_oldest_are_removed(tmp_path: Path) -> None:
    known = Knowledge(tmp_path / "be-0")
    for first in range(0, 10_000, 250):
        known.merge(learnt(*((key(number), 50, 1, 0, 0) for number in range(first, first + 250))), limit=1000)
    known.merge(learnt((key(9000), 70, 1, 0, 0)), limit=1000)
    entries = entries_in(table_of(known))
    assert {entry[0] for entry in entries} == {key(number) for number in range(9000, 10_000)}
    assert entries[-1] == (key(9000), 70, 1, 0, 0)


def test_a_table_is_sealed_and_renewed_after_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    known = Knowledge(tmp_path / "be-0")
    known.merge(learnt((key(1), 50, 1, 0, 0)))
    table = known.table()
    seals = fcntl.fcntl(table, fcntl.F_GET_SEALS)
    assert seals & fcntl.F_SEAL_WRITE
    assert seals & fcntl.F_SEAL_SHRINK
    with pytest.raises(PermissionError):
        os.pwrite(table, b"x", 0)
    known.merge(learnt((key(2), 50, 1, 0, 0)))
    assert known.table() == table  # the table is recent enough
    monkeypatch.setattr(knowledge, "_TABLE_SECONDS", 0.0)
    assert len(entries_in(table_of(known))) == 2


def test_rows_of_a_profile(tmp_path: Path) -> None:
    known = Knowledge(tmp_path / "be-0")
    known.merge(learnt((key(1), 50, 1, 0, 0)))
    gemm, gemv = key(100), key(101)
    known.set_profile([Kernel(gemm), Kernel(gemm, duration_ns=5), Kernel(gemv, sms=0, duration_ns=0)])
    assert entries_in(table_of(known)) == [
        (gemm, 18_000, 132, layout.KernelClass.COMPUTE, join.KNOWN_PROFILE),
        (gemv, 0, 0, layout.KernelClass.COMPUTE, join.KNOWN_PROFILE),
        (key(1), 50, 1, 0, 0),
    ]
    assert (known.profiled, known.learnt) == (2, 1)
    for wrong in (
        Kernel(0),
        Kernel(gemm | identity.LOCAL),
        Kernel(gemm, duration_ns=-1),
        Kernel(gemm, sms=-1),
        Kernel(gemm, kernel_class=9),
    ):
        with pytest.raises(ValueError, match=r"kernel|KernelClass"):
            known.set_profile([Kernel(gemv), wrong])
    assert known.profiled == 2  # unchanged
    known.set_profile([])
    assert len(known) == 1
    known.set_profile(Kernel(key(number)) for number in range(20_000))
    assert len(known) == join.KNOWLEDGE_ENTRIES


def test_knowledge_is_saved_at_intervals_and_loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "deep" / "be-0"
    known = Knowledge(path)
    known.merge(learnt((key(1), 50, 1, 0, 0)))
    known.set_profile([Kernel(key(100))])
    known.save()
    assert not path.exists()  # the entries are too new to be saved
    monkeypatch.setattr(knowledge, "_SAVE_SECONDS", 0.0)
    known.save()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    again = Knowledge(path)
    assert table_of(again) == table_of(known)
    path.unlink()
    known.save()
    assert not path.exists()  # no entry is new
    known.merge(learnt((key(2), 50, 1, 0, 0)))
    known.close()
    assert len(Knowledge(path)) == 3


def test_the_number_of_files_of_closed_slots_is_limited(tmp_path: Path) -> None:
    for number in range(6):
        known = Knowledge(tmp_path / "GPU-x" / f"be-{number}")
        known.merge(learnt((key(1), 50, 1, 0, 0)))
        known.close()
        os.utime(tmp_path / "GPU-x" / f"be-{number}", (number, number))
    knowledge.sweep(tmp_path / "GPU-x", most=4)
    assert sorted(path.name for path in (tmp_path / "GPU-x").iterdir()) == ["be-2", "be-3", "be-4", "be-5"]
    knowledge.sweep(tmp_path / "none", most=4)


@pytest.mark.parametrize("damage", [b"", b"x", b"x" * 100, None])
def test_a_damaged_file_is_ignored(tmp_path: Path, damage: bytes | None) -> None:
    path = tmp_path / "be-0"
    known = Knowledge(path)
    known.merge(learnt((key(1), 50, 1, 0, 0), (key(2), 50, 1, 0, 0)))
    known.close()
    path.write_bytes(path.read_bytes()[:-1] if damage is None else damage)
    assert len(Knowledge(path)) == 0


def _slots(agent: AgentProcess) -> int:
    return len(list((agent.root / "gpus" / GPU).iterdir()))


def report(client: ProtocolClient, *entries: Entry) -> None:
    client.sock.send(bytes(learnt(*entries)))


def received_entries(agent: AgentProcess, slot: str) -> list[Entry]:
    """Return the entries that a new client of a slot receives before its first list of hp clients."""
    with ProtocolClient(agent.slot(slot)).join() as client:
        while not isinstance(client.receive_message(), join.Neighbours):
            pass
        return entries_in(client.knowledge) if client.knowledge else []


def test_clients_of_a_slot_start_with_what_others_learnt(agent: AgentProcess) -> None:
    with ProtocolClient(agent.slot("be-0")).join() as client:
        assert client.welcome.offers & join.OFFERS_KNOWLEDGE
        report(client, (key(1), 50, 1, 0, 0))
        eventually(lambda: received_entries(agent, "be-0") == [(key(1), 50, 1, 0, 0)], "what was reported is known")
    assert received_entries(agent, "be-1") == []
    agent.terminate()
    agent.start()
    assert received_entries(agent, "be-0") == [(key(1), 50, 1, 0, 0)]
    assert stat.S_IMODE((agent.root / "knowledge" / GPU).stat().st_mode) == 0o700
    assert (agent.root / "knowledge" / GPU / "be-0").is_file()


def test_a_report_before_ready_or_of_wrong_length_ends_the_connection(agent: AgentProcess) -> None:
    with ProtocolClient(agent.slot("be-0")).join(ready=False) as client:
        report(client, (key(1), 50, 1, 0, 0))
        assert client.sock.recv(1) == b""
    with ProtocolClient(agent.slot("be-0")).join() as client:
        client.receive_message()
        client.sock.send(bytes(learnt((key(1), 50, 1, 0, 0)))[:32])
        assert client.sock.recv(1) == b""
    assert received_entries(agent, "be-0") == []


def test_a_burst_of_messages_is_read_and_kept(agent: AgentProcess) -> None:
    with ProtocolClient(agent.slot("be-0")).join() as client:
        for first in range(0, 7500, 250):  # the burst that a connection may send
            report(client, *((key(number), 50, 1, 0, 0) for number in range(first, first + 250)))
        eventually(lambda: (key(7499), 50, 1, 0, 0) in received_entries(agent, "be-0"), "all messages are read")
    assert len(received_entries(agent, "be-0")) == min(7500, knowledge.GPU_ENTRIES // _slots(agent))


def test_a_slot_that_is_opened_again_has_its_old_knowledge(agent: AgentProcess) -> None:
    with AgentClient(agent.root) as administrator:
        name = administrator.open_slot(GPU, agent_pb2.BE).name
        with ProtocolClient(agent.slot(name)).join() as client:
            client.receive_message()
            report(client, (key(1), 50, 1, 0, 0))
            eventually(lambda: received_entries(agent, name) == [(key(1), 50, 1, 0, 0)], "what was reported is known")
        administrator.close_slot(GPU, name)
        assert administrator.open_slot(GPU, agent_pb2.BE).name == name
        assert received_entries(agent, name) == [(key(1), 50, 1, 0, 0)]


def row(number: int, **more: int) -> agent_pb2.ProfileRow:
    values = {"duration_ns": 1_800_000, "sms": 132} | more
    return agent_pb2.ProfileRow(identity=key(number), kernel_class=agent_pb2.COMPUTE, **values)


def test_administrators_set_a_profile(agent: AgentProcess) -> None:
    rows = [row(1), row(2, duration_ns=0, sms=0)]
    expected = [
        (key(1), 18_000, 132, layout.KernelClass.COMPUTE, join.KNOWN_PROFILE),
        (key(2), 0, 0, layout.KernelClass.COMPUTE, join.KNOWN_PROFILE),
    ]
    with ProtocolClient(agent.slot("be-0")).join() as client, AgentClient(agent.root) as administrator:
        while not isinstance(client.receive_message(), join.Neighbours):
            pass
        slot = administrator.set_profile(GPU, "be-0", rows)
        assert (slot.name, slot.profile_kernels, slot.learnt_kernels) == ("be-0", 2, 0)
        client.receive_message()  # a running client is notified at once
        assert client.knowledge is not None
        assert entries_in(client.knowledge) == expected
    assert received_entries(agent, "be-1") == []
    agent.terminate()
    agent.start()
    assert received_entries(agent, "be-0") == expected
    with AgentClient(agent.root) as administrator:
        assert administrator.set_profile(GPU, "be-0", []).profile_kernels == 0
    assert received_entries(agent, "be-0") == []


@pytest.mark.parametrize(
    ("slot", "rows", "sentence"),
    [
        ("be-77", [row(1)], "no slot 'be-77'"),
        ("be-0", [agent_pb2.ProfileRow()], "is no identity"),
        ("be-0", [agent_pb2.ProfileRow(identity=key(1), kernel_class=7)], "kernel_class"),  # type: ignore[arg-type]
        ("be-0", [row(number) for number in range(join.KNOWLEDGE_ENTRIES + 1)], "at most 8192"),
    ],
    ids=["slot", "identity", "class", "many"],
)
def test_an_invalid_profile_is_refused(
    refusing_agent: AgentProcess, slot: str, rows: list[agent_pb2.ProfileRow], sentence: str
) -> None:
    with AgentClient(refusing_agent.root) as administrator, pytest.raises(RequestRefused, match=sentence):
        administrator.set_profile(GPU, slot, rows)
