"""Finds out which certificate each replica of the webhook serves, with a TLS handshake.

A replica mounts the Secret as a volume. The kubelet usually updates the volume within a minute or two, but there is no
upper bound. So this module does not rely on a fixed delay: it connects to each address in the Service's EndpointSlices.
Connecting to the Service would reach one replica at random.
"""

import asyncio
import ssl
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from orion.operator.certificates.api import Api
from orion.operator.certificates.issuing import Certificate
from orion.operator.certificates.settings import CertificateSettings

_TIMEOUT_S = 5.0


@dataclass(frozen=True)
class Replica:
    """The address of a replica.

    Args:
        host, port: where the replica serves HTTPS.
        ready: whether the Service sends new connections to the replica. A replica that is not ready may not answer.
    """

    host: str
    port: int
    ready: bool = True

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class Replicas:
    """Asks the replicas of the webhook for their certificates.

    Args:
        api: the API server.
        settings: name the Service, or the addresses of the replicas.
    """

    def __init__(self, api: Api, settings: CertificateSettings) -> None:
        self._api, self._settings = api, settings
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        self._context.check_hostname = False
        self._context.verify_mode = ssl.CERT_NONE  # the certificate is compared byte for byte

    async def find(self) -> list[Replica]:
        """Return all replicas.

        Raises:
            ApiError: the API server does not answer, or forbids the request.
        """
        if self._settings.replicas:
            return [Replica(host.strip("[]"), int(port)) for host, port in map(_split, self._settings.replicas)]
        path = f"/apis/discovery.k8s.io/v1/namespaces/{self._settings.namespace}/endpointslices"
        slices = await self._api.get(path, labelSelector=f"kubernetes.io/service-name={self._settings.service}")
        return replicas_of(slices.get("items") or (), self._settings.port_name)

    async def shown(self) -> list[tuple[Replica, bytes | None]]:
        """Return each replica with the certificate that it serves, as DER; None: the replica does not answer.

        Raises:
            ApiError: the API server does not answer, or forbids the request.
        """
        found = await self.find()
        return list(zip(found, await asyncio.gather(*map(self._ask, found)), strict=True))

    async def without(self, leaf: Certificate) -> str:
        """Return a sentence about the replicas that do not serve this leaf; empty: all serve it.

        Raises:
            ApiError: the API server does not answer, or forbids the request.
        """
        return judge(await self.shown(), leaf)

    async def _ask(self, replica: Replica) -> bytes | None:
        try:
            async with asyncio.timeout(_TIMEOUT_S):
                name = self._settings.leaf_names[0]
                _, writer = await asyncio.open_connection(
                    replica.host, replica.port, ssl=self._context, server_hostname=name
                )
        except (OSError, TimeoutError, ssl.SSLError, asyncio.IncompleteReadError):
            return None
        try:
            tls: ssl.SSLObject | None = writer.get_extra_info("ssl_object")
            return tls.getpeercert(binary_form=True) if tls else None
        finally:
            writer.transport.abort()  # an orderly TLS shutdown could hang with the replica


def judge(shown: Iterable[tuple[Replica, bytes | None]], leaf: Certificate) -> str:
    """Return a sentence about the replicas that may still serve another leaf; empty: there is none.

    A replica that is not ready and does not answer serves no connections and may never return, so it is ignored.
    """
    asked = list(shown)
    if not any(replica.ready for replica, _ in asked):
        return "the webhook has no replica that is ready"
    silent = [str(replica) for replica, der in asked if der is None and replica.ready]
    others = [str(replica) for replica, der in asked if der not in (None, leaf.der)]
    if others:
        return f"{', '.join(others)} serves another certificate"
    return f"{', '.join(silent)} does not answer" if silent else ""


def replicas_of(slices: Iterable[Mapping[str, Any]], port_name: str) -> list[Replica]:
    """Return the replicas in EndpointSlices. A replica in several slices is ready if one of them says so."""
    found: dict[tuple[str, int], bool] = {}
    for each in slices:
        ports = [port for port in each.get("ports") or () if port.get("port")]
        chosen = [port for port in ports if port.get("name") == port_name] or (ports if len(ports) == 1 else [])
        for endpoint in each.get("endpoints") or ():
            ready = (endpoint.get("conditions") or {}).get("ready") is not False
            for port in chosen:
                place = (str(endpoint["addresses"][0]), int(port["port"]))
                found[place] = found.get(place, False) or ready
    return [Replica(host, port, ready) for (host, port), ready in found.items()]


def _split(address: str) -> tuple[str, str]:
    host, _, port = address.rpartition(":")
    return host, port
