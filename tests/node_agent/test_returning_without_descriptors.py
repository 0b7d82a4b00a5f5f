"""A client keeps its place if the agent lacks descriptors for a moment when the client returns."""

import resource

import pytest

from orion.hook import join
from tests.node_agent.conftest import AgentProcess, eventually
from tests.node_agent.protocol_client import ProtocolClient, Refused

_UNANSWERED = (TimeoutError, EOFError, ConnectionError)


def _refusal(client: ProtocolClient, seconds: float) -> join.Refusal | None:
    """Return why the agent refuses the client that asks to return; None: it does not, within so many seconds."""
    client.sock.settimeout(seconds)
    try:
        client.returned()
    except Refused as refusal:
        assert refusal.retry_ms > 0  # noqa: PT017
        return refusal.code
    except _UNANSWERED:
        pass  # the connection may wait until the agent has descriptors
    return None


def _is_back(client: ProtocolClient) -> bool:
    try:
        return bool(client.return_to_agent().returned)
    except _UNANSWERED:  # it lacked descriptors until now
        return False


@pytest.mark.parametrize("left", range(1, 7))
def test_a_client_returns_once_the_agent_has_descriptors(agent: AgentProcess, left: int) -> None:
    with ProtocolClient(agent.slot("hp-0")).join() as client:
        agent.kill()
        agent.start()
        before = resource.prlimit(agent.pid, resource.RLIMIT_NOFILE)
        resource.prlimit(agent.pid, resource.RLIMIT_NOFILE, (agent.descriptors() + left, before[1]))
        client.ask_to_return()
        assert _refusal(client, 0.3) in (None, join.Refusal.FULL)  # at PAGES a hook gives its place up
        resource.prlimit(agent.pid, resource.RLIMIT_NOFILE, before)
        eventually(lambda: _is_back(client), "the client is back")
