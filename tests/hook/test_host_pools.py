"""What memory pools and graphs hold of the driver counts for the limit, not what the program has taken from them."""

from pathlib import Path

import pytest

from tests.hook.harness import Machine, record_word
from tests.hook.limited_slot import LIMIT, MIB, OUT_OF_MEMORY, LimitedTenants
from tests.hook.scripted_client import Client, eventually

DEFAULT, OWN = 0, 1
""" The pools of the scripted client. """


@pytest.fixture
def client(tenants: LimitedTenants) -> Client:
    return tenants.start()


def counted(client: Client) -> int:
    """Return what the hook says that the process holds, in MiB."""
    return record_word(client, "memory_bytes") // MIB


def does(client: Client, command: str) -> bool:
    result = client.do(command).result
    assert result in (0, OUT_OF_MEMORY)
    return result == 0


@pytest.mark.parametrize("pool", [DEFAULT, OWN])
def test_what_a_pool_keeps_after_a_free_counts(client: Client, pool: int) -> None:
    client.must(f"keep {1 << 40} {pool}")
    client.must(f"take {200 * MIB} {pool}")
    assert counted(client) == 200
    client.must("give")
    assert client.do(f"held {pool}").result == 200 * MIB
    client.must(f"take {100 * MIB} {pool}")
    assert counted(client) == 200


def test_a_process_says_whether_it_has_pools(client: Client) -> None:
    client.must(f"alloc {MIB}")
    assert record_word(client, "has_pools") == 0
    client.must(f"take {MIB}")
    assert record_word(client, "has_pools") == 1


@pytest.mark.parametrize("pool", [DEFAULT, OWN])
def test_a_pool_is_trimmed_before_an_allocation_is_refused(client: Client, pool: int) -> None:
    client.must(f"keep {1 << 40} {pool}")
    client.must(f"take {200 * MIB} {pool}")
    client.must("give")
    client.must(f"alloc {400 * MIB}")
    assert client.do(f"held {pool}").result == 112 * MIB
    assert counted(client) == LIMIT
    assert not does(client, f"take {200 * MIB} {1 - pool}")
    client.must(f"take {96 * MIB} {pool}")
    assert client.do(f"held {pool}").result == 112 * MIB, "what the pool can serve needs no trimming"
    assert not does(client, f"alloc {20 * MIB}")
    client.must(f"alloc {16 * MIB}")
    assert client.do(f"held {pool}").result == 96 * MIB
    assert counted(client) == LIMIT


def test_memory_that_a_pool_has_given_back_is_there_again(client: Client) -> None:
    client.must(f"take {300 * MIB}")
    client.must("give")
    client.must(f"alloc {500 * MIB}")
    assert counted(client) == 500


def test_the_free_memory_follows_what_the_pools_hold(client: Client) -> None:
    client.must(f"keep {1 << 40}")
    client.must(f"take {200 * MIB}")
    client.must("give")
    assert client.do("room").result == (LIMIT - 200) * MIB
    client.must("trim 0")
    assert client.do("room").result == LIMIT * MIB


def test_other_processes_lack_what_a_pool_keeps_until_it_is_trimmed(tenants: LimitedTenants) -> None:
    one, two = tenants.start(), tenants.start()
    one.must(f"keep {1 << 40}")
    one.must(f"take {300 * MIB}")
    one.must("give")
    assert not does(two, f"alloc {300 * MIB}")
    one.must("trim 0")
    assert eventually(lambda: does(two, f"alloc {300 * MIB}"), "what the pool held is there again")


def test_the_limit_holds_for_what_a_pool_needs_besides_what_it_keeps(client: Client) -> None:
    client.must(f"keep {1 << 40}")
    for _ in range(3):
        client.must(f"take {160 * MIB}")
    for _ in range(3):
        client.must("give")
    client.must(f"take {480 * MIB}")
    assert not does(client, f"take {64 * MIB}")
    client.must(f"take {32 * MIB}")
    assert counted(client) == LIMIT


def test_memory_of_a_destroyed_pool_counts_until_it_is_freed(client: Client) -> None:
    client.must(f"take {300 * MIB} {OWN}")
    client.must("endpool")
    assert counted(client) == 300
    assert not does(client, f"alloc {300 * MIB}")
    client.must("give")
    assert counted(client) == 0
    client.must(f"alloc {LIMIT * MIB}")


def test_a_pool_that_is_destroyed_counts_no_more(client: Client) -> None:
    for _ in range(3):
        client.must(f"keep {1 << 40} {OWN}")
        client.must(f"take {300 * MIB} {OWN}")
        client.must("give")
        assert counted(client) == 300
        client.must("endpool")
        assert counted(client) == 0


def test_a_failed_allocation_from_a_pool_leaves_nothing(machine: Machine) -> None:
    client = machine.start("be-0")
    assert not does(client, f"take {100 << 30}")
    assert counted(client) == 0


def test_pools_of_each_gpu_count_there(c_build: Path) -> None:
    with Machine(c_build, gpus=2) as machine:
        machine.start_agent()
        for uuid in machine.uuids:
            machine.agent.set_grant(uuid, "be-0", memory_limit_bytes=LIMIT * MIB)
        client = machine.start_in(machine.client_root("be-0", "be-0"))
        client.must("init 0")
        client.must("init 1")
        client.must(f"keep {1 << 40}")
        client.must(f"take {300 * MIB}")
        client.must("give")
        client.must("use 0")
        client.must(f"take {400 * MIB}")
        shown = [machine.shown(client, gpu) for gpu in range(2)]
        assert [found and found.memory_bytes // MIB for found in shown] == [400, 300]


@pytest.mark.parametrize("role", ["be", "hp"])
@pytest.mark.parametrize("way", [0, 1], ids=["nodes", "capture"])
def test_memory_that_graphs_hold_counts_after_the_launch(machine: Machine, role: str, way: int) -> None:
    machine.agent.set_grant(machine.uuids[0], f"{role}-0", memory_limit_bytes=LIMIT * MIB)
    client = machine.start(f"{role}-0")
    client.must(f"allocgraph {200 * MIB} {way}")
    assert counted(client) == 0
    client.must("rungraph")
    assert client.do("graphsheld").result == 200 * MIB
    assert counted(client) == 200


def test_graph_memory_is_trimmed_before_an_allocation_is_refused(client: Client) -> None:
    client.must(f"allocgraph {200 * MIB}")
    client.must("rungraph")
    client.must(f"alloc {400 * MIB}")
    assert client.do("graphsheld").result == 0
    assert counted(client) == 400


def test_a_launch_beyond_the_limit_runs_and_later_allocations_are_refused(client: Client) -> None:
    client.must(f"alloc {400 * MIB}")
    client.must(f"allocgraph {200 * MIB}")
    client.must("rungraph")
    assert client.do("graphsheld").result == 0, "what is over the limit is given back at once where it is free"
    assert counted(client) == 400
    assert not does(client, f"take {200 * MIB}")


def test_an_upload_does_no_harm(client: Client) -> None:
    client.must(f"allocgraph {200 * MIB}")
    client.must("upgraph")
    assert counted(client) == client.do("graphsheld").result // MIB


def test_pools_count_no_more_after_the_device_is_reset(client: Client) -> None:
    client.must(f"keep {1 << 40}")
    client.must(f"take {300 * MIB}")
    client.must("give")
    client.must("reset")
    assert counted(client) == 0
    client.must(f"alloc {LIMIT * MIB}")


def test_a_thread_that_has_no_descriptors_of_the_driver_asks_it_nothing(client: Client) -> None:
    """The thread that talks with the agent has closed them for itself; another thread looks at the pools."""
    client.must(f"keep {1 << 40}")
    before = {thread.name for thread in client.threads()}
    client.must(f"take {300 * MIB}")
    assert eventually(lambda: {thread.name for thread in client.threads()} - before, "a thread of its own")
    client.must("give")
    client.must("trim 0")
    assert eventually(lambda: counted(client) == 0, "that thread sees what the pool has given back")


def test_an_allocation_that_the_pool_can_serve_makes_it_give_nothing_back(client: Client) -> None:
    client.must(f"keep {1 << 40}")
    client.must(f"take {300 * MIB}")
    client.must("give")
    client.must(f"take {280 * MIB}")
    assert client.do(f"held {DEFAULT}").result == 300 * MIB
    assert counted(client) == 300
