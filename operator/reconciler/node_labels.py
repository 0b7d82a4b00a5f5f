"""The labels that Orion writes on nodes: number, model, memory and mode of the GPUs, and rolling updates."""

import re
from collections.abc import Sequence

from orion.crds import annotations
from orion.operator.reconciler import records
from orion.operator.reconciler.usable_gpus import usable_gpus

_MIXED = "mixed"
_LABEL_MAX = 63
_MIB = 1 << 20


def label_changes(
    node: records.NodeRecord, devices: Sequence[records.DeviceRecord], rollout: str | None
) -> dict[str, str | None]:
    """Return the labels of a node that must change, with their new values; None: the label must be removed.

    Args:
        node: the node.
        devices: its GPUs.
        rollout: the value of the label of a rolling update; None: there is none.
    """
    desired = _desired_labels(devices) | ({annotations.ROLLOUT: rollout} if rollout else {})
    return {key: desired.get(key) for key in records.NODE_LABELS if node.labels.get(key) != desired.get(key)}


def _desired_labels(devices: Sequence[records.DeviceRecord]) -> dict[str, str]:
    """Return the desired labels of a node with these GPUs; without GPUs, the node gets no labels of Orion."""
    if not devices:
        return {}
    labels = {annotations.GPUS: str(usable_gpus(devices))}
    # A GPU that was replaced or excluded keeps its GPUDevice. If all are away, the driver is: then they come back.
    devices = [each for each in devices if each.status.health != "Unknown"] or devices
    memories = [each.status.memory.total for each in devices if each.status.memory]
    if memories:
        labels[annotations.GPU_MEMORY] = str(min(memories) // _MIB)
    modes = {device.status.mode.value for device in devices if device.status.mode}
    models = {_as_label(device.status.model) for device in devices if device.status.model} - {""}
    for key, values in ((annotations.MODE, modes), (annotations.MODEL, models)):
        if values:
            labels[key] = values.pop() if len(values) == 1 else _MIXED
    if any(device.status.simulated for device in devices):
        labels[annotations.SIMULATED] = "true"
    return labels


def _as_label(model: str) -> str:
    """Return the GPU's name as a valid label value: the driver's "NVIDIA H200" becomes NVIDIA-H200."""
    return re.sub("[^A-Za-z0-9]+$|^[^A-Za-z0-9]+", "", re.sub("[^A-Za-z0-9_.]+", "-", model)[:_LABEL_MAX])
