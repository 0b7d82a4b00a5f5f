"""A slot's socket for messages that need no answer: a client hands back its turn, asks for one, or suspects hp.

As messages on connections, which are accepted and closed, they would cost the agent three times as much to read. A
tenant that sends too many delays only its own slot: reading is rate-limited, and then the kernel refuses all but a few.
"""

import asyncio
import socket
from collections.abc import Callable
from ctypes import sizeof
from pathlib import Path

from orion.hook import join
from orion.node_agent.clients import connections, messages
from orion.node_agent.pacing.token_bucket import TokenBucket
from orion.node_agent.slots.slot import NOTICES

_BURST, _PER_SECOND = 1024, 200.0
_RETRY_SECONDS = 0.1
_SIZE = sizeof(join.Turn) + 1
""" A longer datagram is cut to this size, which no notice has. """


class Notices:
    """The socket of one slot.

    Args:
        directory: the socket's directory.
        on_notice: called with each notice.

    Raises:
        OSError: the socket cannot be opened.
    """

    def __init__(self, directory: Path, on_notice: Callable[[messages.Notice], None]) -> None:
        self._loop = asyncio.get_running_loop()
        self._sock = connections.bind(directory, NOTICES, 0o666, socket.SOCK_DGRAM)
        self._on_notice = on_notice
        self._pace = TokenBucket(_BURST, _PER_SECOND, self._loop.time)
        self._resume: asyncio.TimerHandle | None = None
        self._listen()

    def close(self) -> None:
        """Close the socket; hooks then use connections."""
        if self._resume is not None:
            self._resume.cancel()
        self._loop.remove_reader(self._sock)
        self._sock.close()

    def refill(self) -> None:
        """Reset the rate limit for a new container."""
        self._pace.fill()

    def _listen(self) -> None:
        self._resume = None
        try:
            self._loop.add_reader(self._sock, self._readable)
        except OSError:  # the agent's user has reached the kernel's limit of epoll watches
            self._resume = self._loop.call_later(_RETRY_SECONDS, self._listen)

    def _readable(self) -> None:
        """Read one message; the event loop serves other slots before the next one. Descriptors with it are dropped."""
        wait = self._pace.take()
        if wait:
            self._loop.remove_reader(self._sock)
            self._resume = self._loop.call_later(wait, self._listen)
            return
        try:
            notice = messages.notice(self._sock.recv(_SIZE))
        except (BlockingIOError, InterruptedError):
            return
        if notice is not None:
            self._on_notice(notice)
