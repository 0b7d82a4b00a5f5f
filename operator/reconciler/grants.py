"""What a pod is to carry: its grant, and the condition that says why it has no share's."""

from orion.crds.grant import granted
from orion.operator.reconciler.governance import Governance, How, ShareRecords
from orion.operator.reconciler.records import Complaint, PodRecord

REASON_NOT_ADMITTED = "NotAdmitted"
_NOT_ADMITTED = Complaint(
    REASON_NOT_ADMITTED,
    "the pod asks for no slot, so it was made without Orion's webhook and shares no GPU: make it again",
)


def desired_grant(pod: PodRecord, governance: Governance, shares: ShareRecords) -> str | None:
    """Return the text of the annotation `orion.gpu/grant` that the pod is to have; None: as it is."""
    if pod.priority is None or not pod.slots:
        return None
    if governance.how is How.DEFAULTS:
        return granted(pod.priority, None, dict(pod.slots)).as_json()
    if governance.how is not How.SHARE:
        return None
    record = shares.named[governance.shares[0]]
    text = record.grants.get(pod.slots)
    if text is None:
        text = record.grants[pod.slots] = granted(pod.priority, record.share, dict(pod.slots)).as_json()
    return text


def desired_complaint(pod: PodRecord, governance: Governance) -> Complaint | None:
    """Return what the pod's condition is to say; None: there is to be none."""
    if governance.how is How.UNMANAGED:
        return None
    if governance.how is How.KEPT:
        return Complaint(governance.reason, governance.message)
    return None if pod.slots else _NOT_ADMITTED


def has_grant(pod: PodRecord, governance: Governance, shares: ShareRecords) -> bool:
    """Return whether a governed pod carries the grant of its share as it is now."""
    return pod.grant is not None and pod.grant == desired_grant(pod, governance, shares)
