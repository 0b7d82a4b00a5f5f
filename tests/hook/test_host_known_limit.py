"""A process that has not joined keeps to its slot's limit of memory by itself, and sees it."""

import os
import signal

import pytest

from tests.hook.harness import Machine
from tests.hook.limited_slot import LIMIT, MIB, OUT_OF_MEMORY, LimitedTenants
from tests.hook.scripted_client import Client, eventually

WAYS = [0, 2, 3, 5]
""" One way of `alloc` for each part that counts: single, managed, pooled and virtual memory. """


def begin(tenants: LimitedTenants) -> Client:
    client = tenants.machine.start_in(tenants.root)
    client.must("init 0")
    return client


@pytest.mark.parametrize("way", WAYS)
def test_the_limit_holds_while_the_agent_does_not_answer(tenants: LimitedTenants, way: int) -> None:
    os.kill(tenants.machine.agent_pid, signal.SIGSTOP)
    client = begin(tenants)
    assert client.do(f"alloc {(LIMIT + 2) * MIB} {way}").result == OUT_OF_MEMORY
    client.must(f"alloc {LIMIT * MIB} {way}")
    assert client.do(f"alloc {2 * MIB} {way}").result == OUT_OF_MEMORY


def test_the_limit_holds_and_is_seen_while_there_is_no_agent(tenants: LimitedTenants) -> None:
    tenants.machine.kill_agent()
    client = begin(tenants)
    assert client.do("total 0").result == LIMIT * MIB
    client.must(f"alloc {100 * MIB}")
    assert client.do("info").result == LIMIT * MIB
    assert client.do("room").result == (LIMIT - 100) * MIB
    assert client.do(f"alloc {(LIMIT - 98) * MIB}").result == OUT_OF_MEMORY


def test_what_was_allocated_meanwhile_counts_for_the_next_agent(tenants: LimitedTenants) -> None:
    tenants.machine.kill_agent()
    early = begin(tenants)
    early.must(f"alloc {300 * MIB}")
    tenants.machine.start_agent()
    tenants.machine.until_joined(early)
    late = tenants.start()
    eventually(lambda: late.do("room").result == (LIMIT - 300) * MIB, "the next agent knows what it holds")
    assert late.do(f"alloc {(LIMIT - 298) * MIB}").result == OUT_OF_MEMORY


def test_an_allocation_waits_for_the_next_agent(tenants: LimitedTenants) -> None:
    first = tenants.start()
    first.must(f"alloc {300 * MIB}")
    tenants.machine.kill_agent()
    second = tenants.machine.start_in(tenants.root)
    second.send(f"open 0\nalloc {300 * MIB}")
    tenants.machine.start_agent()
    assert second.answer().result == 0
    assert second.answer().result in (0, OUT_OF_MEMORY)  # 0: the next agent took longer than the allocation waits
    tenants.machine.until_joined(first, second)
    assert second.do(f"alloc {300 * MIB}").result == OUT_OF_MEMORY


def test_without_a_limit_nothing_waits_for_an_agent_that_is_away(machine: Machine) -> None:
    machine.kill_agent()
    client = machine.start_in(machine.client_root("be-0"))
    client.must("init 0")
    client.must(f"alloc {(LIMIT + 2) * MIB}")


def test_a_changed_limit_is_known(tenants: LimitedTenants) -> None:
    tenants.machine.agent.set_grant(tenants.machine.uuids[0], "be-0", memory_limit_bytes=100 * MIB)
    tenants.machine.kill_agent()
    assert begin(tenants).do("total 0").result == 100 * MIB


def test_a_removed_limit_holds_no_longer(tenants: LimitedTenants) -> None:
    tenants.machine.agent.set_grant(tenants.machine.uuids[0], "be-0", memory_limit_bytes=0)
    tenants.machine.kill_agent()
    begin(tenants).must(f"alloc {(LIMIT + 2) * MIB}")
