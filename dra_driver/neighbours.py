"""What else is on the node: GPUs that other drivers offer, too, and a container runtime that cannot give devices.

Two drivers that offer one GPU keep two books, and nobody notices that it is given out twice. Drivers say a GPU's UUID
in an attribute, whatever its name. The agent sees other device plugins and what other drivers have given out
(`AdvertisedByAnother`), but only slices say what they offer.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Any

from orion.crds.claims import DRIVER

_CONTAINERD = re.compile(r"containerd://v?(\d+)\.(\d+)")
_OLDEST_WITH_CDI = (1, 7)
""" In 1.7 an option switches CDI on, and the version does not show whether it is on. """


def offered_by_others(slices: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """Return the other drivers that offer a device with a UUID, by the UUID in lower case.

    Args:
        slices: the slices of the node.
    """
    return {
        value["string"].lower(): each["spec"]["driver"]
        for each in slices
        if each["spec"]["driver"] != DRIVER
        for device in each["spec"].get("devices") or ()
        for value in (device.get("attributes") or {}).values()
        if str(value.get("string", "")).lower().startswith("gpu-")
    }


def why_no_cdi(node: Mapping[str, Any]) -> str:
    """Return why the node's container runtime would start containers without their devices; empty: it gives them.

    The kubelet does not ask the runtime. One that does not know the field ignores it, and the container starts without
    GPU and hook.

    Args:
        node: the Node object.
    """
    version = str(node.get("status", {}).get("nodeInfo", {}).get("containerRuntimeVersion", ""))
    found = _CONTAINERD.match(version)
    if found is None or (int(found[1]), int(found[2])) >= _OLDEST_WITH_CDI:
        return ""
    return (
        f"the container runtime of node {node['metadata']['name']} is {version}, which does not know CDI, so its GPUs "
        "are not offered to claims: update to containerd 2, or use the device plugin"
    )
