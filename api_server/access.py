"""Where the API server is, and who we are to it, in every request of every session.

A token in a file is read again as it is renewed, and a program that logs us in is run again when what it gave expires
or is refused, so nothing that asks the API server has to think of it.
"""

import ssl
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

import aiohttp

from orion.api_server.credential_programs import CredentialProgram
from orion.api_server.exec_credentials import Credential, LogInFailed

_TOKEN_AGE_S = 30.0
""" How long a token that was read is used; the kubelet renews it long before it expires. """


@dataclass
class Access:
    """Where the API server is, and who we are to it.

    Args:
        url: without a slash at the end.
        tls: how it is trusted, our certificate included if that is who we are; None: as the system trusts others.
        token: a token that stays; empty: none.
        token_file: a file with a token that is renewed; None: none.
        proxy: a URL through which it is reached; None: directly.
        log_in: a program that gives a token or a certificate; None: there is none.
        namespace: of the pod that this runs in, or of the current context.
    """

    url: str
    tls: ssl.SSLContext | None = None
    token: str = ""
    token_file: Path | None = None
    proxy: str | None = None
    log_in: CredentialProgram | None = None
    namespace: str = "default"
    _read_at: float = field(default=float("-inf"), repr=False)
    logged_in: bool = False
    """ Whether what that program gave was ever taken; until then a failure means that something is not set up. """
    _shown: Credential | None = field(default=None, repr=False)

    def session(self, program: str) -> aiohttp.ClientSession:
        """Return a new session, to be made within the event loop that uses it, and closed by who asked for it.

        Args:
            program: what the API server's audit log calls us.
        """
        return aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(ssl=self.tls or True, limit=0),
            headers={"User-Agent": program},
            middlewares=(self._say_who,),
            proxy=self.proxy,
        )

    async def _say_who(
        self, request: aiohttp.ClientRequest, handle: aiohttp.ClientHandlerType
    ) -> aiohttp.ClientResponse:
        """Send a request with the token as it is now; once more if that is refused and there is a newer one."""
        if self.log_in is not None:
            return await self._say_who_by(self.log_in, request, handle)
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

    async def _say_who_by(
        self, program: CredentialProgram, request: aiohttp.ClientRequest, handle: aiohttp.ClientHandlerType
    ) -> aiohttp.ClientResponse:
        """Send a request as whom a program logs in; once more if that is refused and another run gives something else.

        Raises:
            LogInFailed: the program did not log us in.
        """
        used = await program.credential()
        self._show(used, request)
        response = await handle(request)
        if response.status == 401:
            try:
                newer = await program.credential(refused=used)
                if newer != used:
                    self._show(newer, request)
            except BaseException:
                response.close()
                raise
            if newer != used:
                response.release()
                response = await handle(request)
        self.logged_in |= response.status != 401
        return response

    def _show(self, credential: Credential, request: aiohttp.ClientRequest) -> None:
        if credential.token:
            request.headers["Authorization"] = f"Bearer {credential.token}"
        if credential.certificate and self.tls is not None:
            request.headers["Connection"] = "close"  # a connection that is kept would go on with its old certificate
            if credential != self._shown:
                try:
                    load_pair(self.tls, credential.certificate.encode(), credential.key.encode())
                except ssl.SSLError as error:
                    raise LogInFailed(
                        f"{self.log_in} gave a certificate and a key that are no pair in PEM: is it up to date?"
                    ) from error
                self._shown = credential


def load_pair(tls: ssl.SSLContext, certificate: bytes, key: bytes) -> None:
    """Show a certificate, PEM as its key is, in connections that begin from now on.

    Raises:
        ssl.SSLError: they are no pair, or the key asks for a password.
    """
    with tempfile.NamedTemporaryFile(prefix="orion-") as both:  # OpenSSL reads files; this one is gone at once
        both.write(certificate + b"\n" + key)
        both.flush()
        tls.load_cert_chain(both.name, password="")  # none: OpenSSL would ask for one at the terminal
