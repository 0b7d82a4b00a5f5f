"""The metrics over HTTP.

A few lines of HTTP on the event loop: prometheus-client's own server gives each connection a thread for as long as its
peer likes, and would read the boards while they change. Here a connection has five seconds, and a peer has few of them:
the kubelet's probes ask here too, and whoever else reaches the port must not keep them out. The text is made in one
thread while joining goes on, for at most half of the time.
"""

import asyncio
import logging
from collections import Counter

from prometheus_client import exposition
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from orion.node_agent import answers, metrics, snapshots
from orion.node_agent.agent import Agent

_log = logging.getLogger(__name__)

_REQUEST_SECONDS = 5.0
_CONNECTIONS_MAX, _OF_ONE_PEER_MAX = 256, 16
_HEAD_MAX = 16 * 1024


class _Moment(Collector):
    """A collector of one snapshot."""

    def __init__(self, view: snapshots.AgentView) -> None:
        self._view = view

    def collect(self) -> list[Metric]:
        return list(metrics.render(self._view, answers.version()))


class MetricsServer:
    """Serves GET /metrics.

    Args:
        agent: whose metrics.
        address: HOST:PORT, IPv6 hosts in brackets; port 0: a free one.
    """

    def __init__(self, agent: Agent, address: str) -> None:
        self._agent = agent
        host, _, port = address.rpartition(":")
        self._host, self._port = host.strip("[]") or None, int(port)
        self._server: asyncio.Server | None = None
        self._connections: Counter[str] = Counter()
        """ By the peer's address. """
        self._rendering = asyncio.Lock()
        self._rested = 0.0
        """ When the next text may be made; loop time. """

    async def start(self) -> None:
        """Listen.

        Raises:
            OSError: the address cannot be had.
        """
        try:
            self._server = await asyncio.start_server(self._serve, self._host, self._port, limit=_HEAD_MAX)
        except (OSError, OverflowError) as error:
            raise OSError(f"metrics cannot be served on {self._host or '*'}:{self._port}: {error}") from None
        _log.info("metrics: on http://%s:%d/metrics", self._host or "*", self.port)

    @property
    def port(self) -> int:
        """The port listened on."""
        assert self._server is not None
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    async def stop(self) -> None:
        """Listen no more."""
        if self._server is not None:
            self._server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        peer = str((writer.get_extra_info("peername") or ("",))[0])
        self._connections[peer] += 1
        try:
            if self._connections[peer] <= _OF_ONE_PEER_MAX and self._connections.total() <= _CONNECTIONS_MAX:
                async with asyncio.timeout(_REQUEST_SECONDS):
                    head = await reader.readuntil(b"\r\n\r\n")
                    writer.write(await self._answer(head))
                    await writer.drain()
        except (TimeoutError, OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass  # the peer's own loss
        finally:
            self._connections[peer] -= 1
            if not self._connections[peer]:
                del self._connections[peer]
            writer.close()

    async def _answer(self, head: bytes) -> bytes:
        method, _, rest = head.partition(b" ")
        path = rest.partition(b" ")[0].partition(b"?")[0]
        if method != b"GET" or path not in (b"/metrics", b"/"):
            return _response("404 Not Found", "text/plain", b"GET /metrics\n")
        loop = asyncio.get_running_loop()
        async with self._rendering:
            await asyncio.sleep(max(0.0, self._rested - loop.time()))
            began = loop.time()
            view = await snapshots.take(self._agent)
            text = await asyncio.to_thread(self._text, view)
            self._rested = 2 * loop.time() - began
        return _response("200 OK", exposition.CONTENT_TYPE_PLAIN_0_0_4, text)

    def _text(self, view: snapshots.AgentView) -> bytes:
        return exposition.generate_latest(_Moment(view)) + exposition.generate_latest(self._agent.registry)


def _response(status: str, content_type: str, body: bytes) -> bytes:
    head = [f"HTTP/1.1 {status}", f"Content-Type: {content_type}", f"Content-Length: {len(body)}", "Connection: close"]
    return "\r\n".join([*head, "", ""]).encode("ascii") + body
