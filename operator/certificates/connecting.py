"""The way to the API server for a rotation that runs alone: by hand, or where no reconciler has one already."""

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

from orion.api_server.credentials import find_access
from orion.api_server.requests import ApiServer
from orion.operator.certificates.api import Api

_AT_ONCE = 4


@contextlib.asynccontextmanager
async def connected(kubeconfig: Path | None) -> AsyncIterator[Api]:
    """Yield the API server that a kubeconfig names; None: the pod's own, else $KUBECONFIG.

    Raises:
        NoCluster: there is none.
    """
    server = ApiServer(find_access(kubeconfig), "orion-certificates", concurrency=_AT_ONCE)
    try:
        yield server
    finally:
        await server.close()
