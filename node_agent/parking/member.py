"""One slot of what leaves and comes back as a whole, and what its processes hold."""

from collections.abc import Collection
from typing import NamedTuple

from orion.node_agent.clients.client import Client, held_mib, proven_mib
from orion.node_agent.clients.shared_gpu import SharedGpu
from orion.node_agent.slots.slot import Slot

_MIB = 1 << 20


class Member(NamedTuple):
    """A slot of a tenant."""

    shared_gpu: SharedGpu
    slot: Slot
    clients: tuple[Client, ...]
    is_awaited: bool
    """ A client of the previous agent may still return to it. """

    @property
    def held(self) -> int:
        """What its processes hold of the GPU, in bytes, the driver's own included.

        What they say beyond their limit counts as far as they held it before the limit was lowered, or the driver has
        listed it.
        """
        said, most = min(self.shared_gpu.gpu.memory_bytes, sum(held(each) for each in self.clients)), self.most
        return said if said <= most else max(most, min(said, sum(map(proven_mib, self.clients)) * _MIB))

    def left(self, staying: Collection[Client], are_all_gone: bool) -> int:
        """Return what its processes took with them when they left the GPU, in bytes, at least.

        Args:
            staying: those that did not leave.
            are_all_gone: all others have left; else some of them may still do so.
        """
        left = max(self.held - sum(map(held, staying)), self.slot.parking.left_bytes)
        gone = set(self.clients) - set(staying)
        took = [max(held_mib(each), each.left_mib) for each in gone if each.left_mib is not None]
        return min(left, sum(took) * _MIB) if are_all_gone and len(took) == len(gone) else left

    @property
    def most(self) -> int:
        """What its processes may hold of the GPU, in bytes, whatever they say."""
        total = self.shared_gpu.gpu.memory_bytes
        return min(total, self.slot.grant.memory_limit_bytes or total)


def held(client: Client) -> int:
    """Return what a client holds of its GPU, in bytes; while it is parked, without what the driver held for it."""
    return held_mib(client) * _MIB
