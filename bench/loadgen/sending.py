"""Sends the requests of a schedule at their times, without waiting for answers.

Each request is a task of one event loop. The loop sleeps until the next request is due, and sends all requests that are
due by then. Rejected: worker tasks with a queue, because their number would limit the requests that wait for answers.
"""

import asyncio
import errno
import gc
import math
import resource
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import aiohttp

from orion.bench.loadgen.events import Completion
from orion.bench.loadgen.recording import BROKEN, CLOSED, FAILED, REFUSED, TIMEOUT, Recording, is_success
from orion.bench.loadgen.requests import Target
from orion.bench.loadgen.schedule import Schedule
from orion.errors import Unreadable

_LEAD_S = 0.05  # before the first request: starting the loop takes no time from it
_AT_ONCE = 100  # late requests that are sent before the loop reads answers
_KEEP_IDLE_S = 4.0  # servers close idle connections after 5 s or later, so no request meets a connection that closes
_SAID_BYTES = 200  # of an answer that is an error
_COLLECT_AFTER = 100_000  # new objects; the default of 700 makes a pause of milliseconds likely at each send


class Sender:
    """Sends the requests of one schedule.

    Args:
        target: what is sent.
        recording: gets a row for each request.
        timeout_s: how long a request may take from the time at which it is sent.

    Attributes:
        open: the number of requests that wait for answers.
        is_stopped: whether Ctrl-C or the limit of open files stopped the run.
        is_out_of_files: whether the limit of open files stopped the run.
        began_s: when the run began, in seconds since 1970.
        reasons: for each status of a failed request, what the first such error or answer said.
    """

    def __init__(self, target: Target, recording: Recording, timeout_s: float) -> None:
        self.is_stopped = self.is_out_of_files = False
        self.began_s = 0.0
        self.reasons: dict[str, str] = {}
        self._target, self._recording = target, recording
        self._timeout = aiohttp.ClientTimeout(total=timeout_s, ceil_threshold=math.inf)
        self._tasks: set[asyncio.Task[None]] = set()
        self._sending: asyncio.Task[None] | None = None
        self._begin_s = 0.0

    @property
    def open(self) -> int:
        """The number of requests that wait for answers."""
        return len(self._tasks)

    def stop(self) -> None:
        """Send nothing more, and wait for no answer."""
        self.is_stopped = True
        self._recording.stopped_s = time.monotonic() - self._begin_s  # the loop's clock
        if self._sending is not None:
            self._sending.cancel()

    async def run(self, schedule: Schedule, on_second: Callable[[float], None] | None = None) -> None:
        """Send all requests, and wait for their answers or timeouts; Ctrl-C and SIGTERM stop the run.

        Args:
            schedule: when requests are due.
            on_second: called each second with the seconds since the begin.
        """
        loop = asyncio.get_running_loop()
        connector = aiohttp.TCPConnector(limit=0, ttl_dns_cache=None, keepalive_timeout=_KEEP_IDLE_S)
        async with aiohttp.ClientSession(
            connector=connector, cookie_jar=aiohttp.DummyCookieJar(), timeout=self._timeout,
            headers=self._target.headers, auto_decompress=self._target.is_stream,
        ) as session:  # fmt: skip
            with _signals(loop, self.stop), _few_collections():
                self._begin_s, self.began_s = loop.time() + _LEAD_S, time.time() + _LEAD_S
                self._sending = loop.create_task(self._send_all(session, schedule))
                ticking = loop.create_task(self._tick(on_second)) if on_second else None
                await asyncio.wait({self._sending})
                for task in (*self._tasks, ticking):
                    if task is not None:
                        task.cancel()
                await asyncio.gather(*self._tasks, return_exceptions=True)
        if not self._sending.cancelled():
            self._sending.result()

    async def _send_all(self, session: aiohttp.ClientSession, schedule: Schedule) -> None:
        loop, at_once = asyncio.get_running_loop(), 0
        for due_s in schedule.due_s:
            wait_s = self._begin_s + due_s - loop.time()
            at_once = 0 if wait_s > 0 else at_once + 1
            if wait_s > 0 or at_once % _AT_ONCE == 0:
                await asyncio.sleep(max(0.0, wait_s))
            task = loop.create_task(self._send(session, self._recording.begin(due_s)))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        if self._tasks:
            await asyncio.wait(set(self._tasks))

    async def _send(self, session: aiohttp.ClientSession, row: int) -> None:
        loop, begin_s, target = asyncio.get_running_loop(), self._begin_s, self._target
        completion = Completion() if target.is_stream else None
        body = target.body(row)
        self._recording.sent_s[row] = loop.time() - begin_s
        try:
            async with session.request(target.method, target.url, data=body, allow_redirects=False) as response:
                reading = completion if is_success(response.status) else None
                async for piece in response.content.iter_any():
                    if reading is not None:
                        reading.feed(piece, loop.time() - begin_s)
                    elif not is_success(response.status) and str(response.status) not in self.reasons:
                        self.reasons[str(response.status)] = _said(response, piece)
                if reading is not None:
                    reading.end(loop.time() - begin_s)
                status: int | str = response.status
        except (aiohttp.ClientError, OSError, ValueError, Unreadable) as error:  # TimeoutError is an OSError
            status = self._failed(error)
        self._recording.end(row, loop.time() - begin_s, status, completion)

    def _failed(self, error: Exception) -> str:
        """Return the status of a request that failed; keep the first reason for each status."""
        status = _status(error)
        self.reasons.setdefault(status, str(error) or type(error).__name__)
        if isinstance(error, OSError) and error.errno in (errno.EMFILE, errno.ENFILE):
            self.is_out_of_files = True
            self.stop()
        return status

    async def _tick(self, on_second: Callable[[float], None]) -> None:
        while True:
            passed_s = max(0.0, asyncio.get_running_loop().time() - self._begin_s)
            on_second(passed_s)
            await asyncio.sleep(1 - passed_s % 1)


def _said(response: aiohttp.ClientResponse, piece: bytes) -> str:
    """Return the begin of an answer that is an error, for people; empty if the answer is a page for browsers."""
    if response.content_type not in ("application/json", "text/plain"):
        return ""
    text = " ".join(piece[:_SAID_BYTES].decode("utf-8", "replace").split())
    return "".join(each if each.isprintable() else "?" for each in text)


def _status(error: Exception) -> str:
    if isinstance(error, TimeoutError):
        return TIMEOUT
    if isinstance(error, Unreadable):
        return BROKEN
    if isinstance(error, aiohttp.ClientConnectorError):
        return REFUSED if error.errno == errno.ECONNREFUSED else FAILED
    if isinstance(error, aiohttp.ClientConnectionError | aiohttp.ClientPayloadError | ConnectionError):
        return CLOSED
    return FAILED


def raise_file_limit() -> int:
    """Let this process open as many files as the system permits without root, and return that number."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return hard


@contextmanager
def _signals(loop: asyncio.AbstractEventLoop, stop: Callable[[], None]) -> Iterator[None]:
    caught = (signal.SIGINT, signal.SIGTERM)
    for each in caught:
        loop.add_signal_handler(each, stop)
    try:
        yield
    finally:
        for each in caught:
            loop.remove_signal_handler(each)


@contextmanager
def _few_collections() -> Iterator[None]:
    """Make the garbage collector rare while requests are sent: a full collection would delay requests."""
    before = gc.get_threshold()
    gc.collect()
    gc.freeze()
    gc.set_threshold(_COLLECT_AFTER, 50, 1000)
    try:
        yield
    finally:
        gc.set_threshold(*before)
        gc.unfreeze()
