"""Decides which GPUShare of a namespace governs a pod, and what happens if none can.

`orion.crds.governing` decides which shares claim a pod. If two shares claim a pod, Orion reports an error that
names both, and does not choose one. A pod whose share is gone keeps its last grant: deleting a share neither removes
the limits of running work nor stops it.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum, auto

from orion.crds.governing import Shares
from orion.crds.grant import PodGrant
from orion.errors import Unreadable
from orion.operator.reconciler.records import PodRecord, ShareRecord

REASON_DELETED = "ShareDeleted"
REASON_MISSING = "ShareMissing"
REASON_OVERLAP = "SelectorsOverlap"
REASON_PRIORITY = "PriorityMismatch"
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
    """ There is a problem, which `reason` and `message` describe: the pod keeps the grant that it has. """


@dataclass(frozen=True, slots=True)
class Governance:
    """What governs a pod. `shares` are the sorted names of the shares that `how` and `message` are about."""

    how: How
    shares: tuple[str, ...] = ()
    reason: str = ""
    message: str = ""


class ShareRecords:
    """The records of all shares of one namespace, including shares that this version cannot read."""

    def __init__(self, records: Iterable[ShareRecord] = ()) -> None:
        self.named = {record.at.name: record for record in records}
        self.uids = {record.uid for record in self.named.values()}
        self._readable = Shares(record.share for record in self.named.values() if record.share is not None)

    def claiming(self, name: str | None, labels: Mapping[str, str]) -> list[str]:
        """Return the sorted names of the shares that claim a pod. More than one is an error."""
        return [share.metadata.name for share in self._readable.claiming(name, labels)]


def govern(pod: PodRecord, shares: ShareRecords) -> Governance:
    """Return what governs a pod, among the shares of its namespace."""
    claiming = shares.claiming(pod.share, pod.labels)
    if pod.unreadable:
        return _kept(claiming, REASON_UNREADABLE, pod.unreadable)
    if pod.priority is None:
        return Governance(How.UNMANAGED, tuple(claiming) if pod.share is None else ())
    if len(claiming) > 1:
        names = " and ".join(claiming) if len(claiming) == 2 else f"{', '.join(claiming[:-1])} and {claiming[-1]}"
        return _kept(
            claiming,
            REASON_OVERLAP,
            f"the selectors of GPUShares {names} all match this pod: narrow one of them, or name one share in the "
            "annotation orion/share when the pod is made",
        )
    if claiming:
        return _follow(pod, shares, claiming[0])
    named = shares.named.get(pod.share) if pod.share is not None else None
    return _unreadable(named) if named is not None else _without(pod, shares)


def _follow(pod: PodRecord, shares: ShareRecords, name: str) -> Governance:
    share = shares.named[name].share
    if share is not None and share.spec.priority is not pod.priority:
        return _kept(
            [name],
            REASON_PRIORITY,
            f"GPUShare {name} is for priority {share.spec.priority}, and this pod's priority is {pod.priority}; make "
            "the two equal",
        )
    return Governance(How.SHARE, (name,))


def _without(pod: PodRecord, shares: ShareRecords) -> Governance:
    last = _last_grant(pod)
    if last is not None and last.share is not None and last.share_uid not in shares.uids:
        return _kept(
            [], REASON_DELETED, f"GPUShare {last.share} was deleted: the pod keeps the last grant of that share"
        )
    record = shares.named.get(last.share) if last is not None and last.share is not None else None
    if record is not None and record.share is None:
        return _unreadable(record)  # the share's selector is not known, so the pods of the share keep their grants
    if pod.share is not None:
        return _kept(
            [],
            REASON_MISSING,
            f"annotation orion/share names GPUShare {pod.share}, which does not exist in this namespace; create it",
        )
    return Governance(How.DEFAULTS)


def _unreadable(record: ShareRecord) -> Governance:
    name = record.at.name
    return _kept([name], REASON_UNREADABLE, f"GPUShare {name} cannot be read: {record.unreadable}")


def _last_grant(pod: PodRecord) -> PodGrant | None:
    if pod.grant is None:
        return None
    try:
        return PodGrant.from_json(pod.grant)
    except Unreadable:
        return None


def _kept(shares: Iterable[str], reason: str, message: str) -> Governance:
    return Governance(How.KEPT, tuple(shares), reason, message)
