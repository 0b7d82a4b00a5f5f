"""The sockets of a GPU's slots, and the connections to them that have not sent their first message yet."""

import asyncio
import logging
import socket
from collections.abc import Callable
from functools import partial

from orion.node_agent.clients.connections import Connection, OnEvent, OnMessage
from orion.node_agent.clients.entrance import Entrance
from orion.node_agent.clients.messages import Notice
from orion.node_agent.clients.notices import Notices
from orion.node_agent.clients.rights import Closer
from orion.node_agent.slots.slot import SOCKET, Slot

_log = logging.getLogger(__name__)

_HELLO_SECONDS = 5.0
""" How long a connection may take for its first message. """


class Arrivals:
    """The listening sockets of one GPU.

    Args:
        pending_max: maximum number of connections of each slot that have not sent their first message.
        on_message: of each connection, as `Connection` takes it; it must call `settle` at the first message.
        on_end: of each connection; it must call `settle` if there was no first message.
        on_writable: of each connection.
        on_notice: called with each datagram that is a notice.
    """

    def __init__(
        self,
        pending_max: int,
        on_message: OnMessage,
        on_end: OnEvent,
        on_writable: OnEvent,
        on_notice: Callable[[Slot, Notice], None],
    ) -> None:
        self._pending_max = pending_max
        self._on_notice = on_notice
        self._on_message, self._on_end, self._on_writable = on_message, on_end, on_writable
        self._loop = asyncio.get_running_loop()
        self._entrances: dict[str, Entrance] = {}
        self._notices: dict[str, Notices] = {}
        self._undecided: dict[Connection, tuple[Slot, asyncio.TimerHandle | None]] = {}

    def __contains__(self, connection: Connection) -> bool:
        return connection in self._undecided

    def open(self, slot: Slot) -> None:
        """Listen for a slot's clients.

        Raises:
            OSError: the socket cannot be opened.
        """
        closer = Closer(partial(self._go_on, slot))
        notices = Notices(slot.directory, partial(self._on_notice, slot), closer)
        try:
            on_arrival = partial(self._connect, slot, closer)
            entrance = Entrance(slot.directory, SOCKET, self._pending_max, on_arrival, closer)
        except BaseException:
            notices.close()
            raise
        self._entrances[slot.name], self._notices[slot.name] = entrance, notices

    def close(self, slot: Slot) -> None:
        """Close a slot's sockets."""
        self._entrances.pop(slot.name).close()
        self._notices.pop(slot.name).close()

    def renew(self, slot: Slot) -> None:
        """Give a slot new sockets for a new container, which nothing delays that the last one has sent.

        If the system has no more descriptors, the old sockets stay.
        """
        before = self._entrances[slot.name], self._notices[slot.name]
        try:
            self.open(slot)
        except OSError as error:
            _log.warning("slot: %s keeps the sockets of its last container: %s", slot.name, error)
            return
        for sock in before:
            sock.close()

    def gone(self) -> str | None:
        """Return the name of a slot whose socket file is gone; None: all exist."""
        return next((name for name, entrance in self._entrances.items() if not entrance.is_there), None)

    def settle(self, connection: Connection) -> Slot:
        """Note that a connection has sent its first message or is closed; return its slot."""
        slot, timer = self._undecided.pop(connection)
        if timer is not None:
            timer.cancel()
        self._entrances[slot.name].settled()
        return slot

    def end_all(self, slot: Slot) -> None:
        """Close the connections to a slot that have not sent their first message."""
        for connection in [each for each, (of, _) in self._undecided.items() if of is slot]:
            self._end(connection)

    def stop(self) -> None:
        """Close all sockets, and the connections that have not sent their first message."""
        for entrance in self._entrances.values():
            entrance.close()
        for notices in self._notices.values():
            notices.close()
        for connection in list(self._undecided):
            self._end(connection)

    def _go_on(self, slot: Slot) -> None:
        if slot.name in self._entrances:
            self._entrances[slot.name].go_on()
            self._notices[slot.name].go_on()

    def _connect(self, slot: Slot, closer: Closer, sock: socket.socket) -> None:
        try:
            connection = Connection(sock, closer, self._on_message, self._on_end, self._on_writable)
        except OSError:
            closer.close_socket(sock)
            self._entrances[slot.name].settled()
            return
        self._undecided[connection] = slot, None
        try:
            connection.begin()
        except OSError:
            connection.close()
            self._on_end(connection)
        if connection in self._undecided:
            timer = self._loop.call_later(_HELLO_SECONDS, self._end, connection)
            self._undecided[connection] = slot, timer

    def _end(self, connection: Connection) -> None:
        self.settle(connection)
        connection.close()
