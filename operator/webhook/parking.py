"""Warns of pods that could not be parked as their GPUShare wants: too little host memory, or a liveness probe.

The webhook only warns. How much host memory a program has when it parks is not known at admission, and the node agent
looks at the pod's cgroups before it asks a process to leave the GPU. Without the room, the process stays on the GPU.
"""

from collections.abc import Iterator, Mapping

from orion.crds.grant import may_park
from orion.crds.policy import Oversubscribe
from orion.crds.quantities import Memory, Quantity
from orion.crds.share import DeviceMemory, GPUShare
from orion.operator.webhook.pods import Pod, PodContainer, Resources, containers_of

HOST_MEMORY_SHORT = "HostMemoryShort"


def cautions(pod: Pod, amounts: Mapping[str, int], share: GPUShare | None) -> Iterator[str]:
    """Yield the warnings about parking.

    Args:
        pod: the pod.
        amounts: the number of slots of each container.
        share: the GPUShare that governs the pod; None: none does.
    """
    memory = share.spec.memory if share is not None else None
    if share is None or memory is None or memory.oversubscribe is not Oversubscribe.PARK or memory.limit is None:
        return
    users = [entry for entry in containers_of(pod.spec) if entry.name in amounts]
    watched = [entry for entry in users if entry.container.liveness_probe]
    if watched and not may_park(share.spec, probed=True):
        yield _liveness(watched[0], share)
        return
    for entry in users:
        yield from _short(str(entry), entry.container.resources, amounts[entry.name], memory)
    yield from _short("the pod", pod.spec.resources, sum(amounts.values()), memory)


def probed(pod: Pod, amounts: Mapping[str, int]) -> bool:
    """Return whether one of the containers with slots has a liveness probe."""
    return any(entry.name in amounts and entry.container.liveness_probe for entry in containers_of(pod.spec))


def _liveness(entry: PodContainer, share: GPUShare) -> str:
    return (
        f"{entry} has a liveness probe, which would fail while the pod is parked, so the pod is never parked: remove "
        f"the probe, or set spec.memory.parkWithLivenessProbe of GPUShare {share.metadata.name} to true"
    )


def _short(what: str, resources: Resources | None, slots: int, memory: DeviceMemory) -> Iterator[str]:
    """Yield the warning that a limit of host memory cannot hold what its slots may have to park.

    What the programs need besides is what the pod requests, where it requests less than its limit.
    """
    limit = _host_memory(resources.limits if resources else None)
    if limit is None or memory.limit is None:
        return
    request = _host_memory(resources.requests if resources else None)
    own = request if request is not None and request < limit else 0
    parked = memory.limit.bytes * slots
    if parked + own <= limit:
        return
    besides = f" besides the {Memory.of_bytes(own)} that it requests" if own else ", besides what its program needs"
    yield (
        f"{HOST_MEMORY_SHORT}: {what} may have to park {Memory.of_bytes(parked)} of GPU memory in host memory{besides}"
        f", and its memory limit is {Memory.of_bytes(limit)}: raise resources.limits.memory to "
        f"{'' if own else 'more than '}{Memory.of_bytes(parked + own)}"
    )


def _host_memory(amounts: Mapping[str, str | int | float] | None) -> int | None:
    """Return the bytes of an amount of host memory; None: there is none, or it cannot be read."""
    try:
        return Quantity(str((amounts or {})["memory"])).bytes
    except (KeyError, ValueError):
        return None
