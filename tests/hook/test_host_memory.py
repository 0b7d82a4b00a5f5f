"""The limit of device memory applies from a process's first allocation on, whichever function allocates."""

import os
import signal
from pathlib import Path

import pytest

from orion.node_agent.api import agent_pb2
from tests.hook.harness import Machine
from tests.hook.scripted_client import Client, eventually

MIB = 1 << 20
LIMIT = 512 * MIB
OUT_OF_MEMORY = 2

WAYS = {
    "cuMemAlloc": 0,
    "cuMemAllocPitch": 1,
    "cuMemAllocManaged": 2,
    "cuMemAllocAsync": 3,
    "cuMemAllocFromPoolAsync": 4,
    "cuMemCreate": 5,
    "cuArrayCreate": 6,
    "cuMipmappedArrayCreate": 7,
    "cuMemMap and cuMemRelease": 8,
    "cuMemMap, cuMemRelease and cuMemRetainAllocationHandle": 9,
}
ON_THE_SIMULATED_GPU = {name: way for name, way in WAYS.items() if "Array" not in name}
""" Only a refusal by the hook can be tested for arrays: the simulated GPU has none. """
OF_A_CONTEXT = {name: WAYS[name] for name in ("cuMemAlloc", "cuMemAllocPitch", "cuMemAllocManaged")}
""" What ends with its context, says the documentation of cuCtxDestroy. """


def begin(machine: Machine, *commands: str) -> Client:
    """Start a be client under the limit. It executes these commands without a pause."""
    machine.agent.set_grant(machine.uuids[0], "be-0", memory_limit_bytes=LIMIT)
    client = machine.start_in(machine.client_root("be-0"))
    client.send("\n".join(commands))
    return client


def shown(machine: Machine, client: Client) -> agent_pb2.Client:
    machine.until_joined(client)
    found = machine.shown(client)
    assert found is not None
    return found


@pytest.mark.parametrize("way", WAYS.values(), ids=list(WAYS))
def test_the_limit_holds_from_the_first_allocation_on(machine: Machine, way: int) -> None:
    client = begin(machine, "open 0", f"alloc {1024 * MIB} {way}")
    assert client.answer().result == 0
    assert client.answer().result == OUT_OF_MEMORY
    assert shown(machine, client).memory_bytes == 0


def test_the_limit_holds_for_memory_that_is_allocated_before_there_is_a_context(machine: Machine) -> None:
    client = begin(machine, "open -1", f"alloc {1024 * MIB} {WAYS['cuMemCreate']}")
    assert client.answer().result == 0
    assert client.answer().result == OUT_OF_MEMORY


def test_an_immediate_memory_query_returns_the_limit(machine: Machine) -> None:
    client = begin(machine, "open 0", "info")
    assert client.answer().result == 0
    assert client.answer().result == LIMIT


def test_the_total_is_the_limit_before_there_is_a_context(machine: Machine) -> None:
    client = begin(machine, "open -1", "total 0")
    assert client.answer().result == 0
    assert client.answer().result == LIMIT


@pytest.mark.parametrize("way", ON_THE_SIMULATED_GPU.values(), ids=list(ON_THE_SIMULATED_GPU))
def test_each_gpu_has_its_own_limit_and_sum(c_build: Path, way: int) -> None:
    with Machine(c_build, gpus=2) as machine:
        machine.start_agent()
        for gpu, limit in enumerate((LIMIT, LIMIT // 2)):
            machine.agent.set_grant(machine.uuids[gpu], "be-0", memory_limit_bytes=limit)
        client = machine.start_in(machine.client_root("be-0", "be-0"))
        client.must("init 0")
        client.must("init 1")
        assert [client.do(f"total {gpu}").result for gpu in range(2)] == [LIMIT, LIMIT // 2]
        client.must("use 1")
        assert client.do(f"alloc {400 * MIB} {way}").result == OUT_OF_MEMORY
        client.must(f"alloc {200 * MIB} {way}")
        client.must("use 0")
        client.must(f"alloc {400 * MIB} {way}")
        assert client.do(f"alloc {200 * MIB} {way}").result == OUT_OF_MEMORY
        shown = [machine.shown(client, gpu) for gpu in range(2)]
        assert [found and found.memory_bytes for found in shown] == [400 * MIB, 200 * MIB]


@pytest.mark.parametrize("way", [10, 11], ids=["its default pool", "a pool of the program"])
def test_the_limit_holds_for_pools_of_a_gpu_without_a_context(c_build: Path, way: int) -> None:
    with Machine(c_build, gpus=2) as machine:
        machine.start_agent()
        for uuid in machine.uuids:
            machine.agent.set_grant(uuid, "be-0", memory_limit_bytes=LIMIT)
        client = machine.start_in(machine.client_root("be-0", "be-0"))
        client.must("init 0")
        assert client.do(f"alloc {1024 * MIB} {way}").result == OUT_OF_MEMORY
        client.must(f"alloc {256 * MIB} {way}")
        machine.until_joined(client, gpu=1)


def test_a_first_allocation_within_the_limit_is_shown(machine: Machine) -> None:
    client = begin(machine, "open 0", f"alloc {256 * MIB}")
    assert [client.answer().result, client.answer().result] == [0, 0]
    assert shown(machine, client).memory_bytes == 256 * MIB


def test_memory_allocated_without_an_agent_counts_once_an_agent_serves(bare_machine: Machine) -> None:
    client = bare_machine.start("be-0")
    client.must(f"alloc {256 * MIB}")
    bare_machine.start_agent()
    bare_machine.agent.set_grant(bare_machine.uuids[0], "be-0", memory_limit_bytes=LIMIT)
    eventually(lambda: shown(bare_machine, client).memory_bytes == 256 * MIB, "its memory is shown")
    assert client.do(f"alloc {300 * MIB}").result == OUT_OF_MEMORY


@pytest.mark.quiet
def test_a_silent_agent_delays_only_the_first_allocation_and_for_a_bounded_time(machine: Machine) -> None:
    os.kill(machine.agent_pid, signal.SIGSTOP)
    client = machine.start_in(machine.client_root("be-0"))
    client.send(f"open 0\nalloc {1024 * MIB}\nalloc {MIB}")
    opened, first, second = client.answer(), client.answer(), client.answer()
    assert (opened.result, first.result, second.result) == (0, 0, 0)
    assert first.seconds < 2.5
    assert second.seconds < 0.1


@pytest.mark.parametrize("way", [8, 9])
@pytest.mark.parametrize("removals", [(1, 2), (2, 1), (3,)], ids=["first, second", "second, first", "both at once"])
def test_mapped_memory_counts_until_its_last_mapping_is_removed(
    machine: Machine, way: int, removals: tuple[int, ...]
) -> None:
    client = begin(machine, "open 0", f"alloc {400 * MIB} {way}")
    assert [client.answer().result, client.answer().result] == [0, 0]
    for number in removals:
        assert client.do(f"alloc {200 * MIB}").result == OUT_OF_MEMORY
        client.must(f"unmap {number}")
    client.must(f"alloc {500 * MIB}")
    assert shown(machine, client).memory_bytes == 500 * MIB


@pytest.mark.parametrize("way", OF_A_CONTEXT.values(), ids=list(OF_A_CONTEXT))
@pytest.mark.parametrize("end", ["reset", "context"])
def test_memory_that_ends_with_its_context_counts_no_more(machine: Machine, way: int, end: str) -> None:
    client = begin(machine, "init 0")
    client.answer()
    for bytes_more in range(3):
        size = 400 * MIB + bytes_more * MIB
        if end == "context":
            client.must(f"context 100 {size} {way}")
        else:
            client.must(f"alloc {size} {way}")
            client.must("reset")
        assert shown(machine, client).memory_bytes == 0
    client.must(f"alloc {LIMIT}")


@pytest.mark.parametrize("way", [WAYS["cuMemCreate"], WAYS["cuMemMap and cuMemRelease"]])
def test_memory_that_outlives_its_context_counts_on(machine: Machine, way: int) -> None:
    client = begin(machine, "init 0")
    client.answer()
    client.must(f"alloc {400 * MIB} {way}")
    client.must("reset")
    assert client.do(f"alloc {200 * MIB}").result == OUT_OF_MEMORY
    assert shown(machine, client).memory_bytes == 400 * MIB


def test_a_release_that_leaves_a_reference_gives_nothing_back(machine: Machine) -> None:
    client = begin(machine, "init 0")
    client.answer()
    client.must(f"alloc {400 * MIB}")
    assert client.do("retain 0.1 100").result > 0
    client.must(f"context 100 {100 * MIB}")
    assert shown(machine, client).memory_bytes == 400 * MIB


def test_memory_of_a_green_context_ends_with_the_primary_context(machine: Machine) -> None:
    client = begin(machine, "init 0")
    client.answer()
    client.must("green 1 100 0")
    client.must(f"alloc {400 * MIB}")
    client.must("reset")
    assert shown(machine, client).memory_bytes == 0


def test_the_end_of_a_context_leaves_other_gpus_alone(c_build: Path) -> None:
    with Machine(c_build, gpus=2) as machine:
        machine.start_agent()
        for gpu in range(2):
            machine.agent.set_grant(machine.uuids[gpu], "be-0", memory_limit_bytes=LIMIT)
        client = machine.start_in(machine.client_root("be-0", "be-0"))
        for gpu in range(2):
            client.must(f"init {gpu}")
            client.must(f"alloc {400 * MIB}")
        client.must("reset")
        shown = [machine.shown(client, gpu) for gpu in range(2)]
        assert [found and found.memory_bytes for found in shown] == [400 * MIB, 0]


def test_the_limit_holds_for_more_allocations_than_one_table_has(machine: Machine) -> None:
    client = begin(machine, "open 0", f"many 40000 {LIMIT // 32768}")
    assert client.answer().result == 0
    assert client.answer().result == 32768
