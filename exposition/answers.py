"""Answers GETs of /metrics, /healthz and /readyz from the state of the process; each connection serves one request.

The kubelet restarts an unhealthy container. Kubernetes sends no traffic to an unready container and
pauses a rolling update. So probes are answered at once, by functions that neither wait nor raise.
"""

import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from aiohttp import web
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4

PATHS = ("/metrics", "/healthz", "/readyz")

_CHUNK = 64 * 1024
""" Bytes per write: a peer that does not read makes aiohttp buffer only this much, not the whole text. """

_log = logging.getLogger(__name__)


def _nothing() -> str:
    return ""


@dataclass(frozen=True)
class Answers:
    """Answers requests. `answer` is a handler for aiohttp.web: for a route of each of PATHS, or for all requests.

    Args:
        metrics: returns the text for Prometheus.
        unready: returns what the process still waits for; empty: the process is ready.
        unhealthy: returns why a restart would help; empty: the process is healthy.
    """

    metrics: Callable[[], Awaitable[bytes]]
    unready: Callable[[], str]
    unhealthy: Callable[[], str] = _nothing

    async def answer(self, request: web.BaseRequest) -> web.StreamResponse:
        """Answer the request; the connection ends afterwards."""
        try:
            return await self._choose(request)
        except ConnectionError:  # the peer has gone
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
        await response.write(memoryview(text)[at : at + _CHUNK])  # waits until the kernel has accepted most of it
    return response
