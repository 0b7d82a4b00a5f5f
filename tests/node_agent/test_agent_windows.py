"""Each be slot has the whole window, and the agent divides it among the slot's active clients."""

import contextlib

from orion.hook import layout
from orion.node_agent.api.client import AgentClient
from tests.node_agent.conftest import GPU, AgentProcess, eventually
from tests.node_agent.protocol_client import ProtocolClient, current_grant


def share(client: ProtocolClient) -> int:
    window_share: int = current_grant(client.grant).window_share_ns
    return window_share


def test_each_slot_has_the_whole_window_because_slots_take_turns(agent: AgentProcess) -> None:
    with contextlib.ExitStack() as stack:
        clients = [stack.enter_context(ProtocolClient(agent.slot(f"be-{number}")).join()) for number in range(3)]
        for client in clients[:2]:
            client.record.set(layout.RecordPage, "in_flight_ns", 1)
        eventually(lambda: current_grant(clients[0].grant).plan_until_ns, "they take turns")
        assert [share(client) for client in clients] == [400_000] * 3


def test_the_clients_of_a_slot_divide_the_window(agent: AgentProcess) -> None:
    with contextlib.ExitStack() as stack:
        clients = [stack.enter_context(ProtocolClient(agent.slot("be-0")).join()) for _ in range(3)]
        eventually(lambda: share(clients[0]) == 400_000, "no client is active")
        for client in clients[:2]:
            client.record.set(layout.RecordPage, "in_flight_ns", 1)
        eventually(lambda: share(clients[0]) == 200_000, "two are active")
        clients[1].record.set(layout.RecordPage, "in_flight_ns", 0)
        eventually(lambda: share(clients[0]) == 400_000, "one is active")
        clients[1].record.set(layout.RecordPage, "waiting_since_ns", 1)
        eventually(lambda: share(clients[0]) == 200_000, "a waiting client is active")


def test_each_of_many_clients_can_launch(agent: AgentProcess) -> None:
    with contextlib.ExitStack() as stack:
        crowd = [stack.enter_context(ProtocolClient(agent.slot("be-0")).join()) for _ in range(30)]
        for client in crowd:
            client.record.set(layout.RecordPage, "waiting_since_ns", 1)
        eventually(lambda: share(crowd[0]) == 50_000, "a smallest share")


def test_a_new_window_reaches_running_clients(agent: AgentProcess) -> None:
    with ProtocolClient(agent.slot("be-0")).join() as client, AgentClient(agent.root) as administrator:
        administrator.set_policy(GPU, window_us=800)
        assert share(client) == 800_000


def test_the_busy_ratio_follows_hp(agent: AgentProcess) -> None:
    with ProtocolClient(agent.slot("hp-0")).join() as hp, AgentClient(agent.root) as administrator:

        def ratio() -> float:
            return administrator.snapshot().gpus[0].hp_busy_ratio

        assert ratio() == 0.0
        hp.record.set(layout.RecordPage, "busy_since_ns", 1)
        eventually(lambda: ratio() == 1.0, "busy all the time")
        hp.record.set(layout.RecordPage, "busy_since_ns", 0)
        eventually(lambda: ratio() == 0.0, "idle again")
