"""Clients keep their places if the next agent does not run for seconds, as on a machine whose cores are all busy.

A hook that gets no answer closes its connection after 5 s and asks again. The agent then finds both messages, the first
one from a connection that nobody reads.
"""

import contextlib
import os
import signal
import time
from collections.abc import Iterator

from orion.hook import join
from orion.node_agent.agent import _RETURN_SECONDS
from orion.node_agent.api.client import AgentClient
from orion.node_agent.processes import liveness
from tests.node_agent.conftest import AgentProcess, eventually
from tests.node_agent.protocol_client import ProtocolClient


@contextlib.contextmanager
def _standing_still(agent: AgentProcess) -> Iterator[None]:
    """Stop the agent while the context lasts."""
    os.kill(agent.pid, signal.SIGSTOP)
    eventually(lambda: liveness.is_stopped(agent.pid), "the agent is stopped")
    yield
    os.kill(agent.pid, signal.SIGCONT)


def _ask_and_give_up(client: ProtocolClient) -> None:
    client.ask_to_return()
    client.sock.close()


def _is_back(client: ProtocolClient) -> None:
    answer = client.returned()
    assert (answer.returned, answer.client_index, answer.generation) == (1, *client.key)


def test_clients_that_gave_up_and_asked_again_return(agent: AgentProcess) -> None:
    with ProtocolClient(agent.slot("hp-0")).join() as hp, ProtocolClient(agent.slot("be-0")).join() as be:
        be.receive_until({hp.key})
        agent.kill()
        agent.start()
        with _standing_still(agent):
            for client in (hp, be):
                _ask_and_give_up(client)
                client.ask_to_return()
        for client in (hp, be):
            _is_back(client)
        has_page = False
        while not has_page:
            message = be.receive_message()
            assert be.neighbours.keys() == {hp.key}, "hp was gone for a while"
            has_page = isinstance(message, join.Neighbours) and message.count > 0


def test_clients_that_gave_up_return_later(agent: AgentProcess) -> None:
    with ProtocolClient(agent.slot("hp-0")).join() as hp, ProtocolClient(agent.slot("be-0")).join() as be:
        agent.kill()
        agent.start()
        with _standing_still(agent):
            _ask_and_give_up(hp)
            _ask_and_give_up(be)
        with AgentClient(agent.root) as administrator:  # it has read both messages before it answers
            assert not [client for slot in administrator.snapshot().gpus[0].slots for client in slot.clients]
        for client in (hp, be):
            client.ask_to_return()
            _is_back(client)


def test_the_time_to_return_is_time_in_which_the_agent_runs(agent: AgentProcess) -> None:
    with ProtocolClient(agent.slot("hp-0")).join() as hp, ProtocolClient(agent.slot("be-0")).join() as be:
        agent.kill()
        agent.start()
        with _standing_still(agent):
            for client in (hp, be):
                _ask_and_give_up(client)
                client.ask_to_return()
            over = time.monotonic() + _RETURN_SECONDS
            eventually(lambda: time.monotonic() > over, "the time to return would be over")
        for client in (hp, be):
            _is_back(client)


def test_a_client_keeps_a_connection_that_lives_if_another_one_ends_unanswered(agent: AgentProcess) -> None:
    with ProtocolClient(agent.slot("be-0")).join() as client:
        client.receive_message()
        with _standing_still(agent):
            lives = client.sock.dup()
            _ask_and_give_up(client)
            client.sock = lives
        with AgentClient(agent.root) as administrator:
            (slot,) = [each for each in administrator.snapshot().gpus[0].slots if each.name == "be-0"]
            assert [(each.place, each.generation) for each in slot.clients] == [client.key]
        with ProtocolClient(agent.slot("hp-0")).join() as hp:
            client.receive_until({hp.key})
