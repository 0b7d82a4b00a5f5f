"""A slot's listening socket: accepts connections at a limited rate; the kernel queues the others.

A tenant that opens too many connections delays only its own slot. Each slot has its own socket, a limit on connections
that have not sent HELLO, the first message of a client, and a deadline for these connections.
"""

import asyncio
import errno
import socket
from collections.abc import Callable
from pathlib import Path

from orion.node_agent.clients import connections
from orion.node_agent.pacing.token_bucket import TokenBucket

_ACCEPTS_BURST, _ACCEPTS_PER_SECOND = 1024, 200.0
_BACKLOG = 1024
_NO_DESCRIPTORS_SECONDS = 0.1


class Entrance:
    """The listening socket of one slot.

    Args:
        directory: the socket's directory.
        name: the name of the socket's file. Its mode is 0666, because containers get the directory, not only the file.
        pending_max: maximum number of connections that have not sent their first message.
        on_arrival: called with each accepted socket. It must cause a call of `settled` when the connection has sent its
            first message or is closed.
    """

    def __init__(
        self, directory: Path, name: str, pending_max: int, on_arrival: Callable[[socket.socket], None]
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._sock = connections.bind(directory, name, 0o666, socket.SOCK_SEQPACKET)
        self._sock.listen(_BACKLOG)
        self._path = directory / name
        self._identity = connections.identity(self._path)
        self._pace = TokenBucket(_ACCEPTS_BURST, _ACCEPTS_PER_SECOND, self._loop.time)
        self._pending, self._pending_max = 0, pending_max
        self._on_arrival = on_arrival
        self._resume: asyncio.TimerHandle | None = None
        self._listening = False
        self._listen()

    @property
    def is_there(self) -> bool:
        """Whether this socket still exists at its path."""
        return connections.identity(self._path) == self._identity

    def settled(self) -> None:
        """Note that one of the accepted connections has sent its first message or is closed."""
        self._pending -= 1
        if self._resume is None:
            self._listen()

    def close(self) -> None:
        """Stop listening."""
        if self._resume is not None:
            self._resume.cancel()
        self._loop.remove_reader(self._sock)
        self._sock.close()

    def refill(self) -> None:
        """Reset the rate limit for a new container."""
        self._pace.fill()

    def _listen(self) -> None:
        self._resume = None
        if not self._listening and self._pending < self._pending_max and self._sock.fileno() >= 0:
            try:
                self._loop.add_reader(self._sock, self._acceptable)
            except OSError:  # the agent's user has reached the kernel's limit of epoll watches
                self._resume = self._loop.call_later(_NO_DESCRIPTORS_SECONDS, self._listen)
                return
            self._listening = True

    def _rest(self, seconds: float | None) -> None:
        """Accept no connections for some seconds; None: until `settled` is called."""
        self._listening = False
        self._loop.remove_reader(self._sock)
        if seconds is not None:
            self._resume = self._loop.call_later(seconds, self._listen)

    def _acceptable(self) -> None:
        """Accept one connection; the event loop serves other slots before the next one."""
        if self._pending >= self._pending_max:
            self._rest(None)
            return
        wait = self._pace.take()
        if wait:
            self._rest(wait)
            return
        try:
            sock, _ = self._sock.accept()
        except (BlockingIOError, InterruptedError, ConnectionAbortedError):
            return
        except OSError as error:
            if error.errno not in (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM):
                raise
            self._rest(_NO_DESCRIPTORS_SECONDS)
            return
        self._pending += 1
        self._on_arrival(sock)
