"""Decides which GPUShare of a namespace governs a pod, and what happens if none can.

The share that governed a pod when it was admitted is pinned to the pod and governs it for as long as it exists,
whatever the pod's labels and other shares' selectors are later. Only the share's own spec changes what the pod may do.
A pod that no share governed at its admission is older than its share, or its share's name: `orion.crds.governing`
decides which shares claim it. If two shares claim a pod, Orion reports an error that names both, and does not choose
one.

A pod whose share is gone keeps its last grant: deleting a share neither removes the limits of running work nor stops
it. The pod's node agent has that grant; nothing else stores it.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum, auto

from orion.operator.reconciler.claims import Claims
from orion.operator.reconciler.records import PodRecord, ShareRecord

REASON_DELETED = "ShareDeleted"
REASON_MISSING = "ShareMissing"
REASON_OVERLAP = "SelectorsOverlap"
REASON_PRIORITY = "PriorityMismatch"
REASON_TOO_MANY = "TooManyShares"
REASON_UNREADABLE = "Unreadable"


class How(Enum):
    """What becomes of a pod's grant."""

    UNMANAGED = auto()
    """ The pod has neither priority nor slots. `shares` are the shares whose selectors match it. """
    SHARE = auto()
    """ The pod gets the grant of the one share in `shares`. """
    DEFAULTS = auto()
    """ No share claims the pod: it gets a grant without limits. """
    KEPT = auto()
    """ There is a problem, which `reason` and `message` describe: the pod keeps the grant that its agent has. If the
    agent has none, a pod that the webhook gave a share does not start, and any other gets the defaults. """


@dataclass(frozen=True, slots=True)
class Governance:
    """What governs a pod. `shares` are the sorted names of the shares that `how` and `message` are about."""

    how: How
    shares: tuple[str, ...] = ()
    reason: str = ""
    message: str = ""


class ShareRecords:
    """The records of all shares of one namespace, including shares that this version cannot read.

    Args:
        most: how many shares govern; None: all.
    """

    def __init__(self, most: int | None = None) -> None:
        self.named: dict[str, ShareRecord] = {}
        self.claims = Claims(most)

    def change(self, name: str, record: ShareRecord | None) -> set[str]:
        """Add, replace or remove a share (None: it is gone); return the shares to compare with pods again."""
        if record is None:
            self.named.pop(name, None)
        else:
            self.named[name] = record
        return self.claims.change(name, record.share if record is not None else None)

    def too_many(self, name: str) -> str:
        """Return why a share does not govern, if the namespace has too many older shares; else an empty string."""
        if not self.claims.shares.is_beyond(name):
            return ""
        return (
            f"GPUShare {name} does not govern: only the {self.claims.shares.most} oldest GPUShares of a namespace do; "
            "delete GPUShares that nobody needs, or let an administrator raise sharesPerNamespace"
        )


def govern(pod: PodRecord, shares: ShareRecords) -> Governance:
    """Return what governs a pod, among the shares of its namespace. The pod must be in `shares.claims`."""
    pinned = shares.named.get(pod.pin) if pod.pin else None
    claiming = [pinned.at.name] if pinned is not None else shares.claims.of(pod.at.name)
    if pod.unreadable:
        return _kept(claiming, REASON_UNREADABLE, pod.unreadable)
    if pod.priority is None:
        return Governance(How.UNMANAGED, tuple(claiming) if pod.share is None else ())
    if len(claiming) > 1:
        others = " and others" if len(claiming) > 2 else ""  # how many there are would change all messages too often
        names = f"{claiming[0]} and {claiming[1]}" if not others else f"{', '.join(claiming[:2])}{others}"
        return _kept(
            claiming,
            REASON_OVERLAP,
            f"the selectors of GPUShares {names} all match this pod: narrow one of them, or name one share in the "
            "annotation orion/share when the pod is made",
        )
    if claiming:
        return _follow(pod, shares, claiming[0])
    named = shares.named.get(pod.share) if pod.share is not None else None
    return _idle(named, shares) if named is not None else _without(pod)


def _follow(pod: PodRecord, shares: ShareRecords, name: str) -> Governance:
    record = shares.named[name]
    if record.share is None or shares.too_many(name):
        return _idle(record, shares)
    if record.share.spec.priority is not pod.priority:
        return _kept(
            [name],
            REASON_PRIORITY,
            f"GPUShare {name} is for priority {record.share.spec.priority}, and this pod's priority is {pod.priority}; "
            "make the two equal",
        )
    return Governance(How.SHARE, (name,))


def _without(pod: PodRecord) -> Governance:
    if pod.pin:
        return _kept([], REASON_DELETED, f"GPUShare {pod.pin} was deleted: the pod keeps the last grant of that share")
    if pod.share is not None:
        return _kept(
            [],
            REASON_MISSING,
            f"annotation orion/share names GPUShare {pod.share}, which does not exist in this namespace; create it",
        )
    return Governance(How.DEFAULTS)


def _idle(record: ShareRecord, shares: ShareRecords) -> Governance:
    """Return the governance of a pod whose share governs no pod."""
    name = record.at.name
    if too_many := shares.too_many(name):
        return _kept([name], REASON_TOO_MANY, too_many)
    return _kept([name], REASON_UNREADABLE, f"GPUShare {name} cannot be read: {record.unreadable}")


def _kept(shares: Iterable[str], reason: str, message: str) -> Governance:
    return Governance(How.KEPT, tuple(shares), reason, message)
