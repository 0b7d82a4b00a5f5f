"""Removes what Orion wrote into the objects of a cluster, after an uninstall: lists, patches and records each change.

If the API server rejects a write, the cleanup continues with the other objects and reports the error at the end. An
error 404 counts as clean: the object was deleted, or the uninstall removed its CustomResourceDefinition.
"""

import asyncio
import contextlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime

from orion.api_server.paths import DEVICES, NODES, SHARES, resource_path
from orion.api_server.requests import JSON, METADATA_LIST, ApiError, ApiServer
from orion.crds import share
from orion.crds.claims import TEMPLATE_LABEL, TEMPLATES, path_in
from orion.operator.cleanup import remains
from orion.operator.cleanup.remains import Body, Patch
from orion.operator.reconciler.records import Named

_GONE = 404


@dataclass
class Cleaned:
    """The objects that were changed, or in a dry run would be changed, by kind; and the errors."""

    nodes: dict[str, list[str]] = field(default_factory=dict)
    """ Names of nodes, each with its removed labels and resources. """
    gpus: list[str] = field(default_factory=list)
    """ Names of GPUDevices whose health is now unknown. """
    shares: list[str] = field(default_factory=list)
    """ NAMESPACE/NAME of GPUShares whose conditions are now unknown. """
    deleted: list[str] = field(default_factory=list)
    """ Objects that were deleted: those of `helm test`, and templates of pods' claims, as KIND/NAME. """
    failed: list[str] = field(default_factory=list)
    """ A sentence for each request that failed. """


class Cleaning:
    """One cleanup of a cluster.

    Args:
        server: the API server.
        now: the transition time of conditions that change.
        test: the name of the pod and of the GPUShare of `helm test`; both are deleted first.
        capacity: also remove Orion's resources from the status of nodes whose kubelet reports an amount of 0.
        dry_run: record what would change, and write nothing.
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
        """Clean all objects, and return what was changed. The result also holds the errors."""
        if self._test is not None:
            await self._delete(f"/api/v1/namespaces/{self._test.namespace}/pods/{self._test.name}")
            await self._delete(f"{resource_path(share.KIND, self._test.namespace)}/{self._test.name}")
        await self._each(NODES, METADATA_LIST, self._node)
        if self._capacity:
            await self._each(NODES, JSON, self._resources)
        await self._each(DEVICES, JSON, self._device)
        await self._each(SHARES, JSON, self._share)
        with self._recorded_errors():  # an API server that knows no claims has no templates
            async for page in self._server.pages(TEMPLATES, METADATA_LIST, labelSelector=TEMPLATE_LABEL):
                metas = [each["metadata"] for each in page["items"]]
                await asyncio.gather(
                    *(self._delete(path_in(each["namespace"], TEMPLATES, each["name"])) for each in metas)
                )
        return self.cleaned

    async def _each(self, path: str, accept: str, clean: Callable[[Body], "_Write | None"]) -> None:
        """Apply the patches that `clean` returns for the objects of a list."""
        with self._recorded_errors():
            async for page in self._server.pages(path, accept):
                writes = [write for item in page["items"] if (write := clean(item)) is not None]
                await asyncio.gather(*map(self._write, writes))

    async def _delete(self, path: str) -> None:
        with self._recorded_errors():
            await (self._server.get(path) if self._dry_run else self._server.delete(path))
            self.cleaned.deleted.append("/".join(path.split("/")[-2:]))

    async def _write(self, write: "_Write") -> None:
        with self._recorded_errors():
            if not self._dry_run:
                await self._server.patch(write.path, write.patch)
            write.note(write.patch)

    @contextlib.contextmanager
    def _recorded_errors(self) -> Iterator[None]:
        """Record API errors, except 404, in `cleaned.failed`."""
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

    def _note(self, node: str, removed: Mapping[str, Mapping[str, None]]) -> None:
        self.cleaned.nodes.setdefault(node, []).extend(sorted({name for names in removed.values() for name in names}))

    def _device(self, device: Body) -> "_Write | None":
        name, patch = device["metadata"]["name"], remains.device_patch(device, self._now)
        return _write(f"{DEVICES}/{name}/status", patch, lambda _: self.cleaned.gpus.append(name))

    def _share(self, body: Body) -> "_Write | None":
        namespace, name = body["metadata"]["namespace"], body["metadata"]["name"]
        path, patch = resource_path(share.KIND, namespace), remains.share_patch(body, self._now)
        return _write(f"{path}/{name}/status", patch, lambda _: self.cleaned.shares.append(f"{namespace}/{name}"))


@dataclass(frozen=True)
class _Write:
    """A patch, and the function that records it once it is applied."""

    path: str
    patch: Patch
    note: Callable[[Patch], None]


def _write(path: str, patch: Patch | None, note: Callable[[Patch], None]) -> _Write | None:
    return None if patch is None else _Write(path, patch, note)
