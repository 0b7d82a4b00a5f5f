"""A socket of a slot that is read at a limited rate: a tenant that sends too much delays only its own slot.

A base class, and not a part of its users: with a part that calls its user back, a slot that was closed would keep its
descriptors until the garbage collector finds the cycle.
"""

import asyncio
import socket
from abc import ABC, abstractmethod
from pathlib import Path

from orion.node_agent.clients import connections
from orion.node_agent.clients.rights import Closer
from orion.node_agent.pacing.token_bucket import TokenBucket

_BURST, _PER_SECOND = 1024, 200.0
RETRY_SECONDS = 0.1
""" How long to rest where the kernel has no more watches or descriptors for the agent. """


class PacedSocket(ABC):
    """A bound socket; `go_on` begins to read it.

    Args:
        directory: the socket's directory.
        name: the name of the socket's file. Its mode is 0666, because containers get the directory, not only the file.
        kind: of the socket.
        closer: of the slot. While it is busy, the socket is not read; then `go_on` must be called.

    Raises:
        OSError: the socket cannot be opened.
    """

    def __init__(self, directory: Path, name: str, kind: socket.SocketKind, closer: Closer) -> None:
        self._loop = asyncio.get_running_loop()
        self._sock = connections.bind(directory, name, 0o666, kind)
        self._closer = closer
        self._pace = TokenBucket(_BURST, _PER_SECOND)
        self._resume: asyncio.TimerHandle | None = None
        self._reads = False

    @abstractmethod
    def _readable(self) -> None:
        """Read once, if `_may_read` says so; the event loop serves other slots before the next time."""

    def close(self) -> None:
        """Close the socket."""
        if self._resume is not None:
            self._resume.cancel()
        self._loop.remove_reader(self._sock)
        self._closer.close_socket(self._sock)

    def _may_read(self) -> bool:
        """Return whether the closer and the rate allow to read once now; if not, rest until they do."""
        if self._closer.busy:
            self._rest(None)
            return False
        wait = self._pace.take()
        if wait:
            self._rest(wait)
        return not wait

    def _rest(self, seconds: float | None) -> None:
        """Read nothing for some seconds; None: until `go_on` is called."""
        self._reads = False
        self._loop.remove_reader(self._sock)
        if seconds is not None:
            self._resume = self._loop.call_later(seconds, self._listen)

    def go_on(self) -> None:
        """Read, unless it rests for some seconds, or is closed."""
        if self._resume is None:
            self._listen()

    def _listen(self) -> None:
        self._resume = None
        if self._reads or self._sock.fileno() < 0:
            return
        try:
            self._loop.add_reader(self._sock, self._readable)
        except OSError:  # the agent's user has reached the kernel's limit of epoll watches
            self._resume = self._loop.call_later(RETRY_SECONDS, self._listen)
            return
        self._reads = True
