"""Leader election: of several processes, only the holder of a Lease writes, as in other Kubernetes controllers.

All processes watch, so that another one can take over at once. Rejected: kopf's peering. It is not a lock (peers of
equal priority all stop working), and it needs another CustomResourceDefinition.
"""

import asyncio
import contextlib
import logging
import math
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

from orion.api_server.requests import ApiError, ApiServer
from orion.operator.reconciler.metrics import Metrics
from orion.operator.reconciler.settings import ReconcilerSettings

_RELEASE_S = 4.0
""" The process must end in time even if the API server is away. """

_LOG = logging.getLogger(__name__)


class Leadership:
    """Holds the Lease, or waits for it.

    Two processes never hold the Lease at the same time. The holder counts the duration from just before it sent its
    last renewal. Other processes count from when they read that renewal, which is later. Each process uses its own
    monotonic clock; clocks of different machines are never compared.
    """

    def __init__(self, api: ApiServer, settings: ReconcilerSettings, metrics: Metrics) -> None:
        self._api, self._metrics = api, metrics
        self._identity, self._seconds = settings.identity, settings.lease_seconds
        self._folder = f"/apis/coordination.k8s.io/v1/namespaces/{settings.lease_namespace}/leases"
        self._name = settings.lease_name
        self._until = float("-inf")
        self._held: dict[str, Any] | None = None
        """ The Lease that this process last wrote. A renewal uses it and does not read the Lease again. """
        self._seen: tuple[str, str] = ("", "")
        """ The holder and the renewal time that were last read. """
        self._seen_at = 0.0
        """ When this process first read these two values; monotonic seconds. """
        self.taken = asyncio.Event()
        """ Set while this process holds the Lease. """
        self.on_taken: Callable[[], None] = lambda: None
        """ Is called when this process has taken the Lease. """

    def mine(self) -> bool:
        """Return whether this process may write now."""
        return time.monotonic() < self._until

    async def keep(self) -> None:
        """Take the Lease when it is free, and renew it. Run until cancelled."""
        while True:
            try:
                async with asyncio.timeout(self._seconds / 2):
                    await self._round()
            except (ApiError, TimeoutError) as error:
                if not isinstance(error, ApiError) or error.status != 409:
                    _LOG.warning("the Lease could not be read or renewed: %s", str(error) or "no answer in time")
            self._publish()
            await asyncio.sleep(self._seconds / 3 if self.mine() else min(1.0, self._seconds / 3))

    async def watch_end(self) -> None:
        """Publish the loss of the Lease as soon as it expires. Run until cancelled."""
        while True:
            await self.taken.wait()
            await asyncio.sleep(max(0.01, self._until - time.monotonic()))
            self._publish()

    async def release(self) -> None:
        """Give the Lease back, so that the next process need not wait until it expires."""
        if not self.mine():
            return
        self._until = float("-inf")
        self._publish()
        with contextlib.suppress(ApiError, TimeoutError):
            async with asyncio.timeout(_RELEASE_S):
                await self._give_back()

    async def _give_back(self) -> None:
        lease = await self._api.get(f"{self._folder}/{self._name}")
        if lease["spec"].get("holderIdentity") == self._identity:
            lease["spec"] |= {"holderIdentity": "", "leaseDurationSeconds": 1}
            await self._api.put(f"{self._folder}/{self._name}", lease)

    def _publish(self) -> None:
        """Update `taken`, the metric and the log."""
        mine = self.mine()
        if mine != self.taken.is_set():
            _LOG.info("this process %s", "holds the Lease and writes" if mine else "no longer holds the Lease")
            if mine:
                self.on_taken()
        (self.taken.set if mine else self.taken.clear)()
        self._metrics.leader.set(mine)

    async def _round(self) -> None:
        began, held, self._held = time.monotonic(), self._held, None
        try:
            lease = held or await self._api.get(f"{self._folder}/{self._name}")
        except ApiError as error:
            if error.status != 404:
                raise
            self._held = await self._api.post(self._folder, self._lease({}))
            self._until = began + self._seconds
            return
        if self._free(lease.get("spec") or {}):
            self._held = await self._api.put(f"{self._folder}/{self._name}", self._lease(lease))
            self._until = began + self._seconds

    def _free(self, spec: Mapping[str, Any]) -> bool:
        """Return whether this process may take the Lease: it holds the Lease, or no process does, or it has expired."""
        holder, renewed = spec.get("holderIdentity") or "", spec.get("renewTime") or ""
        if holder in ("", self._identity):
            return True
        if (holder, renewed) != self._seen:
            self._seen, self._seen_at = (holder, renewed), time.monotonic()
        return time.monotonic() > self._seen_at + float(spec.get("leaseDurationSeconds") or self._seconds)

    def _lease(self, old: Mapping[str, Any]) -> dict[str, Any]:
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        spec = dict(old.get("spec") or {})
        if spec.get("holderIdentity") != self._identity:
            spec["acquireTime"] = now
            spec["leaseTransitions"] = spec.get("leaseTransitions", -1) + 1
        spec |= {"holderIdentity": self._identity, "renewTime": now, "leaseDurationSeconds": math.ceil(self._seconds)}
        metadata = old.get("metadata") or {"name": self._name}
        return {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata, "spec": spec}


class Alone:
    """Replaces `Leadership` where no Lease is used: this process always writes."""

    def __init__(self, metrics: Metrics) -> None:
        self.taken = asyncio.Event()
        self.taken.set()
        self.on_taken: Callable[[], None] = lambda: None
        """ Is never called. """
        metrics.leader.set(1)

    def mine(self) -> bool:
        """Return whether this process may write now."""
        return True

    async def keep(self) -> None:
        """Wait until cancelled."""
        await asyncio.Event().wait()

    watch_end = keep

    async def release(self) -> None:
        """Do nothing: there is no Lease."""
