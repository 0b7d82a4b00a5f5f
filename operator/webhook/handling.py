"""From a question of the API server to an answer: decides on what the watches know, and looks again before it refuses.

A share and a pod that are applied together race: the pod's review can be here before the watch has brought the share.
So a refusal in which shares or GPUs had a part is decided once more on what the API server says now. Nothing else asks
the server during a review, and a review never waits where it can allow.

A pod that a share *selects* may still come a moment before that share: it gets the defaults, and the reconciler gives
it the share's grant as soon as it sees both.
"""

import asyncio

from orion.api_server.paths import DEVICES, SHARES, resource_path
from orion.api_server.requests import ApiServer
from orion.api_server.watching import Watched
from orion.crds import share as share_kind
from orion.crds.governing import Shares
from orion.operator.webhook.admitting import Cluster, admit, admit_ephemeral
from orion.operator.webhook.cluster_facts import device_memory, largest, read_share, readable_shares
from orion.operator.webhook.decisions import Decision, Outcome, Reason
from orion.operator.webhook.defaults import Defaults
from orion.operator.webhook.metrics import Metrics
from orion.operator.webhook.reviews import Request

LIVE_TIMEOUT_S = 2.0
""" Of a second look; the API server gives a review five seconds in all. """


class NotReady(Exception):
    """Shares and GPUs are not here yet; an error of ours, so that the failure policy decides."""


class Admission:
    """Decides on pods, with what two watches know of the cluster.

    Args:
        server: the API server, for second looks.
        defaults: of the installation.
        metrics: where second looks are counted.
    """

    def __init__(self, server: ApiServer, defaults: Defaults, metrics: Metrics) -> None:
        self._server = server
        self._defaults = defaults
        self._metrics = metrics
        self.shares = Watched(server, SHARES, read_share, Shares, by_generation=True)
        self.devices = Watched(server, DEVICES, device_memory, largest, by_generation=False)

    @property
    def ready(self) -> bool:
        """Whether it can decide."""
        return self.shares.synced.is_set() and self.devices.synced.is_set()

    async def decide(self, request: Request) -> Decision:
        """Return what becomes of the pod in a request.

        Raises:
            NotReady: the first lists are not here yet.
            Exception: whatever else goes wrong is an error of ours, never a denial.
        """
        if request.resource.resource != "pods" or request.object is None:
            return Decision(Outcome.UNCHANGED, Reason.NOT_OURS, request.object or {})
        if request.sub_resource == "ephemeralcontainers":
            return admit_ephemeral(request.object, request.old_object, self._defaults)
        if request.sub_resource or request.operation != "CREATE":
            return Decision(Outcome.UNCHANGED, Reason.NOT_OURS, request.object)
        if not self.ready:
            raise NotReady("shares and GPUs have not been listed yet")
        known = Cluster(self.shares.of(request.namespace), self.devices.of(""))
        decision = admit(request.object, known, self._defaults)
        if decision.outcome is Outcome.REFUSED and decision.of_cluster:
            self._metrics.second_looks.inc()
            decision = admit(request.object, await self._look(request.namespace), self._defaults)
        return decision

    async def _look(self, namespace: str) -> Cluster:
        async with asyncio.timeout(LIVE_TIMEOUT_S):
            shares = await self._server.get(resource_path(share_kind.KIND, namespace))
            devices = await self._server.get(DEVICES)
        return Cluster(Shares(readable_shares(shares["items"])), largest(map(device_memory, devices["items"])))
