"""A slot's entrance: accepts connections no faster than the slot may, so that a flood waits in the kernel.

Whoever floods an entrance keeps its own slot waiting, nobody else: each has its own socket, its own bound on
connections that have not said what they want, and a deadline for them.
"""

import asyncio
import errno
import socket
from collections.abc import Callable
from pathlib import Path

from orion.node_agent.clients import connections
from orion.node_agent.pacing.token_bucket import TokenBucket

_ACCEPTS_BURST, _ACCEPTS_PER_SECOND = 1024, 200.0
_AT_ONCE = 16
""" Accepted before other slots have their turn. """
_BACKLOG = 1024
_NO_DESCRIPTORS_SECONDS = 0.1


class Entrance:
    """The listening socket of one slot.

    Args:
        directory: where the socket lies.
        name: its file name; mode 0666, since the directory is what is handed out.
        pending_max: how many connections may be undecided at once.
        on_arrival: called with each accepted socket; calls `settled` once it knows what that one wants.
    """

    def __init__(
        self, directory: Path, name: str, pending_max: int, on_arrival: Callable[[socket.socket], None]
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._sock = connections.listen(directory, name, 0o666, _BACKLOG)
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
        """Whether its path still leads here."""
        return connections.identity(self._path) == self._identity

    def settled(self) -> None:
        """One of the arrivals has said what it wants, or is gone."""
        self._pending -= 1
        if self._resume is None:
            self._listen()

    def close(self) -> None:
        """Accept nobody any more."""
        if self._resume is not None:
            self._resume.cancel()
        self._loop.remove_reader(self._sock)
        self._sock.close()

    def refill(self) -> None:
        """Forget what an earlier container has used up."""
        self._pace.fill()

    def _listen(self) -> None:
        self._resume = None
        if not self._listening and self._pending < self._pending_max and self._sock.fileno() >= 0:
            try:
                self._loop.add_reader(self._sock, self._acceptable)
            except OSError:  # the kernel's limit of what all of a user's processes may wait for
                self._resume = self._loop.call_later(_NO_DESCRIPTORS_SECONDS, self._listen)
                return
            self._listening = True

    def _rest(self, seconds: float | None) -> None:
        """Stop listening, for a time or (None) until an arrival settles."""
        self._listening = False
        self._loop.remove_reader(self._sock)
        if seconds is not None:
            self._resume = self._loop.call_later(seconds, self._listen)

    def _acceptable(self) -> None:
        for _ in range(_AT_ONCE):
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
