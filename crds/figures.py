"""Whether a figure of a status has moved far enough to be worth a write.

Operator and node agent write the same rows of clients, and both by these steps: figures move all the time, and the API
server would otherwise write nothing but figures.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from orion.crds.decimals import Number
from orion.crds.quantities import Memory

_RATIO_STEP_MILLI = 50
_MEMORY_STEP = 0.1
_MEMORY_FLOOR = 64 * 2**20

Rows = Iterable[Mapping[str, Any]]


def clients_moved(old: Rows, new: Rows) -> bool:
    """Return whether rows of clients differ by a client, by what is said of one, or by a figure that has moved."""
    before, after = _by_process(old), _by_process(new)
    return before.keys() != after.keys() or any(_row_moved(before[key], row) for key, row in after.items())


def memory_moved(old: Any, new: Any) -> bool:
    """Return whether an amount of memory has moved by a tenth, and by 64 MiB at least; no amount is far from any."""
    if old is None and new is None:
        return False
    try:
        before, after = Memory.read(old).bytes, Memory.read(new).bytes
    except ValueError:
        return True
    return abs(after - before) >= max(_MEMORY_FLOOR, before * _MEMORY_STEP)


def ratio_moved(old: Any, new: Any) -> bool:
    """Return whether a ratio has moved by a twentieth; no ratio is far from any."""
    if old is None and new is None:
        return False
    try:
        return abs(Number.read(new).milli - Number.read(old).milli) >= _RATIO_STEP_MILLI
    except ValueError:
        return True


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
