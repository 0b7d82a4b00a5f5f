"""Answers the kubelet: prepares and unprepares the claims of a request side by side.

A failure of one claim is an answer about that claim, in a sentence, since the kubelet puts it into the pod's Events.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from typing import Any

import grpc.aio

from orion.dra_driver.kubelet.claims import api_pb2, api_pb2_grpc
from orion.dra_driver.metrics import Metrics
from orion.dra_driver.names import CLAIM_KIND, cdi_name
from orion.dra_driver.preparing import Preparer
from orion.dra_driver.records import Record
from orion.errors import OrionError

_CALL_SECONDS, _ANSWER_SECONDS = 45.0, 4.0
""" How long the kubelet waits for an answer, and how much of that time is kept for sending it. """
_END_SECONDS = 1.0
""" How long calls that do not wait may go on when the driver ends. """

Context = grpc.aio.ServicerContext[Any, Any]

_log = logging.getLogger(__name__)


class ClaimsService(api_pb2_grpc.DRAPluginServicer):
    """Answers the kubelet.

    Args:
        preparer: prepares claims.
        metrics: the metrics of the process.
    """

    def __init__(self, preparer: Preparer, metrics: Metrics) -> None:
        self._preparer, self._metrics = preparer, metrics
        self._running: set[asyncio.Task[Any]] = set()
        self._ends = False

    async def end(self) -> None:
        """Let calls go on for a moment, and answer those that still wait then: for an agent, a slot, an API server.

        The kubelet tries again after a minute or more, however a call ends. So a wait gains a pod nothing once another
        driver is there, and delays the next driver if it begins after this one.
        """
        if self._running:
            await asyncio.wait(self._running, timeout=_END_SECONDS)
        self._ends = True
        for task in self._running:
            task.cancel()
        if self._running:
            await asyncio.wait(self._running)

    async def NodePrepareResources(self, request: Any, context: Context) -> Any:  # noqa: N802
        """Prepare claims for a pod."""
        deadline = time.monotonic() + min(context.time_remaining() or _CALL_SECONDS, _CALL_SECONDS) - _ANSWER_SECONDS

        async def prepare(claim: api_pb2.Claim) -> api_pb2.NodePrepareResourceResponse:
            return answer_of(await self._preparer.prepare(claim.namespace, claim.name, claim.uid, deadline))

        answers = await asyncio.gather(
            *(self._answer("prepare", claim, prepare, api_pb2.NodePrepareResourceResponse) for claim in request.claims)
        )
        uids = (claim.uid for claim in request.claims)
        return api_pb2.NodePrepareResourcesResponse(claims=dict(zip(uids, answers, strict=True)))

    async def NodeUnprepareResources(self, request: Any, context: Context) -> Any:  # noqa: N802
        """Take back what claims were given."""

        async def unprepare(claim: api_pb2.Claim) -> api_pb2.NodeUnprepareResourceResponse:
            await self._preparer.unprepare(claim.namespace, claim.name, claim.uid)
            return api_pb2.NodeUnprepareResourceResponse()

        answers = await asyncio.gather(
            *(
                self._answer("unprepare", claim, unprepare, api_pb2.NodeUnprepareResourceResponse)
                for claim in request.claims
            )
        )
        uids = (claim.uid for claim in request.claims)
        return api_pb2.NodeUnprepareResourcesResponse(claims=dict(zip(uids, answers, strict=True)))

    async def _answer(
        self,
        method: str,
        claim: api_pb2.Claim,
        act: Callable[[api_pb2.Claim], Awaitable[Any]],
        failed: Callable[..., Any],
    ) -> Any:
        """Return the answer about one claim; turn every exception into a sentence; count and time it."""
        began, result, name = time.perf_counter(), "cancelled", f"{claim.namespace}/{claim.name}"
        task = asyncio.ensure_future(act(claim))
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        try:
            answer = await task
            result = "ok"
            return answer
        except asyncio.CancelledError:
            if not self._ends:
                raise
            result = "refused"
            _log.warning("claims: %s of %s is not done before the driver ends", method, name)
            return failed(error="orion: the DRA driver ends; the kubelet tries again")
        except OrionError as error:
            result = "refused"
            _log.warning("claims: %s of %s refused: %s", method, name, error)
            return failed(error=f"orion: {error}")
        except Exception as error:
            result = "failed"
            _log.exception("claims: %s of %s failed", method, name)
            return failed(error=f"orion: an error of the DRA driver: {error!r}")
        finally:
            self._metrics.requests.labels(method, result).observe(time.perf_counter() - began)


def answer_of(record: Record) -> api_pb2.NodePrepareResourceResponse:
    """Return what the kubelet has to know of a prepared claim.

    All GPUs of a request are one CDI device, as one container gets all of them. It is named with the first GPU only:
    the kubelet passes the names of all the request's devices to the container runtime.
    """
    answer = api_pb2.NodePrepareResourceResponse()
    named: set[str] = set()
    for share in record.shares:
        ids = []
        if share.request not in named:
            named.add(share.request)
            ids = [f"{CLAIM_KIND}={cdi_name(record.uid, share.request)}", *record.cdi_names.get(share.request, ())]
        device = answer.devices.add(
            request_names=[share.request], pool_name=share.pool, device_name=share.device, cdi_device_ids=ids
        )
        if share.share_id is not None:
            device.share_id = share.share_id
    return answer
