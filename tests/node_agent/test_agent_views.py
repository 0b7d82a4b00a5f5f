"""A process that is no client may read its slot's grant."""

import socket
from pathlib import Path

import pytest

from orion.hook import join, layout
from tests.node_agent.conftest import AgentProcess, eventually
from tests.node_agent.protocol_client import Page, ProtocolClient, connect, current_grant, head

VIEW = bytes(join.View(head(join.MessageType.VIEW)))


def view(directory: Path) -> Page | None:
    """Return the grant page; None: the agent closed the connection without an answer."""
    with connect(directory) as sock:
        sock.send(VIEW)
        data, fds, _, _ = socket.recv_fds(sock, join.MESSAGE_MAX, 2)
        if not data:
            return None
        assert join.Shown.from_buffer_copy(data).head.type == join.MessageType.SHOWN
        assert sock.recv(1) == b""
    (descriptor,) = fds
    return Page.of(descriptor, False)


def test_the_grant_is_shown_and_no_client_joins(agent: AgentProcess) -> None:
    before = agent.descriptors()
    page = view(agent.slot("be-0"))
    assert page is not None
    assert current_grant(page).role == layout.Role.BE
    with pytest.raises(PermissionError):
        Page.of(page.fd, True)
    with ProtocolClient(agent.slot("be-0")).join() as client:
        assert client.welcome.client_index == 0
        assert client.grant.get(layout.GrantPage, "credit_epoch") == page.get(layout.GrantPage, "credit_epoch")
    page.close()
    eventually(lambda: agent.descriptors() <= before, "every descriptor is closed")


def test_too_many_views_get_no_answer_and_hinder_no_join(agent: AgentProcess) -> None:
    for _ in range(1000):
        page = view(agent.slot("be-0"))
        if page is None:
            break
        page.close()
    assert page is None, "the views of a slot are limited"
    with ProtocolClient(agent.slot("be-0")).join() as client:
        client.receive_message()
