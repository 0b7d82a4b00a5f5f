"""A client's connection whose first message is read at once, and what happens if the answer cannot be sent yet."""

import asyncio
import errno
import socket
from collections.abc import Iterator

import pytest

from orion.node_agent.clients.connections import Connection
from orion.node_agent.clients.rights import Closer
from tests.waiting import DEADLINE


class Refusing(socket.socket):
    """A socket that cannot send for some times."""

    refusals = 0
    error = errno.ENOBUFS

    def sendmsg(self, *arguments: object) -> int:
        if self.refusals:
            self.refusals -= 1
            raise OSError(self.error, "not now")
        return super().sendmsg(*arguments)  # type: ignore[arg-type]


@pytest.fixture
def pair() -> Iterator[tuple[Refusing, socket.socket]]:
    here, there = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    agent = Refusing(fileno=here.detach())
    there.setblocking(False)
    yield agent, there
    agent.close()
    there.close()


async def until(condition: asyncio.Event) -> None:
    await asyncio.wait_for(condition.wait(), DEADLINE)


@pytest.mark.parametrize("error", [errno.ENOBUFS, errno.ETOOMANYREFS, errno.EAGAIN])
async def test_a_client_is_read_on_after_an_answer_that_had_to_be_sent_again(
    pair: tuple[Refusing, socket.socket], error: int
) -> None:
    agent, client = pair
    agent.refusals, agent.error = 2, error
    read, ended, heard = [], asyncio.Event(), asyncio.Event()

    def on_message(connection: Connection, data: bytes, _: list[int]) -> None:
        read.append(data)
        if data == b"hello":
            connection.send(b"welcome")
        else:
            heard.set()

    client.send(b"hello")
    connection = Connection(agent, Closer(lambda: None), on_message, lambda _: ended.set(), lambda _: None)
    connection.begin()
    assert await asyncio.wait_for(asyncio.get_running_loop().sock_recv(client, 100), DEADLINE) == b"welcome"
    client.send(b"ready")
    await until(heard)
    assert read == [b"hello", b"ready"]
    client.close()
    await until(ended)


async def test_a_connection_that_was_never_watched_leaves_nothing_in_the_event_loop(
    pair: tuple[Refusing, socket.socket],
) -> None:
    agent, client = pair
    agent.refusals, agent.error = 1, errno.EAGAIN
    number = agent.fileno()

    def refuse(connection: Connection, *_: object) -> None:
        connection.send(b"refused")
        connection.close()

    client.send(b"hello")
    Connection(agent, Closer(lambda: None), refuse, lambda _: None, lambda _: None).begin()
    here, there = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with there:
        assert here.fileno() == number  # the kernel gives the smallest free number
        following = Connection(here, Closer(lambda: None), lambda *_: None, lambda _: None, lambda _: None)
        following.begin()
        following.close()
