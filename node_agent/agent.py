"""The agent: its boards, what administrators can ask of them, and the loop that looks after them."""

import asyncio
import contextlib
import logging
import time

from orion.hook import layout
from orion.node_agent import descriptors, pages
from orion.node_agent.boards import Board
from orion.node_agent.errors import Conflict, Invalid, NotFound
from orion.node_agent.gpus.interface import Gpu, GpuSource
from orion.node_agent.gpus.usage import MemoryUsage
from orion.node_agent.joining import Counters, Joining
from orion.node_agent.owners import Owner, Owners
from orion.node_agent.root import Root
from orion.node_agent.settings import AgentSettings
from orion.node_agent.slots import Slot
from orion.node_agent.state import RememberedGpu, StateFile
from orion.node_agent.windows import Activity

_log = logging.getLogger(__name__)

_LOOK_SECONDS = 0.1
_IDLE_LOOK_SECONDS = 0.5
_IDLE_AFTER_NS = 2_000_000_000
""" Nothing launched and nobody came or left for so long: the loop looks less often. """
_RETURN_SECONDS = 5.0
""" Clients of an earlier agent are waited for so long. """
_SLOTS_MAX = 128
""" Of one GPU. """


class ServedGpu:
    """One GPU's board with what serves it."""

    def __init__(self, board: Board, joining: Joining) -> None:
        self.board = board
        self.joining = joining
        self.activity = Activity(board)
        self.unsaved = True
        self.text = ""


class Agent:
    """The agent of one root; made inside a running event loop.

    Args:
        settings: how it was started.
        root: the root directory, held.
        source: where GPUs come from.
    """

    def __init__(self, settings: AgentSettings, root: Root, source: GpuSource) -> None:
        self.settings = settings
        self.root = root
        self.source = source
        self.usage = MemoryUsage(source)
        self.counters = Counters()
        self.gpus: dict[str, ServedGpu] = {}
        self._loop = asyncio.get_running_loop()
        self._state = StateFile(root.state)
        self._owners = Owners(self._owner_ended)
        self._active_ns = time.monotonic_ns()
        self._wake = asyncio.Event()
        self._share_soon = False

    def start(self) -> None:
        """Open all slots' sockets, those of an earlier agent included, and wait for its clients to return.

        Raises:
            OSError: a socket cannot be opened.
        """
        limit = descriptors.raise_limit()
        remembered = self._state.read()
        found = self.source.find()
        per_gpu = max(1, self.settings.hp_slots + self.settings.be_slots)
        pending_max = max(16, min(256, limit // (4 * per_gpu * max(1, len(found)))))
        for gpu in found:
            self._serve(gpu, remembered.pop(gpu.uuid, None), pending_max)
        for uuid in remembered:
            _log.warning("gpu: %s was here under an earlier agent and is gone; its clients are forgotten", uuid)
        self.save_all()
        self._loop.call_later(_RETURN_SECONDS, self._stop_awaiting)

    def stop(self) -> None:
        """Let go of everything but the clients, who go on."""
        self.save_all()
        self.usage.close()
        self._owners.close()
        for gpu in self.gpus.values():
            gpu.joining.stop()
            gpu.board.page.close()
            for slot in gpu.board.slots.values():
                slot.page.close()
        self.gpus.clear()

    async def run(self) -> None:
        """Look after the boards until cancelled."""
        while True:
            try:
                idle = self.look()
            except Exception:  # one bad look must not be the last
                _log.exception("look: failed")
                idle = False
            self._wake.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_IDLE_LOOK_SECONDS if idle else _LOOK_SECONDS):
                    await self._wake.wait()
                    await asyncio.sleep(_LOOK_SECONDS)

    def look(self) -> bool:
        """Look at every board once; return whether there is nothing to look at closely."""
        now = time.monotonic_ns()
        for gpu in self.gpus.values():
            gpu.joining.look(now)
            if gpu.activity.look() or gpu.board.stopped:
                self._active_ns = now
            gpu.activity.share_out()
        if any(gpu.unsaved for gpu in self.gpus.values()):
            self.save_all()
        return now - self._active_ns > _IDLE_AFTER_NS

    def gpu(self, uuid: str) -> ServedGpu:
        """Return a GPU.

        Raises:
            NotFound: it is not of this machine.
        """
        try:
            return self.gpus[uuid]
        except KeyError:
            known = ", ".join(self.gpus) or "none"
            raise NotFound(f"there is no GPU {uuid!r} here; the GPUs are: {known}") from None

    def open_slot(
        self, uuid: str, name: str, role: layout.Role, memory_limit_bytes: int, owner_process_id: int
    ) -> Slot:
        """Make a slot, or take the one of that name; an empty name takes a new one.

        Raises:
            NotFound: no such GPU, or no such owner.
            Conflict: the slot is there with another role, or there are too many.
            Invalid: a name that cannot be a slot's.
        """
        board = self.gpu(uuid).board
        owner = Owner.of(owner_process_id) if owner_process_id else None
        if owner_process_id and owner is None:
            raise NotFound(f"there is no process {owner_process_id} to own the slot")
        name = name or _new_name(board, role)
        slot = board.slots.get(name)
        if slot is not None and slot.role is not role:
            raise Conflict(f"slot {name} of GPU {uuid} is {slot.role.name.lower()}, not {role.name.lower()}")
        if slot is None:
            if len(board.slots) >= _SLOTS_MAX:
                raise Conflict(f"GPU {uuid} has {_SLOTS_MAX} slots already")
            slot = self._open(self.gpu(uuid), name, role, permanent=False)
        slot.set(memory_limit_bytes=memory_limit_bytes)
        self._owners.set(slot, owner)
        self._save(self.gpu(uuid))
        _log.info("slot: %s %s opened for process %s", uuid, name, owner_process_id or "any")
        return slot

    def close_slot(self, uuid: str, name: str) -> None:
        """End a slot.

        Raises:
            NotFound: no such GPU or slot.
        """
        gpu = self.gpu(uuid)
        slot = gpu.board.slot(name)
        self._owners.set(slot, None)
        gpu.joining.close(slot)
        del gpu.board.slots[name]
        slot.remove()
        self._save(gpu)
        _log.info("slot: %s %s closed", uuid, name)

    def prepare_slot(self, uuid: str, name: str) -> Slot:
        """Make a slot ready for another container.

        Raises:
            NotFound: no such GPU or slot.
        """
        gpu = self.gpu(uuid)
        slot = gpu.board.slot(name)
        gpu.joining.forget_all(slot)
        slot.set(memory_limit_bytes=0)
        self._save(gpu)
        _log.info("slot: %s %s made ready", uuid, name)
        return slot

    def set_grant(self, uuid: str, name: str, memory_limit_bytes: int) -> Slot:
        """Change what a slot may do.

        Raises:
            NotFound: no such GPU or slot.
        """
        slot = self.gpu(uuid).board.slot(name)
        if slot.set(memory_limit_bytes=memory_limit_bytes):
            self._save(self.gpu(uuid))
        return slot

    def set_policy(self, uuid: str, policy: pages.Policy) -> ServedGpu:
        """Change how a GPU is shared.

        Raises:
            NotFound: no such GPU.
            Invalid: the linger's floor is above its ceiling.
        """
        gpu = self.gpu(uuid)
        if policy.linger_floor_ns > policy.linger_ceiling_ns:
            raise Invalid("the linger's floor must not be above its ceiling")
        gpu.board.set_policy(policy)
        gpu.activity.share_out()
        self._save(gpu)
        return gpu

    def save_all(self) -> None:
        """Write the state file, with what is new of each GPU."""
        for gpu in self.gpus.values():
            if gpu.unsaved:
                gpu.text = gpu.board.text
                gpu.unsaved = False
        try:
            self._state.write(gpu.text for gpu in self.gpus.values())
        except OSError as error:
            _log.error("state: cannot be written, a restart would lose the newest clients: %s", error)

    def _serve(self, gpu: Gpu, before: RememberedGpu | None, pending_max: int) -> None:
        policy = pages.Policy(**before.policy.model_dump()) if before else self.settings.policy.as_page()
        board = Board(gpu, policy, before.next_generation if before else 1)
        served = ServedGpu(
            board,
            Joining(board, self.counters, pending_max, lambda: self._save(served), lambda: self._changed(served)),
        )
        self.gpus[gpu.uuid] = served
        for each in before.slots if before else []:
            slot = self._open(served, each.name, each.role, each.permanent)
            slot.set(memory_limit_bytes=each.memory_limit_bytes)
            if each.owner is not None:
                self._owners.set(slot, Owner(*each.owner))
        for role, count in ((layout.Role.HP, self.settings.hp_slots), (layout.Role.BE, self.settings.be_slots)):
            for number in range(count):
                name = f"{role.name.lower()}-{number}"
                if name not in board.slots:
                    self._open(served, name, role, permanent=True)
        board.await_return(before.clients if before else [])
        served.activity.share_out()
        _log.info(
            "gpu: %s (%s) has %d slots; %d clients may return",
            gpu.uuid, gpu.model, len(board.slots), len(board.awaited),
        )  # fmt: skip

    def _open(self, gpu: ServedGpu, name: str, role: layout.Role, permanent: bool) -> Slot:
        board = gpu.board
        slot = Slot(board.gpu.uuid, name, role, self.root.slot(board.gpu.uuid, name), permanent)
        board.slots[name] = slot
        gpu.joining.open(slot)
        gpu.activity.share_out()
        return slot

    def _owner_ended(self, slot: Slot) -> None:
        if slot.permanent:
            self._owners.set(slot, None)
            self.prepare_slot(slot.gpu, slot.name)
        else:
            self.close_slot(slot.gpu, slot.name)

    def _stop_awaiting(self) -> None:
        for gpu in self.gpus.values():
            gpu.joining.give_up_awaiting()
            self._changed(gpu)

    def _save(self, gpu: ServedGpu) -> None:
        gpu.unsaved = True
        self.save_all()

    def _changed(self, gpu: ServedGpu) -> None:
        """Somebody came or left: share out anew, once for all who do so now, and look closely for a while."""
        gpu.unsaved = True
        self._active_ns = time.monotonic_ns()
        self._wake.set()
        if not self._share_soon:
            self._share_soon = True
            self._loop.call_soon(self._share_out)

    def _share_out(self) -> None:
        self._share_soon = False
        for gpu in self.gpus.values():
            gpu.activity.share_out()


def _new_name(board: Board, role: layout.Role) -> str:
    return next(name for name in (f"{role.name.lower()}-{number}" for number in range(1000)) if name not in board.slots)
