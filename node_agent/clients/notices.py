"""A slot's socket for messages that need no answer: a client hands back its turn, asks for one, or suspects hp.

As messages on connections, which are accepted and closed, they would cost the agent three times as much to read. A
tenant that sends too many delays only its own slot: reading is rate-limited, and then the kernel refuses all but a few.
"""

import contextlib
import socket
from collections.abc import Callable
from ctypes import sizeof
from pathlib import Path

from orion.hook import join
from orion.node_agent.clients import messages, rights
from orion.node_agent.clients.paced_socket import PacedSocket
from orion.node_agent.slots.slot import NOTICES

_SIZE = sizeof(join.Turn) + 1
""" A longer datagram is cut to this size, which no notice has. """

_SO_PASSRIGHTS = 83


class Notices(PacedSocket):
    """The socket of one slot. Once it is closed, hooks use connections.

    Args:
        directory: the socket's directory.
        on_notice: called with each notice.
        closer: of the slot.

    Raises:
        OSError: the socket cannot be opened.
    """

    def __init__(self, directory: Path, on_notice: Callable[[messages.Notice], None], closer: rights.Closer) -> None:
        super().__init__(directory, NOTICES, socket.SOCK_DGRAM, closer)
        with contextlib.suppress(OSError):  # since Linux 6.16, the kernel can refuse descriptors to their sender
            self._sock.setsockopt(socket.SOL_SOCKET, _SO_PASSRIGHTS, 0)
        self._on_notice = on_notice
        self.go_on()

    def _readable(self) -> None:
        """Read one message."""
        if not self._may_read():
            return
        try:
            data, fds, _ = rights.receive(self._sock, _SIZE)
        except (BlockingIOError, InterruptedError):
            return
        self._closer.close(fds)
        notice = messages.notice(data)
        if notice is not None:
            self._on_notice(notice)
