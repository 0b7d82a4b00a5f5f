"""Reads the facts about shares and GPUs that admission needs from API objects (parsed JSON)."""

from collections.abc import Iterable, Mapping
from typing import Any

from orion.crds.quantities import Memory
from orion.crds.share import GPUShare
from orion.errors import Unreadable


def read_share(plain: Mapping[str, Any]) -> GPUShare:
    """Return a share without its status. Admission does not use the status, which can be long.

    Raises:
        Unreadable: this version cannot read the share, for example because a later version wrote it.
    """
    return GPUShare.read({**plain, "status": None}, "GPUShare")


def readable_shares(items: Iterable[Mapping[str, Any]]) -> list[GPUShare]:
    """Return shares. Shares that this version cannot read are left out."""
    found = []
    for plain in items:
        try:
            found.append(read_share(plain))
        except Unreadable:
            continue
    return found


def device_memory(plain: Mapping[str, Any]) -> int | None:
    """Return a GPU's memory in bytes; None: its agent has not reported it yet, or the GPU or its node is gone."""
    status = plain.get("status") or {}
    if status.get("health") == "Unknown":
        return None
    total = (status.get("memory") or {}).get("total")
    try:
        return None if total is None else Memory.read(total).bytes
    except ValueError:
        return None


def largest(memories: Iterable[int | None]) -> int | None:
    """Return the largest known memory; None: none is known."""
    return max((memory for memory in memories if memory is not None), default=None)
