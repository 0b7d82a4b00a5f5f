"""Reads the facts about shares and GPUs that admission needs from API objects (parsed JSON)."""

import contextlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from orion.crds.allocation import Giver
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


@dataclass(frozen=True)
class Gpus:
    """What admission knows of one GPU, or of all of them."""

    largest: int | None = None
    """ The largest memory in bytes; None: none is known. """
    some_claims: bool = False
    """ Whether the DRA driver of a node that chooses gives slots of one. """


def read_gpu(plain: Mapping[str, Any]) -> Gpus:
    """Return what is known of a GPU: nothing if its agent has not reported it yet, or the GPU or its node is gone."""
    status = plain.get("status") or {}
    if status.get("health") == "Unknown":
        return Gpus()
    total, memory = (status.get("memory") or {}).get("total"), None
    with contextlib.suppress(ValueError):
        memory = None if total is None else Memory.read(total).bytes
    return Gpus(memory, status.get("allocation") == Giver.DRA)


def all_of(gpus: Iterable[Gpus]) -> Gpus:
    """Return what is known of GPUs together."""
    known = list(gpus)
    memories = (each.largest for each in known if each.largest is not None)
    return Gpus(max(memories, default=None), any(each.some_claims for each in known))
