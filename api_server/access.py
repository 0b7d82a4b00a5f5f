"""Where the API server is, and who we are to it, in every request of every session.

A token in a file is read anew as it is renewed, so nothing that asks the API server has to think of it.
"""

import ssl
import time
from dataclasses import dataclass, field
from pathlib import Path

import aiohttp

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
    """

    url: str
    tls: ssl.SSLContext | None = None
    token: str = ""
    token_file: Path | None = None
    proxy: str | None = None
    _read_at: float = field(default=float("-inf"), repr=False)

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
