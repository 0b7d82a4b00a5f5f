"""Counts a node's GPUs for its label `orion.gpu/gpus`.

The webhook keeps pods that need n GPUs for one container away from nodes whose label is below n. Up to Kubernetes 1.34,
a kubelet that restarts checks the node affinity of its running pods again, and fails pods that no longer match. So a
GPU that a pod with several GPUs holds still counts if it is cordoned or unhealthy.
"""

from collections import Counter
from collections.abc import Sequence

from orion.crds.conditions import ConditionType
from orion.operator.reconciler.records import DeviceRecord, Named


def usable_gpus(devices: Sequence[DeviceRecord]) -> int:
    """Return how many of a node's GPUs new pods can get, or a pod with several GPUs holds."""
    held_by = {device.name: holders(device) for device in devices}
    gpus = Counter(pod for pods in held_by.values() for pod in pods)
    return sum(takes_pods(device) or any(gpus[pod] > 1 for pod in held_by[device.name]) for device in devices)


def holders(device: DeviceRecord) -> set[Named]:
    """Return the pods that hold slots of a GPU, as its agent reports."""
    rows = device.status.held_slots or ()
    return {Named(row.pod.namespace, row.pod.name) for row in rows if row.pod is not None}


def takes_pods(device: DeviceRecord) -> bool:
    """Return whether new pods can get the GPU. A GPU counts until its agent has reported that they cannot."""
    conditions = device.status.conditions or ()
    closed = any(each.type == ConditionType.READY and each.status != "True" for each in conditions)
    return not device.cordon and not closed
