"""The four conditions of a share, each a finding: whether it is so, why in a word, why in a sentence."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from orion.crds.clients import ClientRow
from orion.crds.conditions import Condition, ConditionType
from orion.crds.decimals import Number
from orion.crds.device import AppliedPolicy
from orion.crds.policy import Mode, PolicyName, Priority
from orion.crds.share import GPUShareSpec
from orion.operator.reconciler.governance import REASON_UNREADABLE, Governance
from orion.operator.reconciler.grants import REASON_NOT_ADMITTED
from orion.operator.reconciler.records import PodRecord, ShareRecord
from orion.operator.reconciler.usage import STOPPED, Usage

REASON_PENDING = "GrantsPending"
_NAMED = 3
_SLACK = 1.05
""" A slowdown is over its limit from 5 % above it on, and within it again at the limit itself: figures move. """


class Finding(NamedTuple):
    """What a condition is to say; `so` None: not known."""

    so: bool | None
    reason: str
    message: str = ""


@dataclass(slots=True)
class Governed:
    """A share's pods, each list sorted by name."""

    pods: list[PodRecord] = field(default_factory=list)
    without_grant: list[str] = field(default_factory=list)
    """ Those of them whose grant is not that of the share as it is now. """
    not_admitted: list[str] = field(default_factory=list)
    """ Those of them that ask for no slot. """
    refused: list[tuple[str, Governance]] = field(default_factory=list)
    """ Pods that this share would govern if it could, and what is in the way. """
    unannotated: list[str] = field(default_factory=list)
    """ Pods that the selector names but that are not managed. """


def names(all_names: Sequence[str]) -> str:
    """Return the first names, and how many more there are."""
    first = ", ".join(all_names[:_NAMED])
    more = len(all_names) - _NAMED
    return f"{first} and {more} more" if more > 0 else first


def ready(record: ShareRecord, governed: Governed) -> Finding:
    """Whether every pod that the share is to govern has its grant."""
    if record.share is None:
        return Finding(False, REASON_UNREADABLE, f"this version of Orion cannot read the share: {record.unreadable}")
    if governed.refused:
        pod, why = governed.refused[0]
        more = f" (and {len(governed.refused) - 1} more pods)" if len(governed.refused) > 1 else ""
        return Finding(False, why.reason, f"pod {pod}{more}: {why.message}")
    if governed.not_admitted:
        return Finding(
            False,
            REASON_NOT_ADMITTED,
            f"pods that ask for no slot, as they were made without Orion's webhook: {names(governed.not_admitted)}; "
            "make them again",
        )
    pods, missing = len(governed.pods), len(governed.without_grant)
    if missing:
        return Finding(False, REASON_PENDING, f"{missing} of {pods} pods do not have the grant of this share yet")
    if not pods:
        return Finding(True, "NoPods", "the share governs no pod")
    return Finding(
        True, "Granted", f"{'the pod has' if pods == 1 else f'all {pods} pods have'} the grant of this share"
    )


def hook_injected(found: Usage) -> Finding:
    """Whether every process of the pods that uses a GPU is under the hook."""
    if found.unmanaged:
        device, unmanaged = found.unmanaged[0]
        pod = unmanaged.pod.name if unmanaged.pod else "an unknown pod"
        more = f" (and {len(found.unmanaged) - 1} more)" if len(found.unmanaged) > 1 else ""
        what = f"process {unmanaged.process_id} ({unmanaged.command or 'unnamed'}) of pod {pod} on {device.name}{more}"
        return Finding(False, "Unmanaged", f"{what} is not under the hook: it takes GPU time as it likes")
    if not found.processes:
        return Finding(None, "NoClients", "no process of these pods is on a GPU")
    return Finding(True, "Joined", "every process of these pods on a GPU is under the hook")


def policy_conflict(record: ShareRecord, found: Usage) -> Finding:
    """Whether a GPU of the pods runs by another share's policy."""
    spec = record.share.spec if record.share else None
    if spec is None or spec.priority is not Priority.HP:
        return Finding(False, "NoPolicy", "the hp pods of a GPU decide its policy")
    own = f"{record.at.namespace}/{record.at.name}"
    for _, device in sorted(found.devices.items()):
        applied = device.status.policy
        if applied and applied.share not in (None, own) and _differs(spec, applied):
            return Finding(
                True,
                "OtherShare",
                f"{device.name} runs by policy {applied.name} of GPUShare {applied.share}: let hp pods of one GPU have "
                "equal policies, or give each a GPU of its own",
            )
    return Finding(False, "Applied", "no GPU of these pods runs by another share's policy")


def _differs(spec: GPUShareSpec, applied: AppliedPolicy) -> bool:
    own_slowdown, their_slowdown = spec.max_slowdown, applied.max_slowdown
    own_share, their_share = spec.minimum_share, applied.minimum_share
    return (
        (spec.policy or PolicyName.ORION) is not applied.name
        or (own_slowdown or Number(1)).milli != (their_slowdown or Number(1)).milli
        or (own_share or Number(0)).milli != (their_share or Number(0)).milli
    )


def degraded(record: ShareRecord, found: Usage, rows: Sequence[ClientRow], before: Sequence[Condition]) -> Finding:
    """Whether pods have less than the share asks; `rows` are the clients, worst first."""
    spec = record.share.spec if record.share else None
    if spec is None:
        return Finding(None, REASON_UNREADABLE, "the share cannot be read")
    for name, device in sorted(found.devices.items()):
        if device.status.health == "Unhealthy":
            return Finding(True, "UnhealthyGPU", f"{name} on node {device.status.node} is unhealthy")
    reported = [row for row in rows if row.message]
    if reported:
        return Finding(True, "ClientTroubled", f"{_who(reported)}: {reported[0].message}")
    stopped = [row for row in rows if row.state == STOPPED]
    if stopped:
        return Finding(True, "ClientStopped", f"{_who(stopped)}: the process is stopped, and holds its slot")
    was = next((each.reason for each in before if each.type == ConditionType.DEGRADED), "")
    return (
        _slowed(spec, rows, was)
        or _time_sliced(spec, found)
        or Finding(False, "AsAsked", "no pod has less than the share asks")
    )


def _slowed(spec: GPUShareSpec, rows: Sequence[ClientRow], before: str) -> Finding | None:
    limit = spec.max_slowdown
    if limit is None:
        return None
    bound = limit if before == "SlowedDown" else limit * _SLACK
    slow = [row for row in rows if row.slowdown and row.slowdown > bound]
    return Finding(True, "SlowedDown", f"{_who(slow)}: slower than maxSlowdown {limit} allows") if slow else None


def _time_sliced(spec: GPUShareSpec, found: Usage) -> Finding | None:
    """In mode timeslice processes run time-sliced, so that wishes about running together have no effect."""
    wishes = [
        name
        for name, wished in (
            ("maxSlowdown", spec.max_slowdown is not None and spec.max_slowdown > 1),
            ("smShare", spec.sm_share is not None and spec.sm_share < 1),
        )
        if wished
    ]
    where = sorted(name for name, device in found.devices.items() if device.status.mode is Mode.TIMESLICE)
    if not wishes or not where:
        return None
    what = f"{' and '.join(wishes)} {'takes' if len(wishes) == 1 else 'take'} effect in mode mps only"
    return Finding(True, "ModeTimeslice", f"{what}; in mode timeslice: {names(where)}")


def _who(rows: Sequence[ClientRow]) -> str:
    """Return the first process of rows in words, and how many more there are."""
    row = rows[0]
    more = f" (and {len(rows) - 1} more)" if len(rows) > 1 else ""
    return f"process {row.process_id} ({row.command or 'unnamed'}) of pod {row.pod.name if row.pod else '?'}{more}"
