"""When the agent looks at those who park, when it asks the driver about each GPU, and when it decides again."""

from collections.abc import Collection, Iterable, Mapping

from orion.node_agent.parking.gpu_room import GpuRoom
from orion.node_agent.parking.next_change import next_change
from orion.node_agent.parking.present import Present
from orion.node_agent.parking.view import Place, View, Wishes

LOOK_SECONDS, QUIET_SECONDS = 1.0, 5.0
""" Between two questions about a GPU, and about one without hp on which all tenants are: only what programs without a
slot take is new there. """
REST_SECONDS = 20.0
""" Between two decisions about a GPU, at most. """
HP_SECONDS = 0.1
""" Between two looks at what hp holds, which needs no driver, or at a tenant that finds no room. """
_MOVING_SECONDS, _WAITING_SECONDS = 0.05, 0.02
""" Between two looks at who moves and may be done, and between two questions while hp waits. """


class Pace:
    """When the driver is asked about each GPU in its turn."""

    def __init__(self) -> None:
        self._ask_at: dict[str, float] = {}

    def in_turn(self, now: float, uuids: Iterable[str]) -> set[str]:
        """Return the GPUs whose time has come."""
        return {uuid for uuid in uuids if now >= self._ask_at.get(uuid, now)}

    def asked(self, at: float, cards: Mapping[str, GpuRoom], on: Mapping[str, Collection[Present]]) -> None:
        """Note that the driver was asked about these GPUs, in their turn or earlier. `on`: the tenants of each GPU."""
        for uuid, room in cards.items():
            all_rest = all(each.known.place is Place.HERE and each.rests for each in on.get(uuid, ()))
            is_quiet = all_rest and not room.has_hp and room.asked >= at  # a late answer must not become stale
            after = at + (QUIET_SECONDS if is_quiet else LOOK_SECONDS)
            before = self._ask_at.get(uuid, at)
            self._ask_at[uuid] = after if before <= at else min(before, after)

    def seconds(self, now: float, cards: Collection[GpuRoom], moving: Iterable[Present], undecided: bool) -> float:
        """Return the time until the next look.

        Args:
            now: the time.
            cards: of all GPUs.
            moving: who leaves or comes back.
            undecided: what is free on a GPU was not known to the last decision.
        """
        if any(room.wishes.wished or room.owed.wished for room in cards):
            return _WAITING_SECONDS
        has_hp, done_at = any(room.has_hp for room in cards), [each.known.done_at for each in moving]
        if undecided or (has_hp and done_at):
            return _MOVING_SECONDS
        most = HP_SECONDS if has_hp or any(room.cramped.wished for room in cards) else QUIET_SECONDS
        next_at = min([*self._ask_at.values(), *done_at], default=now)
        return min(max(next_at - now, _MOVING_SECONDS), most)


def next_decision(view: View, wishes: Wishes, here: Collection[Present], cards: Mapping[str, GpuRoom]) -> float:
    """Return when these GPUs need another decision if nothing is new, in seconds.

    Args:
        view: what was decided upon.
        wishes: what was decided.
        here: the tenants there.
        cards: of all GPUs.
    """
    if wishes != Wishes() or not all(each.rests for each in here):
        return view.now + LOOK_SECONDS
    if all(each.known.place is Place.HERE for each in here):
        return view.now + REST_SECONDS
    if any(room.free is None or room.kept or cards[uuid].has_hp for uuid, room in view.cards.items()):
        return view.now + LOOK_SECONDS
    return min(next_change(view), *(each.changes_at(view.now) for each in here), view.now + REST_SECONDS)
