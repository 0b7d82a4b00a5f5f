"""Compares the objects of the API server with the objects in memory.

The watches of kopf do not answer two questions:
- Has every existing object been read? Until then, a pod whose share is read later looks as if its share was deleted.
- Was an object in memory deleted? After an interruption, kopf may have to list again, and does not report deletions
  during the interruption.
"""

import asyncio
import logging
from typing import NamedTuple

from orion.api_server.paths import DEVICES, NODES, PODS, SHARES
from orion.api_server.requests import METADATA_LIST, ApiError, ApiServer
from orion.operator.reconciler.state import Key
from orion.operator.reconciler.watching import Intake

_LOG = logging.getLogger(__name__)
_POLL_S = 0.1
_TIMEOUT_S = 5.0


class _Listed(NamedTuple):
    """The uids of all objects of one kind, and the lowest resourceVersion of the lists that they come from."""

    uids: set[str]
    version: int


class Resync:
    """Lists all objects of the watched kinds.

    Args:
        api: the API server.
        intake: knows the objects in memory.
        namespaces: the namespaces whose pods and shares are watched; empty: all.
    """

    def __init__(self, api: ApiServer, intake: Intake, namespaces: tuple[str, ...]) -> None:
        self._api, self._intake, self._namespaces = api, intake, namespaces

    async def until_all_is_known(self) -> None:
        """Return once the watches have reported every object. Retry for as long as the API server does not answer."""
        while True:
            try:
                missing = set().union(*[listed.uids for listed in (await self._list()).values()])
            except ApiError as error:
                _LOG.warning("the objects could not be listed: %s", error)
                await asyncio.sleep(1)
                continue
            if await self._all_arrive(missing):
                return
            _LOG.info("the watches did not report %d objects: listing again", len(missing - self._intake.seen))

    async def _all_arrive(self, missing: set[str]) -> bool:
        """Wait for the watches to report objects. Return False after 5 s without a new report."""
        loop = asyncio.get_running_loop()
        missing -= self._intake.seen
        deadline = loop.time() + _TIMEOUT_S
        while missing and loop.time() < deadline:
            await asyncio.sleep(_POLL_S)
            known = missing & self._intake.seen
            if known:
                missing -= known
                deadline = loop.time() + _TIMEOUT_S
        return not missing

    async def drop_what_is_gone(self) -> set[Key]:
        """Drop objects from memory that no longer exist; return the keys of the objects that this concerns.

        Raises:
            ApiError: the objects could not be listed; then none is dropped.
        """
        lists = await self._list()
        return set().union(*[self._intake.drop_missing(path, *listed) for path, listed in lists.items()])

    async def _list(self) -> dict[str, _Listed]:
        return {path: await self._list_kind(path) for path in (PODS, SHARES, NODES, DEVICES)}

    async def _list_kind(self, path: str) -> _Listed:
        uids: set[str] = set()
        versions = []
        for one in self._paths(path):
            async for page in self._api.pages(one, METADATA_LIST):
                uids |= {item["metadata"]["uid"] for item in page["items"]}
                version = page["metadata"].get("resourceVersion", "")
                versions.append(int(version) if version.isdigit() else 0)
        return _Listed(uids, min(versions))

    def _paths(self, path: str) -> list[str]:
        if not self._namespaces or path in (NODES, DEVICES):
            return [path]
        folder, plural = path.rsplit("/", 1)
        return [f"{folder}/namespaces/{name}/{plural}" for name in self._namespaces]
