"""Metrics and a sign of life over HTTP.

A few lines on the event loop: a framework was tried and took a sixth of the process's memory, on every node. A
connection has five seconds and one request.
"""

import asyncio
import errno
import logging

from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4

from orion.device_plugin.metrics import Metrics

_REQUEST_SECONDS = 5.0
_CONNECTIONS_MAX = 16
_AGAIN_SECONDS = 2.0

_log = logging.getLogger(__name__)


class MetricsServer:
    """Serves /metrics and /healthz.

    Args:
        metrics: of the process.
        address: HOST:PORT, IPv6 hosts in brackets; port 0: a free one.
    """

    def __init__(self, metrics: Metrics, address: str) -> None:
        self._metrics = metrics
        host, _, port = address.rpartition(":")
        self._host, self._wanted = host.strip("[]"), int(port)
        self._server: asyncio.Server | None = None
        self._connections = 0

    async def start(self) -> None:
        """Listen, as soon as the port is free: in the host's network the old plugin of a rolling update has it first.

        Raises:
            OSError: the address cannot be had at all.
        """
        said = False
        while self._server is None:
            try:
                self._server = await asyncio.start_server(self._serve, self._host, self._wanted)
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

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._connections += 1
        try:
            if self._connections <= _CONNECTIONS_MAX:
                async with asyncio.timeout(_REQUEST_SECONDS):
                    writer.write(self._answer(await reader.readuntil(b"\r\n\r\n")))
                    await writer.drain()
        except (TimeoutError, OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass  # the peer's own loss
        finally:
            self._connections -= 1
            writer.close()

    def _answer(self, head: bytes) -> bytes:
        path = head.partition(b" ")[2].partition(b" ")[0].partition(b"?")[0]
        if head.startswith(b"GET ") and path == b"/metrics":
            return _response("200 OK", CONTENT_TYPE_PLAIN_0_0_4, self._metrics.text())
        if head.startswith(b"GET ") and path == b"/healthz":
            return _response("200 OK", "text/plain", b"ok\n")
        return _response("404 Not Found", "text/plain", b"GET /metrics or /healthz\n")


def _response(status: str, content_type: str, body: bytes) -> bytes:
    head = [f"HTTP/1.1 {status}", f"Content-Type: {content_type}", f"Content-Length: {len(body)}", "Connection: close"]
    return "\r\n".join([*head, "", ""]).encode("ascii") + body
