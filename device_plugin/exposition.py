"""Metrics and answers to the kubelet's probes, over HTTP.

A few lines on the event loop: a framework was tried and took a sixth of the process's memory, on every node. A
connection has five seconds and one request, which is answered as soon as it is read. Nobody is refused for others: when
there are too many connections the oldest is ended for the newest, so who sends nothing keeps no probe out.

That it answers says that it is alive: every part that must not end ends the process. It is ready while the kubelet
listens to it; a rolling update that breaks that stops at its first node.
"""

import asyncio
import errno
import logging
from collections.abc import Callable

from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4

from orion.device_plugin.metrics import Metrics

_REQUEST_SECONDS = 5.0
_CONNECTIONS_MAX = 256
_AGAIN_SECONDS = 2.0

_log = logging.getLogger(__name__)


class MetricsServer:
    """Serves /metrics, /healthz and /readyz.

    Args:
        metrics: of the process.
        unready: says what it waits for; empty: nothing.
        address: HOST:PORT, IPv6 hosts in brackets; port 0: a free one.
    """

    def __init__(self, metrics: Metrics, unready: Callable[[], str], address: str) -> None:
        self._metrics, self._unready = metrics, unready
        host, _, port = address.rpartition(":")
        self._host, self._wanted = host.strip("[]"), int(port)
        self._server: asyncio.Server | None = None
        self._connections: dict[asyncio.Task[None], None] = {}
        """ The oldest first. """

    async def start(self) -> None:
        """Listen, as soon as the port is free: in the host's network the old plugin of a rolling update has it first.

        Raises:
            OSError: the address cannot be had at all.
        """
        said = False
        while self._server is None:
            try:
                self._server = await asyncio.start_server(self._accepted, self._host, self._wanted)
            except (OSError, OverflowError) as error:
                why = f"metrics cannot be served on {self._host}:{self._wanted}: {error}"
                if not isinstance(error, OSError) or error.errno != errno.EADDRINUSE:
                    raise OSError(why) from None
                if not said:
                    _log.warning("device plugin: %s; it goes on without, and tries again", why)
                said = True
                await asyncio.sleep(_AGAIN_SECONDS)
        _log.info("device plugin: metrics on port %d", self._server.sockets[0].getsockname()[1])

    async def stop(self) -> None:
        """Listen no more."""
        if self._server is not None:
            self._server.close()

    def _accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = asyncio.create_task(self._serve(reader, writer))
        connection.add_done_callback(lambda _: self._ended(connection, writer))
        self._connections[connection] = None
        if len(self._connections) > _CONNECTIONS_MAX:
            oldest = next(iter(self._connections))
            del self._connections[oldest]
            oldest.cancel()

    def _ended(self, connection: asyncio.Task[None], writer: asyncio.StreamWriter) -> None:
        self._connections.pop(connection, None)
        writer.transport.abort()  # whatever could be sent is with the kernel; the rest would hold the connection

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.transport.set_write_buffer_limits(high=0)  # `drain` returns when the kernel has taken everything
        try:
            async with asyncio.timeout(_REQUEST_SECONDS):
                writer.write(self._answer(await reader.readuntil(b"\r\n\r\n")))
                await writer.drain()
        except (TimeoutError, OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass  # the peer's own loss

    def _answer(self, head: bytes) -> bytes:
        path = head.partition(b" ")[2].partition(b" ")[0].partition(b"?")[0] if head.startswith(b"GET ") else b""
        if path == b"/metrics":
            return _response("200 OK", CONTENT_TYPE_PLAIN_0_0_4, self._metrics.text())
        if path == b"/healthz":
            return _response("200 OK", "text/plain", b"ok\n")
        if path == b"/readyz":
            why_not = self._unready()
            status = "503 Service Unavailable" if why_not else "200 OK"
            return _response(status, "text/plain", f"{why_not or 'ok'}\n".encode("ascii", "replace"))
        return _response("404 Not Found", "text/plain", b"GET /metrics, /healthz or /readyz\n")


def _response(status: str, content_type: str, body: bytes) -> bytes:
    head = [f"HTTP/1.1 {status}", f"Content-Type: {content_type}", f"Content-Length: {len(body)}", "Connection: close"]
    return "\r\n".join([*head, "", ""]).encode("ascii") + body
