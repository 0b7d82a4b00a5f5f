"""GPU errors that NVML reports as events: Xids, and double-bit memory errors.

All GPUs have one event set. Once one of them is lost, the library answers each question about the set with an error and
returns no event of the others. So the set is then replaced by one of the GPUs that still answer.
"""

import contextlib
import logging
import threading
from collections.abc import Iterable, Mapping
from typing import Any

from orion.node_agent.gpus import xids

_log = logging.getLogger(__name__)

_EVENTS_MAX = 64
""" The maximum number of events that one check reads; the next check reads the rest. """
_DOUBLE_BIT = 48
""" The Xid of double-bit errors, which older drivers report as another type of event. """


def text(value: str | bytes) -> str:
    """Return a text from NVML as str; some versions of its package return bytes."""
    return value.decode("ascii", "replace") if isinstance(value, bytes) else value


class ErrorEvents:
    """The error events of all GPUs of one library. Any thread may call.

    Args:
        nvml: the library.
    """

    def __init__(self, nvml: Any) -> None:
        self._nvml = nvml
        self._lock = threading.Lock()
        """ Held while the set is used or replaced: the library must not read a set that is freed. """
        self._set: Any = None
        self._registered: set[str] = set()
        self._silent: dict[str, str] = {}
        """ By UUID, why a GPU reports no events, as logged; empty UUID: why none does. """
        self._xids: dict[str, list[int]] = {}
        """ By UUID, the Xids that were read from the library but that `take` has not returned yet. """

    def register(self, answering: Mapping[str, Any]) -> None:
        """Register for error events of these GPUs. The health of a GPU without events depends on its answers only.

        Args:
            answering: the handles of all GPUs that answer, by UUID; GPUs that are registered already are skipped.
        """
        with self._lock:
            if self._registered - answering.keys():
                self._read(self._registered | answering.keys())
                self._free()
            self._register(answering)

    def end(self) -> None:
        """Forget all registrations, because the library is shut down."""
        with self._lock:
            self._set, self._registered = None, set()

    def take(self, uuid: str, known: Mapping[str, Any]) -> int | None:
        """Return the first Xid of a GPU since the last call, or None; Xids that programs cause are skipped.

        Args:
            uuid: the GPU's UUID.
            known: the handles of all GPUs, by UUID; an event whose GPU cannot be identified any more counts for each of
                them.
        """
        with self._lock:
            if not self._read(known):
                self._free()
                self._register({each: handle for each, handle in known.items() if self._answers(handle)})
            found = self._xids.pop(uuid, [])
            return found[0] if found else None

    def _read(self, known: Iterable[str]) -> bool:
        """Read the events; return whether the set still works."""
        for _ in range(_EVENTS_MAX if self._set is not None else 0):
            try:
                event = self._nvml.nvmlEventSetWait_v2(self._set, 0)
            except self._nvml.NVMLError as error:
                return bool(error.value == self._nvml.NVML_ERROR_TIMEOUT)
            is_xid = event.eventType == self._nvml.nvmlEventTypeXidCriticalError
            xid = int(event.eventData) if is_xid else _DOUBLE_BIT
            if xid not in xids.CAUSED_BY_PROGRAMS:
                for each in self._about(event.device, known):
                    self._xids.setdefault(each, []).append(xid)
        return True

    def _about(self, handle: Any, known: Iterable[str]) -> list[str]:
        try:
            return [text(self._nvml.nvmlDeviceGetUUID(handle))]
        except self._nvml.NVMLError:
            return list(known)

    def _answers(self, handle: Any) -> bool:
        try:
            self._nvml.nvmlDeviceGetMemoryInfo(handle)
        except self._nvml.NVMLError:
            return False
        return True

    def _free(self) -> None:
        with contextlib.suppress(self._nvml.NVMLError):
            self._nvml.nvmlEventSetFree(self._set)
        self._set, self._registered = None, set()

    def _register(self, answering: Mapping[str, Any]) -> None:
        nvml = self._nvml
        wanted = nvml.nvmlEventTypeXidCriticalError | nvml.nvmlEventTypeDoubleBitEccError
        if self._set is None:
            try:
                self._set = nvml.nvmlEventSetCreate()
            except nvml.NVMLError as error:
                self._note("", f"the driver reports no errors by events: {error}")
                return
        new, self._registered = answering.keys() - self._registered, set(answering)
        for uuid in sorted(new):
            handle = answering[uuid]
            try:
                nvml.nvmlDeviceRegisterEvents(handle, wanted & nvml.nvmlDeviceGetSupportedEventTypes(handle), self._set)
            except nvml.NVMLError as error:
                self._note(uuid, f"{uuid} reports no errors by events: {error}")
            else:
                self._silent.pop(uuid, None)

    def _note(self, uuid: str, why: str) -> None:
        if self._silent.get(uuid) != why:
            _log.warning("gpus: %s", why)
        self._silent[uuid] = why
