"""What an hp slot used is the time in which at least one of its processes was busy: real processes, one GPU."""

import time

from orion.node_agent.sharing.busy_union import length_ns
from tests.hook.harness import Machine, figure
from tests.hook.scripted_client import MILLISECOND, eventually

ROUNDS = 15
PAUSE_NS, LOOK_NS = 80 * MILLISECOND, 1_000 * MILLISECOND
""" Between two rounds, so that the time that has passed is no bound; the agent looks at idle clients so often. """


def _pass(nanoseconds: int) -> None:
    until = time.monotonic_ns() + nanoseconds
    eventually(lambda: time.monotonic_ns() > until, "the time has passed")


def test_processes_that_are_busy_at_once_use_the_time_once(machine: Machine) -> None:
    clients = [machine.start("hp-0"), machine.start("hp-0")]
    spans = []
    for _ in range(ROUNDS):
        for command in ("run 1 30000", "loop 0.03 500 1"):
            for client in clients:
                client.send(command)
            answers = [client.answer() for client in clients]
            spans += [(answer.began, answer.ended) for answer in answers]
        _pass(PAUSE_NS)
    _pass(LOOK_NS)
    (slot,) = (slot for slot in machine.gpu().slots if slot.name == "hp-0")
    each, most = [client.busy_seconds for client in slot.clients], length_ns(spans) / 1e9
    figure(f"used by two hp processes, busy for {each} s within {most} s", [slot.usage.measured_seconds], "s")
    assert sum(each) > 1.2 * most, "they were hardly busy at the same time"
    assert 0.95 * max(each) < slot.usage.measured_seconds < 1.05 * most
