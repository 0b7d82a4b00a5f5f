"""Decides how soon a GPU's new status is written.

The agent writes at once what people and the operator act upon. It writes figures at most every 30 seconds, and only if
a figure has changed enough. If ten thousand GPUs reported their used memory every second, they would overload an API
server. So would a container that starts one short program after the other, if each number of processes were written at
once. Only the first process of a GPU is.
"""

from collections.abc import Mapping
from enum import IntEnum
from typing import Any

from orion.crds.conditions import ConditionType
from orion.crds.figures import clients_moved, memory_moved, ratio_moved, usage_moved

_MEMORY_FIGURES = ("used", "reserve", "borrowed", "returnable")


class Urgency(IntEnum):
    """The value is the minimum time in seconds between two writes of this urgency to one object."""

    CHANGES = 1
    COUNTS = 10
    FIGURES = 30


def urgency(old: Mapping[str, Any], new: Mapping[str, Any]) -> Urgency | None:
    """Return how soon `new` must replace `old`; None: no write is needed."""
    if old == new:
        return None
    if _substance(old) != _substance(new) or (new.get("clientCount") and not old.get("clientCount")):
        return Urgency.CHANGES
    if _counts(old) != _counts(new):
        return Urgency.COUNTS
    if _messages(old) != _messages(new) or _figures_moved(old, new):
        return Urgency.FIGURES
    return None


def _substance(status: Mapping[str, Any]) -> dict[str, Any]:
    """Return all fields except figures and counts. Client rows count as figures, because slots have their numbers."""
    left_out = ("hpBusyRatio", "clientCount", "clients", "conditions")
    kept = {key: value for key, value in status.items() if key not in left_out}
    kept["heldSlots"] = [
        {key: value for key, value in slot.items() if key not in ("clients", "usage")}
        for slot in status.get("heldSlots") or ()
    ]
    kept["memory"] = {key: value for key, value in _memory(status).items() if key not in _MEMORY_FIGURES}
    kept["conditions"] = {
        tuple(condition.get(key) for key in ("type", "status", "reason", "observedGeneration"))
        for condition in status.get("conditions") or ()
        if not _says_only_whether_there_are_clients(condition)
    }
    return kept


def _says_only_whether_there_are_clients(condition: Mapping[str, Any]) -> bool:
    return condition.get("type") == ConditionType.HOOK_INJECTED and condition.get("reason") in ("Joined", "NoClients")


def _counts(status: Mapping[str, Any]) -> tuple[Any, ...]:
    return status.get("clientCount"), [slot.get("clients") for slot in status.get("heldSlots") or ()]


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
