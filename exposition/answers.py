"""What a GET of /metrics, /healthz and /readyz gets: text from the state of the process, and one request a connection.

The kubelet restarts what is not healthy and keeps traffic and rolling updates away from what is not ready. So probes
are answered at once, from callables that neither wait nor raise.
"""

import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from aiohttp import web
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4

PATHS = ("/metrics", "/healthz", "/readyz")

_CHUNK = 64 * 1024
""" Bytes of a text that are handed to a connection at a time: a peer that does not read holds no copy of all of it. """

_log = logging.getLogger(__name__)


def _nothing() -> str:
    return ""


@dataclass(frozen=True)
class Answers:
    """Answers requests; `answer` is a handler of aiohttp.web, with routes (one for each of PATHS) or without.

    Args:
        metrics: makes the text that Prometheus reads.
        unready: says what the process still waits for; empty: nothing.
        unhealthy: says why a restart would help; empty: it would not.
    """

    metrics: Callable[[], Awaitable[bytes]]
    unready: Callable[[], str]
    unhealthy: Callable[[], str] = _nothing

    async def answer(self, request: web.BaseRequest) -> web.StreamResponse:
        """Answer, and end the connection after that."""
        try:
            return await self._choose(request)
        except ConnectionError:  # the peer's own loss
            raise
        except Exception:
            _log.exception("metrics: an answer failed")
            return _text("internal error; the log says more\n", 500)

    async def _choose(self, request: web.BaseRequest) -> web.StreamResponse:
        path = request.path if request.method == "GET" else ""
        if path == "/healthz":
            return _verdict(self.unhealthy())
        if path == "/readyz":
            return _verdict(self.unready())
        if path == "/metrics":
            return await _send(request, await self.metrics())
        return _text("GET /metrics, /healthz or /readyz\n", 404)


def _verdict(why_not: str) -> web.Response:
    return _text(f"{why_not or 'ok'}\n", 503 if why_not else 200)


def _text(text: str, status: int) -> web.Response:
    response = web.Response(text=text, status=status)
    response.force_close()
    return response


async def _send(request: web.BaseRequest, text: bytes) -> web.StreamResponse:
    response = web.StreamResponse(headers={"Content-Type": CONTENT_TYPE_PLAIN_0_0_4})
    response.content_length = len(text)
    response.force_close()
    await response.prepare(request)
    for at in range(0, len(text), _CHUNK):
        await response.write(memoryview(text)[at : at + _CHUNK])  # waits until the kernel has taken most of it
    return response
