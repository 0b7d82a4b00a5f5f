"""HTTPS for the API server; health and metrics; a beginning and an end that lose no review.

Our errors are HTTP errors, so that `failurePolicy` decides what becomes of the pod; a denial is only ever a decision.

The end: on SIGTERM readiness goes first, and while the cluster takes this replica out of its Service, reviews are still
answered, each with `Connection: close`, so that the API server's kept connections move to the other replica. Then the
listener closes, and connections that are open by then have a while to ask and be answered before the process ends.
"""

import asyncio
import gc
import logging
import signal
import time
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from aiohttp import web
from pydantic import ValidationError

from orion.api_server.access import Access
from orion.api_server.requests import ApiError, ApiServer
from orion.api_server.watching import Watched
from orion.exposition.answers import PATHS, Answers
from orion.exposition.server import ExpositionServer
from orion.operator.webhook import reviews
from orion.operator.webhook.defaults import Defaults
from orion.operator.webhook.handling import Admission, NotReady
from orion.operator.webhook.metrics import Metrics
from orion.operator.webhook.tls import LiveCertificate

_LARGEST_REVIEW = 8 * 2**20
""" Bytes; the API server takes pods of up to 1.5 MiB and sends both the new and the old one. """
_KEEP_ALIVE_S = 120.0
""" Longer than the API server's 90 s, so that it is always the one that ends an idle connection. """
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Listening:
    """Where the webhook listens, and how it ends.

    Args:
        address, port: of HTTPS; port 0: a free one.
        exposition: HOST:PORT of probes and metrics in plain HTTP; empty: nowhere but by HTTPS.
        certificate, key: PEM files.
        leave_s: how long reviews are still taken after SIGTERM.
        finish_s: how long open connections may still ask after that, and how long what is being answered may take.
    """

    address: str
    port: int
    certificate: Path
    key: Path
    exposition: str = ""
    leave_s: float = 5.0
    finish_s: float = 5.0


class Webhook:
    """The admission server of one process.

    Args:
        access: to the API server.
        defaults: of the installation.
        listening: where, and how it ends.

    Raises:
        BadCertificate: the certificate cannot be used.
    """

    def __init__(self, access: Access, defaults: Defaults, listening: Listening) -> None:
        self.metrics = Metrics()
        self._listening = listening
        self._server = ApiServer(access, "orion-webhook", self.metrics.api)
        self.admission = Admission(self._server, defaults, self.metrics)
        self.certificate = LiveCertificate(listening.certificate, listening.key, self.metrics)
        self._leaving = False
        self._answers = Answers(self.metrics.text, self._unready)
        self._exposition = ExpositionServer(self._answers, listening.exposition) if listening.exposition else None
        self.port = 0
        """ Of HTTPS, once it listens. """
        watches = {"GPUShare": self.admission.shares, "GPUDevice": self.admission.devices}
        self.metrics.follow(cast("dict[str, Watched[object, object]]", watches))

    async def run(self, started: Callable[["Webhook"], None] = lambda _: None) -> None:
        """Serve until SIGTERM or SIGINT, or until cancelled.

        Args:
            started: called once it listens.
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
            await self._leave(runner)
        finally:
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
        """Once everything is here, keep the collector from walking it again and again in the middle of reviews."""
        await self.admission.shares.synced.wait()
        await self.admission.devices.synced.wait()
        gc.collect()
        gc.freeze()
        _log.info("ready: %d shares, %d GPUs", self.admission.shares.count, self.admission.devices.count)

    def _runner(self) -> web.AppRunner:
        application = web.Application(client_max_size=_LARGEST_REVIEW)
        application.router.add_post(reviews.PATH, self._review)
        for path in PATHS:
            application.router.add_get(path, self._answers.answer)
        finish_s = self._listening.finish_s
        return web.AppRunner(application, access_log=None, keepalive_timeout=_KEEP_ALIVE_S, shutdown_timeout=finish_s)

    async def _listen(self, runner: web.AppRunner) -> None:
        await runner.setup()
        address, port = self._listening.address, self._listening.port
        await web.TCPSite(runner, address, port, ssl_context=self.certificate.context).start()
        self.port = runner.addresses[0][1]
        if self._exposition is not None:
            await self._exposition.start()

    async def _leave(self, runner: web.AppRunner) -> None:
        """Take reviews for a while, then no new connections, and let those that are open say what they were to say."""
        self._leaving = True
        _log.info("leaving: reviews are taken for another %g s", self._listening.leave_s)
        await asyncio.sleep(self._listening.leave_s)
        for site in list(runner.sites):
            await site.stop()
        end = time.monotonic() + self._listening.finish_s
        while runner.server is not None and runner.server.connections and time.monotonic() < end:
            await asyncio.sleep(0.02)

    # -- Answers -------------------------------------------------------------------------------------------------------

    async def _review(self, http: web.Request) -> web.Response:
        body = await http.read()
        start = time.perf_counter()
        try:
            question = reviews.Question.model_validate_json(body)
        except ValidationError as error:
            return self._failed(400, f"no AdmissionReview of {reviews.API_VERSION}: {error.errors()[0]['msg']}")
        try:
            decision = await self.admission.decide(question.request)
            text = reviews.answer(question.request, decision)
        except NotReady as error:
            return self._failed(503, str(error))
        except (TimeoutError, ApiError) as error:
            return self._failed(500, f"the API server could not be asked: {error!r}")
        except Exception as error:
            _log.exception("review %s of %s failed", question.request.uid, question.request.namespace)
            return self._failed(500, f"an error of the webhook: {error!r}")
        self.metrics.decisions.labels(decision.outcome, decision.reason).inc()
        self.metrics.seconds.labels(decision.outcome).observe(time.perf_counter() - start)
        return self._response(web.Response(body=text, content_type="application/json"))

    def _failed(self, status: int, text: str) -> web.Response:
        self.metrics.errors.labels(str(status)).inc()
        return self._response(web.Response(status=status, text=text))

    def _response(self, response: web.Response) -> web.Response:
        if self._leaving:
            response.force_close()
        return response

    def _unready(self) -> str:
        if self._leaving:
            return "leaving"
        return "" if self.admission.ready else "shares and GPUs have not been listed yet"
