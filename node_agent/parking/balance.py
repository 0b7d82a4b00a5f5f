"""The memory of one GPU while a decision is made: what is free, what comes and goes, and what may still grow.

All of it is sums, which change when somebody is chosen to leave or to come back. So no question is dearer where there
are more tenants.
"""

from collections.abc import Collection, Iterable

from orion.node_agent.parking.view import Place, Room, Tenant


class Balance:
    """The room of one GPU, and its tenants.

    Args:
        gpu: its UUID.
        room: as it was seen.
        tenants: those that use the GPU.
        movable: the names of those that are here and may be asked to leave.
    """

    def __init__(self, gpu: str, room: Room, tenants: Iterable[Tenant], movable: Collection[str]) -> None:
        self._gpu, self.room, self.wished, self.owed = gpu, room, room.wished, room.owed
        self.here: dict[str, Tenant] = {}
        """ Who is here and has not been chosen to leave. """
        self.lacks = 0
        """ What allocations of those found no room for. """
        self.moves = False
        """ Somebody leaves or comes back, or has been chosen to. """
        self.returning = 0
        """ What would be free again if those left that come back already. """
        self.number = 0
        """ How many of those that park are here or come back. """
        self.growth = 0
        """ What those who are here or come back may need beyond what they have taken. """
        self._coming = self._leaving = self._others = 0
        for each in tenants:
            held, needs, frees = each.held.get(gpu, 0), each.needs(gpu), each.frees(gpu)
            if each.place is Place.HERE:
                self.here[each.name] = each
                self.lacks += each.lacks.get(gpu, 0)
                self.number += each.parks
                self.growth += needs - frees
                self._others += needs if each.name in movable else 0
            elif each.place is Place.RETURNING:
                self.moves = True
                self.returning += frees
                self.number += 1
                self._coming += each.coming.get(gpu, held)
                self.growth += needs - frees
                self._others += needs
            elif each.place is Place.LEAVING:
                self.moves = True
                self._leaving += frees
                self._others += held
        self._coming = max(0, self._coming - room.restored)

    def leaves(self, tenant: Tenant) -> None:
        """Note that a tenant which is here and may leave shall leave."""
        held, needs, frees = tenant.held.get(self._gpu, 0), tenant.needs(self._gpu), tenant.frees(self._gpu)
        del self.here[tenant.name]
        self.moves = True
        self.lacks -= tenant.lacks.get(self._gpu, 0)
        self.number -= 1
        self._leaving += frees
        self.growth -= needs - frees
        self._others += held - needs

    def returns(self, size: int) -> None:
        """Note that a tenant may come back that needs so much."""
        self.moves = True
        self._coming += size

    @property
    def soon(self) -> int:
        """What will be free once those who move have moved."""
        return (self.room.free or 0) - self._coming + self._leaving

    @property
    def reserved(self) -> int:
        """What is kept for hp and for those that never leave, and what they wait for."""
        return self.room.reserve + self.room.promised + self.wished + self.owed

    @property
    def for_return(self) -> int:
        """What those who come back may take at this moment."""
        kept = self.reserved + self.room.margin + self.room.kept + self.room.grown
        return (self.room.free or 0) - self._coming - kept - self.growth

    @property
    def for_turn(self) -> int:
        """The same by what the device said: it may have said already what has been taken of late."""
        return self.for_return + self.room.grown

    @property
    def at_most(self) -> int:
        """The same once all that can leave have left."""
        return self.for_turn + self._others
