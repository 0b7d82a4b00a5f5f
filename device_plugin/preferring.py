"""Chooses the free slots that a container should get: a pure function of the agent's snapshot.

The kubelet sends the free IDs and the number that it needs. It does not send the pod or its memory limit, so the choice
uses the state of the GPUs:

* a be slot: the GPU where hp leaves the most time for each be tenant; if equal, the one with most unreserved memory;
* an hp slot: a GPU without hp; if equal, the GPU with the fewest be tenants;
* several slots: each on another GPU; first GPUs that NVLink connects, then GPUs of one NUMA node.

The snapshot is older than the latest allocations. A slot that the kubelet does not list as free, and that no container
holds in the snapshot, has just been allocated. For each such slot, an equal part of the GPU's memory counts as
reserved. Otherwise all pods of a burst would get the GPU that was best in the snapshot.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from orion.injection.slots import Slot
from orion.injection.snapshot import AdvertisedGPU

Score = tuple[float, ...]
""" Smaller is better. """


@dataclass(frozen=True, eq=False)
class _Candidate:
    """A GPU with free slots."""

    gpu: AdvertisedGPU
    free: tuple[Slot, ...]
    taken: int
    """ Number of slots of this role that containers hold. """
    unreserved: float
    """ Bytes of memory that no container has reserved. """

    @cached_property
    def score(self) -> Score:
        """Return how badly this GPU suits one more container."""
        if self.free and self.free[0].role == "hp":
            be = sum(slot.role == "be" for slot in self.gpu.held)
            return (self.taken, be, -self.unreserved, self.gpu.index)
        time_left = (1.0 - self.gpu.hp_busy_ratio) / (1 + self.taken)
        return (self.unreserved <= 0 < self.gpu.memory_bytes, -time_left, -self.unreserved, self.gpu.index)


def prefer(available: Iterable[Slot], must: Sequence[Slot], size: int, gpus: Mapping[str, AdvertisedGPU]) -> list[Slot]:
    """Return `size` slots, first the slots of `must`. Return fewer slots only if fewer are available.

    Args:
        available: free slots of one role.
        must: the slots of `available` that the answer has to contain.
        size: how many slots the container needs.
        gpus: the agent's last snapshot.
    """
    candidates = _candidates(available, gpus)
    chosen = list(dict.fromkeys(must))
    free = {uuid: [slot for slot in each.free if slot not in chosen] for uuid, each in candidates.items()}
    while len(chosen) < size and any(free.values()):
        # A GPU gives a second slot only when every GPU has given a slot. The container's start is then refused.
        used = {slot.gpu for slot in chosen}
        left = [each for uuid, each in candidates.items() if free[uuid] and uuid not in used]
        left = left or [each for uuid, each in candidates.items() if free[uuid]]
        held = [candidates[slot.gpu] for slot in chosen if slot.gpu in candidates]
        group = _group(held, left, size - len(chosen))
        chosen += [free[each.gpu.uuid].pop(0) for each in group]
    return chosen


def _candidates(available: Iterable[Slot], gpus: Mapping[str, AdvertisedGPU]) -> dict[str, _Candidate]:
    """Return the GPUs with free slots. Slots that a container holds come last: a kubelet may list them as free."""
    held = frozenset(slot for gpu in gpus.values() for slot in gpu.held)
    free: dict[str, list[Slot]] = defaultdict(list)
    for slot in sorted(set(available), key=lambda slot: (slot in held, slot)):
        free[slot.gpu].append(slot)
    return {uuid: _candidate(gpus.get(uuid) or AdvertisedGPU(uuid), slots) for uuid, slots in free.items()}


def _candidate(gpu: AdvertisedGPU, free: list[Slot]) -> _Candidate:
    of_role = [slot for slot in gpu.slots if slot.role == free[0].role]
    taken = [slot for slot in of_role if slot not in free and gpu.usable(slot)]
    unreported = sum(slot not in gpu.held for slot in taken)
    unreserved = gpu.memory_bytes - gpu.memory_reserved_bytes - unreported * gpu.memory_bytes / max(1, len(of_role))
    return _Candidate(gpu, tuple(free), len(taken), unreserved)


def _group(held: list[_Candidate], left: list[_Candidate], size: int) -> list[_Candidate]:
    """Return up to `size` GPUs of `left` that suit one container together with the GPUs of `held`.

    If `held` is empty, the function builds one group from each GPU, and returns the best group. A group grows by the
    GPU that suits it best.
    """
    beginnings: list[list[_Candidate]] = [[]] if held else [[each] for each in left]
    grown = []
    for group in beginnings:
        while len(group) < min(size, len(left)):
            rest = [each for each in left if each not in group]
            group.append(min(rest, key=lambda each: _together([*held, *group, each])))
        grown.append(group)
    return min(grown, key=lambda group: _together([*held, *group]))


def _together(group: list[_Candidate]) -> Score:
    """Return how badly these GPUs suit one container together."""
    scores = [each.score for each in group]
    summed = tuple(sum(column) for column in zip(*scores, strict=True))
    if len(group) == 1:
        return summed
    unlinked = sum(
        second.gpu.uuid not in first.gpu.linked and first.gpu.uuid not in second.gpu.linked
        for index, first in enumerate(group)
        for second in group[index + 1 :]
    )
    nodes = len({each.gpu.numa_node for each in group})
    # The first number counts more than links: another hp on the GPU, or no free memory, is worse than slow copies.
    return (summed[0], unlinked, nodes, *summed[1:])
