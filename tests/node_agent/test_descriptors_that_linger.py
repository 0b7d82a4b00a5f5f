"""A tenant sends descriptors whose close waits: only its own slot waits."""

import asyncio
import contextlib
import fcntl
import mmap
import os
import signal
import socket
import struct
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from orion.hook import join
from orion.node_agent.api.client import AgentClient
from orion.node_agent.clients.entrance import Entrance
from orion.node_agent.clients.notices import Notices
from orion.node_agent.clients.rights import Closer
from orion.node_agent.pages.descriptors import SEALS_OF_SIZE, new_page
from orion.node_agent.slots.slot import NOTICES
from tests.node_agent.conftest import GPU, AgentProcess, eventually
from tests.node_agent.protocol_client import ProtocolClient, connect, head, hello, send_with_fds
from tests.waiting import DEADLINE, eventually_async

_LINGER_SECONDS = int(10 * DEADLINE)
""" The tests end it sooner: they close the peer. """
_SO_PASSRIGHTS = 83

READY = bytes(join.Ready(head(join.MessageType.READY)))
TURN = bytes(join.Turn(head(join.MessageType.TURN), join.TurnWish.HANDED_BACK, 0))
RETURNS = hello(join.HELLO_RETURNS, 3, 3)


class Lingering:
    """TCP connections to a peer that does not read; the last close of one waits."""

    def __init__(self) -> None:
        self._peers: list[socket.socket] = []

    def descriptor(self) -> int:
        with socket.create_server(("127.0.0.1", 0)) as server:
            here = socket.create_connection(server.getsockname())
            self._peers.append(server.accept()[0])
        here.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            while True:
                here.send(bytes(1 << 16))
        here.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, _LINGER_SECONDS))
        return here.detach()

    def give(self, sock: socket.socket, data: bytes) -> None:
        """Send a descriptor, and keep none."""
        descriptor = self.descriptor()
        try:
            send_with_fds(sock, data, [descriptor])
        except PermissionError:  # the kernel can refuse it for the agent
            self._peers.pop().close()
        os.close(descriptor)

    def give_agent(self, agent: AgentProcess, sock: socket.socket, data: bytes) -> None:
        """Do the same so that the agent's close is surely the last one."""
        with _stopped(agent):
            self.give(sock, data)

    def end(self) -> None:
        while self._peers:
            self._peers.pop().close()


@pytest.fixture
def lingering() -> Iterator[Lingering]:
    given = Lingering()
    yield given
    given.end()


@contextlib.contextmanager
def _stopped(agent: AgentProcess) -> Iterator[None]:
    os.kill(agent.pid, signal.SIGSTOP)
    yield
    os.kill(agent.pid, signal.SIGCONT)


def _threads(agent: AgentProcess) -> int:
    return len(os.listdir(f"/proc/{agent.pid}/task"))


def _is_answered(directory: Path) -> None:
    with ProtocolClient(directory).join() as client:
        client.receive_message()


def _ends(sock: socket.socket) -> None:
    """Wait until the agent has ended the connection."""
    with contextlib.suppress(ConnectionResetError):
        while sock.recv(4096):
            pass


def _with_garbage(lingering: Lingering, agent: AgentProcess) -> None:
    with connect(agent.slot("be-0")) as sock:
        lingering.give_agent(agent, sock, b"junk")
        _ends(sock)


def _with_an_empty_message(lingering: Lingering, agent: AgentProcess) -> None:
    with connect(agent.slot("be-0")) as sock:
        lingering.give_agent(agent, sock, b"")
        _ends(sock)


def _with_the_first_message(lingering: Lingering, agent: AgentProcess) -> None:
    with connect(agent.slot("be-0")) as sock:
        lingering.give_agent(agent, sock, hello())
        _ends(sock)


def _with_the_second_message(lingering: Lingering, agent: AgentProcess) -> None:
    with ProtocolClient(agent.slot("be-0")).join(ready=False) as client:
        lingering.give_agent(agent, client.sock, READY)
        _ends(client.sock)


def _as_pages(lingering: Lingering, agent: AgentProcess) -> None:
    with connect(agent.slot("be-0")) as sock:
        lingering.give_agent(agent, sock, RETURNS)
        _ends(sock)


def _as_a_notice(lingering: Lingering, agent: AgentProcess) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        sock.connect(str(agent.slot("be-0") / NOTICES))
        lingering.give_agent(agent, sock, TURN)


ATTACKS = [
    _with_garbage,
    _with_an_empty_message,
    _with_the_first_message,
    _with_the_second_message,
    _as_pages,
    _as_a_notice,
]


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.__name__.strip("_"))
def test_the_agent_answers_other_slots(
    agent: AgentProcess, lingering: Lingering, attack: Callable[[Lingering, AgentProcess], None]
) -> None:
    _is_answered(agent.slot("be-1"))
    before = agent.descriptors()
    attack(lingering, agent)
    _is_answered(agent.slot("be-1"))
    lingering.end()
    _is_answered(agent.slot("be-0"))
    eventually(lambda: agent.descriptors() <= before, "every descriptor is closed")


@pytest.mark.parametrize("first", [b"junk", b""])
def test_what_is_unread_when_a_connection_ends_makes_nobody_wait(
    agent: AgentProcess, lingering: Lingering, first: bytes
) -> None:
    before = agent.descriptors()
    with connect(agent.slot("be-0")) as sock:
        with _stopped(agent):
            sock.send(first)
            sock.send(b"")
            lingering.give(sock, b"unread")
        _ends(sock)
    _is_answered(agent.slot("be-1"))
    lingering.end()
    eventually(lambda: agent.descriptors() <= before, "every descriptor is closed")


def test_a_slot_has_one_thread_that_waits_and_the_next_container_does_not(
    agent: AgentProcess, lingering: Lingering
) -> None:
    _is_answered(agent.slot("be-1"))
    before, threads = agent.descriptors(), _threads(agent)
    _as_pages(lingering, agent)
    crowd = [connect(agent.slot("be-0")) for _ in range(40)]
    for sock in crowd:
        lingering.give(sock, RETURNS)
    _is_answered(agent.slot("be-1"))
    assert _threads(agent) <= threads + 1
    for sock in crowd:
        sock.close()
    with AgentClient(agent.root) as administrator:
        administrator.prepare_slot(GPU, "be-0")
    _is_answered(agent.slot("be-0"))
    lingering.end()
    eventually(lambda: agent.descriptors() <= before, "every descriptor is closed")
    eventually(lambda: _threads(agent) <= threads, "every thread has ended")


async def test_a_notice_with_descriptors_makes_only_its_socket_wait(lingering: Lingering, socket_folder: Path) -> None:
    """This also where the kernel could refuse them, but does not."""
    heard: list[object] = []
    closer = Closer(lambda: notices.go_on())
    notices = Notices(socket_folder, heard.append, closer)
    with contextlib.suppress(OSError):
        notices._sock.setsockopt(socket.SOL_SOCKET, _SO_PASSRIGHTS, 1)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        sock.connect(str(socket_folder / NOTICES))
        lingering.give(sock, TURN)
        await eventually_async(lambda: closer.busy, "the descriptor is to be closed")
        lingering.give(sock, TURN)
        lingering.end()
        sock.send(TURN)
        await eventually_async(lambda: len(heard) == 3, "the socket is read again")
        lingering.give(sock, TURN)
    await eventually_async(lambda: closer.busy, "another descriptor is to be closed")
    lingering.end()
    await eventually_async(lambda: not closer.busy, "all is closed")
    notices.close()
    assert not closer.busy, "an empty socket needs no thread"


async def test_what_nobody_has_read_makes_no_close_of_a_slots_sockets_wait(
    lingering: Lingering, socket_folder: Path
) -> None:
    idle = asyncio.Event()
    closer = Closer(idle.set)
    notices = Notices(socket_folder, lambda _: None, closer)
    entrance = Entrance(socket_folder, "agent.sock", 1, lambda _: None, closer)
    with contextlib.suppress(OSError):
        notices._sock.setsockopt(socket.SOL_SOCKET, _SO_PASSRIGHTS, 1)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        sock.connect(str(socket_folder / NOTICES))
        lingering.give(sock, TURN)
    with connect(socket_folder) as sock:
        lingering.give(sock, RETURNS)
    notices.close()
    entrance.close()
    assert closer.busy
    lingering.end()
    await asyncio.wait_for(idle.wait(), DEADLINE)


async def test_only_pages_are_closed_at_once() -> None:
    idle = asyncio.Event()
    closer = Closer(idle.set)
    closer.close(new_page("page"))
    assert not closer.busy
    large = os.memfd_create("large", os.MFD_CLOEXEC)
    os.posix_fallocate(large, 0, 1 << 20)
    closer.close([large])
    assert closer.busy
    await asyncio.wait_for(idle.wait(), DEADLINE)


async def test_a_page_of_a_kernel_with_large_pages_is_closed_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """There a file of one byte has 128 blocks of 512 bytes."""
    monkeypatch.setattr(mmap, "PAGESIZE", 1 << 16)
    closer = Closer(lambda: None)
    page = os.memfd_create("page", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.posix_fallocate(page, 0, mmap.PAGESIZE)
    fcntl.fcntl(page, fcntl.F_ADD_SEALS, SEALS_OF_SIZE)
    closer.close([page])
    assert not closer.busy
