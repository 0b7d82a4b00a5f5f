"""Counts the objects that there are against those that are known.

Two questions have no other answer. Has everything been seen, so that what is not known does not exist? A pod whose
share is listed later must not look like one whose share was deleted. And is something known that is gone? kopf does not
tell of objects that were deleted while a watch was cut for so long that it had to list again.
"""

import asyncio
import logging
from typing import NamedTuple

from orion.api_server.paths import DEVICES, NODES, PODS, SHARES
from orion.api_server.requests import METADATA_LIST, ApiError, ApiServer
from orion.operator.reconciler.state import Key
from orion.operator.reconciler.watching import NOT_ENDED, Intake

_LOG = logging.getLogger(__name__)
_POLL = 0.1
_PATIENCE = 5.0


class _Counted(NamedTuple):
    """What there is of one kind, as of one version of the store."""

    uids: set[str]
    version: int


class Resync:
    """Counts all objects of the watched kinds.

    Args:
        api: what is asked.
        intake: what is known.
        namespaces: whose pods and shares are watched; none named: all.
    """

    def __init__(self, api: ApiServer, intake: Intake, namespaces: tuple[str, ...]) -> None:
        self._api, self._intake, self._namespaces = api, intake, namespaces

    async def until_all_is_known(self) -> None:
        """Return when every object that there is has been seen; the API server may keep it waiting."""
        while True:
            try:
                missing = set().union(*[counted.uids for counted in (await self._count()).values()])
            except ApiError as error:
                _LOG.warning("the objects could not be counted: %s", error)
                await asyncio.sleep(1)
                continue
            if await self._come(missing):
                return
            _LOG.info("%d objects do not show: they are counted again", len(missing - self._intake.seen))

    async def _come(self, missing: set[str]) -> bool:
        """Wait while objects come in; return whether all have, and not none any more for a while."""
        loop = asyncio.get_running_loop()
        missing -= self._intake.seen
        deadline = loop.time() + _PATIENCE
        while missing and loop.time() < deadline:
            await asyncio.sleep(_POLL)
            known = missing & self._intake.seen
            if known:
                missing -= known
                deadline = loop.time() + _PATIENCE
        return not missing

    async def drop_what_is_gone(self) -> set[Key]:
        """Forget objects that are known and not there; return the objects that this concerns.

        Raises:
            ApiError: they could not be counted; nothing is forgotten then.
        """
        there = await self._count()
        return set().union(*[self._intake.drop_missing(path, *counted) for path, counted in there.items()])

    async def _count(self) -> dict[str, _Counted]:
        return {path: await self._count_kind(path) for path in (PODS, SHARES, NODES, DEVICES)}

    async def _count_kind(self, path: str) -> _Counted:
        uids: set[str] = set()
        versions = []
        for one in self._paths(path):
            query = {"fieldSelector": NOT_ENDED} if path == PODS else {}
            async for page in self._api.pages(one, METADATA_LIST, **query):
                uids |= {item["metadata"]["uid"] for item in page["items"]}
                version = page["metadata"].get("resourceVersion", "")
                versions.append(int(version) if version.isdigit() else 0)
        return _Counted(uids, min(versions))

    def _paths(self, path: str) -> list[str]:
        if not self._namespaces or path in (NODES, DEVICES):
            return [path]
        folder, plural = path.rsplit("/", 1)
        return [f"{folder}/namespaces/{name}/{plural}" for name in self._namespaces]
