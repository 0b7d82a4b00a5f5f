"""What admission needs to know of the cluster, read from plain objects."""

from collections.abc import Iterable, Mapping
from typing import Any

from orion.crds.errors import Unreadable
from orion.crds.quantities import Memory
from orion.crds.share import GPUShare


def read_share(plain: Mapping[str, Any]) -> GPUShare:
    """Return a share; its status has no part in admission, and is long.

    Raises:
        Unreadable: it is of a later version.
    """
    return GPUShare.read({**plain, "status": None}, "GPUShare")


def readable_shares(items: Iterable[Mapping[str, Any]]) -> list[GPUShare]:
    """Return shares from plain objects; those that cannot be read, of a later version, are left out."""
    found = []
    for plain in items:
        try:
            found.append(read_share(plain))
        except Unreadable:
            continue
    return found


def device_memory(plain: Mapping[str, Any]) -> int | None:
    """Return a GPU's memory in bytes, None while its agent has not said; the rest changes often and is not read."""
    total = ((plain.get("status") or {}).get("memory") or {}).get("total")
    try:
        return None if total is None else Memory.read(total).bytes
    except ValueError:
        return None


def largest(memories: Iterable[int | None]) -> int | None:
    """Return the largest of what is known, None where nothing is."""
    return max((memory for memory in memories if memory is not None), default=None)
