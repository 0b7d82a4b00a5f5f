"""What is free on one GPU, what hp may need of it, and what hp waits for."""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping

from orion.hook import layout
from orion.node_agent.clients.client import Client, is_away, proven_mib
from orion.node_agent.clients.former_clients import may_live
from orion.node_agent.clients.shared_gpu import SharedGpu
from orion.node_agent.parking.member import held
from orion.node_agent.parking.present import Present
from orion.node_agent.parking.reserve import Reserve
from orion.node_agent.parking.view import Place, Room
from orion.node_agent.parking.wishes import RoomWishes
from orion.node_agent.settings import AgentSettings
from orion.node_agent.slots.parking_state import GpuParking
from orion.node_agent.slots.slot import Slot

_MIB = 1 << 20
_STALE_SECONDS = 2.0
""" An older answer of the driver says nothing. """
_USUAL_LEAVING_SECONDS = 2.0
_ENDING_SECONDS = 2.0
""" A process may hold its memory for so long after it has left: until the kernel has closed its files. """
_GROWTH = 64 * _MIB
""" hp that has grown so much since the last look needs another one at once. """

_LEEWAY = 256 * _MIB
""" What the driver itself holds for hp may have grown after hp got its credit. """


class GpuRoom:
    """The room of one GPU.

    Args:
        shared_gpu: its slots and clients.
        settings: the agent's.
    """

    def __init__(self, shared_gpu: SharedGpu, settings: AgentSettings) -> None:
        self._shared_gpu, self._settings = shared_gpu, settings
        self.wishes, self.cramped, self.owed = RoomWishes(), RoomWishes(), RoomWishes()
        """ What clients of hp wait for, those of tenants that leave, and others that are sure of what they want. """
        self._reserve = Reserve(settings.parking_reserve_mib * _MIB)
        self._answer: tuple[int | None, float, Mapping[Client, int]] = None, float("-inf"), {}
        """ What is free, when the driver was asked, and what clients had taken then. """
        self._had_taken: dict[Client, int] | None = None
        """ What each client had taken at the last question. """
        self._unlisted: tuple[int, int] | None = None
        """ What is used and not listed for any process: the driver's own, and what is being restored. At least, and at
        most: the driver is asked what is free before and after it lists the processes, which come and go meanwhile. """
        self._usual: int | None = None
        """ The most of that while nobody came back. """
        self._restored = 0
        self._hp_held = self._most = 0
        self._hp_before: int | None = None
        """ What hp held at the look before; None: it was not there. """
        self._held: dict[Client, int] = {}
        self._ending: list[tuple[float, int]] = []
        """ What each client held at the last look; when clients were seen to have gone, and what they held. """
        self.free_for_hp: int | None = None
        """ What was free at the last decision, less what has been taken since and those who come back will take. """
        self.free_for_tenants: int | None = None
        """ The same less what is kept for hp, and for those that are sure of it. """
        self.returning = 0
        """ What was announced last. """
        before = shared_gpu.parking
        self._counts, self._seconds = defaultdict(int, before.counts), defaultdict(float, before.seconds)

    @property
    def reserve(self) -> int:
        """What is kept free for hp, in bytes."""
        return self._reserve.value

    def question(self) -> dict[Client, int]:
        """Return what each client has surely taken, in bytes. Call it before the driver is asked.

        Of the rest nobody knows whether the driver's answer has it. What the hook of an earlier version says to hold it
        may still be taking, so that counts only once it was there at the last question, too.
        """
        before, self._had_taken = self._had_taken, self._taken()
        return {client: _surely_taken(client, size, before) for client, size in self._had_taken.items()}

    def answered(
        self,
        free: int | None,
        listed: Mapping[int, int | None] | None,
        asked: float,
        before: int | None = None,
        taken: Mapping[Client, int] | None = None,
    ) -> None:
        """Note what the driver says; any thread may call.

        Args:
            free: of the GPU.
            listed: what each process holds, by its id; None: the driver was not asked, or does not say.
            asked: when the driver was asked, in seconds.
            before: what was free before the driver listed the processes; None: it was not asked.
            taken: what each client had taken when the driver was asked, in bytes.
        """
        sizes = list((listed or {}).values())
        known = free is not None and sizes and None not in sizes  # a driver that lists nobody does not say
        used = [self._shared_gpu.gpu.memory_bytes - each for each in (free, before) if each is not None]
        listed_bytes = sum(filter(None, sizes))
        self._unlisted = (min(used) - listed_bytes, max(used) - listed_bytes) if known else None
        self._answer = free, asked, taken or {}

    @property
    def free(self) -> int | None:
        """What the driver said last to be free, in bytes; None: it did not say."""
        return self._answer[0]

    @property
    def asked(self) -> float:
        """When the driver was asked before its last answer, in seconds."""
        return self._answer[1]

    @property
    def is_short(self) -> bool:
        """Whether less is free than is kept for hp, whose reserve rises a look after hp has grown."""
        return self.free is not None and self.free < self.reserve

    def count(self, what: str, seconds: float) -> None:
        """Count that a tenant has left, returned, refused, or was lost, and how long that took."""
        self._counts[what] += 1
        self._seconds[what] += seconds

    def shown(self) -> GpuParking:
        """Return what people see."""
        return GpuParking(self.free, self.reserve, dict(self._counts), dict(self._seconds))

    def is_granted(self, client: Client, size: int) -> bool:
        """Return whether a client may have an allocation, which it counts as held while it asks."""
        if size > self._shared_gpu.gpu.memory_bytes:
            return False
        limit = client.slot.grant.memory_limit_bytes
        others = sum(held(each) for each in self._shared_gpu.of_slot(client.slot) if each is not client)
        own = max(held(client), size + client.uncounted_mib * _MIB)
        return not limit or own + others <= limit + _LEEWAY

    @property
    def grown(self) -> int:
        """What clients may have taken since the driver was asked, in bytes. Their pages say so before they take it.

        What another one has freed meanwhile, or held when it ended, the driver has to say.
        """
        before, grown, proven = self._answer[2], Counter[Slot](), Counter[Slot]()
        for client, size in self._taken().items():
            grown[client.slot] += max(0, size - min(before.get(client, 0), _surely_taken(client, size)))
            proven[client.slot] += proven_mib(client)
        return sum(min(size, self._most_of(slot, proven[slot])) for slot, size in grown.items())

    @property
    def unseen(self) -> int:
        """What an earlier agent may have let tenants back into of which this one does not know yet, in bytes."""
        away = (slot.parking for slot in self._awaited_slots())
        return sum(each.left_bytes for each in away if not each.is_asked)

    @property
    def is_settled(self) -> bool:
        """Whether it is known who can leave: no client of an earlier agent that parks may still return."""
        return not any(slot.memory_sharing.parks for slot in self._awaited_slots())

    def _awaited_slots(self) -> list[Slot]:
        """Return the slots of clients of an earlier agent that have not returned, or that the driver does not list."""
        awaited = {each.slot for each in self._shared_gpu.awaited.values() if may_live(each)}
        awaited |= {each.slot.name for each in self._shared_gpu.clients.values() if each.awaits_driver}
        return [slot for name, slot in self._shared_gpu.slots.items() if name in awaited]

    @property
    def is_awaited(self) -> bool:
        """Whether somebody waits for room."""
        return bool(self.wishes.wished or self.cramped.wished or self.owed.wished)

    @property
    def free_for_owed(self) -> int | None:
        """What was free at the last decision for those that are sure of it: all but what hp waits for."""
        return None if self.free_for_hp is None else self.free_for_hp - self.wishes.kept() - self.wishes.wished

    @property
    def _kept_from_tenants(self) -> int:
        """What hp, and those that are sure of it, have been given and have not taken yet, in bytes."""
        return self.wishes.kept() + self.owed.kept()

    @property
    def has_hp(self) -> bool:
        """Whether hp has processes here."""
        return bool(self._shared_gpu.living_hp)

    def grows(self) -> bool:
        """Return whether hp has grown much since the last look."""
        return self._held_by_hp() > self._hp_held + _GROWTH

    def look(self, now: float, tenants: Iterable[Present]) -> None:
        """Learn how much hp needs. `tenants`: all that have slots here."""
        here = list(tenants)
        for each in (self.wishes, self.cramped, self.owed):
            each.forget(now)
        self._look_at_ending(now)
        self._hp_held = self._held_by_hp()
        self._look_at_restored(any(each.known.place is Place.RETURNING for each in here))
        slots = self._hp_slots()
        self._most = self._hp_may_take(slots)
        if not slots:
            self._hp_before = None
            self._reserve.look(now, None, self._most, 0.0)
            return
        leaving = (each.known.leaving_seconds(each.total) for each in here if each.parks)
        seconds = max(leaving, default=_USUAL_LEAVING_SECONDS)
        # An allocation counts before the driver is asked for it. One that the driver refuses is gone at the next look.
        before, self._hp_before = self._hp_before, self._hp_held
        held_for_good = self._hp_held if before is None else min(before, self._hp_held)
        self._reserve.look(now, held_for_good, self._most, seconds)

    def _look_at_ending(self, now: float) -> None:
        clients = self._shared_gpu.clients.values()
        before, self._held = self._held, {each: 0 if is_away(each) else self._says(each) for each in clients}
        gone = sum(size for client, size in before.items() if client not in self._held)
        self._ending = [each for each in self._ending if now - each[0] < _ENDING_SECONDS]
        self._ending += [(now, gone)] if gone else []

    def _look_at_restored(self, returning: bool) -> None:
        """Learn what those who come back have taken: the driver lists a process only when its restore is done."""
        least, most = self._unlisted or (None, None)
        self._restored = 0
        if not returning:
            self._usual = most
        elif least is not None and self._usual is not None:
            self._restored = max(0, least - self._usual)

    def seen(self, now: float, tenants: Iterable[Present], is_stale: bool = False) -> Room:
        """Return the room as `decide` sees it. `is_stale`: somebody has moved since the driver answered last."""
        free, asked, _ = self._answer
        return Room(
            free=None if is_stale or self.unseen or now - asked > _STALE_SECONDS else free,
            reserve=self.reserve,
            margin=self._settings.parking_margin_mib * _MIB,
            wished=self.wishes.wished,
            kept=self._kept_from_tenants + self.cramped.kept(),
            grown=self.grown,
            ending=sum(size for _, size in self._ending),
            restored=self._restored,
            promised=self._promised(tenants),
            owed=self.owed.wished,
            rate=self._reserve.rate,
            most=self._most,
            has_hp=self.has_hp,
        )

    def decided(
        self, asked: float, coming: int, seen: Room, hopeless: bool, unpayable: bool, helpless: Collection[Client]
    ) -> None:
        """Note the result of a decision, for clients that ask again.

        Args:
            asked: when the driver was asked, in seconds.
            coming: what those who come back have yet to take, in bytes.
            seen: what was decided upon.
            hopeless: nobody can make the room that hp waits for.
            unpayable: nobody can make the room that is owed.
            helpless: the clients of tenants whose allocations can never find room.
        """
        self.free_for_hp = None if seen.free is None else seen.free - coming - seen.grown
        kept = seen.reserve + seen.promised + seen.owed + self._kept_from_tenants + seen.wished
        self.free_for_tenants = None if self.free_for_hp is None else self.free_for_hp - kept
        if self._answer[1] >= asked:
            self.wishes.decided = self.cramped.decided = self.owed.decided = asked
        if hopeless:
            self.wishes.give_up()
        if unpayable:
            self.owed.give_up()
        self.cramped.refuse(helpless)

    def spend(self, size: int) -> None:
        """Note that a client takes so much of what was free at the last decision; the next one sees what is left."""
        if self.free_for_hp is not None and self.free_for_tenants is not None:
            self.free_for_hp -= size
            self.free_for_tenants -= size

    def announce(self, coming: int) -> None:
        """Tell others what those who come back have yet to take, in bytes: they ask before they take anything.

        hp that does not wait for memory does not wait for this either.
        """
        self.returning = coming
        for slot in self._shared_gpu.slots.values():
            asks = slot.role is layout.Role.BE or slot.grant.memory_wait_ns
            slot.page.set_returning(-(-coming // _MIB) if asks else 0)

    def _held_by_hp(self) -> int:
        return sum(map(held, self._shared_gpu.living_hp.values()))

    def _taken(self) -> dict[Client, int]:
        """Return what each client says to hold without what it waits for, which counts there already, in bytes."""
        waits = Counter[Client]()
        for each in (self.wishes, self.cramped, self.owed):
            waits.update({client: wish.size for client, wish in each.waiting().items()})
        return {each: self._says(each) - waits[each] for each in self._shared_gpu.clients.values()}

    def _says(self, client: Client) -> int:
        """Return what a client says to hold, in bytes, and no more than it may: it keeps nobody else away by that."""
        return min(held(client), self._most_of(client.slot, proven_mib(client)))

    def _most_of(self, slot: Slot, mib: int) -> int:
        """Return how many bytes a slot may have taken, whatever its processes say. `mib`: what they surely hold."""
        total, limit = self._shared_gpu.gpu.memory_bytes, slot.grant.memory_limit_bytes
        return min(total, max(limit + _LEEWAY, mib * _MIB)) if limit else total

    def _hp_slots(self) -> list[Slot]:
        """Return the slots of hp that somebody holds."""
        slots = [slot for slot in self._shared_gpu.slots.values() if slot.role is layout.Role.HP]
        return [slot for slot in slots if slot.job or self._shared_gpu.of_slot(slot)]

    def _hp_may_take(self, slots: Iterable[Slot]) -> int:
        """Return how much hp may still take, in bytes; without a limit half of the GPU."""
        total = self._shared_gpu.gpu.memory_bytes
        limits = [slot.grant.memory_limit_bytes for slot in slots]
        return max(0, min(total, sum(limits)) - self._hp_held) if all(limits) else total // 2

    def _promised(self, tenants: Iterable[Present]) -> int:
        """Return what tenants that never leave are sure of on this GPU, beyond what they hold, in bytes."""
        members = [
            member
            for each in tenants
            if not each.parks
            for member in each.members
            if member.shared_gpu is self._shared_gpu and member.clients
        ]
        return sum(max(0, each.slot.memory_sharing.request_bytes - each.held) for each in members)


def _surely_taken(client: Client, says: int, before: Mapping[Client, int] | None = None) -> int:
    """Return what a client has surely taken of what it says to hold, in bytes.

    Args:
        client: that says so.
        says: what it says.
        before: what each client said at an earlier moment; the hook of an earlier version says no more than that.
    """
    taken = client.record.taken_mib
    if taken is not None:
        return min(says, (taken + client.uncounted_mib) * _MIB)
    return says if before is None else min(says, before.get(client, 0))
