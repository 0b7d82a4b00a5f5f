"""A process that asks only how much memory GPUs have, as CUDA's runtime does, sees its grant and is no client."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.hook.harness import Machine
from tests.hook.monitor import GPU, Start
from tests.hook.scripted_client import Client, eventually

MIB = 1 << 20
LIMIT, CONTEXT = 2000, 300
""" The limit of each slot, and what a context takes of it, in MiB. """


def machine_with(build: Path, gpus: int) -> Iterator[Machine]:
    with Machine(build, gpus=gpus, contexts_take=CONTEXT * MIB) as machine:
        machine.start_agent()
        for uuid in machine.uuids:
            machine.agent.set_grant(uuid, "be-0", memory_limit_bytes=LIMIT * MIB)
        yield machine


@pytest.fixture
def two(c_build: Path) -> Iterator[Machine]:
    yield from machine_with(c_build, 2)


@pytest.fixture
def eight(c_build: Path) -> Iterator[Machine]:
    yield from machine_with(c_build, 8)


def asking(machine: Machine, **environment: str) -> Client:
    """Start a process that initialises the driver and makes no context."""
    client = machine.start_in(machine.client_root(*["be-0"] * len(machine.uuids)), **environment)
    client.must("open -1")
    return client


def clients(machine: Machine, gpu: int = 0) -> list[int]:
    return [shown.process_id for slot in machine.gpu(gpu).slots for shown in slot.clients]


def total(client: Client, gpu: int = 0) -> float:
    return client.do(f"total {gpu}").result


def test_a_process_that_asks_what_gpus_are_like_is_no_client(two: Machine) -> None:
    client = asking(two)
    assert [total(client, gpu) for gpu in range(2)] == [LIMIT * MIB] * 2
    client.must("inform 0")
    client.must("inform 1")
    assert clients(two, 0) == clients(two, 1) == []
    client.must("init 1")
    two.until_joined(client, gpu=1)
    assert clients(two, 0) == []
    assert [total(client, gpu) for gpu in range(2)] == [LIMIT * MIB] * 2


def test_helpers_that_ask_the_total_take_nothing_of_the_limit(two: Machine) -> None:
    trainer = two.start("be-0")
    trainer.must(f"alloc {1300 * MIB}")
    left = (LIMIT - CONTEXT - 1300) * MIB
    eventually(lambda: trainer.do("room").result == left, "its own context is known")
    helpers = [asking(two) for _ in range(4)]
    assert [total(helper) for helper in helpers] == [LIMIT * MIB] * 4
    assert trainer.do("room").result == left
    trainer.must(f"alloc {left}")


def test_a_rank_takes_nothing_of_a_gpu_whose_total_it_asks(two: Machine) -> None:
    trainer = two.start("be-0", "be-0")
    trainer.must(f"alloc {1300 * MIB}")
    rank = asking(two)
    assert [total(rank, gpu) for gpu in range(2)] == [LIMIT * MIB] * 2
    rank.must("init 1")
    rank.must(f"alloc {100 * MIB}")
    trainer.must(f"alloc {(LIMIT - CONTEXT - 1300) * MIB}")


def test_a_limit_that_changes_is_shown(two: Machine) -> None:
    client = asking(two)
    assert total(client) == LIMIT * MIB
    for limit in (100 * MIB, 0, LIMIT * MIB):
        two.agent.set_grant(two.uuids[0], "be-0", memory_limit_bytes=limit)
        eventually(lambda limit=limit: total(client) == (limit or GPU), "the new limit is shown")  # type: ignore[misc]
    two.kill_agent()
    assert total(client) == LIMIT * MIB
    two.start_agent()
    two.agent.set_grant(two.uuids[0], "be-0", memory_limit_bytes=100 * MIB)
    eventually(lambda: total(client) == 100 * MIB, "the next agent's limit is shown")


@pytest.mark.parametrize("chosen", ["by number", "by UUID"])
def test_the_total_is_that_of_the_chosen_gpu(two: Machine, chosen: str) -> None:
    two.agent.set_grant(two.uuids[1], "be-0", memory_limit_bytes=100 * MIB)
    names = two.uuids if chosen == "by UUID" else ["0", "1"]
    client = asking(two, CUDA_VISIBLE_DEVICES=f"{names[1]},{names[0]}")
    assert [total(client, gpu) for gpu in range(2)] == [100 * MIB, LIMIT * MIB]
    client.must("init 0")
    assert client.do("info").result == 100 * MIB


@pytest.mark.parametrize("number", [signal.SIGSTOP, signal.SIGKILL])
def test_the_totals_come_soon_while_no_agent_answers(eight: Machine, number: signal.Signals) -> None:
    os.kill(eight.agent_pid, number)
    client = asking(eight)
    answers = [client.do(f"total {gpu}") for gpu in range(8)]
    assert [answer.result for answer in answers] == [LIMIT * MIB] * 8
    assert sum(answer.seconds for answer in answers) < 2  # 8 * 5 s, if each waited for an agent


@pytest.mark.parametrize(("limit", "moves"), [(512 * MIB, False), (GPU + (1 << 30), True), (0, False)])
def test_nvml_and_cuda_show_the_same(machine: Machine, start: Start, limit: int, moves: bool) -> None:
    machine.agent.set_grant(machine.uuids[0], "be-0", memory_limit_bytes=limit, memory_unified=moves)
    asks, monitor = asking(machine), start("be-0")
    shown = limit or GPU
    assert total(asks) == monitor.do("total") == monitor.memory()[0] == shown
    monitor.do("context")
    assert monitor.do("total") == monitor.do("info")[1] == monitor.memory()[0] == shown


def test_nvml_and_cuda_show_the_same_while_no_agent_answers(limited: Machine, start: Start) -> None:
    os.kill(limited.agent_pid, signal.SIGSTOP)
    asks, monitor = asking(limited), start("be-0")
    assert total(asks) == monitor.do("total") == monitor.memory()[0]
    limited.kill_agent()
    monitor.do("context")
    assert monitor.do("total") == monitor.do("info")[1] == monitor.memory()[0] == total(asks)
