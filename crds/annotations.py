"""Names of annotations, labels and resources, and the parser of a pod's annotations.

People write names that begin with `orion/`. Orion writes names that begin with `orion.gpu/`, its API group. The prefix
alone says who may write a name, so admission policies need no list of names.
"""

from collections.abc import Mapping
from typing import Annotated

from pydantic import Field

from orion.crds.metadata import ObjectName
from orion.crds.model import GROUP, Model
from orion.crds.policy import Priority
from orion.errors import Unreadable

PREFIX = "orion/"
""" Prefix of names that people write: annotations of pods (only at the pod's creation), the opt-in label of nodes. """

WRITTEN = f"{GROUP}/"
""" Prefix of names that Orion writes: annotations of pods, labels of nodes, and the resources that it advertises. """

PRIORITY = "orion/priority"
""" On a pod, written by its owner: hp or be. """

SHARE = "orion/share"
""" On a pod, written by its owner: the name of the GPUShare that governs the pod, in the pod's namespace. """

CONTAINERS = "orion/containers"
""" On a pod, written by its owner: the containers that get slots, separated by commas; absent: all containers that
request a GPU. """

OF_PEOPLE = (PRIORITY, SHARE, CONTAINERS)
""" All annotations that people may write. """

PINNED_SHARE = "orion.gpu/share"
""" On a pod, written by the webhook: the name of the GPUShare that governed the pod when it was admitted; empty: none
did. It never changes. """

MIRROR = "kubernetes.io/config.mirror"
""" On the mirror pod of a static pod, written by a kubelet, which takes the static pod itself from a file of its node.
The API server lets nobody add or remove it later, and a kubelet starts no pod that has it. """

PRIORITY_LABEL = "orion.gpu/priority"
""" On a pod, a label that the webhook writes: hp or be. The operator watches the pods that have it. It never changes,
and selectors of GPUShares cannot name it. """

SIMULATED = "orion.gpu/simulated"
""" On a node, written by the operator: "true" if its GPUs are simulated. """

GPUS = "orion.gpu/gpus"
""" On a node, written by the operator: the number of GPUs that take pods, or that a pod with several GPUs holds. """

GPU_MEMORY = "orion.gpu/gpu-memory"
""" On a node, written by the operator: the memory of its smallest GPU in MiB. """

MODEL = "orion.gpu/gpu-model"
""" On a node, written by the operator: the model of its GPUs, in the form of a label value. """

MODE = "orion.gpu/mode"
""" On a node, written by the operator: timeslice or mps if all of its GPUs are in that mode, otherwise mixed. """

ALLOCATION = "orion.gpu/allocation"
""" On a node, written by its administrator although it has Orion's prefix: who should give the node's slots
(allocation.py), where each node chooses. Absent: the device plugin. """

STARTUP_TAINT = "startup-taint.cluster-autoscaler.kubernetes.io/orion"
""" On a node, written by the template of its node group: it keeps pods away until the node has slots. The operator then
removes it. The prefix tells Cluster Autoscaler that the taint is temporary (docs/autoscaling.md). """

ON_PODS = frozenset({*OF_PEOPLE, PINNED_SHARE})
""" The annotations by which a pod is known to concern Orion. """

ROLLOUT = "orion.gpu/rollout"
""" On a node, written by the operator during a rolling update: the revision of the workload whose pod may take one hp
slot more. No other hp pod is scheduled to the node meanwhile. """

ROLLOUT_ENDS = "ends-"
""" Prefix of that label's value once the slot is taken or given up, until the node advertises it no longer. """

PLACE_AGAIN = "orion.gpu/place-again"
""" On a node, written by the operator and removed at once: the change makes kube-scheduler try the pods that wait for
GPUs (operator/reconciler/missing_gpus.py). """

RESOURCES = {priority: f"{WRITTEN}{priority}" for priority in Priority}
""" The resources that a container requests: one unit is one slot. """


class PodMarks(Model):
    """What the pod's owner wrote in the pod's annotations."""

    priority: Annotated[Priority | None, Field(alias=PRIORITY)] = None
    """ None: the annotation is absent. """

    share: Annotated[ObjectName | None, Field(alias=SHARE)] = None
    """ None: the share whose selector matches governs the pod. """

    containers: Annotated[tuple[str, ...] | None, Field(alias=CONTAINERS)] = None
    """ None: all containers that request a GPU get slots. """


def read_marks(annotations: Mapping[str, str]) -> PodMarks:
    """Return what the pod's owner wrote in the annotations.

    Raises:
        Unreadable: an `orion/` annotation is invalid; the sentence names it.
    """
    priority = annotations.get(PRIORITY)
    if priority is not None and priority not in list(Priority):
        raise Unreadable(f"annotation {PRIORITY} must be hp or be, not {priority[:63]!r}")
    containers = annotations.get(CONTAINERS)
    names = None if containers is None else tuple(name.strip() for name in containers.split(","))
    if names is not None and (not all(names) or len(set(names)) < len(names)):
        raise Unreadable(
            f"annotation {CONTAINERS} must be names of containers separated by commas, each once, not {containers!r}"
        )
    marks = {PRIORITY: priority, SHARE: annotations.get(SHARE), CONTAINERS: names}
    return PodMarks.read({name: value for name, value in marks.items() if value is not None}, "annotation")
