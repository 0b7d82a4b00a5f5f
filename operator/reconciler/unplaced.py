"""Reads from a pod's status whether kube-scheduler has found no node for it, and whether GPUs are a reason."""

from collections.abc import Mapping
from typing import Any

_NO_GPUS = "cannot allocate all claims"
""" What kube-scheduler says of nodes without room for a pod's claims (1.36 and 1.37, dynamicresources.go). """


def unplaced(status: Mapping[str, Any]) -> tuple[bool, bool]:
    """Return whether the scheduler has found no node, and whether there was a node that lacked GPUs."""
    for each in status.get("conditions") or ():
        if (each.get("type"), each.get("status"), each.get("reason")) == ("PodScheduled", "False", "Unschedulable"):
            return True, _NO_GPUS in (each.get("message") or "")
    return False, False
