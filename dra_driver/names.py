"""Names that the driver gives: to the devices in its slices, and to what containers get by CDI."""

from orion.crds.claims import DRIVER
from orion.injection.snapshot import Snapshot

CLAIM_KIND = f"{DRIVER}/claim"
""" The CDI kind of what a claim's request gives to a container. """


def device_name(gpu: str) -> str:
    """Return the name of a GPU's device: a DNS label, the same on every node and after a reboot."""
    return gpu.lower()


def cdi_name(claim_uid: str, request: str) -> str:
    """Return the name of a CDI device. No uid is used twice, so no container gets another claim's edits."""
    return f"{claim_uid}_{request}"


def why_not_offered(device: str, snapshot: Snapshot) -> str:
    """Return why a device is not among the agent's GPUs, as a sentence."""
    others = {device_name(uuid): why for uuid, why in snapshot.not_advertised.items()}
    why = others.get(device, "the driver or the node's configuration no longer has it")
    return f"the node's agent does not offer the GPU {device}: {why}"
