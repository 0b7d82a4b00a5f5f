"""Decides which tenants leave the GPUs' memory, and which may come back: a pure function of a `View`.

Who leaves: where less is free than hp's reserve and what hp waits for, the tenant whose leaving costs least and
suffices. A tenant that has come back stays for a minimum time, except if hp waits, or grows so fast that it will need
the room before. A tenant that had to leave early stays away until its time would have been over, so however hp grows
and shrinks, changes take a bounded part of the time. Nobody leaves for what all tenants together could not make free,
nor while the driver does not say what is free: the room may be there already. Nor does a tenant leave that does not fit
into the host's memory, beside those that are leaving.

Who comes back: a tenant for which enough is free at this moment, beside the reserve, a margin, what those who are
here may still take, and what hp will take while the tenant stays, if hp grows at this time. The first is the one that
has had the least of the time that it is due. If not all fit, it takes the place of others that have had more, once
these have stayed for the minimum time. Nobody overtakes it on its GPUs meanwhile: small tenants would keep a large one
away for ever. But who only waits for host memory, in which those that would have to leave do not fit together, keeps
nobody away. No turn begins on a GPU while somebody moves there: if two left at a time, those who stay might not be
enough to keep the GPU busy, and neither would leave sooner, because they share the link to the host.

A tenant whose allocation finds no room leaves itself, and comes back in its turn with room for it. If there can never
be so much, the allocation fails.

A tenant that has just begun may take all that its limit allows. If that is more than there is room for, the newest one
leaves again at once, and waits for its turn: its first large allocation would fail.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping

from orion.node_agent.parking.view import Place, Tenant, View, Wishes


def decide(view: View) -> Wishes:
    """Return who shall leave, and who may come back."""
    return _Deciding(view).wishes()


class _Deciding:
    def __init__(self, view: View) -> None:
        self._view = view
        self._at = {place: [each for each in view.tenants if each.place is place] for place in Place}
        self._leave: list[Tenant] = []
        self._left: set[str] = set()
        """ The names of those in `_leave`. """
        self._back: dict[str, Mapping[str, int]] = {}
        """ How much room those need that come back, by GPU. """
        self._hopeless: set[str] = set()
        self._helpless: set[str] = set()
        self._wished = {gpu: room.wished for gpu, room in view.cards.items()}

    def wishes(self) -> Wishes:
        for tenant in self._here():
            if tenant.is_wished_away and self._may_leave(tenant):
                self._choose(tenant)
        for gpu in self._view.cards:
            self._make_room(gpu)
            self._make_wait(gpu)
            self._turn_away(gpu)
        self._let_back()
        leave = tuple(each.name for each in self._leave)
        return Wishes(leave, tuple(self._back), frozenset(self._helpless), frozenset(self._hopeless))

    def _choose(self, tenant: Tenant) -> None:
        if self._fits_host(tenant, self._charged()):  # else once those have left that are leaving now
            self._leave.append(tenant)
            self._left.add(tenant.name)

    # -- Who is where --------------------------------------------------------------------------------------------------

    def _here(self) -> list[Tenant]:
        """Return the tenants that are here and have not been chosen to leave."""
        return [each for each in self._at[Place.HERE] if each.name not in self._left]

    def _leaving(self) -> list[Tenant]:
        return self._at[Place.LEAVING] + self._leave

    def _returning(self) -> list[Tenant]:
        return self._at[Place.RETURNING]

    def _may_leave(self, tenant: Tenant) -> bool:
        is_asked = tenant.parks and not tenant.is_hp and self._view.now >= tenant.refused_until
        return is_asked and not self._view.lacks_host_memory(tenant)

    def _charged(self) -> Counter[str]:
        """Return what those that are leaving take of host memory."""
        charged = Counter[str]()
        for each in self._leaving():
            charged.update(each.charged)
        return charged

    def _fits_host(self, tenant: Tenant, charged: Mapping[str, int]) -> bool:
        """Return whether host memory can hold what it has on the GPUs, beside what is charged for others."""
        return all(charged[place] + size <= self._view.host[place] for place, size in tenant.charged.items())

    def _has_stayed(self, tenant: Tenant) -> bool:
        return self._view.now - tenant.since >= self._view.stay_seconds(tenant)

    def _rests(self, tenant: Tenant) -> bool:
        """Return whether it had to leave early, and shall not come and go."""
        return not tenant.is_half and self._view.now - tenant.came < self._view.stay_seconds(tenant)

    # -- Room ----------------------------------------------------------------------------------------------------------

    def _coming(self, gpu: str) -> int:
        begun = sum(each.coming.get(gpu, each.held.get(gpu, 0)) for each in self._returning())
        return max(0, begun - self._view.cards[gpu].restored) + sum(size.get(gpu, 0) for size in self._back.values())

    def _growth(self, gpu: str, tenants: Iterable[Tenant]) -> int:
        return sum(each.needs(gpu) - each.frees(gpu) for each in tenants)

    def _soon(self, gpu: str) -> int:
        """Return what will be free once those who move have moved."""
        free = self._view.cards[gpu].free or 0
        return free - self._coming(gpu) + sum(each.frees(gpu) for each in self._leaving())

    def _for_return(self, gpu: str) -> int:
        """Return what those who come back may take at this moment."""
        room = self._view.cards[gpu]
        kept = room.reserve + room.margin + room.promised + room.kept + self._wished[gpu]
        growth = self._growth(gpu, [*self._here(), *self._returning()])
        return (room.free or 0) - self._coming(gpu) - kept - growth

    def _hp_takes(self, gpu: str, seconds: float) -> int:
        """Return what hp will take in that time if it goes on as at this time."""
        room = self._view.cards[gpu]
        return min(room.most, math.ceil(room.rate * seconds))

    # -- Leaving -------------------------------------------------------------------------------------------------------

    def _make_room(self, gpu: str) -> None:
        room = self._view.cards[gpu]
        if room.free is None:
            return
        movable = [each for each in self._here() if gpu in each.held and self._may_leave(each)]
        # Nobody leaves for what hp was given: it was free, and hp may have taken it already. If not, hp asks again.
        most = self._soon(gpu) + sum(each.frees(gpu) for each in [*movable, *self._returning()])
        if self._wished[gpu] > most:
            self._hopeless.add(gpu)
            self._wished[gpu] = 0
        wished = self._wished[gpu]
        due = [each for each in movable if self._is_due(gpu, each)]
        self._until(gpu, wished + room.reserve + room.promised, due)
        if wished:
            self._until(gpu, wished, movable)

    def _is_due(self, gpu: str, tenant: Tenant) -> bool:
        """Return whether it leaves for the reserve."""
        if not tenant.has_returned or self._has_stayed(tenant):
            return True
        rest = tenant.since + self._view.stay_seconds(tenant) - self._view.now
        return self._soon(gpu) < self._view.cards[gpu].rate * rest

    def _until(self, gpu: str, needed: int, candidates: Iterable[Tenant]) -> None:
        """Let tenants leave until so much will be free."""
        left = [each for each in candidates if each.held.get(gpu, 0) > 0 and each.name not in self._left]
        while left and (short := needed - self._soon(gpu)) > 0:
            best = min(left, key=_cost(gpu, short))
            left.remove(best)
            self._choose(best)

    def _make_wait(self, gpu: str) -> None:
        """Let those whose allocations find no room wait for their turn, until there is room for those of the others."""
        room = self._view.cards[gpu]
        if room.free is None:
            return
        kept = room.reserve + room.promised + room.kept + self._wished[gpu]
        cramped = [each for each in self._here() if each.lacks.get(gpu)]
        for tenant in sorted(cramped, key=lambda each: (-each.clock, -each.since, each.name)):
            if self._soon(gpu) - kept >= sum(each.lacks.get(gpu, 0) for each in self._here()):
                return
            if self._may_leave(tenant) and self._is_possible(tenant.held, without_reserve=True):
                self._choose(tenant)
            else:
                self._helpless.add(tenant.name)

    def _turn_away(self, gpu: str) -> None:
        """Let the newest tenants leave again if all together may need more than there is."""
        room = self._view.cards[gpu]
        if room.free is None:
            return
        kept = room.reserve + room.promised + self._wished[gpu]
        new = [each for each in self._here() if each.is_new and self._may_leave(each) and gpu in each.gpus]
        for tenant in sorted(new, key=lambda each: (-each.since, each.name)):
            here = [each for each in self._here() if each.parks and gpu in each.gpus]
            beside = len(here) > 1 or any(gpu in each.gpus for each in self._returning())
            held, needs = tenant.held.get(gpu, 0), tenant.needs(gpu)
            if not beside:
                return
            growth = self._growth(gpu, [*self._here(), *self._returning()])
            is_short = self._soon(gpu) - kept - growth < 0
            # It takes its memory now: what others are about to leave comes too late for it, and is for those who wait.
            is_early = 2 * held < needs and self._for_return(gpu) + room.margin < 0
            if needs > held and (is_short or is_early):
                self._choose(tenant)

    # -- Coming back ---------------------------------------------------------------------------------------------------

    def _let_back(self) -> None:
        away = [each for each in self._at[Place.AWAY] if not each.is_wished_away and not self._rests(each)]
        awaited = set[str]()
        for tenant in sorted(away, key=lambda each: (not each.is_half, each.clock, each.since, each.name)):
            if awaited & tenant.gpus or any(self._free(gpu) is None for gpu in tenant.gpus):
                continue
            size = self._return_size(tenant)
            if not self._is_possible(size):
                continue
            if all(self._for_return(gpu) >= amount for gpu, amount in size.items()):
                self._back[tenant.name] = size
            elif self._make_turn(tenant, size):
                awaited |= tenant.gpus

    def _free(self, gpu: str) -> int | None:
        room = self._view.cards.get(gpu)
        return room.free if room else None

    def _return_size(self, tenant: Tenant) -> dict[str, int]:
        """Return the room for a tenant that comes back: what it may need if there can be so much, else the least.

        What hp takes meanwhile is part of it.
        """
        part = 1 + self._view.margin_part
        sizes = [
            {gpu: math.ceil(amount(gpu) * part) for gpu in tenant.gpus}
            for amount in (tenant.needs, lambda gpu: tenant.held.get(gpu, 0), tenant.frees)
        ]
        size = next((each for each in sizes if self._is_possible(each)), sizes[-1])
        return {gpu: amount + self._hp_takes(gpu, self._view.stay_seconds(tenant)) for gpu, amount in size.items()}

    def _is_possible(self, size: Mapping[str, int], without_reserve: bool = False) -> bool:
        """Return whether there is the room once all others that can leave have left.

        Args:
            size: what is needed, by GPU.
            without_reserve: what is kept for hp counts as room, because hp may need less later.
        """
        reserves = {gpu: self._view.cards[gpu].reserve if without_reserve else 0 for gpu in size}
        return all(self._for_return(gpu) + self._others(gpu) + reserves[gpu] >= amount for gpu, amount in size.items())

    def _others(self, gpu: str) -> int:
        leaving = sum(each.held.get(gpu, 0) for each in self._leaving())
        others = [*self._returning(), *(each for each in self._here() if self._may_leave(each))]
        return leaving + sum(each.needs(gpu) for each in others)

    def _somebody_moves(self, gpus: frozenset[str]) -> bool:
        moving = [each.gpus for each in [*self._leaving(), *self._returning()]]
        return any(gpus & each for each in [*moving, *(frozenset(size) for size in self._back.values())])

    def _make_turn(self, tenant: Tenant, size: Mapping[str, int]) -> bool:
        """Let others leave for a tenant whose turn it is, if that makes enough room for it.

        Returns:
            Whether nobody may overtake it: not if only host memory keeps it away. Those who come back meanwhile give
            back as much host memory as they need when they leave again for it.
        """
        if self._somebody_moves(tenant.gpus):
            return True
        lacking = {gpu: amount - self._for_return(gpu) for gpu, amount in size.items()}
        longest = sorted(
            (each for each in self._here() if self._gives_way(each, tenant)),
            key=lambda each: (-each.clock, each.name),
        )
        if any(sum(each.needs(gpu) for each in longest) < amount for gpu, amount in lacking.items()):
            return True
        chosen, charged = list[Tenant](), self._charged()
        for each in longest:
            if max(lacking.values(), default=0) <= 0:
                break
            if any(amount > 0 and each.needs(gpu) for gpu, amount in lacking.items()) and self._fits_host(
                each, charged
            ):
                chosen.append(each)
                charged.update(each.charged)
                lacking = {gpu: amount - each.needs(gpu) for gpu, amount in lacking.items()}
        if max(lacking.values(), default=0) <= 0:
            for each in chosen:
                self._choose(each)
        return bool(self._leaving())

    def _gives_way(self, tenant: Tenant, waiting: Tenant) -> bool:
        """Return whether a tenant that is here may have to leave for one whose turn it is."""
        if not any(map(tenant.needs, waiting.gpus)) or not (waiting.is_half or tenant.clock > waiting.clock):
            return False
        return self._may_leave(tenant) and self._has_stayed(tenant)


def _cost(gpu: str, short: int) -> Callable[[Tenant], tuple[bool, int, float, str]]:
    """Return a key: first who makes enough room for the least bytes to move; if nobody does, who makes the most."""

    def key(tenant: Tenant) -> tuple[bool, int, float, str]:
        held = tenant.held.get(gpu, 0)
        return (False, tenant.total, -tenant.clock, tenant.name) if held >= short else (True, -held, 0.0, tenant.name)

    return key
