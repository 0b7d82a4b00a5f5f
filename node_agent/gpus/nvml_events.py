"""GPU errors that NVML reports as events: Xids, and double-bit memory errors."""

import logging
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
    """The error events of all GPUs of one library.

    Args:
        nvml: the library.
    """

    def __init__(self, nvml: Any) -> None:
        self._nvml = nvml
        self._set: Any = None
        self._registered: set[str] = set()
        self._xids: dict[str, list[int]] = {}
        """ By UUID, the Xids that were read from the library but that `take` has not returned yet. """

    def register(self, answering: Mapping[str, Any]) -> None:
        """Register for error events of these GPUs. The health of a GPU without events depends on its answers only.

        Args:
            answering: the handles of all GPUs that answer, by UUID; GPUs that are registered already are skipped.
        """
        nvml = self._nvml
        wanted = nvml.nvmlEventTypeXidCriticalError | nvml.nvmlEventTypeDoubleBitEccError
        if self._set is None:
            try:
                self._set = nvml.nvmlEventSetCreate()
            except nvml.NVMLError as error:
                _log.warning("gpus: the driver reports no errors by events: %s", error)
                return
        new, self._registered = answering.keys() - self._registered, set(answering)
        for uuid in sorted(new):
            handle = answering[uuid]
            try:
                nvml.nvmlDeviceRegisterEvents(handle, wanted & nvml.nvmlDeviceGetSupportedEventTypes(handle), self._set)
            except nvml.NVMLError as error:
                _log.warning("gpus: %s reports no errors by events: %s", uuid, error)

    def end(self) -> None:
        """Forget all registrations, because the library is shut down."""
        self._set, self._registered = None, set()

    def take(self, uuid: str, known: Iterable[str]) -> int | None:
        """Return the first Xid of a GPU since the last call, or None; Xids that programs cause are skipped.

        Args:
            uuid: the GPU's UUID.
            known: all GPUs; an event whose GPU cannot be identified any more counts for each of them.
        """
        for _ in range(_EVENTS_MAX if self._set is not None else 0):
            try:
                event = self._nvml.nvmlEventSetWait_v2(self._set, 0)
            except self._nvml.NVMLError:
                break  # a timeout: no event; any other error also shows in the GPU's own answer
            is_xid = event.eventType == self._nvml.nvmlEventTypeXidCriticalError
            xid = int(event.eventData) if is_xid else _DOUBLE_BIT
            if xid not in xids.CAUSED_BY_PROGRAMS:
                for each in self._about(event.device, known):
                    self._xids.setdefault(each, []).append(xid)
        found = self._xids.pop(uuid, [])
        return found[0] if found else None

    def _about(self, handle: Any, known: Iterable[str]) -> list[str]:
        try:
            return [text(self._nvml.nvmlDeviceGetUUID(handle))]
        except self._nvml.NVMLError:
            return list(known)
