"""What clients wait for: an allocation found no room on the GPU, although the client's credit suffices (ROOM)."""

from collections.abc import Collection
from dataclasses import dataclass

from orion.hook.join import CreditAnswer
from orion.node_agent.clients.client import Client

_LASTS_SECONDS = 1.0
""" A client that has not asked again for so long waits no more, or has taken what it was given. """
_GIVEN_SECONDS = 0.25
""" A client that has not asked again for so long has taken what it was given; its driver needs less to refuse. """
_MORE_LEAST, _MORE_MOST = 64 << 20, 512 << 20
""" How much more than it needs is made free for a client whose allocation failed although the room was there. """


@dataclass
class Wish:
    """One client's wish; times in seconds."""

    size: int
    """ What it wants to allocate, in bytes. """
    held_mib: int
    """ What it held when it asked. """
    noted: float
    """ When it first asked. """
    asked: float
    """ When it last asked. """
    more: int = 0
    given: bool = False
    """ The answer was that the room is there. """
    given_at: float = 0.0
    is_hopeless: bool = False
    """ Nobody can make so much room. """
    is_refused: bool = False
    """ The answer was that the room will not come. """

    @property
    def needed(self) -> int:
        """How much must be free for it, in bytes."""
        return self.size + self.more


class RoomWishes:
    """The wishes of clients of one GPU, those of hp or those of tenants.

    A client has at most one that waits, the largest of its threads' wishes. If nobody can make so much room, the next
    smaller wish takes its place, and it waits beside that only for its thread to ask again.
    """

    def __init__(self) -> None:
        self._wishes: dict[tuple[Client, bool], Wish] = {}
        """ By client, and whether it has been given up and another one has its place. """
        self.decided = 0.0
        """ When the driver was asked before the last decision. """

    def note(self, client: Client, size: int, now: float, may_be_first: bool = False) -> tuple[Wish, bool]:
        """Note what a client asks for; return its wish, and whether it is new.

        Args:
            client: that asks.
            size: of the allocation, in bytes.
            now: in seconds.
            may_be_first: it may ask before its allocation, so the driver need not have refused what it was given.
        """
        self.forget(now)
        wish, held = self._wish(client, size), client.record.memory_mib
        is_taken = wish is not None and wish.given and (may_be_first or held > wish.held_mib)
        if wish is None or wish.is_refused or is_taken:  # it is about another allocation
            wish = self._wishes[client, False] = Wish(size, held, now, now)
            return wish, True
        wish.asked = now
        if wish.given:
            wish.given, wish.noted = False, now
            wish.more = min(max(2 * wish.more, _MORE_LEAST), _MORE_MOST)
            return wish, True
        if size > wish.size and not wish.is_hopeless:
            wish.size = size
            return wish, True
        return wish, False

    def give(self, client: Client, size: int, now: float) -> None:
        """Note that a client which does not wait any more has been given room: nobody else is given the same."""
        self._wishes[client, False] = Wish(size, client.record.memory_mib, now, now, given=True, given_at=now)

    def _wish(self, client: Client, size: int) -> Wish | None:
        """Return the wish that one for so much is part of; None: it is a new one."""
        given_up = self._wishes.get((client, True))
        if given_up is not None and not given_up.is_refused and size >= given_up.size:
            return given_up
        wish = self._wishes.get((client, False))
        if wish is not None and wish.is_hopeless and not wish.given and not wish.is_refused and size < wish.size:
            self._wishes[client, True] = self._wishes.pop((client, False))
            return None
        return wish

    def answer(self, wish: Wish, free: int | None, now: float) -> CreditAnswer:
        """Answer a wish.

        Args:
            wish: of this GPU.
            free: what the driver said before the last decision, less what others have been given.
            now: in seconds.
        """
        if self.decided < wish.noted:
            return CreditAnswer.LATER
        if free is not None and free - self.kept(but=wish) >= wish.needed:
            wish.given, wish.given_at = True, now
            return CreditAnswer.YES
        wish.is_refused = wish.is_hopeless
        return CreditAnswer.NO if wish.is_hopeless else CreditAnswer.LATER

    def give_up(self) -> None:
        """Note that nobody can make room for all wishes: the largest one fails, and spoils no other one.

        If the driver was asked before that wish came, the next decision says whether it fails.
        """
        waiting = [each for each in self._wishes.values() if not each.given and not each.is_hopeless]
        largest = max(waiting, key=lambda each: each.needed, default=None)
        if largest is not None and largest.noted <= self.decided:
            largest.is_hopeless = True

    def refuse(self, clients: Collection[Client]) -> None:
        """Note that these clients can never get what they wait for."""
        for client in clients:
            wish = self._wishes.get((client, False))
            if wish is not None and not wish.given:
                wish.is_hopeless = True

    def drop(self, clients: Collection[Client]) -> None:
        """Forget what these clients wait for: they leave, and take it when they come back."""
        for client in clients:
            self._wishes.pop((client, False), None)
            self._wishes.pop((client, True), None)

    def waiting(self) -> dict[Client, Wish]:
        """Return what each client waits for; not what it has been given, which `kept` says."""
        wishes = ((client, each) for (client, _), each in self._wishes.items() if not each.given)
        return {client: each for client, each in wishes if not each.is_hopeless}

    def forget(self, now: float) -> None:
        """Forget clients that ask no more, and those that have left."""
        for (client, is_beside), wish in list(self._wishes.items()):
            taken = wish.given and (client.record.memory_mib > wish.held_mib or now - wish.given_at > _GIVEN_SECONDS)
            if taken or now - wish.asked > _LASTS_SECONDS:
                del self._wishes[client, is_beside]

    @property
    def wished(self) -> int:
        """What clients wait for, in bytes."""
        return sum(each.needed for each in self.waiting().values())

    def kept(self, but: Wish | None = None) -> int:
        """Return what clients have been given and have not taken yet, in bytes."""
        return sum(each.needed for each in self._wishes.values() if each.given and each is not but)
