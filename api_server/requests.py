"""Requests to the API server, and their retries.

A request with status 429 or 5xx is retried after the time in Retry-After; the caller handles all other statuses. A
semaphore limits the number of concurrent requests. Watches do not count towards the limit, because they stay open. If
the credential plugin has never succeeded, each request raises NoCluster: a retry would not help.
"""

import asyncio
import copy
import json
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Any

import aiohttp

from orion.api_server.access import Access
from orion.api_server.exec_credentials import LogInFailed
from orion.api_server.kubeconfigs import NoCluster
from orion.api_server.lists import parsed
from orion.api_server.metrics import RequestMetrics
from orion.errors import OrionError

JSON = "application/json"
METADATA_LIST = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
MERGE_PATCH = "application/merge-patch+json"
JSON_PATCH = "application/json-patch+json"

PAGE = 250
""" Objects in one page of a list. """
_ATTEMPTS = 5
_RETRY_AFTER_MAX_S = 30.0
_CONNECT_S = 10.0

_Body = Mapping[str, Any] | Sequence[Mapping[str, Any]]


class ApiError(OrionError):
    """The API server rejected a request or did not answer.

    Args:
        status: the HTTP status; 0: the API server did not answer.
        text: the method and path of the request, and the API server's message.
        retry_after_s: the time in the answer's Retry-After, in seconds; None: the answer had none.
    """

    def __init__(self, status: int, text: str, retry_after_s: float | None = None) -> None:
        super().__init__(f"{status}: {text}" if status else text)
        self.status = status
        self.retry_after_s = retry_after_s


class ApiServer:
    """Sends requests to one API server. Use it within one event loop, and close it at the end.

    Args:
        access: the URL and the credentials.
        program: the user agent, which the API server's audit log shows.
        metrics: counts the requests; None: they are not counted.
        concurrency: the highest number of concurrent requests.
        attempt_s: the time limit of one attempt, in seconds.
    """

    def __init__(
        self,
        access: Access,
        program: str,
        metrics: RequestMetrics | None = None,
        *,
        concurrency: int = 16,
        attempt_s: float = 10.0,
    ) -> None:
        self._access, self._program = access, program
        self._metrics = metrics or RequestMetrics()
        self._semaphore = asyncio.Semaphore(concurrency)
        self._timeout = aiohttp.ClientTimeout(total=attempt_s)
        if access.log_in is not None:  # a request may wait for the plugin, which takes longer than the API server
            total = attempt_s + access.log_in.limit_s
            self._timeout = aiohttp.ClientTimeout(total=total, connect=attempt_s, sock_read=attempt_s)
        self._session: aiohttp.ClientSession | None = None
        self._opens, self._holds = self, _always  # a copy uses the session of the one that it was made from

    def only_while(self, holds: Callable[[], bool]) -> "ApiServer":
        """Return the same API server for requests that are tried again only while `holds()` is true.

        A request can be tried again for two minutes, which is longer than a Lease lasts.
        """
        found = copy.copy(self)
        found._holds = holds
        return found

    async def get(self, path: str, accept: str = JSON, **query: str) -> dict[str, Any]:
        """Return the answer to a GET.

        Raises:
            ApiError: the API server rejected the request or did not answer.
        """
        return await self._request("GET", path, None, {"Accept": accept}, query)

    async def pages(self, path: str, accept: str = JSON, **query: str) -> AsyncIterator[dict[str, Any]]:
        """Yield the pages of a list, all of the same resource version. Each page has `items`, which may be empty.

        Raises:
            ApiError: the API server rejected the request or did not answer; 410: the list's version has expired.
        """
        more: dict[str, str] = {}
        while True:
            wanted = {"limit": str(PAGE), **query, **more}
            page = await parsed(await self._text("GET", path, None, {"Accept": accept}, wanted))
            page["items"] = page.get("items") or []  # the API server sends null for an empty list of metadata
            yield page
            if not page["metadata"].get("continue"):
                return
            more = {"continue": page["metadata"]["continue"]}

    async def post(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """Create an object and return the created object.

        Raises:
            ApiError: the API server rejected the request or did not answer.
        """
        return await self._request("POST", path, body, {"Content-Type": JSON}, {})

    async def put(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """Replace an object and return the new one.

        Raises:
            ApiError: the API server rejected the request or did not answer.
        """
        return await self._request("PUT", path, body, {"Content-Type": JSON}, {})

    async def patch(self, path: str, body: _Body, kind: str = MERGE_PATCH) -> dict[str, Any]:
        """Patch an object and return the patched object.

        Raises:
            ApiError: the API server rejected the request or did not answer.
        """
        return await self._request("PATCH", path, body, {"Content-Type": kind}, {})

    async def delete(self, path: str, as_seen: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Start the deletion of an object and return the server's answer.

        Args:
            path: the object's path.
            as_seen: the metadata that the caller has read: the object is deleted only if it has not changed since;
                None: the object is deleted in any case.

        Raises:
            ApiError: the API server rejected the request or did not answer; 404: there is no such object; 409: the
                object has changed since.
        """
        if as_seen is None:
            return await self._request("DELETE", path, None, {}, {})
        body = {"preconditions": {"uid": as_seen["uid"], "resourceVersion": as_seen["resourceVersion"]}}
        return await self._request("DELETE", path, body, {"Content-Type": JSON}, {})

    async def events(self, path: str, silence_s: float, **query: str) -> AsyncIterator[dict[str, Any]]:
        """Yield the events of a watch until the server ends it.

        Args:
            path: the path of the watched list.
            silence_s: seconds without data after which the connection counts as dead.
            query: parameters of the watch.

        Raises:
            ApiError: the API server rejected the watch, or the connection broke (status 0).
        """
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT_S, sock_read=silence_s)
        url, what = self._access.url + path, f"watch of {path}"
        try:
            async with self._opened().get(url, params={**query, "watch": "true"}, timeout=timeout) as response:
                if response.status >= 400:
                    raise ApiError(response.status, f"{what}: {_message(await response.text())}", _wait(response))
                rest = b""
                async for chunk in response.content.iter_any():  # a line can be longer than the reader's buffer
                    *lines, rest = (rest + chunk).split(b"\n")
                    for line in lines:
                        if line:
                            yield json.loads(line)
        except LogInFailed as error:
            raise self._log_in_error(error) from error
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise ApiError(0, f"{what}: {str(error) or type(error).__name__}") from error

    async def close(self) -> None:
        """Close all connections."""
        if self._opens._session is not None:
            await self._opens._session.close()

    def _opened(self) -> aiohttp.ClientSession:
        if self._opens._session is None:
            self._opens._session = self._access.session(self._program)
        return self._opens._session

    def _log_in_error(self, error: LogInFailed) -> Exception:
        """Return the exception for a failed log-in: ApiError if an earlier log-in succeeded, otherwise NoCluster."""
        return ApiError(0, str(error)) if self._access.logged_in else NoCluster(str(error))

    async def _request(
        self, method: str, path: str, body: _Body | None, headers: dict[str, str], query: dict[str, str]
    ) -> dict[str, Any]:
        answer: dict[str, Any] = json.loads(await self._text(method, path, body, headers, query))
        return answer

    async def _text(
        self, method: str, path: str, body: _Body | None, headers: dict[str, str], query: dict[str, str]
    ) -> str:
        data = None if body is None else json.dumps(body, separators=(",", ":")).encode()
        for attempt in range(_ATTEMPTS):
            if attempt:
                self._metrics.retries.inc()
            status, wait, text = await self._attempt(method, path, data, headers, query)
            self._metrics.requests.labels(method, str(status)).inc()
            if 200 <= status < 300:
                return text
            if (status != 429 and status < 500) or attempt == _ATTEMPTS - 1 or path.endswith("/eviction"):
                raise ApiError(status, f"{method} {path}: {_message(text)}", wait)
            await asyncio.sleep(wait if wait is not None else 0.2 * 2**attempt)
            if not self._holds():
                raise ApiError(status, f"{method} {path}: {_message(text)}", wait)
        raise AssertionError("the last attempt returns or raises")

    async def _attempt(
        self, method: str, path: str, data: bytes | None, headers: dict[str, str], query: dict[str, str]
    ) -> tuple[int, float | None, str]:
        """Return the answer's status, its Retry-After in seconds, and its text."""
        url = self._access.url + path
        try:
            async with (
                self._semaphore,
                self._opened().request(
                    method, url, data=data, headers=headers, params=query, timeout=self._timeout
                ) as response,
            ):
                return response.status, _wait(response), await response.text()
        except LogInFailed as error:
            raise self._log_in_error(error) from error
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            self._metrics.requests.labels(method, "0").inc()
            raise ApiError(0, f"{method} {path}: {str(error) or type(error).__name__}") from error


def _always() -> bool:
    return True


def _wait(response: aiohttp.ClientResponse) -> float | None:
    after = response.headers.get("Retry-After", "")
    return min(float(after), _RETRY_AFTER_MAX_S) if after.isdecimal() else None


def _message(text: str) -> str:
    """Return the message of a metav1.Status; for another text, its first 200 characters."""
    try:
        return str(json.loads(text)["message"])
    except (ValueError, KeyError, TypeError):
        return text[:200]
