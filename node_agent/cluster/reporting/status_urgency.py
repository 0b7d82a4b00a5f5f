"""How soon a GPU's new status is worth a write.

What people and the operator act upon at once; figures at most every half minute, and only when one has moved: ten
thousand GPUs that each wrote their memory in use every second would be all that an API server does.
"""

from collections.abc import Mapping
from enum import IntEnum
from typing import Any

from orion.crds.figures import clients_moved, memory_moved, ratio_moved


class Urgency(IntEnum):
    """The value is the least time between two writes of it to one object, in seconds."""

    CHANGES = 1
    FIGURES = 30


def urgency(old: Mapping[str, Any], new: Mapping[str, Any]) -> Urgency | None:
    """Return how soon `new` is to replace `old`; None: it need not."""
    if old == new:
        return None
    if _substance(old) != _substance(new):
        return Urgency.CHANGES
    if _messages(old) != _messages(new) or _figures_moved(old, new):
        return Urgency.FIGURES
    return None


def _substance(status: Mapping[str, Any]) -> dict[str, Any]:
    """Return what is no figure. Rows of clients are figures: the slots' rows tell of each that comes and goes."""
    kept = {key: value for key, value in status.items() if key not in ("hpBusyRatio", "clients", "conditions")}
    kept["memory"] = {key: value for key, value in (status.get("memory") or {}).items() if key != "used"}
    kept["conditions"] = {
        tuple(condition.get(key) for key in ("type", "status", "reason", "observedGeneration"))
        for condition in status.get("conditions") or ()
    }
    return kept


def _messages(status: Mapping[str, Any]) -> list[Any]:
    return [condition.get("message") for condition in status.get("conditions") or ()]


def _figures_moved(old: Mapping[str, Any], new: Mapping[str, Any]) -> bool:
    used = [(status.get("memory") or {}).get("used") for status in (old, new)]
    return (
        memory_moved(*used)
        or ratio_moved(old.get("hpBusyRatio"), new.get("hpBusyRatio"))
        or clients_moved(old.get("clients") or (), new.get("clients") or ())
    )
