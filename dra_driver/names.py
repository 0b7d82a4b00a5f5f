"""Names that the driver, the scheduler and the kubelet use: the driver, its pool, its devices and their capacities."""

from orion.injection.slots import Resource

DRIVER = "orion.gpu"
CLAIM_KIND = f"{DRIVER}/claim"
""" The CDI kind of what a claim's request gives to a container. """

TIME, MEMORY = "time", "memory"
SLOTS = {Resource.HP.role: "hpSlots", Resource.BE.role: "beSlots"}
""" The capacity that one slot of a role consumes. """


def device_name(gpu: str) -> str:
    """Return the name of a GPU's device: a DNS label, the same on every node and after a reboot."""
    return gpu.lower()


def cdi_name(claim_uid: str, request: str) -> str:
    """Return the name of a CDI device. No uid is used twice, so no container gets another claim's edits."""
    return f"{claim_uid}_{request}"
