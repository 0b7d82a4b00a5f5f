"""The page of a job: which clients get it, what they may do with it, and what the agent does when one leaves."""

import contextlib
import fcntl
import os
from collections.abc import Iterator
from ctypes import sizeof
from pathlib import Path

import pytest

from orion.hook import join, layout
from orion.node_agent.api import agent_pb2
from orion.node_agent.api.client import AgentClient
from tests.node_agent.conftest import GPU, AgentProcess, eventually
from tests.node_agent.job_ranks import TIED, rank, receives_no_job, same_memory, words_of
from tests.node_agent.protocol_client import Page, ProtocolClient

SECOND = GPU[:-1] + "1"


@pytest.fixture
def node(stopped_agent: AgentProcess, monkeypatch: pytest.MonkeyPatch) -> AgentProcess:
    """An agent of two GPUs."""
    monkeypatch.setenv("ORION_SIM_GPUS", "2")
    stopped_agent.start()
    return stopped_agent


@pytest.fixture
def stack() -> Iterator[contextlib.ExitStack]:
    with contextlib.ExitStack() as stack:
        yield stack


def slots_of_one_process(node: AgentProcess, role: agent_pb2.Role = agent_pb2.BE) -> tuple[Path, Path]:
    """Take a slot on each GPU, as `orion run` does; return their folders."""
    with AgentClient(node.root) as administrator:
        first, second = (administrator.open_slot(gpu, role, owner_process_id=os.getpid()) for gpu in (GPU, SECOND))
    return Path(first.directory), Path(second.directory)


def test_processes_of_one_job_on_two_gpus_get_one_page(node: AgentProcess, stack: contextlib.ExitStack) -> None:
    first, second = slots_of_one_process(node)
    one = rank(stack, first)
    assert receives_no_job(one)
    other = rank(stack, second)
    (here, page), (there, same) = one.receive_job(), other.receive_job()
    assert (here, there) == (0, 1)
    assert same_memory(page, same)
    header = layout.PageHeader.from_buffer_copy(page.memory[: sizeof(layout.PageHeader)])
    assert (header.magic, header.layout, header.kind) == (layout.PAGE_MAGIC, layout.LAYOUT_NEWEST, layout.PageKind.JOB)
    assert page.get(layout.JobPage, "ranks") == 2
    page.set(layout.JobPage, "allowed", 7)
    assert same.get(layout.JobPage, "allowed") == 7


def test_a_client_has_the_page_before_it_is_managed(node: AgentProcess, stack: contextlib.ExitStack) -> None:
    first, second = slots_of_one_process(node)
    rank(stack, first)
    other = rank(stack, second)
    types = [type(other.receive_message()) for _ in range(2)]
    assert types == [join.Job, join.Neighbours]


def test_others_get_no_page(node: AgentProcess, stack: contextlib.ExitStack) -> None:
    first, second = slots_of_one_process(node)
    one, other = rank(stack, first), rank(stack, second)
    outside = [rank(stack, node.slot("be-7", gpu)) for gpu in (GPU, SECOND)]
    hp = [rank(stack, folder) for folder in slots_of_one_process(node, agent_pb2.HP)]
    one.receive_job(), other.receive_job()
    assert all(receives_no_job(client) for client in [*outside, *hp])


def test_one_process_on_two_gpus_gets_no_page(node: AgentProcess, stack: contextlib.ExitStack) -> None:
    clients = [stack.enter_context(ProtocolClient(folder).join()) for folder in slots_of_one_process(node)]
    assert all(receives_no_job(client) for client in clients)


def test_processes_on_one_gpu_get_no_page(node: AgentProcess, stack: contextlib.ExitStack) -> None:
    first, _ = slots_of_one_process(node)
    clients = [rank(stack, first) for _ in range(2)]
    assert all(receives_no_job(client) for client in clients)


def test_the_words_of_a_rank_that_has_left_are_cleared(node: AgentProcess, stack: contextlib.ExitStack) -> None:
    first, second = slots_of_one_process(node)
    one, other = rank(stack, first), rank(stack, second)
    _, page = one.receive_job()
    gone, _ = other.receive_job()
    begin = TIED + gone * sizeof(layout.Rank)
    page.memory[begin : begin + sizeof(layout.Rank)] = b"\xff" * sizeof(layout.Rank)
    page.memory[TIED : TIED + 4] = b"\1\0\0\0"
    other.sock.close()
    eventually(lambda: not any(page.memory[begin : begin + sizeof(layout.Rank)]), "the words are cleared")
    assert page.memory[TIED] == 1, "the words of the rank that stays are its own"
    again, same = rank(stack, second).receive_job()
    assert again == gone
    assert same_memory(page, same)
    assert one.jobs == [(0, page)], "a client gets the page once"


def test_a_job_that_has_ended_leaves_nothing(node: AgentProcess, stack: contextlib.ExitStack) -> None:
    first, second = slots_of_one_process(node)
    before = node.descriptors()
    one, other = rank(stack, first), rank(stack, second)
    _, page = one.receive_job()
    old = os.fstat(page.fd).st_ino
    one.sock.close()
    other.sock.close()
    eventually(lambda: node.descriptors() <= before, "the agent has closed the page")
    one, other = rank(stack, first), rank(stack, second)
    number, page = one.receive_job()
    assert number == 0
    assert os.fstat(page.fd).st_ino != old
    assert not any(page.memory[TIED:])


def test_no_rank_can_take_the_page_from_the_others(node: AgentProcess, stack: contextlib.ExitStack) -> None:
    first, second = slots_of_one_process(node)
    one, other = rank(stack, first), rank(stack, second)
    _, page = one.receive_job()
    for seal in (fcntl.F_SEAL_WRITE, 0x10, fcntl.F_SEAL_SEAL):
        with pytest.raises(PermissionError):
            fcntl.fcntl(page.fd, fcntl.F_ADD_SEALS, seal)
    for size in (0, 1 << 20):
        with pytest.raises(PermissionError):
            os.ftruncate(page.fd, size)
    other.receive_job()


@pytest.mark.parametrize("nonsense", [b"\0", b"\xff", b"\x55"])
def test_the_agent_does_not_depend_on_what_ranks_write(
    node: AgentProcess, stack: contextlib.ExitStack, nonsense: bytes
) -> None:
    first, second = slots_of_one_process(node)
    one, other = rank(stack, first), rank(stack, second)
    _, page = one.receive_job()
    page.memory[:] = nonsense * layout.PAGE_SIZE
    other.sock.close()
    third = rank(stack, second)
    assert third.receive_job()[0] == 1


def restart(node: AgentProcess, *returning: ProtocolClient) -> None:
    """Kill the agent if it runs, start the next one, and let clients return to it."""
    if node.process is not None:
        node.kill()
    node.start()
    for client in returning:
        client.return_to_agent()


def test_the_next_agent_takes_over_the_page(node: AgentProcess, stack: contextlib.ExitStack) -> None:
    first, second = slots_of_one_process(node)
    one, other = rank(stack, first), rank(stack, second)
    (here, page), (there, _) = one.receive_job(), other.receive_job()
    for each in (here, there):
        words_of(page, each)[:] = b"\1" * sizeof(layout.Rank)
    node.kill()
    page.set(layout.JobPage, "allowed", 7)  # the page works without an agent
    assert other.jobs[0][1].get(layout.JobPage, "allowed") == 7
    restart(node, one, other)
    third, same = rank(stack, second).receive_job()
    assert same_memory(page, same)
    assert (third, page.get(layout.JobPage, "ranks")) == (2, 3)
    assert all(bytes(words_of(page, each)) == b"\1" * sizeof(layout.Rank) for each in (here, there))
    assert all(receives_no_job(client) for client in (one, other)), "clients that have the page do not get it again"


def test_every_agent_takes_over_the_page(node: AgentProcess, stack: contextlib.ExitStack) -> None:
    first, second = slots_of_one_process(node)
    clients = [rank(stack, first), rank(stack, second)]
    (_, page), _ = [client.receive_job() for client in clients]
    for _ in range(2):
        restart(node, *clients)
        clients.append(rank(stack, second))
        assert same_memory(page, clients[-1].receive_job()[1])
    assert [client.jobs[0][0] for client in clients] == [0, 1, 2, 3]


def test_clients_that_join_the_next_agent_first_wait_for_the_page(
    node: AgentProcess, stack: contextlib.ExitStack
) -> None:
    first, second = slots_of_one_process(node)
    one, other = rank(stack, first), rank(stack, second)
    (_, page), _ = one.receive_job(), other.receive_job()
    restart(node)
    fresh = [rank(stack, first), rank(stack, second)]
    assert all(receives_no_job(client) for client in fresh)
    other.return_to_agent()
    for client in fresh:
        assert same_memory(page, client.receive_job()[1])
    assert {client.jobs[0][0] for client in fresh} == {2, 3}, "the rank of the client that may still return is kept"


def test_the_rank_of_a_client_that_does_not_return_becomes_free(
    node: AgentProcess, stack: contextlib.ExitStack
) -> None:
    first, second = slots_of_one_process(node)
    one, other = rank(stack, first), rank(stack, second)
    (_, page), (gone, _) = one.receive_job(), other.receive_job()
    words_of(page, gone)[:] = b"\xff" * sizeof(layout.Rank)
    node.kill()
    other.sock.close()
    restart(node, one)
    eventually(lambda: not any(words_of(page, gone)), "the words are cleared")
    again, same = rank(stack, second).receive_job()
    assert again == gone
    assert same_memory(page, same)


def test_a_job_whose_page_nobody_brings_gets_another_one(node: AgentProcess, stack: contextlib.ExitStack) -> None:
    first, second = slots_of_one_process(node)
    one, other = rank(stack, first), rank(stack, second)
    (_, page), _ = one.receive_job(), other.receive_job()
    for client in (one, other):
        client.jobs.clear()  # as a hook of an earlier version, which brings only its own two pages
    restart(node, one, other)
    assert not same_memory(page, one.receive_job()[1])
    assert same_memory(one.jobs[0][1], other.receive_job()[1])


@pytest.mark.parametrize("forged", ["memory", "file", "own"])
def test_only_the_page_of_the_job_is_taken_over(
    node: AgentProcess, stack: contextlib.ExitStack, forged: str, tmp_path: Path
) -> None:
    first, second = slots_of_one_process(node)
    one, other = rank(stack, first), rank(stack, second)
    (number, page), _ = one.receive_job(), other.receive_job()
    if forged == "memory":
        fd = os.memfd_create("orion-job", os.MFD_ALLOW_SEALING)
    elif forged == "file":
        fd = os.open(tmp_path / "page", os.O_RDWR | os.O_CREAT)
    else:
        fd = os.dup(one.record.fd)
    os.truncate(fd, layout.PAGE_SIZE)
    one.jobs = [(number, Page.of(fd, False))]
    restart(node, one)
    one.jobs.clear()
    other.return_to_agent()
    assert same_memory(page, one.receive_job()[1]), "it gets the page that another client has brought"


def test_more_clients_than_a_page_has_ranks_do_no_harm(node: AgentProcess, stack: contextlib.ExitStack) -> None:
    first, second = slots_of_one_process(node)
    one = rank(stack, second)
    crowd = [stack.enter_context(ProtocolClient(first).join()) for _ in range(layout.RANKS_MAX)]
    last = crowd.pop()
    ranks = {client.receive_job()[0] for client in [one, *crowd]}
    assert ranks == set(range(layout.RANKS_MAX))
    assert receives_no_job(last)
