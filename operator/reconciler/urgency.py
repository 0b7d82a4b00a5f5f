"""How soon a share's new status is worth a write.

Conditions at once, counts of pods every few seconds, figures at most once in 30 s and only when one of them has moved
past a threshold: with a thousand shares in use the API server would otherwise write nothing but figures.
"""

from collections.abc import Mapping
from decimal import Decimal
from enum import IntEnum
from typing import Any

from orion.crds.quantities import Quantity

_RATIO_STEP = Decimal("0.05")
_MEMORY_STEP = Decimal("0.1")
_MEMORY_FLOOR = 64 * 2**20
_FIGURES = ("memory", "busyRatio", "gatedRatio", "slowdown")


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
    if _messages(old) != _messages(new) or _moved(old.get("clients") or (), new.get("clients") or ()):
        return Urgency.FIGURES
    return None


def _states(status: Mapping[str, Any]) -> set[tuple[Any, ...]]:
    keys = ("type", "status", "reason", "observedGeneration")
    return {tuple(condition.get(key) for key in keys) for condition in status.get("conditions") or ()}


def _messages(status: Mapping[str, Any]) -> list[Any]:
    return [condition.get("message") for condition in status.get("conditions") or ()]


def _moved(old: Any, new: Any) -> bool:
    before, after = _by_process(old), _by_process(new)
    return before.keys() != after.keys() or any(_row_moved(before[key], row) for key, row in after.items())


def _by_process(rows: Any) -> dict[tuple[Any, ...], Mapping[str, Any]]:
    return {(row.get("node"), row.get("gpu"), row.get("slot"), row.get("processId")): row for row in rows}


def _row_moved(old: Mapping[str, Any], new: Mapping[str, Any]) -> bool:
    if any(old.get(key) != new.get(key) for key in ("message", "pod", "priority", "command")):
        return True
    if (old.get("state") == "stopped") != (new.get("state") == "stopped"):
        return True
    return any(_figure_moved(key, old.get(key), new.get(key)) for key in _FIGURES)


def _figure_moved(key: str, old: Any, new: Any) -> bool:
    if old is None or new is None:
        return old is not new
    try:
        before, after = Quantity(str(old)).value, Quantity(str(new)).value
    except ValueError:
        return True
    if key == "memory":
        return abs(after - before) >= max(Decimal(_MEMORY_FLOOR), before * _MEMORY_STEP)
    return abs(after - before) >= _RATIO_STEP
