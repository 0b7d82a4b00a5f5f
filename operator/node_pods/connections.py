"""One agent's connection: TLS on a socket that does not block.

TLS gets the bytes in small pieces, so its buffers stay small. Rejected: gRPC and asyncio's TLS, which keep over 100 KB
and 300 KB for each connection (docs/results/operator.md). Rejected: OpenSSL that reads the socket itself. It reads
for as long as a peer sends messages of TLS alone, such as key updates, and meanwhile the event loop does nothing else.
"""

import asyncio
import contextlib
import functools
import socket
import ssl
from collections.abc import Callable
from typing import TypeVar

from orion.errors import Invalid
from orion.node_pods import LENGTH_BYTES
from orion.operator.certificates.issuing import Certificate
from orion.operator.listening.tls import load
from orion.operator.listening.turns import Turns

T = TypeVar("T")

_PIECE = 2048
""" Bytes that pass through TLS at one time. """
_RECEIVED_MAX = 64 * 1024
""" Bytes that a peer may send in all. An agent sends a handshake and one call. """


def server_context(certificate: Certificate) -> ssl.SSLContext:
    """Return the TLS context that presents a certificate."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.num_tickets = 0  # agents do not resume sessions
    load(context, certificate.pem + certificate.key)
    return context


class Connection:
    """A connection that was accepted. Use it in one task.

    Args:
        accepted: the socket, which does not block.
        context: the TLS context.
    """

    def __init__(self, accepted: socket.socket, context: ssl.SSLContext) -> None:
        self._socket, self._received, self._unsent = accepted, 0, b""
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_side=True)
        self.ended = False
        """ Whether the peer has closed the connection, or has sent what it should not. """

    async def handshake(self, turns: Turns[str], address: str) -> None:
        """Do the handshake. Each step of it waits for a turn of the peer's address, because it takes a millisecond.

        Raises:
            OSError: TLS failed.
        """
        while True:
            await self._take_piece()
            async with turns.turn(address):
                try:
                    self._tls.do_handshake()
                    done = True
                except ssl.SSLWantReadError:
                    done = False
            await self._flush()
            if done:
                return

    async def receive(self, size_max: int) -> bytes:
        """Receive one message.

        Raises:
            OSError: the connection has ended.
            Invalid: the message is too large.
        """
        size = int.from_bytes(await self._exactly(LENGTH_BYTES), "big")
        if size > size_max:
            raise Invalid(f"a call may have {size_max} bytes, and this one has {size}: is the caller a node agent?")
        return await self._exactly(size)

    async def send(self, text: bytes) -> None:
        """Send bytes; return once the kernel has taken all of them.

        Raises:
            OSError: the connection has ended.
        """
        left = memoryview(text)
        while left:
            left = left[await self._retried(functools.partial(self._tls.write, left[:_PIECE])) :]
            await self._flush()

    def watch_end(self, notify: Callable[[], None]) -> None:
        """From now on, expect no more messages: set `ended` and call `notify` if the peer closes the connection."""
        loop = asyncio.get_running_loop()

        def readable(*, look: bool = True) -> None:
            try:
                if look:
                    self._feed()
                self._tls.read(1)
            except (BlockingIOError, ssl.SSLWantReadError):
                return
            except OSError:
                pass
            loop.remove_reader(self._socket)
            self.ended = True
            notify()

        loop.add_reader(self._socket, readable)
        readable(look=False)  # TLS may have it already

    def close(self) -> None:
        """End the connection. The peer learns of it, if the kernel takes that at once."""
        if self._socket.fileno() >= 0:
            asyncio.get_running_loop().remove_reader(self._socket)
        with contextlib.suppress(OSError):
            self._tls.unwrap()
        with contextlib.suppress(OSError):
            self._socket.send(self._unsent + self._outgoing.read())
        self._socket.close()

    async def _exactly(self, size: int) -> bytes:
        found = b""
        while len(found) < size:
            part = await self._retried(functools.partial(self._tls.read, size - len(found)))
            if not part:
                raise ConnectionResetError("the peer has closed the connection")
            found += part
        return found

    async def _retried(self, attempt: Callable[[], T]) -> T:
        while True:
            try:
                return attempt()
            except ssl.SSLWantReadError:
                await self._take_piece()

    async def _take_piece(self) -> None:
        """Wait for bytes, and pass one piece of them to TLS. Other tasks run before the next one."""
        while True:
            await self._ready(writable=False)
            with contextlib.suppress(BlockingIOError):
                return self._feed()

    def _feed(self) -> None:
        piece = self._socket.recv(_PIECE)
        self._received += len(piece)
        if self._received > _RECEIVED_MAX:
            raise ConnectionAbortedError("the peer sends more than a call")
        if piece:
            self._incoming.write(piece)
        else:
            self._incoming.write_eof()

    async def _flush(self) -> None:
        while self._unsent or self._outgoing.pending:
            self._unsent = self._unsent or self._outgoing.read()
            try:
                self._unsent = self._unsent[self._socket.send(self._unsent) :]
            except BlockingIOError:
                await self._ready(writable=True)

    async def _ready(self, *, writable: bool) -> None:
        loop = asyncio.get_running_loop()
        ready = loop.create_future()
        add, remove = (loop.add_writer, loop.remove_writer) if writable else (loop.add_reader, loop.remove_reader)
        add(self._socket, _set, ready)
        try:
            await ready
        finally:
            remove(self._socket)


def _set(ready: "asyncio.Future[None]") -> None:
    if not ready.done():
        ready.set_result(None)
