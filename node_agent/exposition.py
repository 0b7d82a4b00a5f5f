"""Metrics and answers to the kubelet's probes, over HTTP.

A few lines of HTTP on the event loop: prometheus-client's own server gives each connection a thread for as long as its
peer likes, and would read the boards while they change. Here a connection has one request and a deadline.

Whoever reaches the port must not keep the kubelet out, nor the agent from its work. So nobody is refused for others:
when there are too many connections, the oldest of the peer that has the most is ended for the newest. A probe is
answered as soon as it is read, from state that is there; texts of metrics are shared by all who wait, and made in one
thread while joining goes on.
"""

import asyncio
import logging

from prometheus_client import exposition
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from orion.node_agent import answers, metrics, snapshots
from orion.node_agent.agent import Agent
from orion.node_agent.probes import Probes
from orion.node_agent.shared_text import SharedText

_log = logging.getLogger(__name__)

_HEAD_SECONDS, _ANSWER_SECONDS = 5.0, 15.0
""" To send the request, and to have read the answer. """
_CONNECTIONS_MAX, _OF_ONE_PEER_MAX = 256, 64
_HEAD_MAX = 16 * 1024
_CHUNK = 64 * 1024


class _Moment(Collector):
    """A collector of one snapshot."""

    def __init__(self, view: snapshots.AgentView) -> None:
        self._view = view

    def collect(self) -> list[Metric]:
        return list(metrics.render(self._view, answers.version()))


class MetricsServer:
    """Serves GET /metrics, /healthz and /readyz.

    Args:
        agent: whose metrics.
        probes: answers probes.
        address: HOST:PORT, IPv6 hosts in brackets; port 0: a free one.
    """

    def __init__(self, agent: Agent, probes: Probes, address: str) -> None:
        self._agent, self._probes = agent, probes
        host, _, port = address.rpartition(":")
        self._host, self._port = host.strip("[]") or None, int(port)
        self._server: asyncio.Server | None = None
        self._connections: dict[str, list[asyncio.Task[None]]] = {}
        """ By the peer's address; the oldest first. """
        self._metrics = SharedText(self._render)

    async def start(self) -> None:
        """Listen.

        Raises:
            OSError: the address cannot be had.
        """
        try:
            self._server = await asyncio.start_server(self._accepted, self._host, self._port, limit=_HEAD_MAX)
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
        self._metrics.close()

    def _accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        peer = str((writer.get_extra_info("peername") or ("",))[0])
        connection = asyncio.create_task(self._serve(reader, writer))
        connection.add_done_callback(lambda _: self._ended(peer, connection, writer))
        self._connections.setdefault(peer, []).append(connection)
        crowd = peer
        if sum(map(len, self._connections.values())) > _CONNECTIONS_MAX:
            crowd = max(self._connections, key=lambda each: len(self._connections[each]))
        elif len(self._connections[peer]) <= _OF_ONE_PEER_MAX:
            return
        oldest = self._connections[crowd][0]
        self._forget(crowd, oldest)
        oldest.cancel()

    def _ended(self, peer: str, connection: asyncio.Task[None], writer: asyncio.StreamWriter) -> None:
        self._forget(peer, connection)
        writer.transport.abort()  # whatever could be sent is with the kernel; the rest would hold the connection

    def _forget(self, peer: str, connection: asyncio.Task[None]) -> None:
        of_peer = self._connections.get(peer, [])
        if connection in of_peer:
            of_peer.remove(connection)
            if not of_peer:
                del self._connections[peer]

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.transport.set_write_buffer_limits(high=0)  # `drain` returns when the kernel has taken everything
        try:
            async with asyncio.timeout(_HEAD_SECONDS):
                head = await reader.readuntil(b"\r\n\r\n")
            async with asyncio.timeout(_ANSWER_SECONDS):
                answer = memoryview(await self._answer(head))
                for at in range(0, len(answer), _CHUNK):
                    writer.write(answer[at : at + _CHUNK])
                    await writer.drain()
        except (TimeoutError, OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass  # the peer's own loss
        except Exception:
            _log.exception("metrics: an answer failed")

    async def _answer(self, head: bytes) -> bytes:
        method, _, rest = head.partition(b" ")
        path = rest.partition(b" ")[0].partition(b"?")[0]
        if method == b"GET" and path == b"/healthz":
            return _verdict(self._probes.unhealthy())
        if method == b"GET" and path == b"/readyz":
            return _verdict(self._probes.unready())
        if method == b"GET" and path in (b"/metrics", b"/"):
            return await self._metrics.get()
        return _response("404 Not Found", "text/plain", b"GET /metrics, /healthz or /readyz\n")

    async def _render(self) -> bytes:
        view = await snapshots.take(self._agent)
        return await asyncio.to_thread(self._text, view)

    def _text(self, view: snapshots.AgentView) -> bytes:
        text = exposition.generate_latest(_Moment(view)) + exposition.generate_latest(self._agent.registry)
        return _response("200 OK", exposition.CONTENT_TYPE_PLAIN_0_0_4, text)


def _verdict(why_not: str) -> bytes:
    if why_not:
        return _response("503 Service Unavailable", "text/plain", f"{why_not}\n".encode("ascii", "replace"))
    return _response("200 OK", "text/plain", b"ok\n")


def _response(status: str, content_type: str, body: bytes) -> bytes:
    head = [f"HTTP/1.1 {status}", f"Content-Type: {content_type}", f"Content-Length: {len(body)}", "Connection: close"]
    return "\r\n".join([*head, "", ""]).encode("ascii") + body
