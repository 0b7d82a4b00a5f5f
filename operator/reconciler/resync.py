"""Compares the objects of the API server with the objects in memory.

The watches of kopf do not answer these questions:
- Was an object in memory deleted? After an interruption, kopf may have to list again, and does not report deletions
  during the interruption.
- Which pods of ours lack the label by which pods are watched? They were admitted before the webhook wrote it, or
  without the webhook. If there are such pods at the start, all pods are watched until they are gone. Those that are
  found later are read here.
- Which pods does a share select that are not managed? They have no label; only their number is reported.

Only metadata is listed, because the bodies of a hundred thousand pods are a gigabyte.

Rejected: kopf's indices. kopf calls no handler until all indices are complete, and holds all objects until then.
"""

import asyncio
import contextlib
import logging
from dataclasses import dataclass, field
from typing import Any

from orion.api_server.paths import DEVICES, NODES, PODS, SHARES
from orion.api_server.requests import METADATA_LIST, ApiError, ApiServer
from orion.crds.annotations import ON_PODS, PRIORITY_LABEL
from orion.operator.reconciler.keys import Key
from orion.operator.reconciler.listing import paths
from orion.operator.reconciler.records import Named, PodRecord, pod_record
from orion.operator.reconciler.watching import READ, Intake, WatchedPods

_LOG = logging.getLogger(__name__)
_SOON_S, _AGAIN_S = 2.0, 5.0
""" The pauses before an additional comparison: a watch that lists again needs some time; and after one that failed. """
_READ_MAX = 1_000
""" How many pods without the label are read one by one. """
_AT_ONCE = 200
_LABELLED, _UNLABELLED = PRIORITY_LABEL, f"!{PRIORITY_LABEL}"
_NOT_ENDED = "status.phase!=Succeeded,status.phase!=Failed"


@dataclass(slots=True)
class _Listed:
    """What was found of one kind."""

    uids: set[str] = field(default_factory=set)
    namespaces: set[str] = field(default_factory=set)
    version: int = 2**63
    """ The lowest resourceVersion of the lists. """


@dataclass(slots=True)
class _Lists:
    """All objects of the API server."""

    of: dict[str, _Listed] = field(default_factory=dict)
    older: set[Named] = field(default_factory=set)
    """ Pods of ours without the label. """
    others: list[PodRecord] = field(default_factory=list)
    """ Pods that do not concern Orion, in namespaces with shares: what their metadata says. """


class Resync:
    """Lists all objects of the watched kinds.

    Args:
        api: the API server.
        intake: knows the objects in memory.
        watched: decides which pods kopf watches.
        complete: is set once kopf has listed all objects.
        namespaces: the namespaces whose pods and shares are watched; empty: all.
    """

    def __init__(
        self,
        api: ApiServer,
        intake: Intake,
        watched: WatchedPods,
        complete: asyncio.Event,
        namespaces: tuple[str, ...],
    ) -> None:
        self._api, self._intake, self._watched, self._namespaces = api, intake, watched, namespaces
        self._complete = complete
        self._asked: set[Named] = set()
        """ Unknown pods that were looked for since the last comparison of all objects. """
        self._asked_uids: set[tuple[str, str]] = set()
        """ The same for pods without a name: node and uid. """
        self.chosen = asyncio.Event()
        """ Is set once it is decided which pods are watched. """

    async def until_all_is_known(self) -> None:
        """Return once every object has been listed. Retry for as long as the API server does not answer."""
        while True:
            lists = _Lists()
            try:
                lists.of[SHARES] = await self._list_kind(SHARES, lists)
                await self._list_unlabelled(lists)
                break
            except ApiError as error:
                _LOG.warning("the objects could not be listed: %s", error)
                await asyncio.sleep(1)
        self._watched.choose(all_pods=bool(lists.older))
        self.chosen.set()
        await self._complete.wait()
        await self._intake.all_known()
        await self._take_unlabelled(lists)

    async def next_comparison(self, seconds: float) -> set[Key]:
        """Wait for some seconds, or less if there is a reason; then compare all objects with those in memory.

        Returns:
            The keys of the objects that this concerns.

        Raises:
            ApiError: the objects could not be listed; then none is dropped.
        """
        due = asyncio.get_running_loop().time() + seconds
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout_at(due):
                while not self._intake.listed_again:
                    await self._intake.noticed.wait()
                    await asyncio.sleep(_SOON_S)
                    self._intake.noticed.clear()
                    await self._read_unknown()
        return await self._compare()

    async def _read_unknown(self) -> None:
        """Read the pods that GPUDevices name and that are not in memory; each once between two comparisons."""
        unknown = self._intake.unknown - self._asked
        self._intake.unknown = set()
        with contextlib.suppress(ApiError):
            unknown |= await self._names(self._intake.unnamed - self._asked_uids) - self._asked
        self._asked |= unknown
        with contextlib.suppress(ApiError):
            await self._read({at for at in unknown if not self._namespaces or at.namespace in self._namespaces})

    async def _names(self, unnamed: set[tuple[str, str]]) -> set[Named]:
        """Find pods of which agents know only the uid: pods outside Orion with a process on a GPU of their node."""
        self._intake.unnamed = set()
        self._asked_uids |= unnamed
        found = set()
        for node in sorted({node for node, _ in unnamed}):
            for one in paths(PODS, self._namespaces):
                async for page in self._api.pages(one, METADATA_LIST, fieldSelector=f"spec.nodeName={node}"):
                    metas = (item["metadata"] for item in page["items"])
                    found |= {
                        Named(meta["namespace"], meta["name"]) for meta in metas if (node, meta["uid"]) in unnamed
                    }
        return found

    async def _compare(self) -> set[Key]:
        self._intake.listed_again = False
        try:
            lists = await self._list()
        except ApiError:
            self._intake.listed_again = True  # what has gone meanwhile is not dropped before the next comparison
            await asyncio.sleep(_AGAIN_S)
            raise
        self._asked.clear()
        self._asked_uids.clear()
        keys = set().union(
            *[self._intake.drop_missing(path, each.uids, each.version) for path, each in lists.of.items()]
        )
        if not lists.older:
            self._watched.choose(all_pods=False)
        await self._take_unlabelled(lists)
        return keys

    # -- Pods without the label ----------------------------------------------------------------------------------------

    async def _take_unlabelled(self, lists: _Lists) -> None:
        if self._watched.all:
            return  # kopf reports them
        with contextlib.suppress(ApiError):  # the next comparison tries again
            await self._read(lists.older)
            await self._read(self._intake.ended_without_label())
        for number, pod in enumerate(lists.others):
            self._intake.other_pod(pod)
            if number % _AT_ONCE == 0:
                await asyncio.sleep(0)

    async def _read(self, pods: set[Named]) -> None:
        """Read pods that kopf does not watch, and drop those that are gone."""
        for at in sorted(pods)[:_READ_MAX]:
            path = f"/api/v1/namespaces/{at.namespace}/pods"
            found = (await self._api.get(path, fieldSelector=f"metadata.name={at.name}"))["items"]
            for body in found:
                self._intake.pod({"type": READ, "object": body})
            if not found:
                self._intake.gone(at)

    # -- Lists ---------------------------------------------------------------------------------------------------------

    async def _list(self) -> _Lists:
        lists = _Lists()
        for path in (SHARES, NODES, DEVICES):
            lists.of[path] = await self._list_kind(path, lists)
        pods = await self._list_kind(PODS, lists, labelSelector=_LABELLED)
        unlabelled = await self._list_unlabelled(lists)
        lists.of[PODS] = _Listed(pods.uids | unlabelled.uids, set(), min(pods.version, unlabelled.version))
        return lists

    async def _list_unlabelled(self, lists: _Lists) -> _Listed:
        return await self._list_kind(PODS, lists, labelSelector=_UNLABELLED, fieldSelector=_NOT_ENDED)

    async def _list_kind(self, path: str, lists: _Lists, **query: str) -> _Listed:
        found = _Listed()
        for one in paths(path, self._namespaces):
            async for page in self._api.pages(one, METADATA_LIST, **query):
                version = page["metadata"].get("resourceVersion", "")
                found.version = min(found.version, int(version) if version.isdigit() else 0)
                for item in page["items"]:
                    found.uids.add(item["metadata"]["uid"])
                    found.namespaces.add(item["metadata"].get("namespace", ""))
                    if query.get("labelSelector") == _UNLABELLED:
                        _sort(item["metadata"], lists)
        return found


def _sort(meta: dict[str, Any], lists: _Lists) -> None:
    """Note a pod without the label."""
    if ON_PODS & (meta.get("annotations") or {}).keys():
        lists.older.add(Named(meta["namespace"], meta["name"]))
    elif meta["namespace"] in lists.of[SHARES].namespaces:
        kept = ("namespace", "name", "uid", "resourceVersion", "labels", "creationTimestamp", "deletionTimestamp")
        lists.others.append(pod_record({"metadata": {key: meta[key] for key in kept if key in meta}}))
