"""Which workload a pod belongs to, if a rolling update of it may run an old and a new pod at the same time.

The pods of a rolling update belong to two ReplicaSets of one Deployment or one Argo Rollout. A ReplicaSet has its
owner's name and a hash of the pod's template, and its pods carry the hash as a label. So the pod alone says which
workload it belongs to, and admission needs no look-up.

The namespace is a part of the key, so a pod can never pass for a pod of another namespace. Inside a namespace, whoever
may create pods may also write their owners. Such a user may replace the workload itself as well.

Rejected: workloads of other kinds. A StatefulSet deletes a pod before it creates the next one, and so does a DaemonSet
unless its strategy says otherwise. A Job has no rolling update.
"""

import hashlib
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Self

_HASHES = ("pod-template-hash", "rollouts-pod-template-hash")
""" The labels that hold the hash: of Deployments, and of Argo Rollouts. """


@dataclass(frozen=True)
class Owner:
    """A reference to the object that controls a pod."""

    kind: str
    name: str


@dataclass(frozen=True)
class Revision:
    """A workload, and which of its revisions a pod belongs to. Both are empty if the pod belongs to no such workload.

    Its text is a valid label value.

    Args:
        workload: a hash of the workload's namespace, kind and name.
        template: a hash of the name of the pod's ReplicaSet, so of the pod's template.
    """

    workload: str = ""
    template: str = ""

    def __str__(self) -> str:
        return f"{self.workload}.{self.template}" if self.template else self.workload

    @classmethod
    def read(cls, text: str) -> Self:
        """Return the revision that has this text."""
        workload, _, template = text.partition(".")
        return cls(workload, template)

    def replaces(self, other: "Revision") -> bool:
        """Return whether a rolling update may replace a pod of the other revision by one of this revision."""
        return self.workload == other.workload != "" and self.template != other.template


NO_REVISION = Revision()


def revision_of(namespace: str, labels: Mapping[str, str], owners: Iterable[Owner]) -> Revision:
    """Return the workload and the revision of a pod.

    Args:
        namespace: the pod's namespace.
        labels: the pod's labels.
        owners: the owners that control the pod.
    """
    for owner in owners:
        for key in _HASHES:
            name = owner.name.removesuffix(f"-{labels.get(key, '')}")
            if owner.kind == "ReplicaSet" and labels.get(key) and name not in ("", owner.name):
                return Revision(_hash(f"{namespace}/{key}/{name}", 32), _hash(owner.name, 16))
    return NO_REVISION


def _hash(text: str, digits: int) -> str:
    return sys.intern(hashlib.sha256(text.encode()).hexdigest()[:digits])
