"""The server for agents: it sends each agent the pods of its node, at once and after each change.

A message holds all pods of the node, so an agent that has missed one is right again with the next. Changes within
`PAUSE_S` are sent together. If an agent does not read, the kernel's buffers fill and its task waits. Once it reads
again, only the newest state is sent; nothing is queued.

The server starts once this replica knows all objects and its certificate is published. So an agent that reaches it
gets a complete answer. A new certificate applies to new connections; those that are open stay.

After another replica has ended, all of its agents connect at the same time. Handshakes take turns, so the loop does
other work between two of them.
"""

import asyncio
import hashlib
import itertools
import logging
import random
import socket
import ssl
from datetime import timedelta
from typing import Protocol

from google.protobuf.message import DecodeError
from prometheus_client import CollectorRegistry, Gauge
from prometheus_client import Counter as MetricCounter

from orion.api_server.requests import ApiError, ApiServer
from orion.errors import Exhausted, Invalid, OrionError
from orion.node_pods import frame, keep_alive
from orion.node_pods.node_pods_pb2 import Answer, Call, PodsOfNode, Refusal
from orion.operator.certificates.issuing import Certificate, new_self_signed, utc_now
from orion.operator.listening.descriptors import raise_limit
from orion.operator.listening.listener import Listener
from orion.operator.listening.turns import Turns
from orion.operator.node_pods.callers import Callers
from orion.operator.node_pods.connections import Connection, server_context
from orion.operator.node_pods.publishing import Published
from orion.operator.node_pods.settings import NodePodsSettings
from orion.operator.node_pods.streams import Streams

PAUSE_S = 0.05
_SLICES_PAUSE_S = 0.005
_WOKEN_AT_ONCE = 20
""" Calls. Each may compute and encrypt a message, which takes half a millisecond. """
_LOOK_EVERY_S = 60.0
_BACKDATED = timedelta(hours=1)
""" The clocks of nodes differ. """
_CONNECTIONS_MAX = 10_000
_DESCRIPTORS_OF_OTHERS = 256
""" Descriptors that are left for requests to the API server, probes and files. """
_NEW_MAX, _NEW_OF_ADDRESS_MAX = 512, 64
""" Connections whose token has not been reviewed yet: in all, and of one address. If there are too many, the address
that has the most loses its oldest one; if all have one, the newest is closed. Its agent tries again some seconds later.
If all waited, many would wait in vain for their handshake until its deadline. """
_NEW_S = 30.0
""" How long a connection may take until its call has arrived. """
_CALL_MAX = 16 * 1024
""" Bytes. A service account's token has about 1,200. """
_REFUSAL_S = 5.0
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
        self.sent = MetricCounter("orion_operator_sent", "Messages that were sent to node agents.", registry=registry)
        self.refused = MetricCounter(
            "orion_operator_refused_calls", "Calls of node agents that were refused.", ["code"], registry=registry
        )


class NodePodsServer:
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
        self._context: ssl.SSLContext | None = None
        """ Presents the certificate that is published; None: none is yet. """
        self._listener, self._turns = Listener(self._take), Turns[str](lambda took: took)
        self._tasks: set[asyncio.Task[None]] = set()
        self._most = min(_CONNECTIONS_MAX, raise_limit() - _DESCRIPTORS_OF_OTHERS)
        self._new: dict[str, list[asyncio.Task[None]]] = {}
        """ Connections whose token has not been reviewed yet, by address. """
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

        Raises:
            OSError: the address cannot be bound.
        """
        await self._is_published.wait()
        while self._source.take_changed()[1]:
            await asyncio.sleep(_SLICES_PAUSE_S)
        host, _, port = self._settings.address.rpartition(":")
        try:
            self.port = self._listener.listen(host.strip("[]"), int(port))
        except OSError as error:
            raise OSError(f"node agents cannot be served on {self._settings.address}: {error}") from None
        self.waits_for = ""
        _LOG.info("node agents are served on %s:%d", host, self.port)
        try:
            await self._wake_changed()
        finally:
            self._listener.close()
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _wake_changed(self) -> None:
        """Wake the calls whose nodes have changed, for ever."""
        while True:
            await self._noticed.wait()
            self._noticed.clear()
            changed, more = self._source.take_changed()
            nodes = iter(changed)
            while some := list(itertools.islice(nodes, _WOKEN_AT_ONCE)):
                self._streams.wake(some)
                await asyncio.sleep(0)
            if more:
                self._noticed.set()
            # Many changes, such as a thousand new shares, are looked at together.
            await asyncio.sleep(_SLICES_PAUSE_S if more else PAUSE_S)

    async def keep_published(self) -> None:
        """Keep the certificate valid and published until cancelled, once all objects have been read."""
        await self._begun.wait()
        half, presented = timedelta(seconds=self._settings.certificate_seconds / 2), None
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
                    if presented is not self._certificate:  # agents find it before the server presents it
                        presented, self._context = self._certificate, server_context(self._certificate)
                    self._is_published.set()
                await asyncio.sleep(pause)
        finally:
            await self._published.withdraw()

    # -- Connections ---------------------------------------------------------------------------------------------------

    def _take(self, accepted: socket.socket, address: str) -> None:
        own = len(self._new.get(address, ()))
        if len(self._tasks) >= self._most or own >= _NEW_OF_ADDRESS_MAX or not self._make_place(own):
            accepted.close()
            self._metrics.refused.labels("RESOURCE_EXHAUSTED").inc()
            return
        task = asyncio.create_task(self._connected(accepted, address))
        self._new.setdefault(address, []).append(task)
        self._tasks.add(task)
        task.add_done_callback(lambda _: self._ended(task, accepted, address))

    def _make_place(self, own: int) -> bool:
        """Return whether a new connection has a place: if need be, that of the address which has the most."""
        if sum(map(len, self._new.values())) < _NEW_MAX:
            return True
        most = max(self._new.values(), key=len)
        if len(most) <= own + 1:
            return False
        most.pop(0).cancel()
        return True

    def _ended(self, task: asyncio.Task[None], accepted: socket.socket, address: str) -> None:
        self._tasks.discard(task)
        self._no_longer_new(task, address)
        accepted.close()  # a task that was cancelled at once has not closed it

    def _no_longer_new(self, task: asyncio.Task[None] | None, address: str) -> None:
        tasks = self._new.get(address, [])
        if task in tasks:
            tasks.remove(task)
            if not tasks:
                del self._new[address]

    async def _connected(self, accepted: socket.socket, address: str) -> None:
        """Serve one connection until it ends."""
        assert self._context is not None
        connection = None
        try:
            try:
                keep_alive(accepted)
                connection = Connection(accepted, self._context)
                node = await self._caller(connection, address)
            finally:
                self._no_longer_new(asyncio.current_task(), address)
            async with asyncio.timeout(self._settings.connection_seconds * random.uniform(0.9, 1.1)):
                await self._send(node, connection)
        except OrionError as error:
            self._metrics.refused.labels(error.grpc_code).inc()
            if connection is not None:
                await _refuse(connection, error)
        except OSError:  # the peer has gone, or is too slow, or must present its token again
            pass
        finally:
            (accepted if connection is None else connection).close()

    async def _caller(self, connection: Connection, address: str) -> str:
        """Return the node of the agent that has connected.

        Raises:
            OSError: the connection has ended.
            TimeoutError: the call did not come in time.
            OrionError: the caller is refused.
        """
        async with asyncio.timeout(_NEW_S):
            await connection.handshake(self._turns, address)
            text = await connection.receive(_CALL_MAX)
        try:
            call = Call.FromString(text)
        except DecodeError as error:
            raise Invalid(f"the first message is no call: {error}") from None
        return await self._callers.node(call.token)

    async def _send(self, node: str, connection: Connection) -> None:
        stream, sent = self._streams.open(node), b""
        self._metrics.agents.set(len(self._streams))
        try:
            connection.watch_end(stream.wake)
            while not stream.ended and not connection.ended:
                message = frame(Answer(pods=self._source.of(node)))
                digest = hashlib.sha256(message).digest()  # the message itself takes 20 KB for each agent
                if digest != sent:
                    await connection.send(message)
                    sent = digest
                    self._metrics.sent.inc()
                    del message
                    await asyncio.sleep(PAUSE_S)
                await stream.changed()
            if stream.ended:
                raise Exhausted(f"a newer call of the agent of node {node} has taken the place of this one")
        finally:
            self._streams.close(node, stream)
            self._metrics.agents.set(len(self._streams))

    def _new_certificate(self) -> Certificate:
        validity = timedelta(seconds=self._settings.certificate_seconds)
        return new_self_signed(self._settings.name, utc_now(), validity, _BACKDATED)


async def _refuse(connection: Connection, error: OrionError) -> None:
    """Tell the caller why its connection ends, if it listens."""
    try:
        async with asyncio.timeout(_REFUSAL_S):
            await connection.send(frame(Answer(refusal=Refusal(code=error.grpc_code, reason=str(error)))))
    except OSError:  # TimeoutError is one
        return
