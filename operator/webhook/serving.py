"""The webhook's process: HTTPS for the API server, probes, metrics, and a shutdown that loses no review.

The webhook answers an internal error with an HTTP error, so that `failurePolicy` decides about the pod. Only a decision
can deny a pod.

On SIGTERM, the readiness probe fails, and the cluster removes this replica from the Service. Meanwhile the webhook
still answers reviews, each with `Connection: close`, so that the API server's persistent connections move to other
replicas. Then the listener closes, and the webhook waits until the API servers have closed their idle connections.
It does not close them itself: an API server that sends a review at that moment would fail, and does not try again.
"""

import asyncio
import functools
import gc
import logging
import signal
import time
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import Any, cast

from aiohttp import web
from pydantic import ValidationError

from orion.api_server.access import Access
from orion.api_server.requests import ApiError, ApiServer
from orion.api_server.watching import Watched
from orion.errors import Unavailable
from orion.exposition.answers import PATHS, Answers
from orion.exposition.server import ExpositionServer
from orion.operator.webhook import reviews
from orion.operator.webhook.bodies import Bodies, Refused
from orion.operator.webhook.bounds import BYTES, Network, Peer, Peers
from orion.operator.webhook.connections import Connections
from orion.operator.webhook.defaults import Defaults
from orion.operator.webhook.handling import Admission
from orion.operator.webhook.metrics import Metrics
from orion.operator.webhook.tls import LiveCertificate

FINISH_S = 95.0
""" Longer than the 90 s after which an API server closes an idle connection (IdleConnTimeout of Go's transport). """
_KEEP_ALIVE_S = 120.0
""" Longer than those 90 s, too: the API server always closes an idle connection first. """
_AGAIN_S = "1"
""" Seconds after which an API server sends a review again that got 429. Without this header it refuses the pod at once,
and with it it tries until its timeout for the review ends. A 503 has no such header: the pod's owner would read of that
timeout instead of what is wrong. """
_ANSWER_S = 5.0  # what reviews that have arrived may still take at the end
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Listening:
    """Addresses, files and shutdown times of the webhook.

    Args:
        address, port: where to serve HTTPS; port 0: any free port.
        exposition: HOST:PORT for probes and metrics in plain HTTP; empty: only the HTTPS port serves them.
        certificate, key: PEM files.
        leave_s: how long the webhook accepts connections after SIGTERM, in seconds.
        finish_s: how long connections may stay open and send reviews after `leave_s`, in seconds.
        api_servers: the networks of the API servers; empty: unknown.
    """

    address: str
    port: int
    certificate: Path
    key: Path
    exposition: str = ""
    leave_s: float = 5.0
    finish_s: float = FINISH_S
    api_servers: tuple[Network, ...] = ()


class Webhook:
    """The admission server of one process.

    Args:
        access: address and credentials of the API server.
        defaults: the settings of the installation.
        listening: addresses, files and shutdown times.

    Raises:
        Unreadable: the certificate cannot be used.
    """

    def __init__(self, access: Access, defaults: Defaults, listening: Listening) -> None:
        self.metrics = Metrics()
        self._listening = listening
        self._server = ApiServer(access, "orion-webhook", self.metrics.api)
        self.admission = Admission(self._server, defaults, self.metrics)
        self.certificate = LiveCertificate(listening.certificate, listening.key, self.metrics)
        self._leaving = False
        self._peers = Peers(listening.api_servers)
        self._bodies = Bodies(self._peers)
        self.connections = Connections(self._peers, self.certificate.context, self._refused)
        self._answers = Answers(self.metrics.text, self._unready)
        self._exposition = ExpositionServer(self._answers, listening.exposition) if listening.exposition else None
        self.port = 0
        """ The port of HTTPS, once the server listens. """
        watches = {"GPUShare": self.admission.shares, "GPUDevice": self.admission.devices}
        self.metrics.follow(cast("dict[str, Watched[object, object]]", watches))

    async def run(self, started: Callable[["Webhook"], None] = lambda _: None) -> None:
        """Serve until SIGTERM or SIGINT, or until cancelled.

        Args:
            started: called once the server listens.
        """
        ended = asyncio.Event()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, ended.set)
        background = [asyncio.create_task(each) for each in self._background()]
        runner = self._runner()
        try:
            await self._listen(runner)
            started(self)
            await ended.wait()
            await self._leave()
        finally:
            await self.connections.end()
            await runner.cleanup()
            if self._exposition is not None:
                await self._exposition.stop()
            for task in background:
                task.cancel()
            await asyncio.gather(*background, return_exceptions=True)
            await self._server.close()

    def _background(self) -> list[Coroutine[Any, Any, None]]:
        admission = self.admission
        return [admission.shares.run(), admission.devices.run(), self.certificate.follow(), self._settle()]

    async def _settle(self) -> None:
        """After the first lists, exclude the objects from garbage collection, which would delay reviews."""
        await self.admission.shares.synced.wait()
        await self.admission.devices.synced.wait()
        gc.collect()
        gc.freeze()
        _log.info("ready: %d shares, %d GPUs", self.admission.shares.count, self.admission.devices.count)

    def _runner(self) -> web.AppRunner:
        application = web.Application(client_max_size=BYTES.each)
        application.router.add_post(reviews.PATH, self._review)
        if self._exposition is None:
            for path in PATHS:
                application.router.add_get(path, self._answers.answer)
        return web.AppRunner(application, shutdown_timeout=_ANSWER_S)

    async def _listen(self, runner: web.AppRunner) -> None:
        await runner.setup()
        assert runner.server is not None
        address, port = self._listening.address, self._listening.port
        self.port = self.connections.listen(address, port, runner.server, _KEEP_ALIVE_S)
        if self._exposition is not None:
            await self._exposition.start()

    async def _leave(self) -> None:
        """Accept connections for `leave_s`, then close the listener and wait up to `finish_s` until all have closed."""
        self._leaving = True
        _log.info("shutting down: new connections are accepted for another %g s", self._listening.leave_s)
        await asyncio.sleep(self._listening.leave_s)
        self.connections.close_listener()
        end = time.monotonic() + self._listening.finish_s
        while self.connections.count and time.monotonic() < end:
            await asyncio.sleep(0.02)

    # -- Answers -------------------------------------------------------------------------------------------------------

    async def _review(self, http: web.Request) -> web.Response:
        peer = self._peers.at(http.remote or "0.0.0.0")
        try:
            async with self._bodies.read(http, peer) as body:
                return await self._answer(body, peer)
        except Refused as refused:
            self._refused(refused.what)
            answer = self._failed(refused.status, str(refused))
            answer.force_close()
            if refused.status == HTTPStatus.TOO_MANY_REQUESTS:
                answer.headers["Retry-After"] = _AGAIN_S
            return answer

    async def _answer(self, body: bytes, peer: Peer) -> web.Response:
        """Return the answer to a review.

        Raises:
            Refused: the body is large, and too many other large ones wait.
        """
        async with self._bodies.turn(peer, body):
            start = time.perf_counter()
            try:
                question = reviews.Question.model_validate_json(body)
            except ValidationError as error:
                return self._failed(400, f"not an AdmissionReview of {reviews.API_VERSION}: {error.errors()[0]['msg']}")
            # Within the turn, because the decision about a large pod takes longer than its parsing.
            try:
                decision = self.admission.decide(question.request)
            except Exception as error:
                return self._not_decided(question.request, error)
        try:
            turn = functools.partial(self._bodies.turn, peer, body)
            decision = await self.admission.look_again(question.request, decision, turn)
            text = reviews.answer(question.request, decision)
        except Refused:
            raise
        except Exception as error:
            return self._not_decided(question.request, error)
        self.metrics.decisions.labels(decision.outcome, decision.reason).inc()
        self.metrics.seconds.labels(decision.outcome).observe(time.perf_counter() - start)
        return self._response(web.Response(body=text, content_type="application/json"))

    def _not_decided(self, request: reviews.Request, error: Exception) -> web.Response:
        if isinstance(error, Unavailable):
            return self._failed(503, str(error))
        if isinstance(error, TimeoutError | ApiError):
            return self._failed(500, f"a request to the API server failed: {error!r}")
        _log.error("review %s of %s failed", request.uid, request.namespace, exc_info=error)
        return self._failed(500, f"an error of the webhook: {error!r}")

    def _refused(self, what: str) -> None:
        self.metrics.refused.labels(what).inc()

    def _failed(self, status: int, text: str) -> web.Response:
        self.metrics.errors.labels(str(status)).inc()
        return self._response(web.Response(status=status, text=reviews.shortened(text)))

    def _response(self, response: web.Response) -> web.Response:
        if self._leaving:
            response.force_close()
        return response

    def _unready(self) -> str:
        if self._leaving:
            return "shutting down"
        return "" if self.admission.ready else "shares and GPUs have not been listed yet"
