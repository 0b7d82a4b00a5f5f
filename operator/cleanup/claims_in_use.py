"""Waits until no pod uses a ResourceClaim of Orion, before an uninstall removes the driver: the driver goes last.

The kubelet needs the driver to end such pods: without it they stay in `Terminating` until Orion is installed again. So
a Job of `helm uninstall` waits before Helm removes anything, and refuses if pods are left after a while. A claim counts
as used while it names pods that it is reserved for: they are taken off only after the driver has taken back what it
gave.

Rejected: to delete the pods. Their controllers would make others, and whether work ends is not Orion's decision.
Rejected: a finalizer on the release's objects. Nothing could remove it once the operator is gone.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from typing import Any

from orion.api_server.requests import ApiError, ApiServer
from orion.crds.claims import CLAIMS, DRIVER
from orion.errors import Conflict

_AGAIN_SECONDS = 1.0
_GONE = 404
_NAMED = 5


async def await_end(server: ApiServer, seconds: float) -> None:
    """Return when no pod uses a claim of Orion.

    Args:
        server: the API server.
        seconds: how long to wait for the pods to end.

    Raises:
        ApiError: the API server does not answer or refuses.
        Conflict: pods use claims after this time.
    """
    until = time.monotonic() + seconds
    while pods := sorted({each async for each in _users(server)}):
        if time.monotonic() >= until:
            more = f" and {len(pods) - _NAMED} more" if len(pods) > _NAMED else ""
            raise Conflict(
                f"pods use ResourceClaims of Orion, and cannot end without its driver: {', '.join(pods[:_NAMED])}"
                f"{more}; nothing has been removed: end these pods (delete them, or scale their workloads to 0), then "
                "uninstall again"
            )
        await asyncio.sleep(_AGAIN_SECONDS)


async def _users(server: ApiServer) -> AsyncIterator[str]:
    try:
        async for page in server.pages(CLAIMS):
            for claim in page["items"]:
                for pod in users(claim):
                    yield pod
    except ApiError as error:
        if error.status != _GONE:  # an API server that knows no claims has none
            raise


def users(claim: Mapping[str, Any]) -> Iterator[str]:
    """Yield the pods that use a claim, as NAMESPACE/NAME, if Orion's driver gave it something."""
    status = claim.get("status") or {}
    results = ((status.get("allocation") or {}).get("devices") or {}).get("results") or ()
    if any(result.get("driver") == DRIVER for result in results):
        for each in status.get("reservedFor") or ():
            yield f"{claim['metadata']['namespace']}/{each['name']}"
