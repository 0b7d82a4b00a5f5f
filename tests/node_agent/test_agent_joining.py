"""Joining a slot: what a client gets, what it learns of other clients, and when it is refused."""

import contextlib
import os
import time

import pytest

from orion.hook import join, layout
from tests.node_agent.conftest import GPU, AgentProcess, eventually
from tests.node_agent.protocol_client import (
    ProtocolClient,
    Refused,
    connect,
    current_grant,
    current_policy,
    hello,
    receive,
)


def test_a_client_gets_its_pages(agent: AgentProcess) -> None:
    with ProtocolClient(agent.slot("be-1")).join() as client:
        assert (client.welcome.role, client.welcome.layout) == (layout.Role.BE, layout.LAYOUT_NEWEST)
        kinds = {}
        for page in (client.policy, client.grant, client.busy, client.record):
            header = layout.PageHeader.from_buffer_copy(page.memory[:64])
            assert (header.magic, header.layout) == (layout.PAGE_MAGIC, layout.LAYOUT_NEWEST)
            assert header.gpu == GPU.encode()
            kinds[header.kind] = page
        assert list(kinds) == [
            layout.PageKind.POLICY,
            layout.PageKind.GRANT,
            layout.PageKind.BUSY,
            layout.PageKind.RECORD,
        ]
        assert client.record.get(layout.RecordPage, "client_index") == client.welcome.client_index
        assert client.record.get(layout.RecordPage, "generation") == client.welcome.generation
        policy, grant = current_policy(client.policy), current_grant(client.grant)
        assert (policy.kind, policy.window_ns) == (layout.PolicyKind.ORION, 400_000)
        assert (policy.linger_floor_ns, policy.linger_ceiling_ns) == (50_000, 2_000_000)
        assert policy.stall_ns == 1_000_000_000
        assert (grant.role, grant.window_share_ns, grant.memory_limit_bytes) == (layout.Role.BE, 400_000, 0)


def test_be_clients_learn_of_hp_clients_and_hp_clients_learn_of_none(agent: AgentProcess) -> None:
    with ProtocolClient(agent.slot("be-0")).join() as be:
        answer = be.receive_message()
        assert isinstance(answer, join.Neighbours)
        assert answer.count == 0
        with ProtocolClient(agent.slot("hp-0")).join() as hp, ProtocolClient(agent.slot("be-1")).join() as late:
            be.receive_until({hp.key})
            late.receive_until({hp.key})
            eventually(lambda: be.policy.get(layout.PolicyPage, "be_clients") == 2, "both be clients are counted")
            assert be.policy.get(layout.PolicyPage, "hp_clients") == 1
            key = hp.key
            hp.sock.settimeout(0.1)
            with pytest.raises(TimeoutError):
                hp.sock.recv(1)
        be.receive_until(set())
        with ProtocolClient(agent.slot("hp-0")).join() as again:
            assert again.key[1] > key[1]
            be.receive_until({again.key})


def test_a_page_is_sent_to_others_only_after_it_is_sealed(agent: AgentProcess) -> None:
    with ProtocolClient(agent.slot("hp-0")).join(ready=False) as hp, ProtocolClient(agent.slot("be-0")).join() as be:
        answer = be.receive_message()
        assert isinstance(answer, join.Neighbours)
        assert answer.count == 0
        hp.ready()
        be.receive_until({hp.key})


@pytest.mark.parametrize(("oldest", "newest"), [(layout.LAYOUT_NEWEST + 1, 9), (0, 0), (9, 2), (2**32 - 1, 2**32 - 1)])
def test_another_layout_version_is_refused_with_a_sentence(
    refusing_agent: AgentProcess, oldest: int, newest: int
) -> None:
    supported = f"the agent supports layouts {layout.LAYOUT_OLDEST} to {layout.LAYOUT_NEWEST}"
    with pytest.raises(Refused, match=supported) as refusal:
        ProtocolClient(refusing_agent.slot("be-0")).join(oldest=oldest, newest=newest)
    assert refusal.value.code is join.Refusal.LAYOUT


def test_a_gpu_has_512_client_indexes_and_reserves_some_for_each_slot(agent: AgentProcess) -> None:
    with contextlib.ExitStack() as stack:
        keys = set()
        for _ in range(448):
            keys.add(stack.enter_context(ProtocolClient(agent.slot("be-0")).join()).key)
        with pytest.raises(Refused) as refusal:
            ProtocolClient(agent.slot("be-0")).join()
        assert refusal.value.code is join.Refusal.FULL
        for name in ("hp-0", *(f"be-{number}" for number in range(1, 8))):
            for _ in range(8):
                keys.add(stack.enter_context(ProtocolClient(agent.slot(name)).join()).key)
        assert {place for place, _ in keys} == set(range(512))
        with pytest.raises(Refused):
            ProtocolClient(agent.slot("be-1")).join()


def test_a_slot_that_joins_too_often_gets_a_retry_time(agent: AgentProcess) -> None:
    def join_again_and_again() -> None:
        # A fast machine is refused after about 600 joins. One that joins less than 50 times a second never is, and a
        # busy one joins so slowly with one client after the other.
        for _ in range(200):
            with contextlib.ExitStack() as stack:
                crowd = [stack.enter_context(connect(agent.slot("be-0"))) for _ in range(16)]
                for sock in crowd:
                    sock.send(hello())
                for sock in crowd:
                    answer, descriptors = receive(sock)
                    for descriptor in descriptors:
                        os.close(descriptor)
                    if isinstance(answer, join.Refused):
                        raise Refused(answer)

    with pytest.raises(Refused) as refusal:
        join_again_and_again()
    assert refusal.value.code is join.Refusal.RATE
    assert 0 < refusal.value.retry_ms < 5_000
    with ProtocolClient(agent.slot("be-1")).join():
        pass


def test_300_clients_join_quickly(agent: AgentProcess) -> None:
    with contextlib.ExitStack() as stack:
        hp = stack.enter_context(ProtocolClient(agent.slot("hp-0")).join())
        began = time.monotonic()
        clients = [stack.enter_context(ProtocolClient(agent.slot("be-0")).join()) for _ in range(300)]
        for client in clients:
            client.receive_until({hp.key})
        seconds = time.monotonic() - began
    print(f"{seconds:.3f} s")
    # Normally 0.25 to 0.4 s on two cores. All of that is CPU time, and other tests may run meanwhile, so the limit is
    # more than ten times as high. The figure is printed for comparison.
    assert seconds < 10.0


def test_be_learns_of_more_hp_clients_than_a_message_holds(agent: AgentProcess) -> None:
    with contextlib.ExitStack() as stack:
        early = stack.enter_context(ProtocolClient(agent.slot("be-0")).join())
        crowd = [stack.enter_context(ProtocolClient(agent.slot("hp-0")).join()) for _ in range(300)]
        late = stack.enter_context(ProtocolClient(agent.slot("be-0")).join())
        keys = {hp.key for hp in crowd}
        late.receive_until(keys)
        early.receive_until(keys)
        for hp in crowd[:280]:
            hp.sock.close()
        late.receive_until({hp.key for hp in crowd[280:]})


def test_all_descriptors_are_closed_afterwards(agent: AgentProcess) -> None:
    before = agent.descriptors()
    with contextlib.ExitStack() as stack:
        for name in ("hp-0", "be-0"):
            for ready in (True, False):
                for _ in range(20):
                    stack.enter_context(ProtocolClient(agent.slot(name)).join(ready=ready))
        assert agent.descriptors() > before
    eventually(lambda: agent.descriptors() <= before, "every descriptor is closed")
