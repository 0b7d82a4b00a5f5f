"""Answers the API server's reviews with data from watches, and reads the live API before it rejects.

If a share and a pod are applied together, the pod's review can arrive before the watch reports the share. So if a
rejection depends on shares or GPUs, this module reads them from the API server and decides again. No other review sends
a request to the API server, so a pod that the first decision admits does not wait for such a request.

A pod can also arrive just before a share whose selector matches it. The pod then gets the defaults. The reconciler
writes the share's grant as soon as its watches have reported the pod and the share.
"""

import asyncio
from collections.abc import Iterable

from orion.api_server.paths import DEVICES, SHARES, resource_path
from orion.api_server.requests import ApiServer
from orion.api_server.watching import Watched
from orion.crds import share as share_kind
from orion.crds.governing import Shares
from orion.crds.share import GPUShare
from orion.errors import Unavailable
from orion.operator.webhook.admitting import Cluster, admit, admit_ephemeral
from orion.operator.webhook.cluster_facts import all_of, read_gpu, read_share, readable_shares
from orion.operator.webhook.decisions import Decision, Outcome, Reason
from orion.operator.webhook.defaults import Defaults
from orion.operator.webhook.metrics import Metrics
from orion.operator.webhook.reviews import Request

LIVE_TIMEOUT_S = 2.0
""" Timeout of the second decision's requests, in seconds. The API server allows a review five seconds in total. """


class Admission:
    """Decides about pods, with data from a watch of GPUShares and one of GPUDevices.

    Args:
        server: the API server.
        defaults: the settings of the installation.
        metrics: counts the second decisions.
    """

    def __init__(self, server: ApiServer, defaults: Defaults, metrics: Metrics) -> None:
        self._server = server
        self._defaults = defaults
        self._metrics = metrics
        self.shares = Watched(server, SHARES, read_share, self._bounded, by_generation=True)
        self.devices = Watched(server, DEVICES, read_gpu, all_of, by_generation=False)

    @property
    def ready(self) -> bool:
        """Whether both watches have received their first list."""
        return self.shares.synced.is_set() and self.devices.synced.is_set()

    def decide(self, request: Request) -> Decision:
        """Decide about the pod in a request, with the data of the watches.

        Raises:
            Unavailable: the watches have not received their first lists yet.
            Exception: any other failure. The caller must report it as an error, never as a denial.
        """
        if request.resource.resource != "pods" or request.object is None:
            return Decision(Outcome.UNCHANGED, Reason.NOT_OURS, request.object or {})
        if request.sub_resource == "ephemeralcontainers":
            return admit_ephemeral(request.object, request.old_object, self._defaults)
        if request.sub_resource or request.operation != "CREATE":
            return Decision(Outcome.UNCHANGED, Reason.NOT_OURS, request.object)
        if not self.ready:
            raise Unavailable("shares and GPUs have not been listed yet")
        known = Cluster(self.shares.of(request.namespace), self.devices.of(""), request.namespace)
        return admit(request.object, known, self._defaults)

    async def look_again(self, request: Request, decision: Decision) -> Decision:
        """Decide again with the data of the API server, if the decision is a rejection that depends on them.

        Raises:
            Exception: any failure. The caller must report it as an error, never as a denial.
        """
        if decision.outcome is not Outcome.REFUSED or not decision.of_cluster or request.object is None:
            return decision
        self._metrics.second_looks.inc()
        return admit(request.object, await self._read_live(request.namespace), self._defaults)

    async def _read_live(self, namespace: str) -> Cluster:
        async with asyncio.timeout(LIVE_TIMEOUT_S):
            shares = await self._server.get(resource_path(share_kind.KIND, namespace))
        # Not the GPUs: whoever creates pods could make the webhook list all those of a large cluster again and again.
        return Cluster(self._bounded(readable_shares(shares["items"])), self.devices.of(""), namespace)

    def _bounded(self, shares: Iterable[GPUShare]) -> Shares:
        return Shares(shares, self._defaults.shares_per_namespace)
