"""The connection to the API server: who we are, and reading objects, once or as a stream.

aiohttp of our own rather than the `kubernetes` client: that one blocks, so each watch would hold a thread, and it alone
doubles the memory of a process that reads two kinds. In a pod the service account's token is read anew as the kubelet
renews it. Elsewhere a kubeconfig; one that starts a program to log in is refused, for the webhook does not run there.
"""

import asyncio
import base64
import json
import os
import ssl
import tempfile
import time
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import yaml

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_TOKEN_AGE_S = 30.0
""" How long a token that was read is used; the kubelet renews it long before it expires. """


class NoCluster(Exception):
    """No API server is configured; the text is a sentence."""


class ApiError(Exception):
    """The API server said no.

    Args:
        code: HTTP's.
        message: the server's.
        retry_after_s: how long it wants to be left alone; None: it did not say.
    """

    def __init__(self, code: int, message: str, retry_after_s: float | None = None) -> None:
        super().__init__(f"{code}: {message[:300]}")
        self.code = code
        self.retry_after_s = retry_after_s


@dataclass
class Access:
    """Where the API server is, and who we are to it.

    Args:
        url: without a slash at the end.
        tls: how it is trusted, our certificate included if that is who we are; None: plain HTTP.
        token: a token that stays; empty: none.
        token_file: a file with a token that is renewed; None: none.
    """

    url: str
    tls: ssl.SSLContext | None
    token: str = ""
    token_file: Path | None = None
    _read_at: float = field(default=-_TOKEN_AGE_S, repr=False)

    def headers(self) -> dict[str, str]:
        """Return what every request carries."""
        if self.token_file is not None and time.monotonic() - self._read_at >= _TOKEN_AGE_S:
            self.token, self._read_at = self.token_file.read_text().strip(), time.monotonic()
        return {"Authorization": f"Bearer {self.token}"} if self.token else {}

    def forget_token(self) -> None:
        """Read the token anew next time: the server did not take it."""
        self._read_at = -_TOKEN_AGE_S


class ApiServer:
    """Reads objects of one API server; used within one event loop, and closed at the end."""

    def __init__(self, access: Access) -> None:
        self._access = access
        self._session: aiohttp.ClientSession | None = None

    async def get(self, path: str, parameters: Mapping[str, str] | None = None, timeout_s: float = 30) -> Any:
        """Return an object, or a list of them.

        Raises:
            ApiError: the server said no.
            aiohttp.ClientError, TimeoutError: it could not be asked.
        """
        timeout = aiohttp.ClientTimeout(total=timeout_s)
        async with self._request(path, parameters, timeout) as response:
            await self._check(response)
            return json.loads(await response.read())

    async def events(self, path: str, parameters: Mapping[str, str], silence_s: float) -> AsyncIterator[dict[str, Any]]:
        """Yield the events of a watch until the server ends it.

        Args:
            path: of the list that is watched.
            parameters: of the watch.
            silence_s: after so long without a word the connection counts as dead.

        Raises:
            ApiError: the server said no.
            aiohttp.ClientError, TimeoutError: the connection broke.
        """
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=10, sock_read=silence_s)
        async with self._request(path, {**parameters, "watch": "true"}, timeout) as response:
            await self._check(response)
            rest = b""
            async for chunk in response.content.iter_any():  # lines can be longer than a reader's buffer
                *lines, rest = (rest + chunk).split(b"\n")
                for line in lines:
                    if line:
                        yield json.loads(line)

    async def close(self) -> None:
        """Close all connections."""
        if self._session is not None:
            await self._session.close()

    def _request(self, path: str, parameters: Mapping[str, str] | None, timeout: aiohttp.ClientTimeout) -> Any:
        if self._session is None:
            self._session = aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=self._access.tls or True))
        headers = {**self._access.headers(), "Accept": "application/json", "User-Agent": "orion-webhook"}
        return self._session.get(f"{self._access.url}{path}", params=parameters, headers=headers, timeout=timeout)

    async def _check(self, response: aiohttp.ClientResponse) -> None:
        if response.status < 400:
            return
        if response.status == 401:
            self._access.forget_token()
        after = response.headers.get("Retry-After", "")
        raise ApiError(response.status, await response.text(), float(after) if after.isdecimal() else None)


# -- Who we are --------------------------------------------------------------------------------------------------------


def find_access(kubeconfig: Path | None = None) -> Access:
    """Return the access that is configured: a kubeconfig if one is named, else the pod's, else $KUBECONFIG.

    Raises:
        NoCluster: there is none, or it cannot be used.
    """
    if kubeconfig is None and "KUBERNETES_SERVICE_HOST" in os.environ:
        return _in_cluster()
    named = kubeconfig or Path(os.environ.get("KUBECONFIG", "").split(":")[0] or Path.home() / ".kube" / "config")
    try:
        return _of_kubeconfig(named, yaml.safe_load(named.read_text()))
    except OSError as error:
        raise NoCluster(f"no API server is known: {named} cannot be read ({error.strerror})") from error
    except (yaml.YAMLError, KeyError, TypeError, StopIteration, ValueError, ssl.SSLError) as error:
        raise NoCluster(f"{named} is no kubeconfig that can be used here ({error!r})") from error


def _in_cluster() -> Access:
    host, port = os.environ["KUBERNETES_SERVICE_HOST"], os.environ.get("KUBERNETES_SERVICE_PORT", "443")
    host = f"[{host}]" if ":" in host else host
    try:
        tls = ssl.create_default_context(cafile=SERVICE_ACCOUNT / "ca.crt")
    except OSError as error:
        raise NoCluster(f"this pod has no service account: {error}") from error
    return Access(f"https://{host}:{port}", tls, token_file=SERVICE_ACCOUNT / "token")


def _of_kubeconfig(path: Path, config: Any) -> Access:
    context = _named(config["contexts"], config["current-context"])["context"]
    cluster = _named(config["clusters"], context["cluster"])["cluster"]
    user = _named(config["users"], context["user"])["user"] or {}
    if "exec" in user or "auth-provider" in user:
        raise NoCluster(
            f"{path} logs in by a program, which is not supported here; use one with a token or certificate"
        )
    url = cluster["server"].rstrip("/")
    tls = _tls(path.parent, cluster, user) if url.startswith("https:") else None
    token_file = path.parent / user["tokenFile"] if "tokenFile" in user else None
    return Access(url, tls, token=user.get("token", ""), token_file=token_file)


def _named(entries: list[dict[str, Any]], name: str) -> dict[str, Any]:
    return next(entry for entry in entries if entry["name"] == name)


def _tls(folder: Path, cluster: Mapping[str, Any], user: Mapping[str, Any]) -> ssl.SSLContext:
    authority = _content(folder, cluster, "certificate-authority")
    context = ssl.create_default_context(cadata=authority.decode() if authority else None)
    if cluster.get("insecure-skip-tls-verify"):
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    certificate, key = _content(folder, user, "client-certificate"), _content(folder, user, "client-key")
    if certificate and key:
        with tempfile.NamedTemporaryFile(prefix="orion-") as both:  # OpenSSL reads files; this one is gone at once
            both.write(certificate + b"\n" + key)
            both.flush()
            context.load_cert_chain(both.name)
    return context


def _content(folder: Path, entry: Mapping[str, Any], name: str) -> bytes | None:
    if f"{name}-data" in entry:
        return base64.b64decode(entry[f"{name}-data"])
    return (folder / entry[name]).read_bytes() if name in entry else None


async def pause(seconds: float) -> None:
    """Wait; a name of its own, so that tests need not."""
    await asyncio.sleep(seconds)
