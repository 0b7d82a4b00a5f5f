"""Faults while be slots take turns: nobody waits longer than a plan lives, and shares recover within two seconds."""

import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from tests.hook.gpu_time import Timeline, of_all, shares_in, shares_of_the_next, start_traced
from tests.hook.harness import Machine, figure
from tests.hook.scripted_client import Client, eventually, warm
from tests.node_agent.protocol_client import ProtocolClient
from tests.node_agent.turn_reading import has_turn, takes_turns

pytestmark = pytest.mark.quiet

REQUESTS = {"be-0": 0.5, "be-1": 0.3, "be-2": 0.2}
KERNEL_US = 400
PLAN_SECONDS = 0.75
""" A plan ends after this time if no agent renews it; then nobody waits. """
RECOVERED_SECONDS = 2.0
AGENT_STOPPED_SECONDS = 5.0
LATE_SECONDS = 0.2
STOPPED_SECONDS = 4.2
""" After this time the agent gives a stopped slot no turns for up to 4 s. """


class Tenants:
    """Three be slots that share a GPU by their requests."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.clients: dict[str, Client] = {}
        self.timelines: dict[str, Timeline] = {}
        for slot, request in REQUESTS.items():
            machine.agent.set_grant(machine.uuids[0], slot, request=request)
            self.start(slot)
        self.until_right(REQUESTS)

    def start(self, slot: str) -> None:
        """Start a slot's client, which works without end."""
        self.clients[slot], self.timelines[slot] = start_traced(self.machine, slot)
        warm(self.clients[slot], KERNEL_US)
        self.clients[slot].send(f"loop 300 {KERNEL_US} 4")

    def off(self, dues: dict[str, float], seconds: float) -> dict[str, float]:
        """Return by how much each share of the next seconds differs from what is due."""
        found = of_all(shares_of_the_next(seconds, {slot: self.timelines[slot] for slot in dues}))
        return {slot: share - dues[slot] for slot, share in found.items()}

    def until_right(self, dues: dict[str, float]) -> None:
        eventually(lambda: max(map(abs, self.off(dues, 1.0).values())) < 0.05, "shares are what is due")

    def must_recover(self, dues: dict[str, float], since: int) -> None:
        """Check the longest wait since the fault, and the shares from two seconds after now on."""
        time.sleep(RECOVERED_SECONDS)  # the time in which shares must recover
        off = self.off(dues, 2.0)
        now = time.monotonic_ns()
        waits = [self.timelines[slot].longest_wait(since, now) for slot in dues]
        figure("shares less what is due, after the fault", list(off.values()), "")
        figure("longest waits since the fault", waits, "s")
        assert max(map(abs, off.values())) < 0.05, off
        assert max(waits) < 2 * PLAN_SECONDS

    @contextmanager
    def watched(self, slot: str) -> Iterator[Callable[[], bool]]:
        """Yield a function that returns whether a slot has the turn: another client of it reads the grant."""
        directory = self.machine.root / "gpus" / self.machine.uuids[0] / slot
        with ProtocolClient(directory).join() as reader:
            yield lambda: takes_turns(reader) and has_turn(reader)


@contextmanager
def stopped_process(process_id: int) -> Iterator[None]:
    os.kill(process_id, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(process_id, signal.SIGCONT)


@pytest.fixture
def tenants(machine: Machine) -> Tenants:
    return Tenants(machine)


def test_the_holder_of_a_turn_is_killed(tenants: Tenants) -> None:
    with tenants.watched("be-0") as has_the_turn:
        eventually(has_the_turn, "it has the turn")
        killed = tenants.clients["be-0"].kill()
    tenants.must_recover({"be-1": 0.6, "be-2": 0.4}, killed)
    tenants.start("be-0")
    tenants.must_recover(REQUESTS, time.monotonic_ns())


@pytest.mark.parametrize("in_turn", [True, False], ids=["in its turn", "outside its turns"])
def test_a_slot_that_is_stopped_and_continues(tenants: Tenants, in_turn: bool) -> None:
    with tenants.watched("be-0") as has_the_turn:
        eventually(lambda: has_the_turn() == in_turn, "the moment has come")
        stopped = tenants.clients["be-0"].kill(signal.SIGSTOP)
    time.sleep(STOPPED_SECONDS)
    others = {slot: tenants.timelines[slot] for slot in ("be-1", "be-2")}
    found = shares_in(others, stopped + round(RECOVERED_SECONDS * 1e9), time.monotonic_ns())
    figure("shares of the others from two seconds after the stop on", list(found.values()), "")
    assert all(abs(part - REQUESTS[slot] / 0.5) < 0.05 for slot, part in of_all(found).items()), found
    continued = tenants.clients["be-0"].kill(signal.SIGCONT)
    tenants.must_recover(REQUESTS, continued)


def test_the_holder_of_a_turn_is_in_a_kernel_of_two_seconds(tenants: Tenants) -> None:
    tenants.clients["be-0"].kill()
    tenants.clients["be-0"].reap()
    client, timeline = start_traced(tenants.machine, "be-0")
    warm(client, KERNEL_US)
    began = time.monotonic_ns()
    client.send("run 1 2000000")
    client.send(f"loop 300 {KERNEL_US} 4")
    ended = client.answer().ended
    others = [tenants.timelines[slot].seconds(began, ended) / ((ended - began) / 1e9) for slot in ("be-1", "be-2")]
    waits = [tenants.timelines[slot].longest_wait(began, ended) for slot in ("be-1", "be-2")]
    figure(f"shares of the others during a kernel that took {(ended - began) / 1e9:.1f} s", others, "")
    figure("their longest waits", waits, "s")
    assert max(waits) < 2 * PLAN_SECONDS
    tenants.clients["be-0"], tenants.timelines["be-0"] = client, timeline
    tenants.must_recover(REQUESTS, ended)


def test_the_agent_is_stopped_for_five_seconds(tenants: Tenants) -> None:
    agent, stopped = tenants.machine.agent_pid, time.monotonic_ns()
    with stopped_process(agent):
        time.sleep(AGENT_STOPPED_SECONDS)
    now = time.monotonic_ns()
    waits = [timeline.longest_wait(stopped, now) for timeline in tenants.timelines.values()]
    figure("longest waits while the agent is stopped", waits, "s")
    assert max(waits) < 2 * PLAN_SECONDS
    tenants.must_recover(REQUESTS, now)


def test_the_agent_is_late_by_200_ms_again_and_again(tenants: Tenants) -> None:
    agent, until = tenants.machine.agent_pid, time.monotonic() + 6.0
    began = time.monotonic_ns()
    while time.monotonic() < until:
        with stopped_process(agent):
            time.sleep(LATE_SECONDS)
        time.sleep(LATE_SECONDS / 4)
    ended = time.monotonic_ns()
    parts = of_all(shares_in(tenants.timelines, began, ended))
    figure("shares less requests while the agent is late", [parts[slot] - REQUESTS[slot] for slot in REQUESTS], "")
    waits = [timeline.longest_wait(began, ended) for timeline in tenants.timelines.values()]
    figure("longest waits while the agent is late", waits, "s")
    assert max(abs(parts[slot] - REQUESTS[slot]) for slot in REQUESTS) < 0.05
    assert max(waits) < 0.4  # usually 0.04
    tenants.must_recover(REQUESTS, began)
