"""Watches objects of the API server, with the time of each event."""

import contextlib
import threading
import time
from collections.abc import Callable
from typing import Any

from kubernetes import watch
from urllib3.exceptions import HTTPError

from measurements.cluster.claims.world import until


class Seen:
    """Watches objects in a thread; `events` has the monotonic time, the type and the object of each event."""

    def __init__(self, lister: Callable[..., Any], *arguments: Any, **options: Any) -> None:
        self.events: list[tuple[float, str, dict[str, Any]]] = []
        self._lister, self._arguments, self._options = lister, arguments, options
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._follow, daemon=True)

    def __enter__(self) -> "Seen":
        first = self._lister(*self._arguments, **self._options)
        self._version = (
            first["metadata"]["resourceVersion"] if isinstance(first, dict) else (first.metadata.resource_version)
        )
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()  # the thread ends with its stream

    def first(self, wanted: Callable[[str, dict[str, Any]], bool], since: float, what: str) -> float:
        """Wait for an event after a monotonic time; return when it came.

        Raises:
            TimeoutError: it did not come.
        """
        found: list[float] = []

        def seen() -> bool:
            found[:] = [at for at, kind, plain in list(self.events) if at >= since and wanted(kind, plain)]
            return bool(found)

        until(seen, what)
        return found[0]

    def _follow(self) -> None:
        while not self._ended.is_set():
            options = {**self._options, "resource_version": self._version, "timeout_seconds": 1800}
            with contextlib.suppress(HTTPError):
                for event in watch.Watch().stream(self._lister, *self._arguments, **options):
                    plain = event["raw_object"]
                    self._version = plain["metadata"]["resourceVersion"]
                    self.events.append((time.monotonic(), event["type"], plain))
                    if self._ended.is_set():
                        return
