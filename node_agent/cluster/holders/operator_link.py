"""Receives the pods of this node from a replica of the operator, over TLS.

The agent finds the operator by its Service, without DNS. It trusts exactly the certificates that the replicas publish
in a ConfigMap. The agent's token says which node it is on. The kubelet renews the token, so the agent reads it at each
connection. A replica ends each stream after some minutes, so that the agent presents its token again.

While no replica answers, the agent tries to connect every few seconds, which costs the API server nothing. It reads the
ConfigMap again when a replica presents a certificate that is not in it: that is a new replica. It reads both objects
once or twice a minute anyway, because the Service may have another address. So all agents of 5,000 nodes together send
the API server 220 requests a second in an outage.
"""

import asyncio
import logging
import random
import ssl
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path

from orion.api_server.requests import ApiError, ApiServer
from orion.errors import Unavailable
from orion.node_pods import LENGTH_BYTES, frame, keep_alive
from orion.node_pods.node_pods_pb2 import Answer, Call, PodsOfNode

_log = logging.getLogger(__name__)

_FIRST_SECONDS = 30.0
""" The maximum time until the first message of a stream. """
_BACKOFF_SECONDS = (1.0, 8.0)
""" The pause before the next connection is random, up to the first value after an answer, and then grows. """
_READ_SECONDS = 4.0
""" The minimum time between two readings of the Service and the certificates. """
_READ_AGAIN_SECONDS = (30.0, 60.0)
""" The time between two readings while no replica answers and none presents a new certificate; random. """
_FIRST_READINGS_SECONDS = (4.0, 16.0)
""" The same until the first reading has succeeded. """
_ANSWER_MAX = 32 << 20
""" Bytes. The pods of a node take less than one MiB. """
_AWAY_SECONDS = 60.0
""" After this time without a replica the agent reports it. A rolling update of the operator takes less time. """


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
    """How to reach the replicas: host, port, and their certificates as PEM."""

    host: str
    port: int
    certificates: str


class OperatorLink:
    """An agent's connection to the operator.

    Args:
        server: the API server.
        to: where the operator is.
    """

    def __init__(self, server: ApiServer, to: OperatorAddress) -> None:
        self._server, self._to = server, to
        self._reach: _Reach | None = None
        self._read_at = self._read_again_at = float("-inf")
        """ When Service and certificates were read, and when they will be read again if no replica answers by then. """
        self._answered_at = time.monotonic()
        self.error = ""
        """ Why no replica answers; empty: one does, or none has been asked yet. """

    @property
    def away(self) -> str:
        """Why no replica has answered for a minute; empty: one has."""
        return self.error if time.monotonic() - self._answered_at > _AWAY_SECONDS else ""

    async def run(self, take: Callable[[PodsOfNode], None]) -> None:
        """Pass each message to `take` until cancelled; connect again after each end of a stream."""
        delay = _BACKOFF_SECONDS[0]
        while True:
            answered, reason = False, "the stream ended before its first message"
            try:
                async for message in self._messages():
                    answered = True
                    self._log_state("")
                    take(message)
            except asyncio.IncompleteReadError:  # the replica has closed the connection
                pass
            except TimeoutError:
                reason = f"it sent nothing within {_FIRST_SECONDS:.0f} s"
            except ssl.SSLCertVerificationError as error:
                reason = str(error)
                self._read_again_at = self._read_at + _READ_SECONDS
            except (Unavailable, ApiError, OSError) as error:
                reason = str(error) or type(error).__name__
            except Exception as error:  # neither a message nor a token may end what the agent does in the cluster
                _log.exception("operator: a message or the token cannot be used")
                answered, reason = False, f"a message or the token cannot be used: {error}"
            if answered:  # a planned end, or the end of a replica: only a failed connection is a problem
                self._answered_at, delay = time.monotonic(), _BACKOFF_SECONDS[0]
            else:
                self._log_state(reason)
                delay = min(2 * delay, _BACKOFF_SECONDS[1])
            await asyncio.sleep(random.uniform(0, delay))

    async def _messages(self) -> AsyncIterator[PodsOfNode]:
        """Connect, and yield the messages of one stream.

        Raises:
            asyncio.IncompleteReadError: the replica has closed the connection.
            TimeoutError: the first message did not come in time.
            Unavailable: the replica refused the call, the Service has no address, or no certificate is published.
            ApiError: Service or certificates cannot be read.
            OSError: the token cannot be read, the connection failed, or the certificate is not published.
        """
        async with asyncio.timeout(_FIRST_SECONDS):
            reach = await self._current()
            call = frame(Call(token=self._to.token.read_text().strip()))
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            context.minimum_version = ssl.TLSVersion.TLSv1_3
            if reach.certificates:
                context.load_verify_locations(cadata=reach.certificates)
            reader, writer = await asyncio.open_connection(
                reach.host, reach.port, ssl=context, server_hostname=self._to.host
            )
        try:
            keep_alive(writer.get_extra_info("socket"))
            writer.write(call)
            async with asyncio.timeout(_FIRST_SECONDS):
                first = await _answer(reader)
            yield first
            while True:
                yield await _answer(reader)
        finally:
            writer.transport.abort()

    async def _current(self) -> _Reach:
        """Return how to reach the replicas. If that cannot be read now, what was read last serves."""
        now = time.monotonic()
        if now >= self._read_again_at:
            pause = _FIRST_READINGS_SECONDS if self._reach is None else _READ_AGAIN_SECONDS
            self._read_at, self._read_again_at = now, now + random.uniform(*pause)
            try:
                self._reach = await self._read()
            except ApiError:
                if self._reach is None:
                    raise
            else:
                if not self._reach.certificates:
                    name = self._to.name
                    raise Unavailable(f"ConfigMap {name} has no certificate: is a replica of the operator ready?")
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
        host, _, port = target.rpartition(":")
        return _Reach(host.strip("[]"), int(port), "\n".join(published.values()))

    def _log_state(self, error: str) -> None:
        if bool(error) != bool(self.error):
            says = f"does not answer, its last answer stays valid: {error}" if error else "answers"
            _log.warning("operator: %s %s", self._to.name, says)
        self.error = error


async def _answer(reader: asyncio.StreamReader) -> PodsOfNode:
    """Receive one answer.

    Raises:
        asyncio.IncompleteReadError: the replica has closed the connection.
        Unavailable: the replica refused the call, or sends too much.
    """
    size = int.from_bytes(await reader.readexactly(LENGTH_BYTES), "big")
    if size > _ANSWER_MAX:
        raise Unavailable(f"it sends {size} bytes, and this agent reads {_ANSWER_MAX}: is it of another version?")
    answer = Answer.FromString(await reader.readexactly(size))
    if answer.HasField("refusal"):
        raise Unavailable(f"{answer.refusal.code}: {answer.refusal.reason}")
    return answer.pods
