"""The URL of the API server and the credentials for each request.

A middleware renews credentials, so that the callers need not. It rereads a token file, which the kubelet renews. It
runs a credential plugin again if the plugin's credential expires or the API server rejects it.
"""

import socket
import ssl
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp

from orion.api_server.credential_programs import CredentialProgram
from orion.api_server.exec_credentials import Credential, LogInFailed

_TOKEN_AGE_S = 30.0
""" How long a token is used before its file is read again. The kubelet renews a token long before it expires. """
_PROBES = {"TCP_KEEPIDLE": 15, "TCP_KEEPINTVL": 5, "TCP_KEEPCNT": 3}
""" After 15 s without a word the kernel asks whether the API server is still there, and gives it up 15 s later. A watch
may say nothing for a minute, and if the server's machine fails, nobody ends the connection. Some systems lack them. """


@dataclass
class Access:
    """The URL of the API server and the credentials for it.

    Args:
        url: without a slash at the end.
        tls: the trusted authorities and, if there is one, the client certificate; None: the system's authorities.
        name: the name that the API server's certificate must have; empty: the host of `url`.
        token: a token that never changes; empty: there is none.
        token_file: a file with a token that the kubelet renews; None: there is none.
        proxy: the URL of a proxy; None: connect directly.
        log_in: a credential plugin, which returns a token or a certificate; None: there is none.
        namespace: the namespace of the pod that this process runs in, or of the kubeconfig's current context.
        acts_as: the headers by which the API server takes the user for another one; empty: there are none.
    """

    url: str
    tls: ssl.SSLContext | None = None
    name: str = ""
    token: str = ""
    token_file: Path | None = None
    proxy: str | None = None
    log_in: CredentialProgram | None = None
    namespace: str = "default"
    acts_as: tuple[tuple[str, str], ...] = ()
    _read_at: float = field(default=float("-inf"), repr=False)
    logged_in: bool = False
    """ Whether the API server ever accepted a credential of the plugin; until then a failure is a set-up error. """
    _loaded: Credential | None = field(default=None, repr=False)

    def session(
        self, program: str, response: type[aiohttp.ClientResponse] = aiohttp.ClientResponse
    ) -> aiohttp.ClientSession:
        """Return a new session. Call this in the event loop that uses the session; the caller closes the session.

        Args:
            program: the user agent, which the API server's audit log shows.
            response: the class of the responses.
        """
        return aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(ssl=self.tls or True, limit=0, socket_factory=_probed),
            headers=[("User-Agent", program), *self.acts_as],
            middlewares=(self._send_with_token,),
            proxy=self.proxy,
            response_class=response,
        )

    async def _send_with_token(
        self, request: aiohttp.ClientRequest, handle: aiohttp.ClientHandlerType
    ) -> aiohttp.ClientResponse:
        """Send a request with the token. If the server rejects it and the file has a newer token, retry once."""
        request.server_hostname = self.name or None
        if self.log_in is not None:
            return await self._send_with_plugin(self.log_in, request, handle)
        before = self._authorize(request)
        response = await handle(request)
        if response.status == 401 and self.token_file is not None:
            self._read_at = float("-inf")
            if self._authorize(request) != before:
                response.release()
                response = await handle(request)
        return response

    def _authorize(self, request: aiohttp.ClientRequest) -> str:
        if self.token_file is not None and time.monotonic() - self._read_at >= _TOKEN_AGE_S:
            self.token, self._read_at = self.token_file.read_text().strip(), time.monotonic()
        if self.token:
            request.headers["Authorization"] = f"Bearer {self.token}"
        return self.token

    async def _send_with_plugin(
        self, program: CredentialProgram, request: aiohttp.ClientRequest, handle: aiohttp.ClientHandlerType
    ) -> aiohttp.ClientResponse:
        """Send a request with the plugin's credential. If the server rejects it, run the plugin and retry once.

        Raises:
            LogInFailed: the plugin returned no credential.
        """
        used = await program.credential()
        self._use(used, request)
        response = await handle(request)
        if response.status == 401:
            try:
                newer = await program.credential(refused=used)
                if newer != used:
                    self._use(newer, request)
            except BaseException:
                response.close()
                raise
            if newer != used:
                response.release()
                response = await handle(request)
        self.logged_in |= response.status != 401
        return response

    def _use(self, credential: Credential, request: aiohttp.ClientRequest) -> None:
        if credential.token:
            request.headers["Authorization"] = f"Bearer {credential.token}"
        if credential.certificate and self.tls is not None:
            request.headers["Connection"] = "close"  # a kept connection would continue with its old certificate
            if credential != self._loaded:
                try:
                    load_pair(self.tls, credential.certificate.encode(), credential.key.encode())
                except ssl.SSLError as error:
                    raise LogInFailed(
                        f"{self.log_in} gave a certificate and a key that are not a pair in PEM: is it up to date?"
                    ) from error
                self._loaded = credential


def _probed(to: tuple[Any, ...]) -> socket.socket:
    """Return a socket for an address, as `getaddrinfo` returns addresses."""
    made = socket.socket(*to[:3])
    made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in _PROBES.items():
        if hasattr(socket, option):
            made.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)
    return made


def load_pair(tls: ssl.SSLContext, certificate: bytes, key: bytes) -> None:
    """Use a client certificate and its key, both PEM, for all later connections of the context.

    Raises:
        ssl.SSLError: the certificate and the key are not a pair, or the key has a password.
    """
    with tempfile.NamedTemporaryFile(prefix="orion-") as both:  # OpenSSL reads only files; `with` deletes this file
        both.write(certificate + b"\n" + key)
        both.flush()
        tls.load_cert_chain(both.name, password="")  # otherwise OpenSSL would ask for a password at the terminal
