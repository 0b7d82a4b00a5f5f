"""What admission says of a pod: refused, unchanged or patched, each with its reasons.

A refusal travels as an exception inside the pure core, because it can come from any depth and ends everything; outside
there are decisions only.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any


class Outcome(StrEnum):
    """What becomes of a pod."""

    REFUSED = "refused"
    UNCHANGED = "unchanged"
    PATCHED = "patched"


class Reason(StrEnum):
    """Why, in one word for metrics and programs."""

    NOT_OURS = "NotOurs"
    """ The pod says and asks nothing that concerns Orion. """
    SLOTS_GIVEN = "SlotsGiven"
    """ The pod asks for slots now, or did already. """
    HARMLESS = "Harmless"
    """ Ephemeral containers that may come. """

    UNKNOWN_ANNOTATION_VALUE = "UnknownAnnotationValue"
    NO_PRIORITY = "NoPriority"
    MIXED_PRIORITIES = "MixedPriorities"
    PRIORITY_CONFLICT = "PriorityConflict"
    SHARE_NOT_FOUND = "ShareNotFound"
    SHARE_REQUIRED = "ShareRequired"
    SHARES_OVERLAP = "SharesOverlap"
    NO_CONTAINER = "NoContainer"
    WRONG_AMOUNT = "WrongAmount"
    TWO_KINDS_OF_GPU = "TwoKindsOfGPU"
    INIT_CONTAINER_ASKS_FOR_MORE = "InitContainerAsksForMore"
    MEMORY_TOO_LARGE = "MemoryTooLarge"
    PRIVILEGED = "Privileged"
    HOST_PROCESSES = "HostProcesses"
    HOST_PATH = "HostPath"
    HIDDEN_MOUNT = "HiddenMount"
    DEVICE_ENVIRONMENT = "DeviceEnvironment"
    HOOK_ENVIRONMENT = "HookEnvironment"


class Refusal(Exception):
    """The pod cannot be; the text is the sentence that its owner reads.

    Args:
        reason: for metrics and programs.
        sentence: what is wrong, and what to do.
        of_cluster: whether shares or GPUs had a part in it, so that a fresher look at them may say otherwise.
    """

    def __init__(self, reason: Reason, sentence: str, *, of_cluster: bool = False) -> None:
        super().__init__(sentence)
        self.reason = reason
        self.of_cluster = of_cluster


@dataclass(frozen=True)
class Decision:
    """What becomes of a pod.

    Args:
        outcome: whether it is refused, unchanged or patched.
        reason: in one word.
        pod: as it shall be; of a refused one, as it came.
        sentence: of a refusal, for the pod's owner; else empty.
        because: every change and what led to it, a sentence each.
        cautions: what the owner should know although the pod may come.
        share: the GPUShare that governs it.
        of_cluster: of a refusal: whether a fresher look at shares and GPUs may say otherwise.
    """

    outcome: Outcome
    reason: Reason
    pod: Mapping[str, Any]
    sentence: str = ""
    because: tuple[str, ...] = ()
    cautions: tuple[str, ...] = ()
    share: str | None = None
    of_cluster: bool = False

    @classmethod
    def refused(cls, pod: Mapping[str, Any], refusal: Refusal) -> "Decision":
        """Return what a refusal amounts to."""
        return cls(Outcome.REFUSED, refusal.reason, pod, sentence=str(refusal), of_cluster=refusal.of_cluster)
