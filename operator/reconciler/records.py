"""The records that the reconciler keeps of watched objects: only the fields that decisions read.

As Python objects, the body of a pod takes tens of kilobytes, and its record takes less than one kilobyte. With
thousands of pods, that is 60 MB instead of a gigabyte. Equal strings (namespaces, nodes) are interned, and pods with
equal labels share one dict.
"""

import functools
import json
import sys
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, NamedTuple

from orion.crds import annotations
from orion.crds.allocation import Giver
from orion.crds.device import GPUDeviceSpec
from orion.crds.device_status import GPUDeviceStatus
from orion.crds.policy import Mode, Priority
from orion.crds.share import GPUShare
from orion.crds.workloads import NO_REVISION, Owner, Revision, revision_of
from orion.errors import Unreadable
from orion.operator.reconciler.asked_slots import asked_slots, is_probed
from orion.operator.reconciler.claimed_slots import claimed_slots
from orion.operator.reconciler.reports import ReportedStatus, reported
from orion.operator.reconciler.unplaced import unplaced

ENDED = ("Succeeded", "Failed")

NODE_LABELS = (
    annotations.GPUS,
    annotations.GPU_MEMORY,
    annotations.MODEL,
    annotations.MODE,
    annotations.SIMULATED,
    annotations.ROLLOUT,
)


class Named(NamedTuple):
    """The name of an object within its kind. The namespace of a cluster-wide object is empty."""

    namespace: str
    name: str


class Complaint(NamedTuple):
    """Why a pod gets no grant of a share, or is evicted: the reason and the sentence of an Event."""

    reason: str
    message: str


@dataclass(slots=True)
class PodRecord:
    """The record of a pod."""

    at: Named
    uid: str
    version: int
    labels: Mapping[str, str]
    priority: Priority | None
    """ None: the pod is not managed. """
    share: str | None
    """ The share that the annotation orion/share names. """
    slots: tuple[tuple[str, int], ...]
    """ The containers that have slots of the pod's priority, by resources or by a claim, each with its number. """
    probed: bool
    """ One of these containers has a liveness probe. """
    pin: str
    """ The share that governed the pod when it was admitted; empty: none did. """
    running: bool
    leaving: bool
    """ The pod has ended or its deletion has begun: the operator writes nothing to it any more. """
    unreadable: str = ""
    """ What is wrong with the annotations orion/...; empty: nothing. """
    node: str = ""
    """ The node of the pod; empty: the pod is not scheduled yet. """
    created: str = ""
    """ The time of its creation, as the API server writes it. """
    ended: bool = False
    """ None of its containers runs or will run again. """
    is_static: bool = False
    """ It is the mirror pod of a static pod. """
    revision: Revision = NO_REVISION
    """ The workload of an hp pod with one slot, if a rolling update may replace the pod. """
    template: str = ""
    """ The ResourceClaimTemplate of its claim, if the webhook has made the claim. """
    shape: str = ""
    """ The shape of that claim, as JSON. """
    unschedulable: bool = False
    """ The scheduler has found no node for it. """
    lacks_gpus: bool = False
    """ One of the reasons is that a node has no GPUs for its claims. """
    complaint: Complaint | None = None
    """ What this process said last about the pod in an Event. The state keeps it when it replaces the record. """

    @property
    def labelled(self) -> bool:
        """Whether the pod has the label by which the operator watches pods."""
        return annotations.PRIORITY_LABEL in self.labels


@dataclass(slots=True)
class ShareRecord:
    """The record of a GPUShare. `share` has no status. It is None if this version cannot read the spec."""

    at: Named
    uid: str
    version: int
    generation: int
    share: GPUShare | None
    status_text: str
    """ The status as JSON: with ten clients it takes 4 KB, and 15 KB as objects. """
    unreadable: str = ""
    written: float = float("-inf")
    """ When this process last wrote the status; monotonic seconds. """
    grants: OrderedDict[tuple[tuple[tuple[str, int], ...], bool], str] = field(default_factory=OrderedDict)
    """ Grants that were wanted last, by the pod's `slots` and `probed`: pods of a Deployment have the same text. """

    def read_status(self) -> dict[str, Any]:
        """Return the status as JSON objects."""
        status: dict[str, Any] = json.loads(self.status_text)
        return status


@dataclass(slots=True)
class DeviceRecord:
    """The record of a GPUDevice."""

    name: str
    uid: str
    version: int
    cordon: bool
    mode: Mode | None
    is_written: bool
    """ Its spec differs from the defaults: people wrote it. """
    status: ReportedStatus
    reported: float = float("-inf")
    """ When this process last saw the status change; monotonic seconds. A status that it has only read may be old. """


class Starting(NamedTuple):
    """A node that still has the startup taint."""

    taints: tuple[int, ...]
    """ The indices of the startup taint in spec.taints: one for each of its effects. """
    slots: Mapping[Priority, int]
    """ How many slots the kubelet offers, by priority. """
    created: datetime


@dataclass(slots=True)
class NodeRecord:
    """The record of a node. `labels` holds only the labels that Orion writes."""

    name: str
    uid: str
    version: int
    labels: dict[str, str]
    starting: Starting | None = None
    """ None: the node has no startup taint. """
    hp_slots: int = 0
    """ The hp slots that the kubelet advertises to the scheduler. """
    allocation: str = Giver.DEVICE_PLUGIN
    """ Who should give its slots, where nodes choose, as its label says; the label may be nonsense. """
    complaint: Complaint | None = None
    """ What this process said last about the node in an Event. The state keeps it when it replaces the record. """

    @property
    def rollout(self) -> Revision:
        """The revision whose pod may take one hp slot more; empty: none, or the slot is taken or given up."""
        label = self.labels.get(annotations.ROLLOUT, "")
        return NO_REVISION if label.startswith(annotations.ROLLOUT_ENDS) else Revision.read(label)


Record = PodRecord | ShareRecord | DeviceRecord | NodeRecord


def _identity(body: Mapping[str, Any]) -> tuple[Named, str, int]:
    meta = body["metadata"]
    version = meta.get("resourceVersion", "0")
    at = Named(sys.intern(meta.get("namespace", "")), meta["name"])
    return at, meta["uid"], int(version) if version.isdigit() else 0


@functools.lru_cache(4_096)
def _labels(labels: tuple[tuple[str, str], ...]) -> Mapping[str, str]:
    """Return labels as a dict. The pods of a workload follow each other in lists, and share the dict."""
    return {sys.intern(key): sys.intern(value) for key, value in labels}


def pod_record(body: Mapping[str, Any]) -> PodRecord:
    """Return the record of a pod."""
    at, uid, version = _identity(body)
    meta, status = body["metadata"], body.get("status") or {}
    marks = meta.get("annotations") or {}
    spec = body.get("spec") or {}
    asked = {priority: tuple(asked_slots(spec, resource)) for priority, resource in _RESOURCES}
    claimed = claimed_slots(spec, marks)
    unreadable, priority, share = "", None, None
    try:
        read = annotations.read_marks(marks)
        priority, share = read.priority, read.share
    except Unreadable as error:
        unreadable = str(error)
    if priority is None and not unreadable:
        priority = next((each for each, slots in asked.items() if slots), None)
    ended = status.get("phase") in ENDED
    slots = (asked[priority] or claimed.slots) if priority else ()
    unschedulable, lacks_gpus = unplaced(status)
    return PodRecord(
        # Positional: CPython 3.11 keeps each freed tuple of exactly 20 names, as a call with 20 keywords makes one.
        at,
        uid,
        version,
        labels=_labels(tuple((meta.get("labels") or {}).items())),
        priority=priority,
        share=share,
        slots=slots,
        probed=is_probed(spec, {name for name, _ in slots}),
        template=claimed.template,
        shape=claimed.shape,
        pin=sys.intern(marks.get(annotations.PINNED_SHARE, "")),
        running=status.get("phase") == "Running",
        leaving="deletionTimestamp" in meta or ended,
        unreadable=unreadable,
        node=sys.intern(spec.get("nodeName") or ""),
        created=meta.get("creationTimestamp") or "",
        ended=ended,
        is_static=annotations.MIRROR in marks,
        revision=_revision(meta, priority, asked[Priority.HP] or claimed.slots),
        unschedulable=unschedulable,
        lacks_gpus=lacks_gpus,
    )


def _revision(meta: Mapping[str, Any], priority: Priority | None, slots: tuple[tuple[str, int], ...]) -> Revision:
    if priority is not Priority.HP or sum(count for _, count in slots) != 1:
        return NO_REVISION
    owners = [Owner(each["kind"], each["name"]) for each in meta.get("ownerReferences") or () if each.get("controller")]
    return revision_of(meta.get("namespace", ""), meta.get("labels") or {}, owners)


_RESOURCES = tuple(annotations.RESOURCES.items())


def share_record(body: Mapping[str, Any]) -> ShareRecord:
    """Return the record of a GPUShare."""
    at, uid, version = _identity(body)
    generation, created = body["metadata"].get("generation", 0), body["metadata"].get("creationTimestamp")
    meta = {"name": at.name, "namespace": at.namespace, "uid": uid, "generation": generation}
    meta["creationTimestamp"] = created
    share, unreadable = None, ""
    try:
        share = GPUShare.read({"metadata": meta, "spec": body.get("spec")}, "GPUShare")
    except Unreadable as error:
        unreadable = str(error)
    return ShareRecord(at, uid, version, generation, share, json.dumps(body.get("status") or {}), unreadable)


_DEFAULTS = GPUDeviceSpec().plain()


def device_record(body: Mapping[str, Any]) -> DeviceRecord:
    """Return the record of a GPUDevice. What cannot be read of its status is left out."""
    at, uid, version = _identity(body)
    spec = body.get("spec") or {}
    status = GPUDeviceStatus.read_known(body.get("status") or {})
    mode = spec.get("mode")
    return DeviceRecord(
        name=at.name,
        uid=uid,
        version=version,
        cordon=bool(spec.get("cordon", False)),
        mode=Mode(mode) if mode in list(Mode) else None,
        is_written=any(_DEFAULTS.get(field) != value for field, value in spec.items()),
        status=reported(status),
    )


def node_record(body: Mapping[str, Any]) -> NodeRecord:
    """Return the record of a node."""
    at, uid, version = _identity(body)
    labels = body["metadata"].get("labels") or {}
    own = {key: labels[key] for key in NODE_LABELS if key in labels}
    offered = (body.get("status") or {}).get("allocatable") or {}
    slots = {priority: int(amount) for priority, name in _RESOURCES if (amount := offered.get(name, "0")).isdigit()}
    chosen = sys.intern(labels.get(annotations.ALLOCATION) or Giver.DEVICE_PLUGIN.value)
    return NodeRecord(at.name, uid, version, own, _starting(body, slots), slots.get(Priority.HP, 0), chosen)


def _starting(body: Mapping[str, Any], slots: dict[Priority, int]) -> Starting | None:
    taints = (body.get("spec") or {}).get("taints") or ()
    found = tuple(index for index, taint in enumerate(taints) if taint["key"] == annotations.STARTUP_TAINT)
    if not found:
        return None
    return Starting(found, slots, datetime.fromisoformat(body["metadata"]["creationTimestamp"]))
