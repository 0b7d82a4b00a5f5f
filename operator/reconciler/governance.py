"""What governs a pod, among all shares of its namespace, and what follows where nothing can.

The annotation `orion/share` names a share, else the one whose selector matches governs; two that match are an error
with both names, not a choice (the webhook asks the same of new pods; a test compares the two answers). A pod whose
share is gone keeps its last grant: work that runs is not made unlimited, nor stopped, because an object was deleted.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum, auto

from orion.crds.errors import Unreadable
from orion.crds.grant import PodGrant
from orion.crds.share import GPUShare
from orion.operator.reconciler.records import PodRecord, ShareRecord

REASON_DELETED = "ShareDeleted"
REASON_MISSING = "ShareMissing"
REASON_OVERLAP = "SelectorsOverlap"
REASON_PRIORITY = "PriorityMismatch"
REASON_UNREADABLE = "Unreadable"


class How(Enum):
    """What becomes of a pod's grant."""

    UNMANAGED = auto()
    """ It has neither annotation nor slots; `shares` are those whose selectors name it. """
    SHARE = auto()
    """ It follows the one share in `shares`. """
    DEFAULTS = auto()
    """ No share is meant: it gets a grant without limits. """
    KEPT = auto()
    """ Something is wrong, as `reason` and `message` say: it keeps what it has. """


@dataclass(frozen=True, slots=True)
class Governance:
    """What governs a pod; `shares` are the names of those that it concerns, in order."""

    how: How
    shares: tuple[str, ...] = ()
    reason: str = ""
    message: str = ""


class Shares:
    """The shares of one namespace, found by name, by uid, and by the labels that their selectors want.

    A selector is looked for under one of its `matchLabels` only, so that a pod is compared with the few shares that
    may match it rather than with all.
    """

    def __init__(self, records: Iterable[ShareRecord] = ()) -> None:
        self.named = {record.at.name: record for record in records}
        self.uids = {record.uid for record in self.named.values()}
        self._by_label: dict[tuple[str, str], list[GPUShare]] = defaultdict(list)
        self._others: list[GPUShare] = []
        for record in self.named.values():
            share = record.share
            if share is None or share.spec.selector is None:
                continue
            label = min((share.spec.selector.match_labels or {}).items(), default=None)
            (self._others if label is None else self._by_label[label]).append(share)

    def selecting(self, labels: Mapping[str, str]) -> list[str]:
        """Return the names of the shares whose selector matches, sorted."""
        found = (share for share in self._likely(labels) if share.spec.selector and share.spec.selector.matches(labels))
        return sorted(share.metadata.name for share in found)

    def _likely(self, labels: Mapping[str, str]) -> Iterator[GPUShare]:
        yield from self._others
        for label in labels.items():
            yield from self._by_label.get(label, ())


def govern(pod: PodRecord, shares: Shares) -> Governance:
    """Return what governs a pod, among the shares of its namespace."""
    matching = shares.selecting(pod.labels) if pod.share is None else []
    if pod.unreadable:
        return _kept(matching, REASON_UNREADABLE, pod.unreadable)
    if pod.priority is None:
        return Governance(How.UNMANAGED, tuple(matching))
    if pod.share is not None:
        return _follow(pod, shares, pod.share) if pod.share in shares.named else _without(pod, shares, pod.share)
    if len(matching) > 1:
        names = " and ".join(matching) if len(matching) == 2 else f"{', '.join(matching[:-1])} and {matching[-1]}"
        return _kept(
            matching,
            REASON_OVERLAP,
            f"the selectors of GPUShares {names} all match this pod: narrow one of them, or name one share in the "
            "annotation orion/share when the pod is made",
        )
    return _follow(pod, shares, matching[0]) if matching else _without(pod, shares, None)


def _follow(pod: PodRecord, shares: Shares, name: str) -> Governance:
    record = shares.named[name]
    if record.share is None:
        return _kept([name], REASON_UNREADABLE, f"GPUShare {name} cannot be read: {record.unreadable}")
    wanted = record.share.spec.priority
    if wanted is not pod.priority:
        return _kept(
            [name],
            REASON_PRIORITY,
            f"GPUShare {name} is for priority {wanted}, and this pod's priority is {pod.priority}",
        )
    return Governance(How.SHARE, (name,))


def _without(pod: PodRecord, shares: Shares, named: str | None) -> Governance:
    last = _last_grant(pod)
    if last is not None and last.share is not None and last.share_uid not in shares.uids:
        return _kept(
            [], REASON_DELETED, f"GPUShare {last.share} is gone: the pod keeps the last grant that it had from it"
        )
    if named is not None:
        return _kept([], REASON_MISSING, f"annotation orion/share names GPUShare {named}, which does not exist here")
    return Governance(How.DEFAULTS)


def _last_grant(pod: PodRecord) -> PodGrant | None:
    if pod.grant is None:
        return None
    try:
        return PodGrant.from_json(pod.grant)
    except Unreadable:
        return None


def _kept(shares: Iterable[str], reason: str, message: str) -> Governance:
    return Governance(How.KEPT, tuple(shares), reason, message)
