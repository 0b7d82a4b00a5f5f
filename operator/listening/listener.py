"""Accepts connections. If the process has no descriptors or memory for one more, it pauses.

Without a pause the event loop would do nothing else: the waiting connection makes the listener readable again at once.
asyncio's own servers pause too, but they make a transport of each connection before its peer is known.
"""

import asyncio
import logging
import socket
from collections.abc import Callable

_ACCEPTED_AT_ONCE = 16
_PAUSE_S = 0.5
_BACKLOG = 512
_log = logging.getLogger(__name__)


class Listener:
    """A listening socket on the running event loop.

    Args:
        take: gets each connection, which does not block, and the address of its peer.
    """

    def __init__(self, take: Callable[[socket.socket, str], None]) -> None:
        self._take = take
        self._socket: socket.socket | None = None
        self._paused: asyncio.TimerHandle | None = None
        self._failing = False

    def listen(self, address: str, port: int) -> int:
        """Begin to accept connections; return the port.

        Args:
            address: where to listen.
            port: where to listen; 0: any free port.

        Raises:
            OSError: the address cannot be bound.
        """
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        self._socket = socket.create_server((address, port), family=family, backlog=_BACKLOG, reuse_port=False)
        self._socket.setblocking(False)
        self._resume()
        return int(self._socket.getsockname()[1])

    def close(self) -> None:
        """Accept those connections that wait, and no more."""
        if self._socket is None:
            return
        self._accept(_BACKLOG + 1)  # closing the listener would reset the connections that wait
        if self._paused is not None:
            self._paused.cancel()
        asyncio.get_running_loop().remove_reader(self._socket)
        self._socket.close()
        self._socket = None

    def _resume(self) -> None:
        assert self._socket is not None
        self._paused = None
        asyncio.get_running_loop().add_reader(self._socket, self._accept)

    def _accept(self, most: int = _ACCEPTED_AT_ONCE) -> None:
        assert self._socket is not None
        for _ in range(most):
            try:
                accepted, address = self._socket.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                self._pause(error)
                return
            self._failing = False
            accepted.setblocking(False)
            self._take(accepted, address[0])

    def _pause(self, error: OSError) -> None:
        assert self._socket is not None
        if not self._failing:
            _log.warning("no connection can be accepted, the next attempt is in %g s: %s", _PAUSE_S, error)
        self._failing = True
        loop = asyncio.get_running_loop()
        loop.remove_reader(self._socket)
        if self._paused is None:
            self._paused = loop.call_later(_PAUSE_S, self._resume)
