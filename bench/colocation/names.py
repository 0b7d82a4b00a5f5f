"""Names of folders for workloads: readable, and unique for each combination of options."""

import hashlib
import json
import re
from collections.abc import Sequence
from typing import Any

from orion.bench.colocation.scenario import Arrivals, BestEffort, Closed, Load, Trace

LONGEST = 80


def slug(text: str) -> str:
    """Return the text with only letters, digits, dots, plus signs and dashes."""
    return re.sub(r"[^A-Za-z0-9.+]+", "-", text).strip("-.")


def _load(load: Load) -> list[str]:
    words = [load.workload]
    words += [f"{name}-{value}" for name, value in load.options.items() if value is not True]
    return words + [name for name, value in load.options.items() if value is True]


def _arrivals(arrivals: Arrivals) -> list[str]:
    if isinstance(arrivals, Closed):
        return ["closed"]
    words: list[str] = [arrivals.kind]
    if isinstance(arrivals, Trace):
        words.append(hashlib.sha256(json.dumps(arrivals.gaps).encode()).hexdigest()[:6])
    if arrivals.load is not None:
        words.append(f"{arrivals.load:g}")
    if arrivals.rate is not None:
        words.append(f"{arrivals.rate:g}-a-second")
    return words


def of_hp(load: Load, arrivals: Arrivals) -> str:
    """Return the name of an hp workload with its arrivals."""
    return slug("-".join([*_load(load), *_arrivals(arrivals)]))


def of_load(load: Load) -> str:
    """Return the name of a workload."""
    return slug("-".join(_load(load)))


def of_be(entry: BestEffort) -> str:
    """Return the name of a be entry, with its count and requests."""
    words = _load(entry)
    if entry.count > 1:
        words.append(f"x{entry.count}")
    if len(set(entry.requests)) > 1:
        words += ["requests", *(f"{request:g}" for request in entry.requests)]
    return slug("-".join(words))


def unique(wanted: Sequence[tuple[str, Any]]) -> dict[str, str]:
    """Make names short and unique.

    Args:
        wanted: Pairs of a name and the object that it names, as JSON types.

    Returns:
        The names by the objects' JSON. A name that is too long or not unique ends with a part of a hash.
    """
    keys = {json.dumps(what, sort_keys=True): name for name, what in wanted}
    names = list(keys.values())
    return {
        key: name if len(name) <= LONGEST and names.count(name) == 1 else f"{name[:LONGEST].strip('-.')}-{_short(key)}"
        for key, name in keys.items()
    }


def _short(key: str) -> str:
    return hashlib.sha256(key.encode()).hexdigest()[:6]
