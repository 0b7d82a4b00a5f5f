"""A slot's listening socket: accepts connections at a limited rate; the kernel queues the others.

A tenant that opens too many connections delays only its own slot. Each slot has its own socket, a limit on connections
that have not sent HELLO, the first message of a client, and a deadline for these connections.
"""

import errno
import socket
from collections.abc import Callable
from pathlib import Path

from orion.node_agent.clients import connections
from orion.node_agent.clients.paced_socket import RETRY_SECONDS, PacedSocket
from orion.node_agent.clients.rights import Closer

_BACKLOG = 1024


class Entrance(PacedSocket):
    """The listening socket of one slot.

    Args:
        directory: the socket's directory.
        name: the name of the socket's file.
        pending_max: maximum number of connections that have not sent their first message.
        on_arrival: called with each accepted socket. It must cause a call of `settled` when the connection has sent its
            first message or is closed.
        closer: of the slot.
    """

    def __init__(
        self, directory: Path, name: str, pending_max: int, on_arrival: Callable[[socket.socket], None], closer: Closer
    ) -> None:
        super().__init__(directory, name, socket.SOCK_SEQPACKET, closer)
        self._sock.listen(_BACKLOG)
        self._path = directory / name
        self._identity = connections.identity(self._path)
        self._pending, self._pending_max = 0, pending_max
        self._on_arrival = on_arrival
        self.go_on()

    @property
    def is_there(self) -> bool:
        """Whether this socket still exists at its path."""
        return connections.identity(self._path) == self._identity

    def settled(self) -> None:
        """Note that one of the accepted connections has sent its first message or is closed."""
        self._pending -= 1
        self.go_on()

    def _readable(self) -> None:
        """Accept one connection."""
        if self._pending >= self._pending_max:
            self._rest(None)
            return
        if not self._may_read():
            return
        try:
            sock, _ = self._sock.accept()
        except (BlockingIOError, InterruptedError, ConnectionAbortedError):
            return
        except OSError as error:
            if error.errno not in (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM):
                raise
            self._rest(RETRY_SECONDS)
            return
        self._pending += 1
        self._on_arrival(sock)
