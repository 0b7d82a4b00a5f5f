"""Decides which tenants leave the GPUs' memory, and which may come back: a pure function of a `View`.

Who leaves: where less is free than hp's reserve and what hp waits for, the tenant whose leaving costs least and
suffices. One that has refused for a reason that passes soon is asked again for hp that waits. The same for what tenants
that never leave are sure of. A tenant that has come back stays for a minimum time, except if one of them waits, or hp
grows so fast that it will need the room before. A tenant that had to leave early stays away until its time would have
been over, so however hp grows and shrinks, changes take a bounded part of the time. Nobody leaves for what all tenants
together could not make free, nor while the driver does not say what is free: the room may be there already. Nor does a
tenant leave that does not fit into the host's memory, beside those that are leaving.

Who comes back: a tenant for which enough is free at this moment, beside the reserve, a margin, what those who are
here may still take, and what hp will take while the tenant stays, if hp grows at this time. The first is the one that
has had the least of the time that it is due. If not all fit, it takes the place of others that have had more, once
these have stayed for the minimum time. Nobody overtakes it on its GPUs meanwhile: small tenants would keep a large one
away for ever. But who only waits for host memory, in which those that would have to leave do not fit together, keeps
nobody away. A tenant that had nearly all of a GPU comes back without the margin, once nobody else is there: the margin
protects it against others. No turn begins on a GPU while somebody moves there: if two left at a time, those who stay
might not be enough to keep the GPU busy, and neither would leave sooner, because they share the link to the host.

A tenant whose allocation finds no room leaves itself, and comes back in its turn with room for it. If there can never
be so much, the allocation fails.

A tenant that has just begun may take all that its limit allows. If that is more than there is room for, the newest one
leaves again at once, and waits for its turn: its first large allocation would fail.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping

from orion.node_agent.parking.balance import Balance
from orion.node_agent.parking.view import Place, Tenant, View, Wishes


def decide(view: View) -> Wishes:
    """Return who shall leave, and who may come back."""
    return _Deciding(view).wishes()


class _Deciding:
    def __init__(self, view: View) -> None:
        self._view = view
        self._movable = {each.name for each in view.tenants if each.place is Place.HERE and self._may_leave(each)}
        on: defaultdict[str, list[Tenant]] = defaultdict(list)
        self._charged = Counter[str]()
        """ What those that are leaving take of host memory. """
        for each in view.tenants:
            for gpu in each.gpus:
                on[gpu].append(each)
            if each.place is Place.LEAVING:
                self._charged.update(each.charged)
        self._somebody_leaves = any(each.place is Place.LEAVING for each in view.tenants)
        self._gpus = {gpu: Balance(gpu, room, on[gpu], self._movable) for gpu, room in view.cards.items()}
        self._leave, self._back = list[str](), list[str]()
        self._hopeless, self._helpless, self._stuck = set[str](), set[str](), set[str]()
        self._unpayable = set[str]()

    def wishes(self) -> Wishes:
        for tenant in self._view.tenants:
            if tenant.is_wished_away and tenant.name in self._movable:
                self._choose(tenant)
        for gpu, balance in self._gpus.items():
            if balance.room.free is not None:
                self._make_room(gpu, balance)
                self._make_wait(gpu, balance)
                self._turn_away(gpu, balance)
        self._let_back()
        sets = map(frozenset, (self._helpless, self._hopeless, self._unpayable, self._stuck))
        return Wishes(tuple(self._leave), tuple(self._back), *sets)

    def _choose(self, tenant: Tenant) -> None:
        if self._fits_host(tenant, self._charged):  # else once those have left that are leaving now
            self._leave.append(tenant.name)
            self._charged.update(tenant.charged)
            for gpu in tenant.gpus & self._gpus.keys():
                self._gpus[gpu].leaves(tenant)

    # -- Who may move --------------------------------------------------------------------------------------------------

    def _can_leave(self, tenant: Tenant) -> bool:
        return tenant.parks and not tenant.is_hp and not self._view.lacks_host_memory(tenant)

    def _may_leave(self, tenant: Tenant) -> bool:
        now, cards = self._view.now, self._view.cards
        is_again = now >= tenant.again_for_hp and any(cards[gpu].wished for gpu in tenant.gpus & cards.keys())
        return (is_again or now >= tenant.refused_until) and self._can_leave(tenant)

    def _fits_host(self, tenant: Tenant, charged: Mapping[str, int]) -> bool:
        """Return whether host memory can hold what it has on the GPUs, beside what is charged for others."""
        return all(charged[place] + size <= self._view.host[place] for place, size in tenant.charged.items())

    def _has_stayed(self, tenant: Tenant) -> bool:
        return self._view.now - tenant.since >= self._view.stay_seconds(tenant)

    def _rests(self, tenant: Tenant) -> bool:
        """Return whether it had to leave early, and shall not come and go."""
        return not tenant.is_half and self._view.now - tenant.came < self._view.stay_seconds(tenant)

    # -- Leaving -------------------------------------------------------------------------------------------------------

    def _make_room(self, gpu: str, balance: Balance) -> None:
        movable = [each for each in balance.here.values() if gpu in each.held and each.name in self._movable]
        # Nobody leaves for what hp was given: it was free, and hp may have taken it already. If not, hp asks again.
        willing = [each for each in movable if self._view.now >= each.refused_until]
        if balance.soon + sum(each.frees(gpu) for each in willing) >= balance.wished + balance.owed:
            movable = willing  # who has just refused may do so again
        most = balance.soon + sum(each.frees(gpu) for each in movable) + balance.returning
        postponed = 0
        if balance.wished > most:
            again = (each for each in balance.here.values() if each.again_for_hp < math.inf and self._can_leave(each))
            later = balance.room.ending + sum(each.frees(gpu) for each in again if each.name not in self._movable)
            if balance.wished > most + later:
                self._hopeless.add(gpu)
            else:  # hp waits until these are asked again, or have ended, and nobody comes back meanwhile
                postponed = balance.wished
            balance.wished = 0
        if balance.owed > most - balance.wished:
            if balance.owed > most - balance.wished + balance.room.ending:
                self._unpayable.add(gpu)
            balance.owed = 0
        self._until(gpu, balance, balance.reserved, [each for each in movable if self._is_due(balance, each)])
        if balance.wished or balance.owed:
            # What is owed is not taken from what is there of the reserve, but the reserve is not filled for it.
            reserve = min(balance.room.reserve, max(0, balance.soon - balance.wished)) if balance.owed else 0
            self._until(gpu, balance, balance.wished + balance.owed + reserve, movable)
        balance.wished += postponed

    def _is_due(self, balance: Balance, tenant: Tenant) -> bool:
        """Return whether it leaves for the reserve."""
        if not tenant.has_returned or self._has_stayed(tenant):
            return True
        rest = tenant.since + self._view.stay_seconds(tenant) - self._view.now
        return balance.soon < balance.room.rate * rest

    def _until(self, gpu: str, balance: Balance, needed: int, candidates: Iterable[Tenant]) -> None:
        """Let tenants leave until so much will be free."""
        left = [each for each in candidates if each.held[gpu] > 0 and each.name in balance.here]
        while left and (short := needed - balance.soon) > 0:
            best = min(left, key=_cost(gpu, short))
            left.remove(best)
            self._choose(best)

    def _make_wait(self, gpu: str, balance: Balance) -> None:
        """Let those whose allocations find no room wait for their turn, until there is room for those of the others."""
        cramped = [each for each in balance.here.values() if each.lacks.get(gpu)]
        for tenant in sorted(cramped, key=lambda each: (-each.clock, -each.since, each.name)):
            if balance.soon - balance.reserved - balance.room.kept >= balance.lacks:
                return
            is_movable = tenant.name in self._movable
            if is_movable and self._is_possible(tenant.held, without_reserve=True):
                self._choose(tenant)
                continue
            later = {each: size - self._view.cards[each].ending for each, size in tenant.held.items()}
            if not balance.room.kept and not (is_movable and self._is_possible(later, without_reserve=True)):
                self._helpless.add(tenant.name)  # but who was given that may have taken it, which then counts twice

    def _turn_away(self, gpu: str, balance: Balance) -> None:
        """Let the newest tenants leave again if all together may need more than there is."""
        new = [each for each in balance.here.values() if each.is_new and each.name in self._movable]
        for tenant in sorted(new, key=lambda each: (-each.since, each.name)):
            if balance.number <= 1:  # nobody is beside it
                return
            held, needs = tenant.held.get(gpu, 0), tenant.needs(gpu)
            is_short = balance.soon - balance.reserved - balance.growth < 0
            # It takes its memory now: what others are about to leave comes too late for it, and is for those who wait.
            is_early = 2 * held < needs and balance.for_return + balance.room.margin < 0
            if needs > held and (is_short or is_early):
                self._choose(tenant)

    # -- Coming back ---------------------------------------------------------------------------------------------------

    def _let_back(self) -> None:
        away = [each for each in self._view.tenants if each.place is Place.AWAY and not each.is_wished_away]
        awaited = set[str]()
        for tenant in sorted(away, key=lambda each: (not each.is_half, each.clock, each.since, each.name)):
            if self._rests(tenant) or awaited & tenant.gpus or not all(map(self._is_known, tenant.gpus)):
                continue
            size = self._return_size(tenant)
            if not self._is_possible(size):
                awaited |= tenant.gpus if self._let_back_alone(tenant) else set()
            elif all(self._gpus[gpu].for_return >= amount for gpu, amount in size.items()):
                self._return(tenant, size)
            elif self._make_turn(tenant, size):
                awaited |= tenant.gpus

    def _return(self, tenant: Tenant, size: Mapping[str, int]) -> None:
        self._back.append(tenant.name)
        for gpu, amount in size.items():
            self._gpus[gpu].returns(amount)

    def _let_back_alone(self, tenant: Tenant) -> bool:
        """Let a tenant back that has room only without the margin: into what is free, once nobody else is there.

        Returns:
            Whether nobody may overtake it: it can have its GPUs for itself.
        """
        balances = {gpu: self._gpus[gpu] for gpu in tenant.gpus}
        here = {name: each for balance in balances.values() for name, each in balance.here.items()}
        least = {gpu: tenant.frees(gpu) for gpu in tenant.gpus}
        stays = [each for name, each in here.items() if name not in self._movable]
        if any(balance.room.hp_may_grow for balance in balances.values()) or any(each.parks for each in stays):
            return False  # that may change: hp frees its memory, or who has refused leaves
        if stays or any(each.at_most + each.room.margin < least[gpu] for gpu, each in balances.items()):
            self._stuck.add(tenant.name)
            return False
        if any(balance.moves for balance in balances.values()):
            return True
        if not here:
            self._return(tenant, least)
        elif all(self._has_had_more(each, tenant) for each in here.values()):
            charged = self._charged.copy()
            for each in here.values():
                if not self._fits_host(each, charged):
                    return bool(self._leave) or self._somebody_leaves
                charged.update(each.charged)
            for each in here.values():
                self._choose(each)
        return True

    def _is_known(self, gpu: str) -> bool:
        return gpu in self._gpus and self._gpus[gpu].room.free is not None

    def _return_size(self, tenant: Tenant) -> dict[str, int]:
        """Return the room for a tenant that comes back: what it may need if there can be so much, else the least.

        What hp takes meanwhile is part of it.
        """
        part = 1 + self._view.margin_part
        size: dict[str, int] = {}
        for amount in (tenant.needs, lambda gpu: tenant.held.get(gpu, 0), tenant.frees):
            size = {gpu: math.ceil(amount(gpu) * part) for gpu in tenant.gpus}
            if self._is_possible(size):
                break
        return {gpu: amount + self._hp_takes(gpu, self._view.stay_seconds(tenant)) for gpu, amount in size.items()}

    def _hp_takes(self, gpu: str, seconds: float) -> int:
        """Return what hp will take in that time if it goes on as at this time."""
        room = self._view.cards[gpu]
        return min(room.most, math.ceil(room.rate * seconds))

    def _is_possible(self, size: Mapping[str, int], without_reserve: bool = False) -> bool:
        """Return whether there is the room once all others that can leave have left.

        Args:
            size: what is needed, by GPU.
            without_reserve: what is kept for hp counts as room, because hp may need less later.
        """
        reserves = {gpu: self._view.cards[gpu].reserve if without_reserve else 0 for gpu in size}
        return all(self._gpus[gpu].at_most + reserves[gpu] >= amount for gpu, amount in size.items())

    def _make_turn(self, tenant: Tenant, size: Mapping[str, int]) -> bool:
        """Let others leave for a tenant whose turn it is, if that makes enough room for it.

        Returns:
            Whether nobody may overtake it: not if only host memory keeps it away. Those who come back meanwhile give
            back as much host memory as they need when they leave again for it.
        """
        if any(self._gpus[gpu].moves for gpu in tenant.gpus):
            return True
        lacking = {gpu: amount - self._gpus[gpu].for_turn for gpu, amount in size.items()}
        here = {name: each for gpu in tenant.gpus for name, each in self._gpus[gpu].here.items()}
        longest = sorted(
            (each for each in here.values() if self._gives_way(each, tenant)),
            key=lambda each: (-each.clock, each.name),
        )
        if any(sum(each.needs(gpu) for each in longest) < amount for gpu, amount in lacking.items()):
            return True
        chosen, charged = list[Tenant](), self._charged.copy()
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
        return bool(self._leave) or self._somebody_leaves

    def _gives_way(self, tenant: Tenant, waiting: Tenant) -> bool:
        """Return whether a tenant that is here may have to leave for one whose turn it is."""
        is_in_the_way = any(map(tenant.needs, waiting.gpus))
        return is_in_the_way and tenant.name in self._movable and self._has_had_more(tenant, waiting)

    def _has_had_more(self, tenant: Tenant, waiting: Tenant) -> bool:
        """Return whether a tenant has stayed, and has had more of what it is due than one that waits."""
        return (waiting.is_half or tenant.clock > waiting.clock) and self._has_stayed(tenant)


def _cost(gpu: str, short: int) -> Callable[[Tenant], tuple[bool, int, float, str]]:
    """Return a key: first who makes enough room for the least bytes to move; if nobody does, who makes the most."""

    def key(tenant: Tenant) -> tuple[bool, int, float, str]:
        held = tenant.held.get(gpu, 0)
        return (False, tenant.total, -tenant.clock, tenant.name) if held >= short else (True, -held, 0.0, tenant.name)

    return key
