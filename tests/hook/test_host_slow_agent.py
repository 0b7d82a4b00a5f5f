"""Programs keep their places if the next agent does not run for longer than their hooks wait for its answer."""

import os
import signal
import time

from tests.hook.harness import Machine
from tests.hook.scripted_client import Client, eventually
from tests.waiting import DEADLINE

HOOK_GIVES_UP = 5.0
""" Seconds after which a hook closes a connection without an answer (`ANSWER_WITHIN_NS` in membership.c). """
HOOK_ASKS_AGAIN = 0.5


def places(machine: Machine) -> dict[int, tuple[int, int]]:
    shown = [client for slot in machine.gpu().slots for client in slot.clients]
    return {client.process_id: (client.place, client.generation) for client in shown}


def launch_and_stop_agent(machine: Machine) -> None:
    """Start an agent and stop it when it listens, but serves nobody yet."""
    until = time.monotonic() + DEADLINE
    while time.monotonic() < until:
        machine.launch_agent()
        eventually(lambda: "may return" in machine.agent_log(), "the agent listens")
        os.kill(machine.agent_pid, signal.SIGSTOP)
        if " agent: serves " not in machine.agent_log():
            return
        machine.kill_agent()
    raise AssertionError("the agent was never stopped in time")


def test_programs_return_to_an_agent_that_answers_late(machine: Machine) -> None:
    clients: list[Client] = [machine.start("hp-0"), machine.start("be-0"), machine.start("be-0")]
    before = places(machine)
    assert set(before) == {client.pid for client in clients}
    machine.kill_agent()
    launch_and_stop_agent(machine)
    late = time.monotonic() + HOOK_GIVES_UP + 2 * HOOK_ASKS_AGAIN
    eventually(lambda: time.monotonic() > late, "the hooks have given up and asked again")
    os.kill(machine.agent_pid, signal.SIGCONT)
    machine.until_agent_serves()
    machine.until_joined(*clients)
    assert places(machine) == before
    for client in clients:
        assert client.must("run 1 10").result == 0
        assert client.said == []
