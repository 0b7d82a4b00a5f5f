"""Makes room on the GPUs: asks tenants to leave their memory and lets them back, as `deciding.decide` says.

Who moves is looked at often once it may be done. When somebody has left or come back, the driver is asked what is
free, in that order, so that its answer is never older than the move. Else it is asked in its turn (`pace.py`), and
often while hp waits, or somebody moves beside hp. A decision looks at all tenants of some GPUs: those about which the
driver or a client says something new or whose time has come, at the latest after twenty seconds, and those that share a
tenant with them. A tenant comes back only when the room was seen to be free just before: a driver that finds no room
for it loses the program. While no slot parks, nothing is asked and nothing is looked at.
"""

import asyncio
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Protocol

from orion.hook.join import CreditAnswer
from orion.node_agent.clients.client import Client
from orion.node_agent.clients.shared_gpu import SharedGpu
from orion.node_agent.gpus.asking import AskingThreads
from orion.node_agent.gpus.interface import GpuSource
from orion.node_agent.pacing.tolerating import Tolerating
from orion.node_agent.parking import noting, pace, showing, telling
from orion.node_agent.parking.asking import Asking
from orion.node_agent.parking.gpu_room import GpuRoom
from orion.node_agent.parking.host_room import HostRoom
from orion.node_agent.parking.known import HOST_MEMORY_SHORT
from orion.node_agent.parking.last_look import where_clients_have_grown
from orion.node_agent.parking.news import news
from orion.node_agent.parking.present import Present
from orion.node_agent.parking.room_answers import Wait, answer
from orion.node_agent.parking.tenants import Tenants
from orion.node_agent.parking.view import Place, View
from orion.node_agent.parking.waking import Waking
from orion.node_agent.processes.host_memory import HostMemory
from orion.node_agent.settings import AgentSettings
from orion.node_agent.slots.slot import Slot

_MARGIN_PART = 0.02


class _Shares(Protocol):
    @property
    def shared_gpu(self) -> SharedGpu:
        """The GPU's slots and clients."""


class Parking:
    """Who has left, and who comes back, on all GPUs of one agent.

    Args:
        source: finds and queries the GPUs.
        gpus: by UUID; more may come later.
        threads: ask the driver, one for each GPU.
        settings: the agent's.
        save: writes the state file after a change of these GPUs.
        memory: the host's; None: nobody looks at it.
    """

    def __init__(
        self,
        source: GpuSource,
        gpus: Mapping[str, _Shares],
        threads: AskingThreads,
        settings: AgentSettings,
        save: Callable[[Iterable[str]], None],
        memory: HostMemory | None = None,
    ) -> None:
        self._gpus, self._settings, self._save = gpus, settings, save
        self._asking = Asking(source, threads)
        self.tenants = Tenants()
        self._cards: dict[str, GpuRoom] = {}
        self._host = HostRoom(memory)
        self._waking = Waking()
        self._pace = pace.Pace()
        self._grouped = float("-inf")
        """ When all tenants were last found. """
        self._decided_on: dict[str, object] = {}
        """ The news that the last decision about each GPU saw; missing: it did not know what is free. """
        self._moving: list[Present] = []
        """ Who leaves or comes back, as of the last decision. """
        self._due: dict[str, float] = {}
        """ When each GPU needs a decision if nothing is new. """

    def begin(self, uuid: str) -> None:
        """Let all ask for room if tenants of an earlier agent may be coming back. Call it before clients return."""
        room = GpuRoom(self._gpus[uuid].shared_gpu, self._settings)
        if room.unseen:
            self._cards[uuid] = room
            room.announce(room.unseen)

    def wake(self) -> None:
        """Look soon: clients have joined or left, or a grant has changed."""
        self._waking.wake()

    async def run(self) -> None:
        """Look until cancelled."""
        tolerating, at_once = Tolerating("gpus: their memory for those who leave and come back"), False
        while True:
            at_once |= self._waking.begin()  # also if the last look at all GPUs has failed
            seconds: float | None = pace.LOOK_SECONDS
            with tolerating:
                seconds = await self.look(at_once)
                at_once = False
            await self._waking.wait(seconds, hp_waits=any(room.wishes.wished for room in self._cards.values()))

    async def look(self, at_once: bool = True) -> float | None:
        """Ask the driver if it is time, and decide; return the seconds until the next look, None: nobody parks."""
        if not self._is_concerned:
            self._end()
            return None
        for uuid in self._gpus:
            self._room(uuid)
        now = time.monotonic()
        if at_once or now - self._grouped >= pace.REST_SECONDS:
            self._group(now)
        self._look_at_moving(now)
        in_turn = set(self._gpus) if at_once else self._pace.in_turn(now, self._gpus)
        if due := in_turn | self._to_ask():
            due, here = self.tenants.together(due)
            asked = time.monotonic()
            await self._ask(due, here, asked)
            seen = {uuid for uuid in due if at_once or self._has_news(uuid) or now >= self._due.get(uuid, now)}
            if seen:
                await self._decide(seen, asked)
            self._look_at_gpus(time.monotonic(), in_turn - seen)
            self._pace.asked(asked, {uuid: self._cards[uuid] for uuid in due}, self.tenants.on)
        return self._seconds(time.monotonic())

    def _group(self, now: float) -> None:
        self.tenants.group(now, [each.shared_gpu for each in self._gpus.values()])
        self._grouped = now
        self._moving = self.tenants.moving()

    def _look_at_moving(self, now: float) -> None:
        """Note who has left or come back, so that the driver is asked after that about its GPUs."""
        for each in self._moving:
            self._look_at(each, now)
            if not each.moves or each.joined:
                for uuid in each.gpus:
                    self._decided_on.pop(uuid, None)

    def _look_at(self, present: Present, now: float) -> None:
        answered, moved = self._asking.answered(present.gpus), present.known.moved
        if (away := present.look(now, self._asking.listed, answered, self._settings)) is not None:
            self._tell(present, away, now)
        elif moved != present.known.moved and present.known.place is Place.HERE:
            self._save(present.gpus)  # so that the next agent does not wait for it
        present.note(now)

    def _to_ask(self) -> set[str]:
        """Return the GPUs about which the driver is asked although it is not time."""
        found = {uuid for uuid, room in self._cards.items() if uuid not in self._decided_on or _is_urgent(room)}
        return found.union(uuid for each in self._moving for uuid in each.gpus if self._cards[uuid].has_hp)

    def _has_news(self, uuid: str) -> bool:
        """Return whether a decision would see something else of a GPU than the last one did, or has to be made."""
        is_new = uuid not in self._decided_on or self._decided_on[uuid] != self._news(uuid)
        return is_new or _is_urgent(self._cards[uuid])

    async def _decide(self, uuids: Collection[str], asked: float) -> None:
        """Look at the tenants of GPUs, decide, and tell them; read before what the host's memory can hold.

        Args:
            uuids: the GPUs.
            asked: when the driver was asked, in seconds.
        """
        self._host.forget()
        while not self._decides(uuids, time.monotonic(), asked):
            await asyncio.to_thread(self._host.read)
        self._moving = self.tenants.moving()

    def _decides(self, uuids: Collection[str], now: float, asked: float) -> bool:
        """Return whether what is known of the host's memory sufficed for a decision."""
        if self._waking.has_changed:  # meanwhile
            self._group(now)
        gpus, here = self.tenants.together(uuids)
        for each in here:
            if not each.moves:  # else it may be done by now, and the driver was asked before
                self._look_at(each, now)
        is_stale = any(each.moved_since(self._asking.answered(each.gpus)) for each in here)
        for uuid in gpus:
            self._decided_on.pop(uuid, None)
            if not is_stale:
                self._decided_on[uuid] = self._news(uuid)
        self._count(here)
        self._look_at_gpus(now, gpus)
        noting.keep_untaken(now, here, self._cards)
        waiting = {client: wish for uuid in gpus for client, wish in self._cards[uuid].cramped.waiting().items()}
        for each in here:
            each.note_lacks(waiting)
        cards = {uuid: self._cards[uuid].seen(now, self.tenants.on.get(uuid, ()), is_stale) for uuid in gpus}
        factor, retry_seconds = self._settings.parking_stay_factor, self._settings.parking_retry_seconds
        view = View(now, cards, self.tenants.views(now, here, self._asking.listed, factor), factor, _MARGIN_PART)
        found = self._host.decide(view, self.tenants.present)
        joined = self._host.judge(here, found[0]) if found is not None else None
        if found is None or joined is None:
            return False
        wishes, short = found
        noting.note_joined(now, joined, retry_seconds)
        noting.note_who_stay(now, view, wishes, short, self.tenants.present, retry_seconds)
        noting.note_result(asked, view, wishes, self.tenants.present, self._cards)
        for name in wishes.leave:
            self._tell(self.tenants.present[name], True, now)
        grown = where_clients_have_grown(view, self._cards)
        for uuid in grown:  # for those who stay away because of that
            self._decided_on.pop(uuid, None)
        for name in wishes.back:
            if grown.isdisjoint(self.tenants.present[name].gpus):
                self._tell(self.tenants.present[name], False, now)
        if wishes.leave or wishes.back:  # that they move now is no news
            self._decided_on |= {uuid: self._news(uuid) for uuid in gpus & self._decided_on.keys()}
        self._due |= dict.fromkeys(gpus, pace.next_decision(view, wishes, here, self._cards))
        shown = {uuid: self._cards[uuid] for uuid in gpus}
        showing.show(now, shown, here, [self._gpus[uuid].shared_gpu for uuid in gpus])
        return True

    def room(self, client: Client, size: int) -> CreditAnswer:
        """Answer a client that found no room on its GPU for an allocation of so many bytes."""
        room = self._cards.get(client.slot.gpu)
        if room is None and self._is_concerned:
            room = self._room(client.slot.gpu)
        if room is None:
            return CreditAnswer.NO
        found, wait = answer(client, size, room, self.tenants.on.get(client.slot.gpu, ()))
        if wait is Wait.NOT_AT_ALL:
            self._waking.look_soon(for_hp=True)
        elif wait is Wait.SHORTLY:
            self._waking.look_in(pace.HP_SECONDS)
        return found

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

    @property
    def _is_concerned(self) -> bool:
        """Whether any slot with processes parks or has been asked to leave, or a tenant is not back."""
        return not self.tenants.all_are_here or any(
            slot.parking.is_asked
            or ((slot.memory_sharing.parks or slot.parking.left_bytes) and served.shared_gpu.has_clients(slot))
            for served in self._gpus.values()
            for slot in served.shared_gpu.slots.values()
        )

    def _seconds(self, now: float) -> float:
        """Return the time until the next look."""
        undecided = bool(self._cards.keys() - self._decided_on.keys())
        return self._pace.seconds(now, self._cards.values(), self._moving, undecided)

    def _room(self, uuid: str) -> GpuRoom:
        if uuid not in self._cards:
            self._cards[uuid] = GpuRoom(self._gpus[uuid].shared_gpu, self._settings)
        return self._cards[uuid]

    async def _ask(self, uuids: Collection[str], here: Iterable[Present], now: float) -> None:
        moving = set[str]().union(*(each.gpus for each in here if each.is_listed))
        await self._asking.ask(now, [(self._gpus[uuid].shared_gpu.gpu, self._cards[uuid]) for uuid in uuids], moving)

    def _news(self, uuid: str) -> object:
        return news(uuid, self._cards[uuid], self.tenants.on.get(uuid, ()), self._asking.listed)

    def _look_at_gpus(self, now: float, uuids: Iterable[str]) -> None:
        for uuid in uuids:
            self._cards[uuid].look(now, self.tenants.on.get(uuid, ()))

    def _end(self) -> None:
        """Forget everything: nobody parks any more."""
        if self._cards:
            for room in self._cards.values():
                room.announce(0)
            self._cards, self._decided_on, self._due, self._moving, self._pace = {}, {}, {}, [], pace.Pace()
            self.tenants = Tenants()
            showing.show_end(time.monotonic(), [each.shared_gpu for each in self._gpus.values()])

    def _count(self, tenants: Iterable[Present]) -> None:
        for present in tenants:
            for what, seconds in present.known.take_happened():
                for uuid in present.gpus:
                    self._room(uuid).count(what, seconds)

    def _tell(self, present: Present, away: bool, now: float) -> None:
        telling.tell(present, away, now, [self._cards[uuid] for uuid in present.gpus], self._save)


def _is_urgent(room: GpuRoom) -> bool:
    """Return whether somebody waits for room on a GPU, or hp has grown there."""
    return room.is_awaited or room.grows()
