"""NVML in a program under the hook shows the grant: its total, the slot's sum, and the processes of the container."""

import os

import pytest

from tests.hook.harness import Machine
from tests.hook.monitor import GPU, LIMIT, MIB, Start, client, ways
from tests.hook.scripted_client import eventually


@pytest.mark.parametrize("slot", ["be-0", "hp-0"])
def test_a_client_sees_its_grant(limited: Machine, start: Start, slot: str) -> None:
    monitor = client(start, slot)
    total, used, free = monitor.memory()
    assert (total, used + free) == (LIMIT, LIMIT)
    assert monitor.do(f"allocate {100 * MIB}") == 0
    assert monitor.memory() == (LIMIT, used + 100 * MIB, free - 100 * MIB)
    assert monitor.do("info") == [free - 100 * MIB, LIMIT]
    assert monitor.said == []


def test_a_client_sees_the_sum_of_its_slot(limited: Machine, start: Start) -> None:
    monitor, other = client(start), limited.start("be-0")
    other.must(f"alloc {200 * MIB}")
    eventually(lambda: abs(monitor.memory()[1] - 200 * MIB) < MIB, "the other's memory is shown")
    assert monitor.do(f"allocate {100 * MIB}") == 0
    eventually(lambda: abs(monitor.memory()[2] - 212 * MIB) < MIB, "the slot's sum is shown")


def test_memory_that_moves_may_exceed_the_gpu(limited: Machine, start: Start) -> None:
    limit = GPU + (1 << 30)
    limited.agent.set_grant(limited.uuids[0], "be-0", memory_unified=True, memory_limit_bytes=limit)
    monitor = client(start)
    assert monitor.do(f"allocate {GPU + 100 * MIB}") == 0
    assert monitor.memory() == (limit, GPU + 100 * MIB, limit - GPU - 100 * MIB)
    assert monitor.do("info") == [limit - GPU - 100 * MIB, limit]
    only = start("be-0")  # a monitor that is no client
    eventually(lambda: only.memory()[:2] == (limit, GPU + 100 * MIB), "it sees the grant, too")


def test_what_the_gpu_lacks_is_not_free(limited: Machine, start: Start) -> None:
    unmanaged = limited.start_in(None)
    unmanaged.must("open 0")
    unmanaged.must(f"alloc {GPU - 300 * MIB}")
    monitor = client(start)
    monitor.do(f"allocate {100 * MIB}")
    total, used, free, reserved = monitor.do("look")["second"]
    assert (total, used) == (LIMIT, 100 * MIB)
    assert free <= 200 * MIB
    assert reserved == total - used - free
    assert monitor.memory()[2] == monitor.do("info")[0]


@pytest.mark.parametrize("uses_cuda", [True, False])
def test_hp_sees_as_free_what_others_would_leave(limited: Machine, start: Start, uses_cuda: bool) -> None:
    uuid, limit = limited.uuids[0], 60 << 30
    limited.agent.set_grant(uuid, "hp-0", memory_wait_ms=10_000, memory_limit_bytes=limit)
    limited.agent.set_grant(uuid, "be-0", memory_parks=True, memory_limit_bytes=limit)
    monitor = client(start, "hp-0") if uses_cuda else start("hp-0")
    assert monitor.memory() == (limit, 0, limit)
    be = limited.start("be-0")
    be.must(f"alloc {50 << 30}")
    eventually(lambda: monitor.memory() == (limit, 0, limit), "what the other would leave is free")
    if uses_cuda:
        assert monitor.do("info") == [limit, limit]


def test_functions_whose_figures_have_32_bits_show_the_grant(limited: Machine, start: Start) -> None:
    most = (1 << 32) - 1
    monitor = client(start)
    assert monitor.do(f"allocate {100 * MIB}") == 0
    free = monitor.memory()[2]
    assert monitor.do("narrow") == [free, LIMIT, LIMIT]
    limited.agent.set_grant(limited.uuids[0], "be-0", memory_limit_bytes=8 << 30)
    eventually(lambda: monitor.do("narrow") == [most, most, most], "more than they hold is the most that they hold")
    assert monitor.do(f"allocate {6 << 30}") == 0
    free = (2 << 30) - 100 * MIB
    eventually(lambda: monitor.do("narrow") == [free, most, most], "less than 4 GiB is left")


@pytest.mark.parametrize("agent", [True, False])
def test_what_nothing_limits_is_unchanged(bare_machine: Machine, start: Start, agent: bool) -> None:
    if agent:
        bare_machine.start_agent()
    monitor, plain = client(start), start()
    monitor.do(f"allocate {100 * MIB}")
    assert monitor.do("look") == plain.do("look")
    assert monitor.memory()[0] == GPU
    assert len(monitor.said) == (0 if agent else 1)


def test_a_limit_that_changes_is_shown_at_once(limited: Machine, start: Start) -> None:
    monitor = client(start)
    for limit in (LIMIT // 2, LIMIT * 2):
        limited.agent.set_grant(limited.uuids[0], "be-0", memory_limit_bytes=limit)
        eventually(lambda limit=limit: monitor.memory()[0] == limit, "the new limit is shown")  # type: ignore[misc]
    limited.agent.set_grant(limited.uuids[0], "be-0", memory_limit_bytes=0)
    eventually(lambda: monitor.memory()[0] == GPU, "the GPU's memory is shown")


def test_a_program_that_takes_most_of_what_is_free_never_fails(limited: Machine, start: Start) -> None:
    monitor = client(start)
    assert monitor.do("greedy 5") == [0] * 5
    assert monitor.memory()[2] < MIB


def test_every_way_to_reach_nvml_leads_to_the_hook(limited: Machine) -> None:
    seen = ways(limited, limited.client_root("be-0"), "context")
    assert list(seen) == ["linked", "handle", "default", "next", "looked-up dlsym"]
    for total, used, free in seen.values():
        assert (total, used, free) == (LIMIT, 64 * MIB, LIMIT - 64 * MIB)


def test_without_the_hook_every_way_leads_to_nvml(machine: Machine) -> None:
    assert {total for total, _, _ in ways(machine, None, "context").values()} == {GPU}


@pytest.mark.skipif(os.getuid() != 0, reason="a pid namespace needs root")
def test_processes_of_other_containers_are_not_listed(limited: Machine, start: Start) -> None:
    other = limited.start("hp-0")
    contained = ("unshare", "--pid", "--fork", "--kill-child")
    plain, monitor = client(start, "", *contained), client(start, "be-0", *contained)
    monitor.do(f"allocate {100 * MIB}")
    assert sorted(pid for pid, _ in plain.do("look")["processes"]) == [0, 0, 1]
    assert monitor.do("look")["processes"] == [[1, 100 * MIB]]
    outside = client(start, "hp-0")
    listed = [pid for pid, _ in outside.do("look")["processes"]]
    assert other.pid in listed
    assert 0 not in listed
