"""The writes that the reconciler makes, as values: decided in one place, carried out in another."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from orion.crds.model import API_VERSION
from orion.operator.reconciler.records import Named

NOTE_MAX = 1_024
""" Bytes of an Event's note. """


@dataclass(frozen=True, slots=True)
class PatchPod:
    """A strategic merge patch of `pods/status`: the grant, the condition, or both.

    The narrow right of a controller that only stamps: through `pods/status` the API server takes annotations and
    restores the spec. The uid is in the patch, so that a namesake made meanwhile is not touched.
    """

    at: Named
    patch: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class PatchShare:
    """A merge patch of a GPUShare's status; it carries the version that was seen, so a newer one is not overwritten."""

    at: Named
    patch: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class PatchNode:
    """A merge patch of a node's labels."""

    at: Named
    patch: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class PatchDevice:
    """A merge patch of the status of a GPUDevice; it carries the version that was seen: an agent that lives wins."""

    at: Named
    patch: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class PostEvent:
    """An Event about an object.

    Its name is made of what it says, so the same one is never there twice: not after a restart between Event and
    status, and not when two reconcilers say it.
    """

    regarding: Mapping[str, str]
    warning: bool
    reason: str
    action: str
    note: str
    since: str = ""
    """ What was before; the same news after another state is a new Event. """

    @property
    def namespace(self) -> str:
        """Where it is posted: the object's namespace; for one of the cluster, `default`."""
        return self.regarding.get("namespace", "") or "default"

    @property
    def short_note(self) -> str:
        """The note as the API server takes it, cut at a whole character."""
        return self.note.encode()[:NOTE_MAX].decode(errors="ignore")

    @property
    def name(self) -> str:
        """Unique for what it says."""
        said = "\0".join((self.regarding["uid"], self.reason, self.note, self.since))
        return f"{self.regarding['name'][:200].rstrip('-.')}.{hashlib.sha256(said.encode()).hexdigest()[:16]}"


@dataclass(frozen=True, slots=True)
class EvictPod:
    """An eviction through `pods/eviction`, which heeds disruption budgets."""

    at: Named
    uid: str


@dataclass(frozen=True, slots=True)
class Again:
    """No write: the object is to be looked at again after so many seconds."""

    seconds: float


Write = PatchPod | PatchShare | PatchNode | PatchDevice | PostEvent | EvictPod | Again


def pod_reference(at: Named, uid: str) -> dict[str, str]:
    """Return what an Event about a pod refers to."""
    return {"apiVersion": "v1", "kind": "Pod", "namespace": at.namespace, "name": at.name, "uid": uid}


def share_reference(at: Named, uid: str) -> dict[str, str]:
    """Return what an Event about a GPUShare refers to."""
    return {"apiVersion": API_VERSION, "kind": "GPUShare", "namespace": at.namespace, "name": at.name, "uid": uid}
