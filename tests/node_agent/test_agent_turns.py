"""be slots take turns: tested with the pages and the sockets of a real agent."""

import contextlib
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from orion.hook import join, layout
from orion.node_agent.api.client import AgentClient
from tests.node_agent.conftest import GPU, AgentProcess, eventually
from tests.node_agent.protocol_client import ProtocolClient, current_grant
from tests.node_agent.turn_reading import has_turn, takes_turns, wish, wish_by_connection

STEP_SECONDS = 0.0005


@contextlib.contextmanager
def gpu_for(clients: list[ProtocolClient]) -> Iterator[dict[ProtocolClient, float]]:
    """Simulate a GPU whose time the clients that have the turn share.

    Yields the GPU time of each client in seconds.
    """
    used = dict.fromkeys(clients, 0.0)
    over = threading.Event()

    def work() -> None:
        before = time.monotonic()
        while not over.wait(STEP_SECONDS):
            now = time.monotonic()
            working = [client for client in clients if has_turn(client)]
            for client in working:
                used[client] += (now - before) / len(working)
                client.record.set(layout.RecordPage, "gpu_ns", int(used[client] * 1e9))
            before = now

    for client in clients:
        client.record.set(layout.RecordPage, "in_flight_ns", 100_000)
    worker = threading.Thread(target=work)
    worker.start()
    try:
        yield used
    finally:
        over.set()
        worker.join()


@pytest.mark.quiet
def test_gpu_time_follows_the_requests(agent: AgentProcess) -> None:
    with contextlib.ExitStack() as stack:
        clients = [stack.enter_context(ProtocolClient(agent.slot(f"be-{i}")).join()) for i in range(3)]
        with AgentClient(agent.root) as administrator:
            for slot, request in (("be-0", 0.25), ("be-1", 0.25), ("be-2", 0.5)):
                administrator.set_grant(GPU, slot, request=request)
        used = stack.enter_context(gpu_for(clients))
        eventually(lambda: takes_turns(clients[0]), "they take turns")
        began = list(used.values())
        eventually(lambda: sum(used.values()) - sum(began) > 4, "four seconds of GPU time", seconds=60)
        gained = [used[client] - before for client, before in zip(clients, began, strict=True)]
        for found, due in zip(gained, (0.25, 0.25, 0.5), strict=True):
            assert abs(found / sum(gained) - due) < 0.1 * due, gained


def test_a_slot_takes_no_turns_with_a_slot_without_work(agent: AgentProcess) -> None:
    with contextlib.ExitStack() as stack:
        alone = stack.enter_context(ProtocolClient(agent.slot("be-0")).join())
        stack.enter_context(ProtocolClient(agent.slot("be-1")).join())
        used, planned = stack.enter_context(gpu_for([alone])), []

        def a_second_has_passed() -> bool:
            planned.append(takes_turns(alone))
            return used[alone] > 1

        eventually(a_second_has_passed, "a second of GPU time")
        assert not any(planned)


def test_a_limit_holds_a_slot_that_is_alone(agent: AgentProcess) -> None:
    with ProtocolClient(agent.slot("be-0")).join() as client, AgentClient(agent.root) as administrator:
        administrator.set_grant(GPU, "be-0", limit=0.25)
        client.record.set(layout.RecordPage, "in_flight_ns", 100_000)
        client.record.set(layout.RecordPage, "launches", 1)

        def part() -> float:
            """Return the part of the time that the plan gives; 0: no plan, or one without turns."""
            grant = current_grant(client.grant)
            if grant.plan_until_ns <= time.monotonic_ns():
                return 0.0
            found: float = (grant.next_end_ns - grant.next_begin_ns) / grant.cycle_ns
            return found if found < 1 else 0.0

        planned = eventually(part, "the agent has seen its work, and plans turns")
        assert planned == pytest.approx(0.25, abs=0.1)
        eventually(lambda: not has_turn(client), "its turn is over")


@pytest.mark.parametrize("wish", [wish, wish_by_connection], ids=["datagrams", "connections, as older hooks do"])
def test_a_turn_that_is_handed_back_passes_on_and_comes_back_when_asked_for(
    wish: Callable[[ProtocolClient, join.TurnWish], None], agent: AgentProcess
) -> None:
    with contextlib.ExitStack() as stack:
        clients = [stack.enter_context(ProtocolClient(agent.slot(f"be-{i}")).join()) for i in range(2)]
        stack.enter_context(gpu_for(clients))
        first, second = clients
        eventually(lambda: takes_turns(first) and takes_turns(second), "they take turns")
        first.record.set(layout.RecordPage, "in_flight_ns", 0)

        def second_has_all() -> bool:
            wish(first, join.TurnWish.HANDED_BACK)
            grant = current_grant(second.grant)
            return bool(has_turn(second) and grant.turn_end_ns >= grant.plan_until_ns and not has_turn(first))

        eventually(second_has_all, "only the second slot has a turn, which lasts")
        first.record.set(layout.RecordPage, "in_flight_ns", 100_000)
        wish(first, join.TurnWish.WANTED)
        eventually(lambda: has_turn(first) and not has_turn(second), "the first slot has a turn again")


def test_a_client_that_has_work_cannot_hand_back_for_its_slot(agent: AgentProcess) -> None:
    with contextlib.ExitStack() as stack:
        clients = [stack.enter_context(ProtocolClient(agent.slot(f"be-{i}")).join()) for i in range(2)]
        stack.enter_context(gpu_for(clients))
        eventually(lambda: takes_turns(clients[0]), "they take turns")
        for _ in range(20):
            wish(clients[0], join.TurnWish.HANDED_BACK)
        eventually(lambda: has_turn(clients[0]) and not has_turn(clients[1]), "it still has turns")


def test_no_slot_waits_when_the_agent_ends_or_the_policy_lets_all_go(agent: AgentProcess) -> None:
    with contextlib.ExitStack() as stack:
        clients = [stack.enter_context(ProtocolClient(agent.slot(f"be-{i}")).join()) for i in range(2)]
        stack.enter_context(gpu_for(clients))
        eventually(lambda: takes_turns(clients[0]), "they take turns")
        assert current_grant(clients[0].grant).plan_until_ns < time.monotonic_ns() + 1_000_000_000
        with AgentClient(agent.root) as administrator:
            administrator.set_policy(GPU, policy="none")
            eventually(lambda: not takes_turns(clients[0]), "under the policy none nobody waits")
            administrator.set_grant(GPU, "be-0", request=0.5)
            eventually(lambda: takes_turns(clients[0]), "but a request holds there, too")
        agent.terminate()
        assert not takes_turns(clients[0])


def test_frequent_checks_cost_little(agent: AgentProcess) -> None:
    with contextlib.ExitStack() as stack:
        clients = [stack.enter_context(ProtocolClient(agent.slot(f"be-{i}")).join()) for i in range(4)]
        for client in clients:
            client.record.set(layout.RecordPage, "in_flight_ns", 100_000)

        def used(seconds: float) -> float:
            before, began = agent.cpu_seconds(), time.monotonic()
            time.sleep(seconds)  # the agent's CPU time is measured over this time
            return (agent.cpu_seconds() - before) / (time.monotonic() - began)

        eventually(lambda: used(3.0) < 0.03, "about 2 % of a core while four share a GPU", seconds=30)
