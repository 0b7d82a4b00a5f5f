"""The gRPC server: it sends each agent the pods of its node, at once and after each change.

A message holds all pods of the node, so an agent that has missed one is right again with the next. Changes within
`PAUSE_S` are sent together. If an agent does not read, gRPC's flow control holds its call, and only the newest state is
sent once it reads again; nothing is queued.

The server starts once this replica knows all objects and its certificate is published. So an agent that reaches it
gets a complete answer.
"""

import asyncio
import logging
from datetime import timedelta
from typing import Protocol

import grpc
from prometheus_client import CollectorRegistry, Counter, Gauge

from orion.api_server.requests import ApiError, ApiServer
from orion.errors import Exhausted, OrionError
from orion.node_pods import KEEPALIVE_SECONDS
from orion.node_pods.node_pods_pb2 import PodsOfNode, WatchRequest
from orion.node_pods.node_pods_pb2_grpc import NodePodsServicer, add_NodePodsServicer_to_server
from orion.operator.certificates.issuing import Certificate, new_self_signed, utc_now
from orion.operator.node_pods.callers import Callers
from orion.operator.node_pods.publishing import Published
from orion.operator.node_pods.settings import NodePodsSettings
from orion.operator.node_pods.streams import Streams

PAUSE_S = 0.05
_SLICES_PAUSE_S = 0.005
_LOOK_EVERY_S = 60.0
_CALLS_MAX = 10_000
_BACKDATED = timedelta(hours=1)
""" The clocks of nodes differ. """
_MESSAGE_MAX = 4 * 1024
""" Bytes of a request, and of its metadata but for the token. """
_LOG = logging.getLogger(__name__)


class Source(Protocol):
    """Knows the pods of each node."""

    def of(self, node: str) -> PodsOfNode:
        """Return the pods of a node."""

    def take_changed(self) -> tuple[set[str], bool]:
        """Return nodes whose pods or grants may have changed since the last call, and whether there are more."""


class _Metrics:
    def __init__(self, registry: CollectorRegistry) -> None:
        self.agents = Gauge("orion_operator_agents", "Calls of node agents that are open.", registry=registry)
        self.sent = Counter("orion_operator_sent", "Messages that were sent to node agents.", registry=registry)
        self.refused = Counter(
            "orion_operator_refused_calls", "Calls of node agents that were refused.", ["code"], registry=registry
        )


class NodePodsServer(NodePodsServicer):
    """Serves the agents of all nodes. Create it inside a running event loop.

    Args:
        settings: the settings.
        api: the API server.
        source: knows the pods of each node.
        registry: gets the metrics.
    """

    def __init__(self, settings: NodePodsSettings, api: ApiServer, source: Source, registry: CollectorRegistry) -> None:
        self._settings, self._source, self._metrics = settings, source, _Metrics(registry)
        self._callers, self._streams = Callers(api, settings.user), Streams()
        path = f"/api/v1/namespaces/{settings.namespace}/configmaps/{settings.config_map}"
        self._published = Published(api, path, settings.replica)
        self._certificate = self._new_certificate()
        self._published_certificate = self._certificate
        self._noticed = asyncio.Event()
        self._begun, self._is_published = asyncio.Event(), asyncio.Event()
        self.waits_for = "all objects are not known yet"
        """ Why the server does not serve yet; empty: it serves. """
        self.port = 0
        """ The port, once the server serves. """

    def begin(self) -> None:
        """Start to serve. Call this once all objects have been read."""
        self._begun.set()

    def notice(self) -> None:
        """Learn that the source may have changed."""
        self._noticed.set()

    async def serve(self) -> None:
        """Serve until cancelled, once the certificate is published.

        kopf cancels tasks that were made after its start when it ends, and so gRPC's. Hence this coroutine makes none,
        and the reconciler runs it and `keep_published` as tasks of their own.

        Raises:
            OSError: the address cannot be bound.
        """
        await self._is_published.wait()
        while self._source.take_changed()[1]:
            await asyncio.sleep(_SLICES_PAUSE_S)
        while True:
            await self._serve_with(self._published_certificate)

    async def _serve_with(self, certificate: Certificate) -> None:
        """Serve until there is another certificate."""
        server = self._server(certificate)
        try:
            await server.start()
            self.waits_for = ""
            _LOG.info("node agents are served on %s:%d", self._settings.address.rpartition(":")[0], self.port)
            while certificate is self._published_certificate:
                await self._noticed.wait()
                self._noticed.clear()
                nodes, more = self._source.take_changed()
                self._streams.wake(nodes)
                if more:
                    self._noticed.set()
                # Many changes, such as a thousand new shares, are looked at together.
                await asyncio.sleep(_SLICES_PAUSE_S if more else PAUSE_S)
        finally:
            await server.stop(None)

    async def keep_published(self) -> None:
        """Keep the certificate valid and published until cancelled, once all objects have been read."""
        await self._begun.wait()
        half = timedelta(seconds=self._settings.certificate_seconds / 2)
        try:
            while True:
                if self._certificate.ends - half <= utc_now():
                    self._certificate = self._new_certificate()
                pause = min(_LOOK_EVERY_S, half.total_seconds() / 4)
                try:
                    await self._published.publish(self._certificate.pem.decode())
                except ApiError as error:
                    _LOG.warning("the certificate for node agents could not be published: %s", error)
                    if not self._is_published.is_set():
                        self.waits_for = f"the certificate for node agents could not be published: {error}"
                        pause = min(pause, 1.0)
                else:
                    self._published_certificate = self._certificate  # agents find it before the server presents it
                    self._is_published.set()
                    self._noticed.set()
                await asyncio.sleep(pause)
        finally:
            await self._published.withdraw()

    def _server(self, certificate: Certificate) -> grpc.aio.Server:
        settings, keepalive_ms = self._settings, int(KEEPALIVE_SECONDS * 1000)
        server = grpc.aio.server(
            maximum_concurrent_rpcs=_CALLS_MAX,
            options=[
                ("grpc.so_reuseport", 0),
                ("grpc.max_receive_message_length", _MESSAGE_MAX),
                ("grpc.max_concurrent_streams", 4),
                ("grpc.max_connection_age_ms", int(settings.connection_seconds * 1000)),
                ("grpc.max_connection_age_grace_ms", 1),
                ("grpc.max_connection_idle_ms", keepalive_ms),
                ("grpc.server_handshake_timeout_ms", keepalive_ms),
                ("grpc.max_allowed_incoming_connections", _CALLS_MAX),
                ("grpc.keepalive_time_ms", keepalive_ms),
                ("grpc.keepalive_timeout_ms", keepalive_ms),
                # Agents ping at the same interval; by default, a server ends connections that ping so often.
                ("grpc.http2.min_recv_ping_interval_without_data_ms", keepalive_ms // 2),
            ],
        )
        add_NodePodsServicer_to_server(self, server)  # type: ignore[no-untyped-call]
        # A new certificate needs a new server: with credentials that gRPC fetches at each handshake, the process
        # crashed when 600 agents connected at the same time.
        credentials = grpc.ssl_server_credentials([(certificate.key, certificate.pem)])
        try:
            address = f"{settings.address.rpartition(':')[0]}:{self.port}" if self.port else settings.address
            self.port = server.add_secure_port(address, credentials)
        except RuntimeError as error:
            raise OSError(f"node agents cannot be served on {settings.address}: {error}") from None
        return server

    # -- Calls ---------------------------------------------------------------------------------------------------------

    async def Watch(  # noqa: N802  (the name in the .proto)
        self, request: WatchRequest, context: "grpc.aio.ServicerContext[WatchRequest, PodsOfNode]"
    ) -> None:
        """Send the pods of the caller's node at once, and after each change."""
        try:
            node = await self._callers.node(_authorization(context))
            await self._send(node, context)
        except OrionError as error:
            self._metrics.refused.labels(error.grpc_code).inc()
            await context.abort(grpc.StatusCode[error.grpc_code], str(error))

    async def _send(self, node: str, context: "grpc.aio.ServicerContext[WatchRequest, PodsOfNode]") -> None:
        stream, sent = self._streams.open(node), None
        self._metrics.agents.set(len(self._streams))
        try:
            while not stream.ended:
                message = self._source.of(node)
                if message != sent:
                    await context.write(message)
                    sent = message
                    self._metrics.sent.inc()
                    await asyncio.sleep(PAUSE_S)
                await stream.changed()
            raise Exhausted(f"a newer call of the agent of node {node} has taken the place of this one")
        finally:
            self._streams.close(node, stream)
            self._metrics.agents.set(len(self._streams))

    def _new_certificate(self) -> Certificate:
        validity = timedelta(seconds=self._settings.certificate_seconds)
        return new_self_signed(self._settings.name, utc_now(), validity, _BACKDATED)


def _authorization(context: "grpc.aio.ServicerContext[WatchRequest, PodsOfNode]") -> str:
    for key, value in context.invocation_metadata() or ():
        if key == "authorization" and isinstance(value, str):
            return value
    return ""
