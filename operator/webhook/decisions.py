"""The result of admission: a pod is rejected, unchanged or patched, with the reasons.

Inside the pure functions, a rejection is the exception `Refusal`, because it can occur at any depth. `admitting` turns
it into a `Decision`, so callers see only decisions.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from orion.crds.policy import Priority
from orion.errors import Invalid


class Outcome(StrEnum):
    """What happens to a pod."""

    REFUSED = "refused"
    UNCHANGED = "unchanged"
    PATCHED = "patched"


class Reason(StrEnum):
    """The reason of a decision, as one word for metrics and programs."""

    NOT_OURS = "NotOurs"
    """ The pod has no annotation of Orion and asks for no slots. """
    SLOTS_GIVEN = "SlotsGiven"
    """ The pod asks for slots, either by itself or because admission added them. """
    HARMLESS = "Harmless"
    """ The request adds ephemeral containers, and they are allowed. """

    STATIC_POD = "StaticPod"
    TOO_MANY_CONTAINERS = "TooManyContainers"
    UNKNOWN_ANNOTATION_VALUE = "UnknownAnnotationValue"
    NO_PRIORITY = "NoPriority"
    MIXED_PRIORITIES = "MixedPriorities"
    PRIORITY_CONFLICT = "PriorityConflict"
    SHARE_NOT_FOUND = "ShareNotFound"
    SHARE_REQUIRED = "ShareRequired"
    TOO_MANY_SHARES = "TooManyShares"
    SHARES_OVERLAP = "SharesOverlap"
    NO_CONTAINER = "NoContainer"
    WRONG_AMOUNT = "WrongAmount"
    TWO_KINDS_OF_GPU = "TwoKindsOfGPU"
    NO_SCHEDULER = "NoScheduler"
    INIT_CONTAINER_ASKS_FOR_MORE = "InitContainerAsksForMore"
    PRIVILEGED = "Privileged"
    HOST_PROCESSES = "HostProcesses"
    HOST_PATH = "HostPath"
    HIDDEN_MOUNT = "HiddenMount"
    DEVICE_ENVIRONMENT = "DeviceEnvironment"
    DEVICE_MOUNT = "DeviceMount"
    HOOK_ENVIRONMENT = "HookEnvironment"


class Refusal(Invalid):
    """The webhook rejects a pod. The pod's owner reads the sentence.

    Args:
        reason: the reason in one word, for metrics and programs.
        sentence: what is wrong, and what to do.
        of_cluster: whether the rejection depends on shares or GPUs, so that newer data may change it.
    """

    def __init__(self, reason: Reason, sentence: str, *, of_cluster: bool = False) -> None:
        super().__init__(sentence)
        self.reason = reason
        self.of_cluster = of_cluster


@dataclass(frozen=True)
class Decision:
    """What happens to a pod.

    Args:
        outcome: rejected, unchanged or patched.
        reason: the reason in one word.
        pod: the pod after admission, as parsed JSON; a rejected pod is unchanged.
        sentence: why the pod is rejected and what its owner can do; empty if the pod is not rejected.
        because: sentences that give the priority, the share and each change.
        cautions: warnings for the owner of a pod that is not rejected.
        share: the name of the GPUShare that governs the pod.
        priority: the pod's priority; None: the pod gets no slots.
        slots: the number of slots by container name.
        probed: whether one of these containers has a liveness probe.
        of_cluster: whether a rejection depends on shares or GPUs, so that newer data may change it.
    """

    outcome: Outcome
    reason: Reason
    pod: Mapping[str, Any]
    sentence: str = ""
    because: tuple[str, ...] = ()
    cautions: tuple[str, ...] = ()
    share: str | None = None
    priority: Priority | None = None
    slots: Mapping[str, int] = field(default_factory=dict)
    probed: bool = False
    of_cluster: bool = False

    @classmethod
    def refused(cls, pod: Mapping[str, Any], refusal: Refusal) -> "Decision":
        """Return the decision for a refusal."""
        return cls(Outcome.REFUSED, refusal.reason, pod, sentence=str(refusal), of_cluster=refusal.of_cluster)
