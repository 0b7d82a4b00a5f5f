"""Answers the API server's reviews with data from watches, and reads the live API before it rejects.

If a share and a pod are applied together, the pod's review can arrive before the watch reports the share. So if a
rejection depends on shares or GPUs, this module reads the shares from the API server and decides again. No other review
sends a request to the API server, so a pod that the first decision admits does not wait for such a request.

Whoever may write GPUShares in one namespace can have its shares read again and again. So a namespace has one such look
at a time, all who asked before it began share it, and the loop serves other reviews meanwhile.

A pod can also arrive just before a share whose selector matches it. The pod then gets the defaults. The reconciler
writes the share's grant as soon as its watches have reported the pod and the share.
"""

import asyncio
import contextlib
from collections.abc import Callable, Iterable
from weakref import WeakValueDictionary

from orion.api_server.paths import DEVICES, SHARES, resource_path
from orion.api_server.requests import ApiServer
from orion.api_server.watching import Watched
from orion.crds import share as share_kind
from orion.crds.governing import Shares
from orion.crds.share import GPUShare
from orion.errors import Unavailable, Unreadable
from orion.operator.webhook.admitting import Cluster, admit, admit_ephemeral
from orion.operator.webhook.cluster_facts import all_of, read_gpu, read_share
from orion.operator.webhook.decisions import Decision, Outcome, Reason
from orion.operator.webhook.defaults import Defaults
from orion.operator.webhook.metrics import Metrics
from orion.operator.webhook.reviews import Request

LIVE_TIMEOUT_S = 2.0
""" Timeout of a look at the shares, in seconds. A review waits for two looks at most: the one that runs when it asks,
and the next one. The API server allows a review five seconds in total. """
_AT_ONCE = 10
""" Shares of a look between two pauses. Each takes 0.4 ms at most. """


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
        self._next: dict[str, asyncio.Task[Shares]] = {}
        """ The look of each namespace that has not begun. """
        self._looking = WeakValueDictionary[str, asyncio.Lock]()

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

    async def look_again(
        self, request: Request, decision: Decision, turn: Callable[[], contextlib.AbstractAsyncContextManager[None]]
    ) -> Decision:
        """Decide again with the data of the API server, if the decision is a rejection that depends on them.

        Args:
            request: the review.
            decision: the first decision.
            turn: waits for a turn to decide: a look can end for many reviews at once.

        Raises:
            Exception: any failure. The caller must report it as an error, never as a denial.
        """
        if decision.outcome is not Outcome.REFUSED or not decision.of_cluster or request.object is None:
            return decision
        self._metrics.second_looks.inc()
        if request.namespace not in self._next:
            self._next[request.namespace] = asyncio.create_task(self._look(request.namespace))
        shares = await asyncio.shield(self._next[request.namespace])
        # Not the GPUs: whoever creates pods could make the webhook list all those of a large cluster again and again.
        async with turn():
            known = Cluster(shares, self.devices.of(""), request.namespace)
            return admit(request.object, known, self._defaults)

    async def _look(self, namespace: str) -> Shares:
        async with self._looking.setdefault(namespace, asyncio.Lock()):
            del self._next[namespace]  # whoever asks from now on needs a look that begins later
            async with asyncio.timeout(LIVE_TIMEOUT_S):
                return await self._read_live(namespace)

    async def _read_live(self, namespace: str) -> Shares:
        shares = self._bounded(())
        async for page in self._server.pages(resource_path(share_kind.KIND, namespace)):
            for number, plain in enumerate(page["items"]):
                if number % _AT_ONCE == 0:
                    await asyncio.sleep(0)
                with contextlib.suppress(Unreadable):
                    shares.put(self.shares.same(plain) or read_share(plain))
        return shares

    def _bounded(self, shares: Iterable[GPUShare]) -> Shares:
        return Shares(shares, self._defaults.shares_per_namespace)
