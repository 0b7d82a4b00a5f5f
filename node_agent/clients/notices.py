"""A slot's socket for messages that need no answer: a client hands back its turn, asks for one, or suspects hp.

As messages on connections, which are accepted and closed, they would cost the agent three times as much to read. A
tenant that sends too many delays only its own slot: reading is rate-limited, and then the kernel refuses all but a few.
"""

import socket
from collections.abc import Callable
from ctypes import sizeof
from pathlib import Path

from orion.hook import join
from orion.node_agent.clients import messages
from orion.node_agent.clients.paced_socket import PacedSocket
from orion.node_agent.slots.slot import NOTICES

_SIZE = sizeof(join.Turn) + 1
""" A longer datagram is cut to this size, which no notice has. """


class Notices(PacedSocket):
    """The socket of one slot. Once it is closed, hooks use connections.

    Args:
        directory: the socket's directory.
        on_notice: called with each notice.

    Raises:
        OSError: the socket cannot be opened.
    """

    def __init__(self, directory: Path, on_notice: Callable[[messages.Notice], None]) -> None:
        super().__init__(directory, NOTICES, socket.SOCK_DGRAM)
        self._on_notice = on_notice
        self._go_on()

    def _readable(self) -> None:
        """Read one message. Descriptors with it are dropped."""
        if not self._may_read():
            return
        try:
            notice = messages.notice(self._sock.recv(_SIZE))
        except (BlockingIOError, InterruptedError):
            return
        if notice is not None:
            self._on_notice(notice)
