"""The limit of memory is the slot's: its processes share it, whatever dies, stops, or is restarted."""

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.hook.harness import Machine, record_word
from tests.hook.limited_slot import LIMIT, MIB, OUT_OF_MEMORY, LimitedTenants
from tests.hook.scripted_client import Client, eventually

UNTIL_MAPPED = 8
""" The way of `alloc` whose memory `unmap 3` gives back. """


def allocate(client: Client, mib: int) -> bool:
    result = client.do(f"alloc {mib * MIB} {UNTIL_MAPPED}").result
    assert result in (0, OUT_OF_MEMORY)
    return result == 0


def test_two_processes_share_the_limit(tenants: LimitedTenants) -> None:
    one, two = tenants.start(), tenants.start()
    assert allocate(one, 300)
    assert not allocate(two, 300)
    assert allocate(two, 212)
    assert not allocate(one, 2)
    two.must("unmap 3")
    assert allocate(one, 200)
    assert not allocate(two, 20)
    assert allocate(two, 12)


def test_each_sees_as_free_what_the_others_leave(tenants: LimitedTenants) -> None:
    one, two = tenants.start(), tenants.start()
    assert allocate(one, 300)
    eventually(lambda: two.do("room").result == (LIMIT - 300) * MIB, "the other's memory is not free")
    assert two.do("info").result == LIMIT * MIB


def test_a_process_alone_sees_at_once_what_it_has_freed(tenants: LimitedTenants) -> None:
    one = tenants.start()
    assert allocate(one, 300)
    assert one.do("room").result == (LIMIT - 300) * MIB
    one.must("unmap 3")
    assert one.do("room").result == LIMIT * MIB


def sees_its_own_memory_at_once(client: Client, besides: int) -> None:
    """What is besides its own memory has been there for long."""
    eventually(lambda: client.do("room").result == (LIMIT - besides) * MIB, "what is besides its memory counts")
    for held in range(20, 200, 20):
        assert allocate(client, 20)
        assert client.do("room").result == (LIMIT - besides - held) * MIB
    client.must("unmap 3")
    assert client.do("room").result == (LIMIT - besides - 160) * MIB


def test_a_process_beside_others_sees_at_once_what_it_has_allocated_and_freed(tenants: LimitedTenants) -> None:
    one, two = tenants.start(), tenants.start()
    assert allocate(one, 250)
    sees_its_own_memory_at_once(two, 250)


def test_a_process_says_what_it_has_held_for_a_moment(tenants: LimitedTenants) -> None:
    one = tenants.start()
    assert allocate(one, 100)
    assert allocate(one, 200)
    one.must("unmap 3")
    least, most = record_word(one, "memory_least"), record_word(one, "memory_most")
    assert most & 0xFFFF_FFFF == 300
    assert least & 0xFFFF_FFFF <= 100
    assert least >> 32 == most >> 32 > 0


def test_what_ended_with_its_context_is_there_for_the_others(tenants: LimitedTenants) -> None:
    one, two = tenants.start(), tenants.start()
    one.must(f"alloc {300 * MIB}")
    assert not allocate(two, 300)
    one.must("reset")
    assert eventually(lambda: allocate(two, 300), "the memory that ended is there again")


def test_a_dead_process_gives_back_what_it_held(tenants: LimitedTenants) -> None:
    one, two = tenants.start(), tenants.start()
    assert allocate(one, 300)
    assert allocate(two, 200)
    one.kill()
    one.reap()
    tenants.machine.until(one, "")
    assert allocate(two, 300), "it waits until the driver has been asked since the end"


def test_a_stopped_process_keeps_what_it_holds_and_no_more(tenants: LimitedTenants) -> None:
    one, two = tenants.start(), tenants.start()
    assert allocate(one, 100)
    os.kill(one.pid, signal.SIGSTOP)
    assert allocate(two, LIMIT - 100)
    assert not allocate(two, 2)
    os.kill(one.pid, signal.SIGCONT)
    assert not allocate(one, 2)


def test_a_lowered_limit_allows_nothing_new_until_the_slot_is_below_it(tenants: LimitedTenants) -> None:
    one, two = tenants.start(), tenants.start()
    assert allocate(one, 200)
    assert allocate(two, 200)
    tenants.machine.agent.set_grant(tenants.machine.uuids[0], "be-0", memory_limit_bytes=300 * MIB)
    assert not allocate(one, 2)
    assert not allocate(two, 2)
    two.must("unmap 3")
    assert allocate(one, 100)
    assert not allocate(two, 2)


def test_a_process_alone_needs_no_agent(tenants: LimitedTenants) -> None:
    one = tenants.start()
    tenants.machine.kill_agent()
    assert allocate(one, LIMIT)
    assert not allocate(one, 2)


def test_the_next_agent_gives_no_credit_twice(tenants: LimitedTenants) -> None:
    one, two = tenants.start(), tenants.start()
    assert allocate(one, 200)
    assert allocate(two, 200)
    for _ in range(3):
        tenants.machine.kill_agent()
        tenants.machine.start_agent()
        got = [allocate(each, 100) for each in (one, two)]
        assert sum(got) <= 1
        for each, had in zip((one, two), got, strict=True):
            if had:
                each.must("unmap 3")
    tenants.machine.until_joined(one, two)
    assert eventually(lambda: allocate(one, 112), "the next agent gives what is spare")
    assert not allocate(two, 2)


def test_a_stopped_process_that_does_not_return_keeps_its_part(tenants: LimitedTenants) -> None:
    one, two = tenants.start(), tenants.start()
    assert allocate(one, 300)
    os.kill(one.pid, signal.SIGSTOP)
    tenants.machine.kill_agent()
    tenants.machine.start_agent()
    tenants.machine.until_joined(two)
    assert not allocate(two, 300)
    os.kill(one.pid, signal.SIGCONT)
    tenants.machine.until_joined(one)
    assert eventually(lambda: allocate(two, LIMIT - 300), "what the stopped process does not hold is there again")


CONTEXT = 100
""" What a context takes for itself in the next tests, in MiB. """


@pytest.fixture
def with_contexts(c_build: Path) -> Iterator[LimitedTenants]:
    with Machine(c_build, contexts_take=CONTEXT * MIB) as machine:
        machine.start_agent()
        yield LimitedTenants(machine)


def test_the_first_process_sees_at_once_what_its_context_leaves(with_contexts: LimitedTenants) -> None:
    assert with_contexts.start().do("room").result == (LIMIT - CONTEXT) * MIB


def test_what_a_process_allocates_itself_counts_at_once_besides_its_context(with_contexts: LimitedTenants) -> None:
    sees_its_own_memory_at_once(with_contexts.start(), CONTEXT)


def test_the_first_allocation_of_the_first_process_finds_its_context_counted(with_contexts: LimitedTenants) -> None:
    one = with_contexts.start()
    assert not allocate(one, LIMIT - CONTEXT + 2)
    assert allocate(one, LIMIT - CONTEXT)


def test_the_drivers_own_memory_is_part_of_the_slots_sum(with_contexts: LimitedTenants) -> None:
    one = with_contexts.start()
    eventually(lambda: one.do("room").result == (LIMIT - CONTEXT) * MIB, "the context counts")
    assert not allocate(one, LIMIT - CONTEXT + 2)
    assert allocate(one, LIMIT - CONTEXT)
    shown = with_contexts.machine.shown(one)
    assert shown is not None
    assert shown.memory_bytes == LIMIT * MIB


def test_the_drivers_own_memory_lowers_what_the_others_get(with_contexts: LimitedTenants) -> None:
    one, two = with_contexts.start(), with_contexts.start()
    eventually(lambda: two.do("room").result == (LIMIT - 2 * CONTEXT) * MIB, "both contexts count")
    assert allocate(one, 200)
    assert not allocate(two, 114)
    assert allocate(two, 112)
    one.kill()
    assert eventually(lambda: allocate(two, 300), "the memory of the dead process is there again")


class Sampler:
    """What programs have allocated on the device, as a program without the hook sees it; contexts do not count."""

    def __init__(self, machine: Machine) -> None:
        self._client = machine.start_in(None)
        self._client.must("init 0")
        self._free = self._client.do("room").result

    def used(self) -> float:
        return self._free - self._client.do("room").result


BY_EVERY_WAY = 1


@pytest.mark.parametrize(
    ("processes", "threads", "seconds"), [(4, 4, 8.0), pytest.param(8, 8, 60.0, marks=pytest.mark.thorough)]
)
def test_processes_that_allocate_at_random_and_are_killed_never_exceed_the_limit(
    tenants: LimitedTenants, processes: int, threads: int, seconds: float
) -> None:
    deaths = processes // 2
    crowd, late, sampler = [tenants.start() for _ in range(processes)], list[Client](), Sampler(tenants.machine)
    end = time.monotonic() + seconds
    for seed, client in enumerate(crowd):
        client.send(f"churn {threads} {seconds} {seed} {BY_EVERY_WAY}")
    most, said = 0.0, 0
    while time.monotonic() < end - 1:
        most = max(most, sampler.used())
        said = max(said, *(record_word(each, "memory_bytes") for each in crowd))
        if len(late) < deaths and time.monotonic() > end - seconds * (deaths - len(late)) / (deaths + 1):
            crowd.pop(0).kill()
            late.append(tenants.machine.start_in(tenants.root))
            left = end - time.monotonic()
            late[-1].send(f"init 0\nchurn {threads} {left:.3f} {20 + len(late)} {BY_EVERY_WAY}")
    assert LIMIT * MIB / 2 < most <= LIMIT * MIB
    assert 0 < said <= LIMIT * MIB
    assert [each.answer().result for each in late] == [0] * deaths
    crowd += late
    done = [client.answer().result for client in crowd]
    assert sum(each > 0 for each in done) > processes // 2, (
        "one that starts late may find no memory while the others fill it"
    )
    eventually(lambda: sampler.used() <= 0, "everything is free")
    eventually(lambda: sum(record_word(each, "memory_bytes") for each in crowd) == 0, "nothing counts any more")
    assert eventually(lambda: allocate(crowd[-1], LIMIT - 100), "the limit is there again")
