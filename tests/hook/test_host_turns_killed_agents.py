"""The agent is killed fifty times while be slots take turns: nobody waits long, and afterwards the shares are right.

The moments of the kills vary: while the agent starts, while clients return to it, and while its plans hold.
"""

import random
import time

import pytest

from tests.hook.gpu_time import of_all, shares_of_the_next, start_traced
from tests.hook.harness import Machine, figure
from tests.hook.scripted_client import Client, eventually, warm

pytestmark = pytest.mark.quiet

KILLS = 50
REQUESTS = {"be-0": 0.5, "be-1": 0.3, "be-2": 0.2}
KERNEL_US = 400
PLAN_SECONDS = 0.75
""" A plan ends after this time if no agent renews it; then nobody waits. """
HP_EVERY = 4
""" In each of so many rounds hp works, too. """
RECOVERED_SECONDS = 2.0


def _between_kills(machine: Machine, chance: random.Random, clients: list[Client]) -> None:
    """Let the new agent live for a while: often too short to serve, sometimes until all clients have returned."""
    if chance.random() < 0.25:
        machine.until_agent_serves()
        machine.until_joined(*clients)
    time.sleep(chance.uniform(0, 0.4))  # a moment that varies


def test_shares_survive_fifty_kills_of_the_agent(machine: Machine) -> None:
    started = {slot: start_traced(machine, slot) for slot in REQUESTS}
    clients = [client for client, _ in started.values()]
    timelines = {slot: timeline for slot, (_, timeline) in started.items()}
    hp, chance = machine.start("hp-0"), random.Random(5)
    for slot, request in REQUESTS.items():
        machine.agent.set_grant(machine.uuids[0], slot, request=request)
    for client in clients:
        warm(client, KERNEL_US)
        client.send(f"loop 300 {KERNEL_US} 4")
    for timeline in timelines.values():
        eventually(lambda timeline=timeline: timeline.reaches(0), "it computes")  # type: ignore[misc]

    began = time.monotonic_ns()
    for kill in range(KILLS):
        if kill % HP_EVERY == 0:
            hp.send("serve 30 1000 6000 1")
        _between_kills(machine, chance, clients)
        machine.kill_agent()
        machine.launch_agent()
        if kill % HP_EVERY == 0:
            assert hp.answer().result == 30
    machine.until_agent_serves()
    machine.until_joined(hp, *clients)
    ended = time.monotonic_ns()
    time.sleep(RECOVERED_SECONDS)  # the time in which shares must recover
    found = of_all(shares_of_the_next(4.0, timelines))

    waits = [timeline.longest_wait(began, ended) for timeline in timelines.values()]
    figure(f"longest wait of each in {(ended - began) / 1e9:.0f} s with {KILLS} kills", waits, "s")
    figure("share less request after the last start", [found[slot] - REQUESTS[slot] for slot in REQUESTS], "")
    assert max(waits) < 2 * PLAN_SECONDS
    assert all(abs(found[slot] - REQUESTS[slot]) < 0.05 for slot in REQUESTS), found
    assert all(client.process.poll() is None and client.said == [] for client in (hp, *clients))
