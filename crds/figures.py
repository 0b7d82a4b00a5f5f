"""Decides whether a figure in a status has changed enough to update the status.

The figures change all the time, and writing each change would flood the API server. The operator and the node agent
use the same thresholds, because they write the same rows of clients.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from orion.crds.decimals import Number
from orion.crds.durations import Duration
from orion.crds.quantities import Memory

_RATIO_STEP_MILLI = 50
_MEMORY_STEP = 0.1
_MEMORY_FLOOR = 64 * 2**20
_DEBT_STEP_NS = 500_000_000

Rows = Iterable[Mapping[str, Any]]


def clients_moved(old: Rows, new: Rows) -> bool:
    """Return whether the rows differ in a client, in a text, or in a figure by at least its threshold."""
    before, after = _by_process(old), _by_process(new)
    return before.keys() != after.keys() or any(_row_moved(before[key], row) for key, row in after.items())


def memory_moved(old: Any, new: Any) -> bool:
    """Return whether memory has changed by at least a tenth and at least 64 MiB.

    An amount that appears or disappears counts as changed.
    """
    if old is None and new is None:
        return False
    try:
        before, after = Memory.read(old).bytes, Memory.read(new).bytes
    except ValueError:
        return True
    return abs(after - before) >= max(_MEMORY_FLOOR, before * _MEMORY_STEP)


def ratio_moved(old: Any, new: Any) -> bool:
    """Return whether a ratio has changed by at least 0.05; a ratio that appears or disappears counts as changed."""
    if old is None and new is None:
        return False
    try:
        return abs(Number.read(new).milli - Number.read(old).milli) >= _RATIO_STEP_MILLI
    except ValueError:
        return True


def usage_moved(old: Rows, new: Rows) -> bool:
    """Return whether the rows differ in a slot, in who holds it or since when it is parked, or enough in its GPU time.

    The rows are those of a GPUDevice (``name``) or of a GPUShare (``slot``).
    """
    before, after = _by_slot(old), _by_slot(new)
    return before.keys() != after.keys() or any(_slot_moved(before[key], row) for key, row in after.items())


def _by_slot(rows: Rows) -> dict[tuple[Any, ...], Mapping[str, Any]]:
    return {(row.get("node"), row.get("gpu"), row.get("slot") or row.get("name")): row for row in rows}


def _slot_moved(old: Mapping[str, Any], new: Mapping[str, Any]) -> bool:
    if any(old.get(key) != new.get(key) for key in ("pod", "computeRequest", "computeLimit")):
        return True
    if (old.get("parked") or {}).get("since") != (new.get("parked") or {}).get("since"):
        return True
    before, after = old.get("usage") or {}, new.get("usage") or {}
    figures = ("due", "charged", "measured", "waited")
    return any(ratio_moved(before.get(key), after.get(key)) for key in figures) or _debt_moved(
        before.get("debt"), after.get("debt")
    )


def _debt_moved(old: Any, new: Any) -> bool:
    try:
        before, after = (Duration.read(each or "0s").nanoseconds for each in (old, new))
    except ValueError:
        return True
    return abs(after - before) >= _DEBT_STEP_NS


def _by_process(rows: Rows) -> dict[tuple[Any, ...], Mapping[str, Any]]:
    return {(row.get("node"), row.get("gpu"), row.get("slot"), row.get("processId")): row for row in rows}


def _row_moved(old: Mapping[str, Any], new: Mapping[str, Any]) -> bool:
    if any(old.get(key) != new.get(key) for key in ("message", "pod", "priority", "command")):
        return True
    if (old.get("state") == "stopped") != (new.get("state") == "stopped"):
        return True
    if memory_moved(old.get("memory"), new.get("memory")):
        return True
    return any(ratio_moved(old.get(key), new.get(key)) for key in ("busyRatio", "gatedRatio", "slowdown"))
