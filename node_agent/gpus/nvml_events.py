"""Errors of GPUs that NVML reports as events: Xids, and memory errors of two bits."""

import logging
from collections.abc import Iterable, Mapping
from typing import Any

from orion.node_agent.gpus import xids

_log = logging.getLogger(__name__)

_EVENTS_MAX = 64
""" Taken in one look; the rest comes with the next. """
_DOUBLE_BIT = 48
""" The Xid of what older drivers tell as an event of another kind. """


def text(value: str | bytes) -> str:
    """Return a text of NVML, which some versions of its package give as bytes."""
    return value.decode("ascii", "replace") if isinstance(value, bytes) else value


class ErrorEvents:
    """Those of all GPUs of one library.

    Args:
        nvml: the library.
    """

    def __init__(self, nvml: Any) -> None:
        self._nvml = nvml
        self._set: Any = None
        self._registered: set[str] = set()
        self._xids: dict[str, list[int]] = {}
        """ Taken from the library and not yet from here, by the GPU's UUID. """

    def register(self, answering: Mapping[str, Any]) -> None:
        """Register for error events of these GPUs; a GPU without events is judged by its answers alone.

        Args:
            answering: all that answer, with their handles by UUID; those that were registered before may be among them.
        """
        nvml = self._nvml
        wanted = nvml.nvmlEventTypeXidCriticalError | nvml.nvmlEventTypeDoubleBitEccError
        if self._set is None:
            try:
                self._set = nvml.nvmlEventSetCreate()
            except nvml.NVMLError as error:
                _log.warning("gpus: errors are not reported by events: %s", error)
                return
        new, self._registered = answering.keys() - self._registered, set(answering)
        for uuid in sorted(new):
            handle = answering[uuid]
            try:
                nvml.nvmlDeviceRegisterEvents(handle, wanted & nvml.nvmlDeviceGetSupportedEventTypes(handle), self._set)
            except nvml.NVMLError as error:
                _log.warning("gpus: %s tells no errors by events: %s", uuid, error)

    def end(self) -> None:
        """The library ends, and what was registered with it."""
        self._set, self._registered = None, set()

    def take(self, uuid: str, known: Iterable[str]) -> int | None:
        """Return the first Xid of a GPU since the last call, if there was one; Xids that programs cause are left out.

        Args:
            uuid: the GPU's.
            known: all GPUs: an event of one that cannot be named any more concerns each of them.
        """
        for _ in range(_EVENTS_MAX if self._set is not None else 0):
            try:
                event = self._nvml.nvmlEventSetWait_v2(self._set, 0)
            except self._nvml.NVMLError:
                break  # a timeout: there is none; anything else shows in the GPU's own answer
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
