"""Decides how soon a share's new status is written.

Conditions are written at once, and counts of pods at most every 5 s. Figures are written at most every 30 s, and only
if one of them has changed by more than a threshold. Otherwise the figures of a thousand shares would keep the API
server busy with writes.
"""

from collections.abc import Mapping
from enum import IntEnum
from typing import Any

from orion.crds.figures import clients_moved


class Urgency(IntEnum):
    """What has changed in a status. The value is the minimum time between two writes of it, in seconds."""

    CONDITIONS = 0
    COUNTS = 5
    FIGURES = 30


def urgency(old: Mapping[str, Any], new: Mapping[str, Any]) -> Urgency | None:
    """Return how soon the status `new` must replace `old`; None: no write is needed."""
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
