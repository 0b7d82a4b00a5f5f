"""The way to the API server, for kopf's watches and for our writes.

kopf reads kubeconfigs and service accounts; what it finds serves both, each with a session of its own, as kopf closes
the one that it has. Refused: the `kubernetes` client, whose calls block and whose import alone doubles the process's
memory, and kopf's own request functions, which are private and retry in ways of their own.
"""

import os

import aiohttp
import kopf

from orion.operator.reconciler.settings import SERVICE_ACCOUNT, ReconcilerSettings

TOKEN_PATH = SERVICE_ACCOUNT / "token"


class NoCredentials(Exception):
    """There is no way to the API server; the text says where it was looked for."""


class Connection:
    """Credentials, and the session of our own requests."""

    def __init__(self, settings: ReconcilerSettings) -> None:
        self._settings = settings
        self._session: aiohttp.ClientSession | None = None
        self._from_account = False
        self.server = ""

    @property
    def session(self) -> aiohttp.ClientSession:
        """The session, once it is open."""
        if self._session is None:
            raise RuntimeError("the connection is not open")
        return self._session

    def open(self) -> None:
        """Make the session.

        Raises:
            NoCredentials: there are none.
        """
        info = self.credentials()
        self.server = info.server.rstrip("/")
        connector = aiohttp.TCPConnector(ssl=info.as_ssl_context(), limit=self._settings.concurrency + 4)
        headers = {**info.as_http_headers(), "User-Agent": "orion-operator"}
        self._session = aiohttp.ClientSession(connector=connector, headers=headers, proxy=info.proxy_url)

    def credentials(self) -> kopf.ConnectionInfo:
        """Return what kopf needs to log in; it asks again when the API server no longer takes it.

        Raises:
            NoCredentials: there are none.
        """
        if self._settings.kubeconfig is not None:
            os.environ["KUBECONFIG"] = str(self._settings.kubeconfig)
        nothing = kopf.OperatorSettings()
        if self._settings.kubeconfig is None and (found := kopf.login_with_service_account(settings=nothing)):
            self._from_account = True
            return found
        found = kopf.login_with_kubeconfig(settings=nothing)
        if found is None:
            raise NoCredentials("no way to an API server: this is no pod, and there is no kubeconfig")
        return found

    def refresh_token(self) -> None:
        """Read the service account's token again: the kubelet replaces it well before it expires."""
        if self._from_account:
            self.session.headers["Authorization"] = f"Bearer {TOKEN_PATH.read_text().strip()}"

    async def close(self) -> None:
        """End the session."""
        if self._session is not None:
            await self._session.close()
