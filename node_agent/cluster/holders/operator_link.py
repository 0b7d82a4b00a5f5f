"""Receives the pods of this node from a replica of the operator, over TLS.

The agent finds the operator by its Service, without DNS. It trusts exactly the certificates that the replicas publish
in a ConfigMap. It reads both objects again after a connection without an answer, because a new replica has a new
certificate. The agent's token says which node it is on.
The kubelet renews the token, so the agent reads it at each connection. A replica ends each stream after some minutes,
so that the agent presents its token again.
"""

import asyncio
import contextlib
import logging
import random
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path

import grpc
import grpc.aio

from orion.api_server.requests import ApiError, ApiServer
from orion.errors import Unavailable
from orion.node_pods import KEEPALIVE_SECONDS, node_pods_pb2, node_pods_pb2_grpc

_log = logging.getLogger(__name__)

_FIRST_SECONDS = 30.0
""" The maximum time until the first message of a stream. """
_BACKOFF_SECONDS = (1.0, 4.0)
""" The pause before the next connection is random, up to the first value after an answer, and then grows. """
_READ_SECONDS = 4.0
""" The minimum time between two readings of the Service and the certificates. """
_AWAY_SECONDS = 60.0
""" After this time without a replica the agent reports it. A rolling update of the operator takes less time. """
_OPTIONS = [
    ("grpc.keepalive_time_ms", round(1e3 * KEEPALIVE_SECONDS)),
    ("grpc.keepalive_timeout_ms", round(1e3 * KEEPALIVE_SECONDS)),
    ("grpc.http2.max_pings_without_data", 0),  # 0: no limit
    ("grpc.max_receive_message_length", 32 << 20),  # the pods of a node take less than one MiB
    ("grpc.use_local_subchannel_pool", 1),  # else a new channel may use a connection of an earlier one
    ("grpc.enable_http_proxy", 0),  # the operator is in the cluster
]


@dataclass(frozen=True)
class OperatorAddress:
    """Where the operator serves the pods of nodes, and what a connection needs.

    Args:
        name: NAMESPACE/NAME of the operator's Service, and of the ConfigMap with its replicas' certificates.
        address: HOST:PORT in place of the Service's; empty: the Service's.
        token: the file with this agent's token.
    """

    name: str
    address: str
    token: Path

    def path(self, plural: str) -> str:
        """Return the path of the Service or the ConfigMap on the API server."""
        namespace, _, name = self.name.partition("/")
        return f"/api/v1/namespaces/{namespace}/{plural}/{name}"

    @property
    def host(self) -> str:
        """The host name in the replicas' certificates."""
        namespace, _, name = self.name.partition("/")
        return self.address.rpartition(":")[0].strip("[]") or f"{name}.{namespace}.svc"


@dataclass(frozen=True)
class _Reach:
    """How to reach the replicas: HOST:PORT, and their certificates as PEM."""

    target: str
    certificates: bytes


class OperatorLink:
    """An agent's connection to the operator.

    Args:
        server: the API server.
        to: where the operator is.
    """

    def __init__(self, server: ApiServer, to: OperatorAddress) -> None:
        self._server, self._to = server, to
        self._reach: _Reach | None = None
        self._read_at = float("-inf")
        self._is_stale = True
        """ Whether Service and certificates may be those of former replicas. """
        self._answered_at = time.monotonic()
        self.error = ""
        """ Why no replica answers; empty: one does, or none has been asked yet. """

    @property
    def away(self) -> str:
        """Why no replica has answered for a minute; empty: one has."""
        return self.error if time.monotonic() - self._answered_at > _AWAY_SECONDS else ""

    async def run(self, take: Callable[[node_pods_pb2.PodsOfNode], None]) -> None:
        """Pass each message to `take` until cancelled; connect again after each end of a stream."""
        delay = _BACKOFF_SECONDS[0]
        while True:
            answered, reason = False, "the stream ended before its first message"
            try:
                async for message in self._messages():
                    answered = True
                    self._log_state("")
                    take(message)
            except grpc.aio.AioRpcError as error:
                reason = f"{error.code().name}: {error.details()}"
            except TimeoutError:
                reason = f"it sent nothing within {_FIRST_SECONDS:.0f} s"
            except (Unavailable, ApiError, OSError) as error:
                reason = str(error)
            except Exception as error:  # neither a message nor a token may end what the agent does in the cluster
                _log.exception("operator: a message or the token cannot be used")
                answered, reason = False, f"a message or the token cannot be used: {error}"
            if answered:  # a planned end, or the end of a replica: only a failed connection is a problem
                self._answered_at, delay = time.monotonic(), _BACKOFF_SECONDS[0]
            else:
                self._is_stale = True
                self._log_state(reason)
                delay = min(2 * delay, _BACKOFF_SECONDS[1])
            await asyncio.sleep(random.uniform(0, delay))

    async def _messages(self) -> AsyncIterator[node_pods_pb2.PodsOfNode]:
        """Connect, and yield the messages of one stream.

        Raises:
            grpc.aio.AioRpcError: the replica refused the request, or the connection failed or broke.
            TimeoutError: the first message did not come in time.
            Unavailable: the Service has no address, or no certificate is published.
            ApiError: Service or certificates cannot be read.
            OSError: the token cannot be read.
        """
        reach = await self._current()
        credentials = grpc.ssl_channel_credentials(reach.certificates)
        options = [*_OPTIONS, ("grpc.ssl_target_name_override", self._to.host)]
        metadata = (("authorization", f"Bearer {self._to.token.read_text().strip()}"),)
        async with grpc.aio.secure_channel(reach.target, credentials, options=options) as channel:
            stub = node_pods_pb2_grpc.NodePodsStub(channel)  # type: ignore[no-untyped-call]
            call = stub.Watch(node_pods_pb2.WatchRequest(), metadata=metadata)
            messages = aiter(call)
            with contextlib.suppress(StopAsyncIteration):
                async with asyncio.timeout(_FIRST_SECONDS):
                    first = await anext(messages)
                yield first
            async for message in messages:
                yield message

    async def _current(self) -> _Reach:
        """Return how to reach the replicas. If that cannot be read now, what was read last serves."""
        if self._is_stale and time.monotonic() - self._read_at > _READ_SECONDS:
            self._read_at = time.monotonic()
            try:
                self._reach = await self._read()
            except ApiError:
                if self._reach is None:
                    raise
            else:
                self._is_stale = False
        if self._reach is None:
            raise Unavailable(self.error)
        return self._reach

    async def _read(self) -> _Reach:
        target = self._to.address
        if not target:
            spec = (await self._server.get(self._to.path("services"))).get("spec") or {}
            host, ports = spec.get("clusterIP") or "None", spec.get("ports") or []
            if host == "None" or not ports:
                raise Unavailable(f"Service {self._to.name} has no cluster IP with a port: install the chart again")
            target = f"[{host}]:{ports[0]['port']}" if ":" in host else f"{host}:{ports[0]['port']}"
        published = (await self._server.get(self._to.path("configmaps"))).get("data") or {}
        if not published:
            raise Unavailable(f"ConfigMap {self._to.name} has no certificate: is a replica of the operator ready?")
        return _Reach(target, "\n".join(published.values()).encode())

    def _log_state(self, error: str) -> None:
        if bool(error) != bool(self.error):
            says = f"does not answer, its last answer stays valid: {error}" if error else "answers"
            _log.warning("operator: %s %s", self._to.name, says)
        self.error = error
