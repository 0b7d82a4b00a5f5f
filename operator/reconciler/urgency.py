"""How soon a share's new status is worth a write.

Conditions at once, counts of pods every few seconds, figures at most once in 30 s and only when one of them has moved
past a threshold: with a thousand shares in use the API server would otherwise write nothing but figures.
"""

from collections.abc import Mapping
from enum import IntEnum
from typing import Any

from orion.crds.figures import clients_moved


class Urgency(IntEnum):
    """The value is the least time between two writes of it to one object, in seconds."""

    CONDITIONS = 0
    COUNTS = 5
    FIGURES = 30


def urgency(old: Mapping[str, Any], new: Mapping[str, Any]) -> Urgency | None:
    """Return how soon `new` is to replace `old`; None: it need not."""
    if old == new:
        return None
    if old.get("observedGeneration") != new.get("observedGeneration") or _states(old) != _states(new):
        return Urgency.CONDITIONS
    if old.get("pods") != new.get("pods"):
        return Urgency.COUNTS
    if old.get("clientCounts") != new.get("clientCounts") or old.get("gpus") != new.get("gpus"):
        return Urgency.FIGURES
    if _messages(old) != _messages(new) or clients_moved(old.get("clients") or (), new.get("clients") or ()):
        return Urgency.FIGURES
    return None


def _states(status: Mapping[str, Any]) -> set[tuple[Any, ...]]:
    keys = ("type", "status", "reason", "observedGeneration")
    return {tuple(condition.get(key) for key in keys) for condition in status.get("conditions") or ()}


def _messages(status: Mapping[str, Any]) -> list[Any]:
    return [condition.get("message") for condition in status.get("conditions") or ()]
