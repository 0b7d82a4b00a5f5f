"""All tenants: which slots belong together, and what each is due."""

from collections import defaultdict
from collections.abc import Collection, Iterable
from dataclasses import replace

from orion.hook import layout
from orion.node_agent.clients.client import Client
from orion.node_agent.clients.shared_gpu import SharedGpu
from orion.node_agent.parking.clocks import clocks
from orion.node_agent.parking.known import YOUNG_SECONDS, Known
from orion.node_agent.parking.member import Member
from orion.node_agent.parking.present import Listed, Present
from orion.node_agent.parking.view import Place, Tenant
from orion.planning.sharing import due


class Tenants:
    """All tenants that have processes."""

    def __init__(self) -> None:
        self._known: dict[str, Known] = {}
        self._weights: dict[str, float] = {}
        self.present: dict[str, Present] = {}
        """ By name, as of the last call of `group`. """
        self.on: dict[str, list[Present]] = {}
        """ The same by GPU. """

    @property
    def all_are_here(self) -> bool:
        """Whether all are on their GPUs, as of the last look, and none has lost its memory."""
        return all(each.known.place is Place.HERE and not each.known.is_lost for each in self.present.values())

    def moving(self) -> list[Present]:
        """Return the tenants that leave or come back."""
        return [each for each in self.present.values() if each.moves]

    def together(self, uuids: Collection[str]) -> tuple[set[str], list[Present]]:
        """Return these GPUs and all that share a tenant with them, and the tenants there."""
        gpus, new = set[str](), set(uuids)
        while new:
            gpus |= new
            new = set().union(*(each.gpus for uuid in new for each in self.on.get(uuid, ()))) - gpus
        return gpus, list({each.name: each for uuid in gpus for each in self.on.get(uuid, ())}.values())

    def views(self, now: float, tenants: Iterable[Present], listed: Listed, stay_factor: float) -> tuple[Tenant, ...]:
        """Return tenants as `decide` sees them, with all that share GPUs with them: those with processes."""
        found: list[Tenant] = []
        left = {each.name: each for each in tenants}
        while left:
            _, sharing = self.together(left.popitem()[1].gpus)
            seen = [each.seen(now, self._weights[each.name], listed) for each in sharing if each.clients]
            here = {each.name: self._known[each.name].take_here_seconds() for each in seen}
            read = clocks(seen, here, stay_factor)
            for name, clock in read.items():
                self._known[name].clock = clock
            found += [each if read[each.name] == each.clock else replace(each, clock=read[each.name]) for each in seen]
            for each in sharing:
                left.pop(each.name, None)
        return tuple(found)

    def group(self, now: float, gpus: Iterable[SharedGpu]) -> None:
        """Find all tenants: slots and processes have come or gone, or a grant has changed."""
        before, looked, self.present = self._known, self.present, {}
        members: defaultdict[str, list[Member]] = defaultdict(list)
        for shared_gpu in gpus:
            clients, awaited = _clients(shared_gpu), {each.slot for each in shared_gpu.awaited.values()}
            for slot in shared_gpu.slots.values():
                if slot.role is layout.Role.BE and (slot.name in clients or slot.parking.is_asked):
                    name = slot.job or f"slot {slot.name} of {slot.gpu}"
                    of_slot = tuple(clients.get(slot.name, ()))
                    members[name].append(Member(shared_gpu, slot, of_slot, slot.name in awaited))
        for name, of_name in members.items():
            verdicts = looked[name].verdicts if name in looked else {}
            self.present[name] = Present(name, before.get(name) or _begun(now, of_name), of_name, verdicts)
        self.on = {}
        for present in self.present.values():
            for uuid in present.gpus:
                self.on.setdefault(uuid, []).append(present)
        self._known = {name: each.known for name, each in self.present.items()}
        self._weights = self._due()

    def _due(self) -> dict[str, float]:
        """Return the part of the time that each tenant is due on its card, if all tenants want it."""
        of_gpu: defaultdict[str, dict[str, due.Claim]] = defaultdict(dict)
        for name, present in self.present.items():
            request = max(slot.grant.request_milli for slot in present.slots) / 1_000
            for slot in present.slots:
                of_gpu[slot.gpu][name] = due.Claim(request)
        weights = dict.fromkeys(self.present, 1.0)
        for claims in of_gpu.values():
            for name, part in due.requests(claims).items():
                weights[name] = min(weights[name], part)
        return weights


def _begun(now: float, members: Collection[Member]) -> Known:
    """Return what is known of a tenant at first. One that the previous agent knew has shown how much it holds.

    If that agent let it back, it may still be coming back.
    """
    of_slots = [each.slot.parking for each in members]
    is_let_back = any(each.left_bytes for each in of_slots) and not any(each.is_asked for each in of_slots)
    place = Place.RETURNING if is_let_back else Place.HERE
    is_old = any(each.is_awaited or any(client.returned for client in each.clients) for each in members)
    return Known(now, place, since=now, asked=now, noted=now, here_seconds=YOUNG_SECONDS if is_old else 0.0)


def _clients(shared_gpu: SharedGpu) -> dict[str, list[Client]]:
    """Return the be clients of a GPU by slot."""
    found: defaultdict[str, list[Client]] = defaultdict(list)
    for client in shared_gpu.clients.values():
        if client.ready and client.role is layout.Role.BE:
            found[client.slot.name].append(client)
    return found
