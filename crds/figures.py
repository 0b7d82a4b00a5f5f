"""Whether a figure of a status has moved far enough to be worth a write.

Operator and node agent write the same rows of clients, and both by these steps: figures move all the time, and the API
server would otherwise write nothing but figures.
"""

from collections.abc import Iterable, Mapping
from decimal import Decimal
from typing import Any

from orion.crds.quantities import Quantity

_RATIO_STEP = Decimal("0.05")
_MEMORY_STEP = Decimal("0.1")
_MEMORY_FLOOR = 64 * 2**20

Rows = Iterable[Mapping[str, Any]]


def clients_moved(old: Rows, new: Rows) -> bool:
    """Return whether rows of clients differ by a client, by what is said of one, or by a figure that has moved."""
    before, after = _by_process(old), _by_process(new)
    return before.keys() != after.keys() or any(_row_moved(before[key], row) for key, row in after.items())


def memory_moved(old: Any, new: Any) -> bool:
    """Return whether an amount of memory has moved by a tenth, and by 64 MiB at least."""
    values = _values(old, new)
    return values is not None and abs(values[1] - values[0]) >= max(Decimal(_MEMORY_FLOOR), values[0] * _MEMORY_STEP)


def ratio_moved(old: Any, new: Any) -> bool:
    """Return whether a ratio has moved by a twentieth."""
    values = _values(old, new)
    return values is not None and abs(values[1] - values[0]) >= _RATIO_STEP


def _values(old: Any, new: Any) -> tuple[Decimal, Decimal] | None:
    """Return both as numbers; what is no number is far from any, and None where both are missing."""
    if old is None and new is None:
        return None
    try:
        return Quantity(str(old)).value, Quantity(str(new)).value
    except ValueError:
        return Decimal(0), Decimal("Infinity")


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
