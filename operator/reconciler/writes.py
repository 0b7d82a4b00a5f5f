"""The writes of the reconciler as values: `decisions` computes them and `controller` carries them out."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from orion.api_server.events import event_name
from orion.crds.model import API_VERSION
from orion.operator.reconciler.records import Complaint, Named


@dataclass(frozen=True, slots=True)
class _Patch:
    """A patch of one object."""

    at: Named
    patch: Mapping[str, Any]


class PatchShare(_Patch):
    """A merge patch of a GPUShare's status. The API server rejects it if the share's resourceVersion has changed."""


class PatchNode(_Patch):
    """A merge patch of a node's labels."""


@dataclass(frozen=True, slots=True)
class RemoveTaints:
    """A JSON patch that removes taints of a node. The API server rejects it if the taints have changed since."""

    at: Named
    operations: Sequence[Mapping[str, Any]]


class PatchDevice(_Patch):
    """A merge patch of a GPUDevice's status.

    The patch contains the resourceVersion. So the API server rejects it if an agent has written the status since.
    """


@dataclass(frozen=True, slots=True)
class DeleteDevice:
    """The deletion of a GPUDevice. The API server rejects it if anybody has changed the GPUDevice since."""

    at: Named
    uid: str
    version: int


@dataclass(frozen=True, slots=True)
class MakeTemplate:
    """The creation of a ResourceClaimTemplate, unless it exists: its name is a hash of its content."""

    namespace: str
    template: Mapping[str, Any]

    @property
    def at(self) -> Named:
        """The template's name."""
        return Named(self.namespace, self.template["metadata"]["name"])


@dataclass(frozen=True, slots=True)
class PostEvent:
    """An Event about an object.

    The name is a hash of the content. So the same Event never exists twice, even if the operator is killed between the
    writes of the Event and of the status, or if two reconcilers post the Event.
    """

    regarding: Mapping[str, str]
    warning: bool
    reason: str
    action: str
    note: str
    since: str = ""
    """ The state before. It is part of the name, so the same content after another state gives a new Event. """

    @property
    def namespace(self) -> str:
        """The namespace of the Event: that of the object; `default` if the object is cluster-wide."""
        return self.regarding.get("namespace", "") or "default"

    @property
    def name(self) -> str:
        """The name of the Event; the same content gives the same name."""
        return event_name(self.regarding["name"], self.regarding["uid"], self.reason, self.note, self.since)


@dataclass(frozen=True, slots=True)
class SayWhatIsMissing:
    """An Event about a pod that waits for its claim: what the nearest GPUs lack; if nothing, no Event.

    The scheduler is then made to try the pod again.
    """

    at: Named
    uid: str
    shape: str
    """ The shape of its claim, as JSON. """

    def event(self, sentence: str) -> PostEvent:
        """Return the Event with a sentence about what is missing."""
        reference = pod_reference(self.at, self.uid)
        return PostEvent(reference, True, "WaitsForGPU", "Schedule", f"the pod waits for GPUs: {sentence}")


@dataclass(frozen=True, slots=True)
class EvictPod:
    """An eviction through `pods/eviction`. The API server applies disruption budgets to it."""

    at: Named
    uid: str


@dataclass(frozen=True, slots=True)
class Remember:
    """No write: keep what was said about a pod or a node, so that it is not said again."""

    at: Named
    uid: str
    complaint: Complaint | None


@dataclass(frozen=True, slots=True)
class RequeueAfter:
    """No write: reconcile the object again after this time."""

    seconds: float


Write = (
    PatchShare
    | PatchNode
    | RemoveTaints
    | PatchDevice
    | DeleteDevice
    | MakeTemplate
    | PostEvent
    | SayWhatIsMissing
    | EvictPod
    | Remember
    | RequeueAfter
)


def pod_reference(at: Named, uid: str) -> dict[str, str]:
    """Return the object reference for an Event about a pod."""
    return {"apiVersion": "v1", "kind": "Pod", "namespace": at.namespace, "name": at.name, "uid": uid}


def share_reference(at: Named, uid: str) -> dict[str, str]:
    """Return the object reference for an Event about a GPUShare."""
    return {"apiVersion": API_VERSION, "kind": "GPUShare", "namespace": at.namespace, "name": at.name, "uid": uid}


def node_reference(name: str, uid: str) -> dict[str, str]:
    """Return the object reference for an Event about a node."""
    return {"apiVersion": "v1", "kind": "Node", "name": name, "uid": uid}
