"""What a process learnt of its kernels outlives the process and the agent: the slot's next process starts warm."""

import signal

from orion.hook import identity, join
from tests.hook.harness import Machine, record_word
from tests.hook.scripted_client import Client, eventually

_SHAPES = range(100, 130)


def learn(be: Client) -> None:
    for microseconds in _SHAPES:
        be.must(f"run 8 {microseconds}")
    eventually(lambda: record_word(be, "kernels_known") >= len(_SHAPES), "all kernels are known")


def known_at_start(machine: Machine, slot: str) -> int:
    client = machine.start(slot)
    client.must("sync")  # waits until it is managed; the agent's knowledge arrives before that
    known = record_word(client, "kernels_known")
    client.close()
    return known


def test_the_next_process_of_a_slot_starts_warm(machine: Machine) -> None:
    be = machine.start("be-0")
    learn(be)
    eventually(lambda: known_at_start(machine, "be-0") >= len(_SHAPES), "the agent knows the durations")
    assert known_at_start(machine, "be-1") == 0
    be.close()
    machine.kill_agent(signal.SIGTERM)
    file = machine.root / "knowledge" / machine.uuids[0] / "be-0"
    entries = [join.KnowledgeEntry.from_buffer_copy(file.read_bytes(), 16 + 16 * i) for i in range(len(_SHAPES))]
    assert all(identity.is_reported(entry.identity) for entry in entries)
    assert all(1_000 <= entry.expected_100ns <= 1_000_000 for entry in entries)
    machine.start_agent()
    assert known_at_start(machine, "be-0") >= len(_SHAPES)


def test_a_returning_client_reports_to_the_next_agent(machine: Machine) -> None:
    be = machine.start("be-0")
    learn(be)
    machine.kill_agent()  # before it has saved anything
    machine.start_agent()
    machine.until_joined(be)
    eventually(lambda: known_at_start(machine, "be-0") >= len(_SHAPES), "the new agent knows the durations")
    be.must("run 1 100")
    assert be.said == []
