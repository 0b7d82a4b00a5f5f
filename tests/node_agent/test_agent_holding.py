"""be slots that are ahead of their share must wait: tested with the pages of a real agent."""

import contextlib
import threading
import time
from collections.abc import Iterator

import pytest

from orion.hook import layout
from orion.node_agent.api.client import AgentClient
from tests.node_agent.conftest import GPU, AgentProcess, eventually
from tests.node_agent.protocol_client import ProtocolClient, current_grant

STEP_SECONDS = 0.001


def is_held(client: ProtocolClient) -> bool:
    held: int = current_grant(client.grant).held
    return held != 0


@contextlib.contextmanager
def gpu_for(pulls: dict[ProtocolClient, float]) -> Iterator[dict[ProtocolClient, float]]:
    """Simulate a GPU whose time the clients that are not held share in proportion to `pulls`.

    Yields the GPU time of each client in seconds.
    """
    used = dict.fromkeys(pulls, 0.0)
    over = threading.Event()

    def work() -> None:
        before = time.monotonic()
        while not over.wait(STEP_SECONDS):
            now = time.monotonic()
            free = [client for client in pulls if not is_held(client)]
            whole = sum(pulls[client] for client in free)
            for client in free:
                used[client] += (now - before) * pulls[client] / whole
                client.record.set(layout.RecordPage, "gpu_ns", int(used[client] * 1e9))
            before = now

    for client in pulls:
        client.record.set(layout.RecordPage, "in_flight_ns", 100_000)
    worker = threading.Thread(target=work)
    worker.start()
    try:
        yield used
    finally:
        over.set()
        worker.join()


@pytest.mark.quiet
def test_gpu_time_follows_the_weights(agent: AgentProcess) -> None:
    with contextlib.ExitStack() as stack:
        clients = [stack.enter_context(ProtocolClient(agent.slot(f"be-{i}")).join()) for i in range(3)]
        with AgentClient(agent.root) as administrator:
            administrator.set_grant(GPU, "be-2", weight=2)
        used = stack.enter_context(gpu_for(dict(zip(clients, (4.0, 1.0, 1.0), strict=True))))

        def shares(since: list[float]) -> list[float]:
            gained = [used[client] - before for client, before in zip(clients, since, strict=True)]
            return [each / sum(gained) for each in gained]

        eventually(lambda: is_held(clients[0]), "the client that takes too much is held")
        began = list(used.values())
        eventually(lambda: sum(used.values()) - sum(began) > 4, "four seconds of GPU time", seconds=60)
        for found, fair in zip(shares(began), (0.25, 0.25, 0.5), strict=True):
            assert abs(found - fair) < 0.1 * fair, shares(began)


def test_a_slot_does_not_wait_for_a_slot_without_work(agent: AgentProcess) -> None:
    with contextlib.ExitStack() as stack:
        alone = stack.enter_context(ProtocolClient(agent.slot("be-0")).join())
        stack.enter_context(ProtocolClient(agent.slot("be-1")).join())
        used = stack.enter_context(gpu_for({alone: 1.0}))
        held = []

        def a_second_has_passed() -> bool:
            held.append(is_held(alone))
            return used[alone] > 1

        eventually(a_second_has_passed, "a second of GPU time")
        assert not any(held)


def test_no_slot_is_held_when_the_agent_ends_or_the_policy_does_not_gate(agent: AgentProcess) -> None:
    with contextlib.ExitStack() as stack:
        clients = [stack.enter_context(ProtocolClient(agent.slot(f"be-{i}")).join()) for i in range(2)]
        stack.enter_context(gpu_for(dict(zip(clients, (4.0, 1.0), strict=True))))
        eventually(lambda: is_held(clients[0]), "held")

        def ends_soon() -> bool:
            held: int = current_grant(clients[0].grant).held
            now = time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1_000_000 & 0xFFFFFFFF
            return held != 0 and 0 < held - now & 0xFFFFFFFF < 1_000

        eventually(ends_soon, "the hold ends by itself in less than a second")
        with AgentClient(agent.root) as administrator:
            administrator.set_policy(GPU, policy="none")
            eventually(lambda: not is_held(clients[0]), "no client waits under the policy none")
            assert not any(slot.held for slot in administrator.snapshot().gpus[0].slots)
            administrator.set_policy(GPU, policy="gate")
        eventually(lambda: is_held(clients[0]), "held again")
        agent.terminate()
        assert not is_held(clients[0])


def test_frequent_checks_cost_little(agent: AgentProcess) -> None:
    with contextlib.ExitStack() as stack:
        clients = [stack.enter_context(ProtocolClient(agent.slot(f"be-{i}")).join()) for i in range(4)]
        for client in clients:
            client.record.set(layout.RecordPage, "in_flight_ns", 100_000)

        def used(seconds: float) -> float:
            before, began = agent.cpu_seconds(), time.monotonic()
            time.sleep(seconds)  # the agent's CPU time is measured over this time
            return (agent.cpu_seconds() - before) / (time.monotonic() - began)

        eventually(lambda: used(3.0) < 0.02, "about 1 % of a core while four share a GPU", seconds=30)
