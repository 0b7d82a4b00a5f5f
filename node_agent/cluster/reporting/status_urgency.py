"""Decides how soon a GPU's new status is written.

The agent writes at once what people and the operator act upon. It writes figures at most every 30 seconds, and only if
a figure has changed enough. If ten thousand GPUs reported their used memory every second, they would overload an API
server.
"""

from collections.abc import Mapping
from enum import IntEnum
from typing import Any

from orion.crds.figures import clients_moved, memory_moved, ratio_moved, usage_moved

_MEMORY_FIGURES = ("used", "reserve", "borrowed", "returnable")


class Urgency(IntEnum):
    """The value is the minimum time in seconds between two writes of this urgency to one object."""

    CHANGES = 1
    FIGURES = 30


def urgency(old: Mapping[str, Any], new: Mapping[str, Any]) -> Urgency | None:
    """Return how soon `new` must replace `old`; None: no write is needed."""
    if old == new:
        return None
    if _substance(old) != _substance(new):
        return Urgency.CHANGES
    if _messages(old) != _messages(new) or _figures_moved(old, new):
        return Urgency.FIGURES
    return None


def _substance(status: Mapping[str, Any]) -> dict[str, Any]:
    """Return all fields except figures. Client rows count as figures, because slot rows also show joins and leaves."""
    kept = {key: value for key, value in status.items() if key not in ("hpBusyRatio", "clients", "conditions")}
    kept["heldSlots"] = [
        {key: value for key, value in slot.items() if key != "usage"} for slot in status.get("heldSlots") or ()
    ]
    kept["memory"] = {key: value for key, value in _memory(status).items() if key not in _MEMORY_FIGURES}
    kept["conditions"] = {
        tuple(condition.get(key) for key in ("type", "status", "reason", "observedGeneration"))
        for condition in status.get("conditions") or ()
    }
    return kept


def _memory(status: Mapping[str, Any]) -> Mapping[str, Any]:
    return status.get("memory") or {}


def _messages(status: Mapping[str, Any]) -> list[Any]:
    return [condition.get("message") for condition in status.get("conditions") or ()]


def _figures_moved(old: Mapping[str, Any], new: Mapping[str, Any]) -> bool:
    return (
        any(memory_moved(_memory(old).get(key), _memory(new).get(key)) for key in _MEMORY_FIGURES)
        or ratio_moved(old.get("hpBusyRatio"), new.get("hpBusyRatio"))
        or clients_moved(old.get("clients") or (), new.get("clients") or ())
        or usage_moved(old.get("heldSlots") or (), new.get("heldSlots") or ())
    )
