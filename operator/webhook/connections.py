"""Accepts the webhook's connections: bounded for each peer, with TLS handshakes at a bounded rate and peer by peer.

asyncio's own server begins every handshake at once. A handshake takes about a millisecond of the loop, so a few pods
that open connections without a pause would use all of its time. Here a connection waits for its peer's turn before its
handshake. Only API servers whose network is known do not wait. A connection that waits needs little memory, so more may
wait than may be in use.
"""

import asyncio
import logging
import socket
import ssl
from collections.abc import Callable

from aiohttp import web

from orion.operator.listening.descriptors import raise_limit
from orion.operator.listening.listener import Listener
from orion.operator.listening.turns import Turns
from orion.operator.webhook.bounds import CONNECTIONS, WAITING, Account, Peer, Peers

_HANDSHAKES_APART_S = 0.01
""" The time between the beginnings of two handshakes: all together take about a tenth of the loop's time. """
_WAIT_S = _HANDSHAKE_S = 10.0
""" How long a connection may wait for its handshake, and how long that may take. An API server itself gives up after
10 s (TLSHandshakeTimeout of its client), and would refuse the pod if the webhook closed the connection before. """
_CLOSE_S = 1.0
""" How long a peer may take to answer the end of TLS. """
_SEND_S = 5.0
""" How long a peer may leave answers unread. No API server waits longer for an answer. """
_BUFFER = 64 * 2**10
""" Bytes of a body that are read before the webhook wants them. """
_UNREAD_BEFORE, _UNREAD = 2**12, 2**18
""" Bytes that the kernel keeps for a connection before its handshake, which begins with less than 2 KiB, and later. By
itself the kernel would keep 128 KiB of what a peer sends while it waits. """
_silent = logging.Logger("nobody", logging.CRITICAL + 1)
""" aiohttp logs a stack trace for each request that is not HTTP, so any peer could fill the log. """


class Connections:
    """The listener of the webhook and its connections.

    Args:
        peers: recognises API servers.
        context: returns the TLS context of the next handshake.
        refused: called with the reason for each connection that is closed without an answer.
    """

    def __init__(self, peers: Peers, context: ssl.SSLContext, refused: Callable[[str], None]) -> None:
        self._peers, self._context, self._refused = peers, context, refused
        self.account = Account(CONNECTIONS, reserved=peers.known)
        """ Connections whose handshake has begun. """
        self._waiting = Account(WAITING, reserved=peers.known)
        self._turns = Turns[Peer](lambda _: _HANDSHAKES_APART_S)
        self._greeting: set[asyncio.Task[None]] = set()
        self._listener = Listener(self._take)
        self._server: web.Server | None = None
        self._keep_alive_s = 0.0

    @property
    def count(self) -> int:
        """How many connections there are, with those that wait for their handshake."""
        return self._waiting.total + self.account.total

    def listen(self, address: str, port: int, server: web.Server, keep_alive_s: float) -> int:
        """Begin to accept connections; return the port.

        Args:
            address: where to listen.
            port: where to listen; 0: any free port.
            server: handles requests.
            keep_alive_s: how long an idle connection stays open.

        Raises:
            OSError: the address cannot be bound.
        """
        self._server, self._keep_alive_s = server, keep_alive_s
        raise_limit()
        return self._listener.listen(address, port)

    def close_listener(self) -> None:
        """Accept no more connections than those that wait."""
        self._listener.close()

    async def end(self) -> None:
        """Close the listener and the connections whose handshake is not over."""
        self.close_listener()
        for task in self._greeting:
            task.cancel()
        await asyncio.gather(*self._greeting, return_exceptions=True)

    def _take(self, accepted: socket.socket, address: str) -> None:
        peer = self._peers.at(address)
        if not self._waiting.take(peer, 1):
            self._close(accepted, "connections")
            return
        accepted.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _UNREAD_BEFORE)
        task = asyncio.create_task(self._greet(accepted, peer))
        self._greeting.add(task)
        task.add_done_callback(self._greeting.discard)

    def _close(self, accepted: socket.socket, why: str) -> None:
        accepted.close()
        self._refused(why)

    async def _greet(self, accepted: socket.socket, peer: Peer) -> None:
        """Wait for the peer's turn, and make a connection of the socket."""
        try:
            if not peer.is_api_server:
                async with asyncio.timeout(_WAIT_S), self._turns.turn(peer):
                    pass
        except TimeoutError:
            self._close(accepted, "handshakes")
            return
        except asyncio.CancelledError:
            self._close(accepted, "handshakes")
            raise
        finally:
            self._waiting.give_back(peer, 1)
        if not self.account.take(peer, 1):
            self._close(accepted, "connections")
            return
        accepted.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _UNREAD)
        place, made = _Place(self.account, peer), False
        try:
            await self._handshake(accepted, place)
            made = True
        except (OSError, ssl.SSLError):
            self._refused("handshake")
        finally:
            if not made:
                place.leave()

    async def _handshake(self, accepted: socket.socket, place: "_Place") -> None:
        """Raise OSError if TLS fails or takes too long."""
        assert self._server is not None
        server = self._server
        await asyncio.get_running_loop().connect_accepted_socket(
            lambda: _Connection(server, self._keep_alive_s, place.leave, self._refused),
            accepted,
            ssl=self._context,
            ssl_handshake_timeout=_HANDSHAKE_S,
            ssl_shutdown_timeout=_CLOSE_S,
        )


class _Place:
    """The place of one connection among its peer's connections."""

    def __init__(self, account: Account, peer: Peer) -> None:
        self.peer = peer
        self._account, self._left = account, False

    def leave(self) -> None:
        """Give the place back; further calls have no effect."""
        if not self._left:
            self._left = True
            self._account.give_back(self.peer, 1)


class _Connection(web.RequestHandler):
    """aiohttp's connection, which also reports its end, and ends if the peer leaves answers unread."""

    __slots__ = ("_lost", "_refused", "_unread")

    def __init__(
        self, server: web.Server, keep_alive_s: float, lost: Callable[[], None], refused: Callable[[str], None]
    ) -> None:
        # Compressed bodies are not expanded, because a small one can become very large.
        super().__init__(
            server,
            loop=asyncio.get_running_loop(),
            access_log=None,  # type: ignore[arg-type]  # None: no log
            logger=_silent,
            keepalive_timeout=keep_alive_s,
            lingering_time=0,  # the rest of a refused body is not read
            read_bufsize=_BUFFER,
            auto_decompress=False,
        )
        self._lost, self._refused = lost, refused
        self._unread: asyncio.TimerHandle | None = None

    def pause_writing(self) -> None:
        """Wait for the peer to read, for a time."""
        super().pause_writing()
        self._unread = asyncio.get_running_loop().call_later(_SEND_S, self._abort)

    def resume_writing(self) -> None:
        """Write again."""
        super().resume_writing()
        self._end_wait()

    def _end_wait(self) -> None:
        if self._unread is not None:
            self._unread.cancel()
            self._unread = None

    def _abort(self) -> None:
        self._refused("unread")
        if isinstance(self.transport, asyncio.WriteTransport):
            self.transport.abort()

    def connection_lost(self, exc: BaseException | None) -> None:
        """End the connection."""
        self._end_wait()
        super().connection_lost(exc)
        self._lost()
