"""Listens for requests for metrics and probes, and limits connections.

A peer must not be able to block the kubelet's probes or the process's work. aiohttp limits the size of a request's head
and the time until the head has arrived, but not the number of connections. This module adds that limit. A new
connection is always accepted: if there are too many, the server ends the oldest connection of the peer that has the
most. Each connection also ends after a fixed time, even if its peer does not read the answer.
"""

import asyncio
import errno
import logging
from collections import Counter
from dataclasses import dataclass

from aiohttp import web

from orion.errors import Conflict
from orion.exposition.answers import Answers

_HEAD_S, _CONNECTION_S = 5.0, 20.0
""" The time limits for the request's head and for the whole connection, in seconds. """
_CONNECTIONS_MAX, _OF_ONE_PEER_MAX = 256, 64
_AGAIN_S = 2.0
""" Pause between attempts to bind an address that another process uses. """
_LINE_MAX = 8 * 1024
""" The most bytes of a request's first line, and of each header. """

_log = logging.getLogger(__name__)
# aiohttp logs a stack trace for each request that is not HTTP, so any peer could fill the log. `Answers` logs our own
# errors.
_silent = logging.Logger("nobody", logging.CRITICAL + 1)


class ExpositionServer:
    """Serves metrics and probes.

    Args:
        answers: answers the requests.
        address: HOST:PORT, with IPv6 hosts in brackets; no host: all addresses; port 0: a free port.
    """

    def __init__(self, answers: Answers, address: str) -> None:
        self._answers = answers
        host, _, port = address.rpartition(":")
        self._host, self._port = host.strip("[]"), int(port)
        self._http: _Bounded | None = None
        self._server: asyncio.Server | None = None

    async def start(self) -> None:
        """Listen.

        Raises:
            Conflict: another process listens on the address; a later call may succeed.
            OSError: the address is unusable.
        """
        self._http = _Bounded(self._answers)
        try:
            self._server = await asyncio.get_running_loop().create_server(self._http, self._host or None, self._port)
        except (OSError, OverflowError) as error:
            kind = Conflict if isinstance(error, OSError) and error.errno == errno.EADDRINUSE else OSError
            raise kind(f"metrics cannot be served on {self._host or '*'}:{self._port}: {error}") from None
        _log.info("metrics: on http://%s:%d/metrics", self._host or "*", self.port)

    async def start_when_free(self) -> None:
        """Listen as soon as the address is free: in a rolling update, the old process still uses the host's port.

        Raises:
            OSError: the address is unusable for another reason.
        """
        logged = False
        while True:
            try:
                return await self.start()
            except Conflict as error:
                if not logged:
                    _log.warning("%s; this process goes on without metrics, and tries again", error)
                logged = True
            await asyncio.sleep(_AGAIN_S)

    @property
    def port(self) -> int:
        """The port on which the server listens."""
        assert self._server is not None
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    async def stop(self) -> None:
        """Stop listening and end all connections."""
        if self._server is not None:
            self._server.close()
        if self._http is not None:
            self._http.end_all()


@dataclass(frozen=True)
class _Connection:
    peer: str
    transport: asyncio.Transport
    deadline: asyncio.TimerHandle


class _Bounded(web.Server):
    """aiohttp's server, with limits on connections. aiohttp calls it when a connection begins or ends."""

    def __init__(self, answers: Answers) -> None:
        super().__init__(
            answers.answer,
            handler_cancellation=True,
            access_log=None,
            logger=_silent,
            keepalive_timeout=_HEAD_S,
            lingering_time=0,
            max_line_size=_LINE_MAX,
            max_field_size=_LINE_MAX,
        )
        self._open: dict[web.RequestHandler, _Connection] = {}
        """ The open connections, the oldest first. """

    def connection_made(self, handler: web.RequestHandler, transport: asyncio.Transport) -> None:
        super().connection_made(handler, transport)
        peer = str((transport.get_extra_info("peername") or ("",))[0])
        deadline = asyncio.get_running_loop().call_later(_CONNECTION_S, transport.abort)
        self._open[handler] = _Connection(peer, transport, deadline)
        counts = Counter(each.peer for each in self._open.values())
        if counts.total() > _CONNECTIONS_MAX:
            peer = counts.most_common(1)[0][0]
        elif counts[peer] <= _OF_ONE_PEER_MAX:
            return
        self._end(next(handler for handler, each in self._open.items() if each.peer == peer))

    def connection_lost(self, handler: web.RequestHandler, exc: BaseException | None = None) -> None:
        self._forget(handler)
        super().connection_lost(handler, exc)

    def end_all(self) -> None:
        """End all connections; unsent data is lost."""
        for handler in list(self._open):
            self._end(handler)

    def _end(self, handler: web.RequestHandler) -> None:
        if (connection := self._forget(handler)) is not None:
            connection.transport.abort()

    def _forget(self, handler: web.RequestHandler) -> _Connection | None:
        if (connection := self._open.pop(handler, None)) is not None:
            connection.deadline.cancel()
        return connection
