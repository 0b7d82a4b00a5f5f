"""Lets kopf list again after an error that the API server reports in a watch.

A watch that has begun ends with an event of type ERROR when the API server cannot go on, for example while etcd changes
its leader. kopf lists again after code 410, and ends the process after any other one. So each such error becomes 410
here, after a pause that doubles with each error of the same path, as in client-go's reflector.
"""

import asyncio
import json
import logging
import random
import time
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
from yarl import URL

_LOG = logging.getLogger(__name__)

_PAUSE_S = (0.8, 30.0)
""" The first pause, and the longest. """
_FORGET_S = 120.0
""" After so long without an error the next pause is the first one again. """
_GONE = 410
_LIST_AGAIN = json.dumps({"type": "ERROR", "object": {"kind": "Status", "code": _GONE}}).encode()


class WatchErrors:
    """Changes the errors in the watches of all paths."""

    def __init__(self) -> None:
        self._pauses: dict[str, tuple[float, float]] = {}
        """ By path: the last pause, and when it ended. """

    def lines_of(self, response: aiohttp.ClientResponse) -> Any:
        """Return what kopf reads in place of the content of the answer to a watch."""
        return _Content(response.content, response.url, self)

    async def pause(self, url: URL, error: Any) -> None:
        """Wait after an error."""
        last, ended = self._pauses.get(url.path, (0.0, 0.0))
        longest = min(2 * last, _PAUSE_S[1]) if last and time.monotonic() < ended + _FORGET_S else _PAUSE_S[0]
        _LOG.warning("%s is listed again after an error of its watch: %s", url.path, json.dumps(error))
        await asyncio.sleep(longest * random.uniform(0.5, 1))
        self._pauses[url.path] = (longest, time.monotonic())


class _Content:
    """The content of a watch, in whole lines."""

    def __init__(self, content: aiohttp.StreamReader, url: URL, errors: WatchErrors) -> None:
        self._content, self._url, self._errors = content, url, errors

    def __getattr__(self, name: str) -> Any:
        return getattr(self._content, name)

    async def iter_chunked(self, size: int) -> AsyncIterator[bytes]:
        """Read as from the content itself. kopf reads by this method only."""
        rest = b""
        async for data in self._content.iter_chunked(size):
            *lines, rest = (rest + data).split(b"\n")
            for line in lines:
                yield await self._without_error(line) + b"\n"
        if rest:
            yield await self._without_error(rest)

    async def _without_error(self, line: bytes) -> bytes:
        event = json.loads(line) if b'"ERROR"' in line else {}
        error = event.get("object") or {}
        if event.get("type") != "ERROR" or error.get("code") == _GONE:
            return line
        await self._errors.pause(self._url, error)
        return _LIST_AGAIN
