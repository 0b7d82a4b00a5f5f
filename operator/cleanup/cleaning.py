"""Takes away what Orion left on the objects of a cluster: lists them, patches those that say anything, tells of each.

One object that cannot be written does not keep the others from being clean; it is told at the end. What is not there
(a definition that went with the release, an object deleted meanwhile) needs no cleaning.
"""

import asyncio
import contextlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime

from orion.api_server.paths import DEVICES, NODES, SHARES, resource_path
from orion.api_server.requests import JSON, METADATA_LIST, ApiError, ApiServer
from orion.crds import share
from orion.operator.cleanup import remains
from orion.operator.cleanup.remains import Body, Patch
from orion.operator.reconciler.records import Named

_GONE = 404


@dataclass
class Cleaned:
    """What was found and cleaned, by kind, and what could not be."""

    nodes: dict[str, list[str]] = field(default_factory=dict)
    """ Their names, and the labels and resources that went. """
    gpus: list[str] = field(default_factory=list)
    """ GPUDevices whose health is unknown now. """
    shares: list[str] = field(default_factory=list)
    """ GPUShares as NAMESPACE/NAME whose conditions are unknown now. """
    deleted: list[str] = field(default_factory=list)
    """ What a test of the release had left, as pods/NAME or gpushares/NAME. """
    failed: list[str] = field(default_factory=list)
    """ A sentence for each refusal. """


class Cleaning:
    """One cleaning of a cluster.

    Args:
        server: the API server.
        now: the time of conditions that change.
        test: a pod, and a GPUShare of the same name, to be deleted.
        capacity: take resources of which a node has none from its status, too.
        dry_run: nothing is written.
    """

    def __init__(
        self,
        server: ApiServer,
        now: datetime,
        *,
        test: Named | None = None,
        capacity: bool = False,
        dry_run: bool = False,
    ) -> None:
        self._server, self._now, self._dry_run = server, now, dry_run
        self._test, self._capacity = test, capacity
        self.cleaned = Cleaned()

    async def run(self) -> Cleaned:
        """Clean all of it, and return what was cleaned; refusals are in it."""
        if self._test is not None:
            await self._delete(f"/api/v1/namespaces/{self._test.namespace}/pods/{self._test.name}")
            await self._delete(f"{resource_path(share.KIND, self._test.namespace)}/{self._test.name}")
        await self._each(NODES, METADATA_LIST, self._node)
        if self._capacity:
            await self._each(NODES, JSON, self._resources)
        await self._each(DEVICES, JSON, self._device)
        await self._each(SHARES, JSON, self._share)
        return self.cleaned

    async def _each(self, path: str, accept: str, clean: Callable[[Body], "_Write | None"]) -> None:
        """Clean every object of a list."""
        with self._refusals():
            async for page in self._server.pages(path, accept):
                writes = [write for item in page["items"] if (write := clean(item)) is not None]
                await asyncio.gather(*map(self._write, writes))

    async def _delete(self, path: str) -> None:
        with self._refusals():
            await (self._server.get(path) if self._dry_run else self._server.delete(path))
            self.cleaned.deleted.append("/".join(path.split("/")[-2:]))

    async def _write(self, write: "_Write") -> None:
        with self._refusals():
            if not self._dry_run:
                await self._server.patch(write.path, write.patch)
            write.note(write.patch)

    @contextlib.contextmanager
    def _refusals(self) -> Iterator[None]:
        """Note down what is refused; what is not there is no refusal."""
        try:
            yield
        except ApiError as error:
            if error.status != _GONE:
                self.cleaned.failed.append(str(error))

    def _node(self, node: Body) -> "_Write | None":
        name = node["metadata"]["name"]
        return _write(f"{NODES}/{name}", remains.node_patch(node), lambda patch: self._note(name, patch["metadata"]))

    def _resources(self, node: Body) -> "_Write | None":
        name, patch = node["metadata"]["name"], remains.capacity_patch(node)
        return _write(f"{NODES}/{name}/status", patch, lambda patch: self._note(name, patch["status"]))

    def _note(self, node: str, went: Mapping[str, Mapping[str, None]]) -> None:
        self.cleaned.nodes.setdefault(node, []).extend(sorted({name for names in went.values() for name in names}))

    def _device(self, device: Body) -> "_Write | None":
        name, patch = device["metadata"]["name"], remains.device_patch(device, self._now)
        return _write(f"{DEVICES}/{name}/status", patch, lambda _: self.cleaned.gpus.append(name))

    def _share(self, body: Body) -> "_Write | None":
        namespace, name = body["metadata"]["namespace"], body["metadata"]["name"]
        path, patch = resource_path(share.KIND, namespace), remains.share_patch(body, self._now)
        return _write(f"{path}/{name}/status", patch, lambda _: self.cleaned.shares.append(f"{namespace}/{name}"))


@dataclass(frozen=True)
class _Write:
    """A patch, and what notes it down once it is done."""

    path: str
    patch: Patch
    note: Callable[[Patch], None]


def _write(path: str, patch: Patch | None, note: Callable[[Patch], None]) -> _Write | None:
    return None if patch is None else _Write(path, patch, note)
