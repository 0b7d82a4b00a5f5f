"""Reads claims from the API server, and waits while it is away.

A claim is read when a pod needs it. Rejected: a watch. Claims have no field selector for a node, so each driver would
receive the claims of the whole cluster, and need the right to list them.
"""

import asyncio
import time
from typing import Any

from orion.api_server.requests import ApiError, ApiServer
from orion.crds.claims import CLAIMS, DRIVER, path_in
from orion.errors import NotFound, Unavailable
from orion.node_agent.api import agent_pb2

_AGAIN_SECONDS = 1.0
_RIGHTS = (401, 403)
""" Statuses that pass, too: a token that is being renewed, rights that an upgrade is about to give. """


class ClaimReader:
    """Reads claims.

    Args:
        server: the API server.
        pool: the pool of the node's devices.
    """

    def __init__(self, server: ApiServer, pool: str) -> None:
        self._server, self._pool = server, pool

    async def read(self, namespace: str, name: str, deadline: float) -> dict[str, Any]:
        """Return a claim; wait for an API server that does not answer, or does not let the driver read it yet.

        Args:
            namespace: the claim's namespace.
            name: the claim's name.
            deadline: until when to wait (in seconds, monotonic).

        Raises:
            NotFound: there is no such claim.
            Unavailable: the API server did not answer in time, or refuses.
        """
        title, why = f"claim {namespace}/{name}", "it does not answer"
        while (left := deadline - time.monotonic()) > 0:
            try:
                async with asyncio.timeout(left):
                    return await self._server.get(path_in(namespace, CLAIMS, name))
            except ApiError as error:
                why = f"{error}; check the driver's token and rights" if error.status in _RIGHTS else str(error)
                if error.status == 404:
                    raise NotFound(f"{title} does not exist any more; delete the pod") from None
                if 400 <= error.status < 500 and error.status not in (*_RIGHTS, 429):
                    raise Unavailable(f"the driver cannot read {title}: {error}") from None
            except TimeoutError:
                break
            await asyncio.sleep(min(_AGAIN_SECONDS, left))
        raise Unavailable(
            f"the API server did not say in time what {title} was allocated: {why}; the kubelet tries again"
        )

    async def is_gone(self, namespace: str, name: str, uid: str) -> bool:
        """Return whether a claim does not exist any more; False if the API server does not say."""
        found = await self._find(namespace, name)
        return found is not None and found.get("metadata", {}).get("uid") != uid

    async def has_left(self, claim: agent_pb2.ClaimOfSlot) -> bool:
        """Return whether a claim is gone or has no device of this node; False if the API server does not say."""
        found = await self._find(claim.namespace, claim.name)
        if found is None:
            return False
        if found.get("metadata", {}).get("uid") != claim.uid:
            return True
        results = ((found.get("status") or {}).get("allocation") or {}).get("devices", {}).get("results") or ()
        return not any((each["driver"], each["pool"]) == (DRIVER, self._pool) for each in results)

    async def _find(self, namespace: str, name: str) -> dict[str, Any] | None:
        """Return a claim; {}: there is none; None: the API server does not say."""
        try:
            return await self._server.get(path_in(namespace, CLAIMS, name))
        except ApiError as error:
            # A server that has no such API answers 404, too.
            return {} if error.status == 404 and f'"{name}" not found' in str(error) else None
