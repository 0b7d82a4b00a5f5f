"""Makes room on the GPUs: asks tenants to leave their memory and lets them back, as `deciding.decide` says.

The driver is asked what is free in a thread of its own, once a second, and often while somebody moves or hp waits. A
decision looks at all tenants of all GPUs. So while somebody moves, and while nobody is away, one is made only if the
driver or a client says something new. A tenant comes back only when the room was seen to be free just before: a driver
that finds no room for it loses the program. While no slot parks, nothing is asked and nothing is looked at.

The number of each wish is saved before it is written, so the next agent never repeats one. A client that has left says
so in its record, and the next agent asks it to stay away before it can see anything else (`keep_away`).
"""

import asyncio
import contextlib
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Protocol

from orion.hook import layout
from orion.hook.join import CreditAnswer
from orion.node_agent.clients import messages
from orion.node_agent.clients.client import Client
from orion.node_agent.clients.shared_gpu import SharedGpu
from orion.node_agent.gpus.asking import AskingThread
from orion.node_agent.gpus.interface import Gpu, GpuSource
from orion.node_agent.pacing.tolerating import Tolerating
from orion.node_agent.parking import showing
from orion.node_agent.parking.gpu_room import GpuRoom
from orion.node_agent.parking.host_room import HOST_MEMORY_SHORT, HostRoom
from orion.node_agent.parking.keeping_room import who_keep_room
from orion.node_agent.parking.tenants import Listed, Present, Tenants
from orion.node_agent.parking.view import Place, View
from orion.node_agent.processes.host_memory import HostMemory
from orion.node_agent.settings import AgentSettings
from orion.node_agent.slots.slot import Slot

_LOOK_SECONDS = 1.0
_REST_SECONDS = 5.0
""" Between two decisions while nobody is away, and nothing is new. """
_HP_SECONDS = 0.1
""" Between two looks at what hp holds, which needs no driver. A tenant that finds no room waits for so long, too. """
_MOVING_SECONDS, _WAITING_SECONDS = 0.05, 0.02
""" Between two questions while somebody moves, and while hp waits. """
_PAUSE_SECONDS = 0.002
_ANSWER_SECONDS = 0.2
""" A driver that takes longer is not waited for. """
_MARGIN_PART = 0.02
_REPEATS = 5
""" So often at most the driver is asked again at once, because somebody has moved since it was asked. """
_MIB = 1 << 20


class _Shares(Protocol):
    @property
    def shared_gpu(self) -> SharedGpu:
        """The GPU's slots and clients."""


class Parking:
    """Who has left, and who comes back, on all GPUs of one agent.

    Args:
        source: finds and queries the GPUs.
        gpus: by UUID; more may come later.
        thread: asks the driver.
        settings: the agent's.
        save: writes the state file after a change of these GPUs.
        memory: the host's; None: nobody looks at it.
    """

    def __init__(
        self,
        source: GpuSource,
        gpus: Mapping[str, _Shares],
        thread: AskingThread,
        settings: AgentSettings,
        save: Callable[[Iterable[str]], None],
        memory: HostMemory | None = None,
    ) -> None:
        self._source, self._gpus, self._thread = source, gpus, thread
        self._settings, self._save = settings, save
        self.tenants = Tenants()
        self._cards: dict[str, GpuRoom] = {}
        self._host = HostRoom(memory)
        self._woken = asyncio.Event()
        self._asking: asyncio.Future[None] | None = None
        self._listed: Listed = {}
        self._asked = self._answered = float("-inf")
        """ When the driver was last asked, and when it was asked before its last answer. """
        self._repeated = 0
        self._decided = float("-inf")
        self._decided_on: object = None
        """ When and on what the last decision was made; None: it did not know what is free. """
        self._at_rest = False
        """ Whether it found everybody here, and nothing to change. """
        self._waking: asyncio.TimerHandle | None = None

    def wake(self) -> None:
        """Look at once: clients have joined or left, or a grant has changed."""
        self._woken.set()

    async def run(self) -> None:
        """Look until cancelled."""
        tolerating = Tolerating("gpus: their memory for those who leave and come back")
        while True:
            at_once = self._woken.is_set()
            self._woken.clear()
            seconds: float | None = _LOOK_SECONDS
            with tolerating:
                seconds = await self.look(at_once)
            await asyncio.sleep(_PAUSE_SECONDS)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self._woken.wait()

    async def look(self, at_once: bool = True) -> float | None:
        """Ask the driver if it is time, and decide; return the seconds until the next look, None: nobody parks."""
        if not self._concerned():
            self._end()
            return None
        now = time.monotonic()
        due = self._seconds()
        if at_once or now - self._asked >= due or self._hp_grows():
            await self._ask(now)
            patience = _REST_SECONDS if self._at_rest else _LOOK_SECONDS
            if at_once or due == _WAITING_SECONDS or now - self._decided >= patience or self._is_news():
                await self._decide(now)
                due = self._seconds()
            elif self._at_rest:
                self._look_at_gpus(time.monotonic())
        return min(due, _HP_SECONDS) if any(room.has_hp for room in self._cards.values()) else due

    async def _decide(self, asked: float) -> None:
        """Look at all tenants, decide, and tell them; read before what the host's memory can hold.

        Args:
            asked: when the driver was asked.
        """
        self._host.forget()
        while not self._decides(time.monotonic(), asked):
            await asyncio.to_thread(self._host.read)

    def _decides(self, now: float, asked: float) -> bool:
        """Return whether what is known of the host's memory sufficed for a decision."""
        gpus = [each.shared_gpu for each in self._gpus.values()]
        for name, away in self.tenants.look(now, gpus, self._listed, self._settings).items():
            self._tell(self.tenants.present[name], away, now)
        has_moved = self.tenants.moved_since(self._answered)
        if has_moved and self._repeated < _REPEATS:
            self._repeated += 1
            self.wake()
            return True
        self._repeated = 0
        present = self.tenants.present
        self._decided, self._decided_on = asked, None if has_moved else self._news()
        self._count()
        self._look_at_gpus(now)
        lacking = {client: size for room in self._cards.values() for client, size in room.cramped.lacking().items()}
        for each in present.values():
            each.note_lacks(lacking)
        is_stale = has_moved and self._answered < self._asked  # else somebody who always moves would stop all others
        cards = {uuid: room.seen(now, present.values(), is_stale) for uuid, room in self._cards.items()}
        views = self.tenants.views(now, self._listed)
        view = View(now, cards, views, self._settings.parking_stay_factor, _MARGIN_PART)
        found = self._host.decide(view, present)
        if found is None:
            return False
        wishes, short = found
        retry = self._settings.parking_retry_seconds
        for name, why in short.items():
            present[name].known.refuse(now, present[name].clients, retry, (HOST_MEMORY_SHORT, why))
        due = {name for name, each in present.items() if each.known.is_due(now, retry)}
        keep = who_keep_room(
            view,
            wishes,
            due,
            keeping={name for name in due if present[name].known.keeps_room},
            staying={name for name in due if not present[name].may_be_evicted},
        )
        for name, each in present.items():
            each.known.note_need(now, retry, name in keep)
        for uuid, room in self._cards.items():
            coming = max(0, sum(each.coming.get(uuid, 0) for each in views) - cards[uuid].restored)
            coming += sum(each.held.get(uuid, 0) for each in views if each.name in wishes.back)
            room.announce(coming)
            helpless = {client for name in wishes.helpless for client in present[name].clients}
            room.decided(asked, coming, cards[uuid], uuid in wishes.hopeless, helpless)
        for name, away in [*((name, True) for name in wishes.leave), *((name, False) for name in wishes.back)]:
            self._tell(present[name], away, now)
        self._at_rest = all(each.rests for each in present.values())
        showing.show(now, self._cards, present.values(), gpus)
        return True

    def room(self, client: Client, size: int) -> CreditAnswer:
        """Answer a client that found no room on its GPU for an allocation of so many bytes."""
        room = self._cards.get(client.slot.gpu)
        if room is None and self._concerned():
            room = self._room(client.slot.gpu)
        total = self._gpus[client.slot.gpu].shared_gpu.gpu.memory_bytes
        if room is None or size > total or not room.is_granted(client, size):
            return CreditAnswer.NO
        is_hp = client.role is layout.Role.HP
        if not (client.slot.grant.memory_wait_ns if is_hp else client.slot.memory_sharing.parks):
            return CreditAnswer.NO
        if not is_hp and self._moves(client):
            return CreditAnswer.LATER
        wishes, free = (room.wishes, room.free_for_hp) if is_hp else (room.cramped, room.free_for_tenants)
        now = time.monotonic()
        wish, is_new = wishes.note(client, size, now)
        if is_new and is_hp:
            self.wake()
        elif is_new:
            self._wake_soon()
        return wishes.answer(wish, free, now)

    def _wake_soon(self) -> None:
        """Look a little later, so that a tenant cannot keep the agent busy."""
        loop = asyncio.get_running_loop()
        if self._waking is None or self._waking.when() <= loop.time():
            self._waking = loop.call_later(_HP_SECONDS, self.wake)

    def _moves(self, client: Client) -> bool:
        """Return whether a tenant's client is about to leave, away, or about to come back."""
        return any(
            each.known.place is not Place.HERE and client.slot in each.slots for each in self.tenants.present.values()
        )

    def wish(self, uuid: str, slot: Slot, away: bool) -> None:
        """Note that a person wants a slot's processes away, or no longer."""
        slot.parking.is_wished_away = away
        for present in self.tenants.present.values():
            if slot in present.slots:
                present.known.came = float("-inf")
                if away and present.known.forget_refusal(HOST_MEMORY_SHORT):  # it may be free by now
                    for each in present.slots:
                        each.parking.clear()
        self._save([uuid])
        self.wake()

    # -- Asking the driver ---------------------------------------------------------------------------------------------

    def _concerned(self) -> list[str]:
        """Return the GPUs if any slot with processes parks, or has been asked to leave."""
        for served in self._gpus.values():
            for slot in served.shared_gpu.slots.values():
                if slot.parking.is_asked or (slot.memory_sharing.parks and served.shared_gpu.has_clients(slot)):
                    return list(self._gpus)
        return []

    def _seconds(self) -> float:
        if any(room.wishes.wished or room.cramped.wished for room in self._cards.values()):
            return _WAITING_SECONDS
        moves = any(each.known.place in (Place.LEAVING, Place.RETURNING) for each in self.tenants.present.values())
        return _MOVING_SECONDS if moves else _LOOK_SECONDS

    def _room(self, uuid: str) -> GpuRoom:
        if uuid not in self._cards:
            self._cards[uuid] = GpuRoom(self._gpus[uuid].shared_gpu, self._settings)
        return self._cards[uuid]

    async def _ask(self, now: float) -> None:
        """Ask what is free, and what each process holds if somebody is away or moves; do not wait for a slow driver."""
        self._asked = now
        for uuid in self._gpus:
            self._room(uuid)
        moving = {
            slot.gpu
            for present in self.tenants.present.values()
            for slot in present.slots
            if present.is_asked or present.known.place is not Place.HERE
        }
        if self._asking is None or self._asking.done():
            gpus = [each.shared_gpu.gpu for each in self._gpus.values()]
            self._asking = asyncio.wrap_future(self._thread.submit(self._answer, gpus, moving, now))
        await asyncio.wait([self._asking], timeout=_ANSWER_SECONDS)

    def _answer(self, gpus: list[Gpu], moving: set[str], now: float) -> None:
        """Run in the asking thread."""
        listed: dict[str, Mapping[int, int | None]] = {}
        for gpu in gpus:
            found = self._source.memory_of_processes(gpu) if gpu.uuid in moving else None
            # After the list: what comes in between is then counted twice, and nobody gets room that is taken.
            free = self._source.memory_free_bytes(gpu)
            if found is not None:
                listed[gpu.uuid] = found
            if (room := self._cards.get(gpu.uuid)) is not None:
                room.answered(free, found, now)
        self._listed, self._answered = listed, now

    def _hp_grows(self) -> bool:
        return any(room.grows() for room in self._cards.values())

    def _is_news(self) -> bool:
        """Return whether hp grows, or a decision would see something else than the last one did."""
        return self._hp_grows() or self._decided_on is None or self._decided_on != self._news()

    def _news(self) -> object:
        """Return what changes without a message: what the driver says, and what clients hold and answer."""
        free, present = [room.free for room in self._cards.values()], self.tenants.present.values()
        moving = [each for each in present if each.known.place in (Place.LEAVING, Place.RETURNING)]
        clients = [client.record for each in moving or present for client in each.clients]
        held = [record.memory_mib for record in clients] if not moving else []
        return free, self._listed, held, [record.parking for record in clients]

    def _look_at_gpus(self, now: float) -> None:
        for room in self._cards.values():
            room.look(now, self.tenants.present.values())

    def _end(self) -> None:
        """Forget everything: nobody parks any more."""
        if self._cards:
            for room in self._cards.values():
                room.announce(0)
            self._cards = {}
            self.tenants = Tenants()
            showing.show(time.monotonic(), {}, (), [each.shared_gpu for each in self._gpus.values()])

    def _count(self) -> None:
        for present in self.tenants.present.values():
            for what, seconds in present.known.take_happened():
                for uuid in {slot.gpu for slot in present.slots}:
                    self._room(uuid).count(what, seconds)

    # -- Telling tenants -----------------------------------------------------------------------------------------------

    def _tell(self, present: Present, away: bool, now: float) -> None:
        """Ask a tenant to leave, or let it back: all of its slots."""
        changed = [slot for slot in present.slots if slot.parking.ask(away)]
        if not changed:
            return
        if away and present.known.place is Place.HERE:
            present.known.left = present.by_gpu()
            present.known.moves_bytes = sum(member.held for member in present.members)
        for room in self._cards.values():
            room.cramped.drop(present.clients)
        present.known.asked = now
        if away or present.known.place is not Place.HERE:
            present.known.move(Place.LEAVING if away else Place.RETURNING, now)
        self._save({slot.gpu for slot in changed})  # before the pages, so that the next agent repeats no number
        for slot in changed:
            slot.write_park()
        for client in present.clients:
            if client.slot in changed:
                client.connection.send(messages.park())
