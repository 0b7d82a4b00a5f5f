"""The requests that the reconciler makes, and which answers mean trying again.

An answer 429 or 5xx is tried again within the request's patience, after as long as the server says (Retry-After); all
else is the caller's. One gate bounds how many requests are under way.
"""

import asyncio
import json
from collections.abc import Mapping
from typing import Any

import aiohttp

from orion.crds.model import API_VERSION
from orion.operator.reconciler.connection import Connection
from orion.operator.reconciler.metrics import Metrics

MERGE_PATCH = "application/merge-patch+json"
STRATEGIC_PATCH = "application/strategic-merge-patch+json"
JSON = "application/json"
METADATA_LIST = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"

SHARES = f"/apis/{API_VERSION}/gpushares"
DEVICES = f"/apis/{API_VERSION}/gpudevices"
PODS = "/api/v1/pods"
NODES = "/api/v1/nodes"

_ATTEMPTS = 5
_RETRY_AFTER_MAX = 30.0


class ApiError(Exception):
    """The API server said no; `status` is HTTP's, 0 where nothing answered."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(f"{status}: {text}" if status else text)
        self.status = status


class ApiServer:
    """Requests to the API server.

    Args:
        connection: the session.
        metrics: where requests are counted.
        concurrency: requests under way at most.
        patience: seconds for one attempt.
    """

    def __init__(self, connection: Connection, metrics: Metrics, concurrency: int, patience: float) -> None:
        self._connection, self._metrics = connection, metrics
        self._gate = asyncio.Semaphore(concurrency)
        self._timeout = aiohttp.ClientTimeout(total=patience)

    async def get(self, path: str, accept: str = JSON, **query: str) -> dict[str, Any]:
        """Return what a GET answers.

        Raises:
            ApiError: it was refused, or nothing answered.
        """
        return await self._request("GET", path, None, {"Accept": accept}, query)

    async def post(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """Create something.

        Raises:
            ApiError: it was refused, or nothing answered.
        """
        return await self._request("POST", path, body, {"Content-Type": JSON}, {})

    async def put(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """Replace something.

        Raises:
            ApiError: it was refused, or nothing answered.
        """
        return await self._request("PUT", path, body, {"Content-Type": JSON}, {})

    async def patch(self, path: str, body: Mapping[str, Any], kind: str = MERGE_PATCH) -> dict[str, Any]:
        """Patch something, and return it as it is then.

        Raises:
            ApiError: it was refused, or nothing answered.
        """
        return await self._request("PATCH", path, body, {"Content-Type": kind}, {})

    async def _request(
        self, method: str, path: str, body: Mapping[str, Any] | None, headers: dict[str, str], query: dict[str, str]
    ) -> dict[str, Any]:
        data = None if body is None else json.dumps(body, separators=(",", ":")).encode()
        for attempt in range(_ATTEMPTS):
            if attempt:
                self._metrics.retries.inc()
            status, wait, text = await self._attempt(method, path, data, headers, query)
            self._metrics.requests.labels(method, str(status)).inc()
            if 200 <= status < 300:
                answer: dict[str, Any] = json.loads(text)
                return answer
            if (status != 429 and status < 500) or attempt == _ATTEMPTS - 1 or path.endswith("/eviction"):
                raise ApiError(status, f"{method} {path}: {_message(text)}")
            await asyncio.sleep(wait if wait is not None else 0.2 * 2**attempt)
        raise AssertionError("the last attempt returns or raises")

    async def _attempt(
        self, method: str, path: str, data: bytes | None, headers: dict[str, str], query: dict[str, str]
    ) -> tuple[int, float | None, str]:
        """Return the answer's status, how long it asks to wait, and its text."""
        url = self._connection.server + path
        try:
            async with (
                self._gate,
                self._connection.session.request(
                    method, url, data=data, headers=headers, params=query, timeout=self._timeout
                ) as response,
            ):
                after = response.headers.get("Retry-After", "")
                wait = min(float(after), _RETRY_AFTER_MAX) if after.isdigit() else None
                return response.status, wait, await response.text()
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise ApiError(0, f"{method} {path}: {str(error) or type(error).__name__}") from error


def _message(text: str) -> str:
    """Return the sentence of a metav1.Status, or what there is."""
    try:
        return str(json.loads(text)["message"])
    except (ValueError, KeyError, TypeError):
        return text[:200]
