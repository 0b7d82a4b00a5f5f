"""The grant of a pod, and what to say about a pod that gets no grant of a share."""

from orion.crds.grant import granted
from orion.operator.reconciler.governance import Governance, How, ShareRecords
from orion.operator.reconciler.records import Complaint, PodRecord

REASON_NOT_ADMITTED = "NotAdmitted"
_KEPT_MAX = 256
""" So many grants of a share are kept. Each job may name its containers in its own way, and jobs come and go. """
_NOT_ADMITTED = Complaint(
    REASON_NOT_ADMITTED,
    "the pod asks for no slot: Orion's webhook did not admit it, so it shares no GPU; delete it and create it again",
)


def desired_grant(pod: PodRecord, governance: Governance, shares: ShareRecords) -> str | None:
    """Return a pod's grant as JSON; None: it asks for no slot, or it keeps the grant that its agent has."""
    if pod.priority is None or not pod.slots:
        return None
    if governance.how is How.DEFAULTS:
        return granted(pod.priority, None, dict(pod.slots)).as_json()
    if governance.how is not How.SHARE:
        return None
    record = shares.named[governance.shares[0]]
    key = pod.slots, pod.probed
    text = record.grants.get(key)
    if text is None:
        text = record.grants[key] = granted(pod.priority, record.share, dict(pod.slots), pod.probed).as_json()
        if len(record.grants) > _KEPT_MAX:
            record.grants.popitem(last=False)
    record.grants.move_to_end(key)
    return text


def desired_complaint(pod: PodRecord, governance: Governance) -> Complaint | None:
    """Return what an Event must say about a pod; None: nothing."""
    if governance.how is How.UNMANAGED:
        return None
    if governance.how is How.KEPT:
        return Complaint(governance.reason, governance.message)
    return None if pod.slots else _NOT_ADMITTED
