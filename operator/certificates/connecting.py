"""Connects to the API server for `orion certificates`, which runs without the reconciler."""

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

from orion.api_server.credentials import find_access
from orion.api_server.requests import ApiServer
from orion.operator.certificates.api import Api

_AT_ONCE = 4


@contextlib.asynccontextmanager
async def connected(kubeconfig: Path | None) -> AsyncIterator[Api]:
    """Yield a client of the API server.

    Args:
        kubeconfig: names the API server; None: the service account of this pod, else $KUBECONFIG.

    Raises:
        NoCluster: no API server is configured.
    """
    server = ApiServer(find_access(kubeconfig), "orion-certificates", concurrency=_AT_ONCE)
    try:
        yield server
    finally:
        await server.close()
