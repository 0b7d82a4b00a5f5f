"""One tenant of the GPUs' memory: its slots and processes, and what they do, hold and want at one moment."""

from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from orion.hook import layout
from orion.node_agent.clients.client import Client, is_going, says_what_it_holds
from orion.node_agent.parking.answers import (
    FAILED,
    LIE_SECONDS,
    STAYING,
    UNANSWERED,
    Asked,
    Verdict,
    is_for_good,
    passes_soon,
    problem,
    verdict,
)
from orion.node_agent.parking.known import COUNTED, HOST_MEMORY_SHORT, YOUNG_SECONDS, Known
from orion.node_agent.parking.member import Member, held
from orion.node_agent.parking.view import Place, Tenant
from orion.node_agent.parking.wishes import Wish
from orion.node_agent.settings import AgentSettings
from orion.node_agent.slots.slot import Slot

Listed = Mapping[str, Mapping[int, int | None]]
""" What the driver lists, by GPU and process; a GPU is missing if it was not asked or does not say. """


@dataclass
class Present:
    """A tenant that has processes or has been asked to leave."""

    name: str
    known: Known
    members: list[Member] = field(default_factory=list)
    verdicts: dict[Client, Verdict] = field(default_factory=dict)

    @cached_property
    def slots(self) -> list[Slot]:
        """The tenant's slots, on all GPUs."""
        return [member.slot for member in self.members]

    @cached_property
    def gpus(self) -> frozenset[str]:
        """The GPUs of the tenant's slots."""
        return frozenset(member.slot.gpu for member in self.members)

    @cached_property
    def clients(self) -> list[Client]:
        """The tenant's processes, once for each GPU that they use."""
        return [client for member in self.members for client in member.clients]

    @property
    def joined(self) -> dict[int, list[Client]]:
        """The clients of processes that have joined since it was asked to leave, and about which nothing is decided."""
        found: defaultdict[int, list[Client]] = defaultdict(list)
        for client in self.clients:
            if client.stays and self.verdicts.get(client) is not Verdict.SHORT:
                found[client.process_id].append(client)
        return {process: clients for process, clients in found.items() if all(map(says_what_it_holds, clients))}

    @property
    def moves(self) -> bool:
        """Whether the tenant leaves or comes back."""
        return self.known.place in (Place.LEAVING, Place.RETURNING)

    @property
    def is_listed(self) -> bool:
        """Whether it matters what the driver lists for it: it moves or is away, or says that its memory is lost."""
        return self.known.place is not Place.HERE or bool(self.known.parked) or self.is_asked

    def moved_since(self, asked: float) -> bool:
        """Return whether it has left or come back since then, so that what was free then says nothing now."""
        return self.known.moved > asked

    @property
    def is_asked(self) -> bool:
        """Whether the tenant shall leave, or has left."""
        return any(slot.parking.is_asked for slot in self.slots)

    @property
    def is_settled(self) -> bool:
        """Whether all clients of the previous agent have returned or are gone, and the agent knows what they hold."""
        return not any(
            member.is_awaited or any(each.awaits_driver for each in member.clients) for member in self.members
        )

    @property
    def rests(self) -> bool:
        """Whether it is here or away, as it was asked, and only time and news can change that."""
        known = self.known
        is_troubled = known.failed_since is not None or known.is_lost or known.is_half
        if is_troubled or known.silent or known.problems or known.lacks or not self.is_settled:
            return False
        if known.place is Place.HERE:
            return not self.is_asked and not self._is_wished_away
        return known.place is Place.AWAY and self.is_asked

    def changes_at(self, now: float) -> float:
        """Return when it is seen differently although it rests: only because time passes."""
        known = self.known
        moments = [known.away_until, *(since + LIE_SECONDS for since in known.parked.values())]
        if known.place is Place.HERE and known.is_young:
            moments.append(now + YOUNG_SECONDS - known.here_seconds)
        return min((each for each in moments if each > now), default=float("inf"))

    @property
    def _is_wished_away(self) -> bool:
        return not self.is_settled or any(slot.parking.is_wished_away for slot in self.slots)

    @property
    def parks(self) -> bool:
        """Whether all of the tenant may leave."""
        return all(slot.memory_sharing.parks for slot in self.slots) and not self.known.is_lost

    @property
    def may_be_evicted(self) -> bool:
        """Whether the tenant's pods may be evicted if they do not leave."""
        return all(slot.memory_sharing.may_be_evicted for slot in self.slots)

    @property
    def total(self) -> int:
        """What the tenant holds on all GPUs, in bytes."""
        return sum(self.by_gpu().values())

    def by_gpu(self) -> dict[str, int]:
        """Return what the tenant holds, in bytes; while it is away or moves, at least what it held before."""
        found: defaultdict[str, int] = defaultdict(int)
        is_here, is_partly_here = self.known.place is Place.HERE, self._is_partly_here
        for member in self.members:
            if not self.known.is_lost:
                found[member.slot.gpu] += member.held if is_here else member.left(self._staying(member), is_partly_here)
        for uuid in found:
            found[uuid] = max(found[uuid], self.known.lacks.get(uuid, 0))
        return dict(found)

    @property
    def _is_partly_here(self) -> bool:
        return self.known.is_half and self.known.place is Place.AWAY

    def _staying(self, member: Member) -> list[Client]:
        """Return the processes of a slot that did not leave, although it was asked to."""
        return [each for each in member.clients if self.verdicts.get(each) in STAYING]

    def wants(self) -> dict[str, int]:
        """Return what the tenant may hold soon: up to its limit while it is young, then the most of late.

        If a part of it did not leave, this is without what that part holds.
        """
        found, limits = dict(self.known.peak), Counter[str]()
        if self.known.is_young:
            for member in self.members:
                if member.clients or member.slot.parking.is_asked:
                    limits[member.slot.gpu] += member.slot.grant.memory_limit_bytes
            found = {uuid: max(limit, found.get(uuid, 0)) for uuid, limit in limits.items()}
        for member in self.members if self._is_partly_here else ():
            found[member.slot.gpu] = max(0, found.get(member.slot.gpu, 0) - sum(map(held, self._staying(member))))
        return found

    # -- Looking -------------------------------------------------------------------------------------------------------

    def look(self, now: float, listed: Listed, answered: float, settings: AgentSettings) -> bool | None:
        """Read the clients' answers, and note where the tenant is. `answered`: when the driver was asked for `listed`.

        Returns:
            What must be asked of it again at once: True to leave, False to come back; None: nothing.
        """
        known, asked = self.known, self.is_asked
        known.parked = {client: since for client, since in known.parked.items() if client in self.clients}
        self.verdicts = {
            client: self._verdict(now, member, client, listed, answered, settings.parking_answer_seconds)
            for member in self.members
            for client in member.clients
        }
        found = set(self.verdicts.values())
        known.note_silence(self.clients, {each for each, what in self.verdicts.items() if what in UNANSWERED})
        self._note_problems(now, settings.parking_retry_seconds)
        known.is_lost = bool(found) and found == {Verdict.LOST}
        if not self.is_settled:
            self._move(Place.AWAY if asked else Place.RETURNING if Verdict.RETURNING in found else known.place, now)
            return None
        if asked and self.parks and not all(slot.parking.is_asked for slot in self.slots):
            return True
        if asked:
            return self._look_at_leaving(now, found, settings.parking_retry_seconds)
        if Verdict.ASLEEP in found:
            known.away_until = now + settings.parking_retry_seconds
            return True
        if Verdict.PARKED in found and now >= known.refused_until:
            return True  # an agent before this one had asked it to leave; there may be no room for it
        self._move(Place.RETURNING if Verdict.RETURNING in found else Place.HERE, now)
        known.is_half &= known.place is Place.RETURNING
        return None

    def _look_at_leaving(self, now: float, found: set[Verdict], retry_seconds: float) -> bool | None:
        known, failed = self.known, bool(found & FAILED)
        if failed and now >= min(known.refused_until, known.again_for_hp):
            refusals = [each.record.parking for each, what in self.verdicts.items() if what is Verdict.REFUSED]
            passes = found & FAILED == {Verdict.REFUSED} and all(map(passes_soon, refusals))
            known.note_failure(now, retry_seconds, any(map(is_for_good, refusals)), passes)
        if Verdict.LEAVING in found:
            self._move(Place.LEAVING, now)
            return None
        if Verdict.PARKED not in found:
            self._move(Place.HERE, now)
            if Verdict.OVERDUE not in found:  # nobody leaves any more
                return False
            known.note_failure(now, retry_seconds)
            return None
        known.is_half = failed
        known.failed_since = known.failed_since if failed else None
        self._move(Place.AWAY, now)
        return None

    def _move(self, place: Place, now: float) -> None:
        if place is Place.HERE and self.known.place is not Place.HERE:
            for slot in self.slots:
                slot.parking.left_bytes = 0
        self.known.move(place, now)

    def _note_problems(self, now: float, retry_seconds: float) -> None:
        """Keep what a client has refused until it is asked again, although it may run on at once."""
        for client in self.known.problems.keys() - self.verdicts.keys():
            del self.known.problems[client]
        was_asked = self.is_asked or self.known.is_refusing(now)
        for client, found in self.verdicts.items():
            said = problem(client, found, retry_seconds, was_asked)
            if said is not None:
                if self.known.problems.get(client, ("", ""))[0] != said[0]:
                    self.known.happened.append((COUNTED[said[0]], 0.0))
                self.known.problems[client] = said
            elif client not in self.known.silent and (
                (found is Verdict.PARKED and self.is_asked) or not self.known.is_refusing(now)
            ):
                self.known.problems.pop(client, None)

    def _verdict(
        self, now: float, member: Member, client: Client, listed: Listed, answered: float, patience: float
    ) -> Verdict:
        answer = client.record.parking
        is_short = self.known.problems.get(client, ("", ""))[0] == HOST_MEMORY_SHORT
        if client.stays and is_short and not is_going(client):
            return Verdict.SHORT
        is_gone = answer.state is layout.ParkingState.PARKED and member.slot.parking.is_asked
        if is_gone or answer.state is layout.ParkingState.LOST:
            since = self.known.parked.setdefault(client, now)
        else:
            self.known.parked.pop(client, None)
            since = now
        asked = Asked(
            number=member.slot.parking.number,
            seconds=now - max(self.known.asked, client.joined_ns / 1e9),
            held=max(min(member.most, held(client)), member.slot.parking.left_bytes),
            parked_seconds=answered - since,
            listed=listed.get(member.slot.gpu, {}).get(client.process_id) or 0,
            patience=patience,
            was_away=self.known.place is not Place.HERE or client.returned,
        )
        return verdict(answer, asked)

    def note_lacks(self, waiting: Mapping[Client, Wish]) -> None:
        """Note which clients' allocations found no room; while it is away, what it lacked when it left."""
        if self.known.place is Place.HERE:
            found: defaultdict[str, int] = defaultdict(int)
            for member in self.members if waiting else ():
                if wishes := [waiting[client] for client in member.clients if client in waiting]:
                    size = min(member.most, sum(each.size for each in wishes))  # each may ask for the whole limit
                    found[member.slot.gpu] += size + sum(each.more for each in wishes)
            self.known.lacks = dict(found)

    def note(self, now: float) -> None:
        """Note how long the tenant was here, and what it held there at most."""
        passed, self.known.noted = now - max(self.known.noted, self.known.since), now
        if self.known.place is not Place.HERE:
            return
        self.known.here_seconds += passed
        self.known.note_held(self.by_gpu())

    def seen(self, now: float, weight: float, listed: Listed) -> Tenant:
        """Return the tenant as `decide` sees it."""
        known, by_gpu = self.known, self.by_gpu()
        moves, may_leave = known.place is Place.RETURNING, self.is_settled and not known.silent
        return Tenant(
            name=self.name,
            place=known.place,
            since=known.since,
            held=by_gpu,
            wants=self.wants(),
            lacks=known.lacks,
            coming={uuid: max(0, size - self._here(uuid, listed)) for uuid, size in by_gpu.items()} if moves else {},
            parks=self.parks,
            came=known.came,
            has_returned=known.has_returned,
            is_new=not known.has_returned and known.is_young,
            is_half=known.is_half,
            is_wished_away=known.stays_away(now) or self._is_wished_away,
            weight=weight,
            clock=known.clock,
            change_seconds=known.change_seconds(sum(by_gpu.values())),
            refused_until=known.refused_until if may_leave else float("inf"),
            again_for_hp=known.again_for_hp if may_leave else float("inf"),
        )

    def _here(self, uuid: str, listed: Listed) -> int:
        """Return what the driver lists of a tenant that comes back."""
        processes = {each.process_id for member in self.members if member.slot.gpu == uuid for each in member.clients}
        return sum(listed.get(uuid, {}).get(process) or 0 for process in processes)
