"""Computes a node's labels from its GPUDevices. Node selectors and people use them."""

import re
from collections.abc import Sequence

from orion.crds import annotations
from orion.operator.reconciler.records import NODE_LABELS, DeviceRecord, NodeRecord

MIXED = "mixed"
_LABEL_MAX = 63


def desired_labels(devices: Sequence[DeviceRecord]) -> dict[str, str]:
    """Return the desired labels of a node with these GPUs; without GPUs, the node gets no labels of Orion."""
    if not devices:
        return {}
    labels = {annotations.GPUS: str(sum(not device.cordon for device in devices))}
    modes = {device.status.mode.value for device in devices if device.status.mode}
    models = {_as_label(device.status.model) for device in devices if device.status.model} - {""}
    for key, values in ((annotations.MODE, modes), (annotations.MODEL, models)):
        if values:
            labels[key] = values.pop() if len(values) == 1 else MIXED
    if any(device.status.simulated for device in devices):
        labels[annotations.SIMULATED] = "true"
    return labels


def label_changes(node: NodeRecord, devices: Sequence[DeviceRecord]) -> dict[str, str | None]:
    """Return the labels that must change, with their new values; None: the label must be removed."""
    desired = desired_labels(devices)
    return {key: desired.get(key) for key in NODE_LABELS if node.labels.get(key) != desired.get(key)}


def _as_label(model: str) -> str:
    """Return the GPU's name as a valid label value: the driver's "NVIDIA H200" becomes NVIDIA-H200."""
    return re.sub("[^A-Za-z0-9]+$|^[^A-Za-z0-9]+", "", re.sub("[^A-Za-z0-9_.]+", "-", model)[:_LABEL_MAX])
