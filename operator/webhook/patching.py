"""Computes the difference of two objects (parsed JSON) as a JSON patch (RFC 6902) for an admission response.

The patch names only what differs, so that it keeps the changes of other webhooks. Lists are compared index by index,
because admission changes members in place or appends to the end, and never reorders.
"""

from collections.abc import Iterator
from typing import Any

Operation = dict[str, Any]


def difference(before: Any, after: Any) -> list[Operation]:
    """Return the operations that turn `before` into `after`, in the order in which they must be applied."""
    return list(_compare("", before, after))


def pointer(*parts: str | int) -> str:
    """Return the JSON pointer of a path."""
    return "".join(f"/{str(part).replace('~', '~0').replace('/', '~1')}" for part in parts)


def _compare(path: str, before: Any, after: Any) -> Iterator[Operation]:
    if before is after:
        return
    if isinstance(before, dict) and isinstance(after, dict):
        yield from _compare_mappings(path, before, after)
    elif isinstance(before, list) and isinstance(after, list):
        yield from _compare_lists(path, before, after)
    elif type(before) is not type(after) or before != after:
        yield {"op": "replace", "path": path, "value": after}


def _compare_mappings(path: str, before: dict[str, Any], after: dict[str, Any]) -> Iterator[Operation]:
    for key in before:
        if key not in after:
            yield {"op": "remove", "path": path + pointer(key)}
    for key, value in after.items():
        if key in before:
            yield from _compare(path + pointer(key), before[key], value)
        else:
            yield {"op": "add", "path": path + pointer(key), "value": value}


def _compare_lists(path: str, before: list[Any], after: list[Any]) -> Iterator[Operation]:
    common = min(len(before), len(after))
    for index in range(common):
        yield from _compare(path + pointer(index), before[index], after[index])
    for index in range(len(before) - 1, common - 1, -1):  # from the end, so that earlier indexes stay valid
        yield {"op": "remove", "path": path + pointer(index)}
    for value in after[common:]:
        yield {"op": "add", "path": f"{path}/-", "value": value}
