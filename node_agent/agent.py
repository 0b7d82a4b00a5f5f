"""The agent: its boards, what administrators can ask of them, and the loop that looks after them."""

import asyncio
import contextlib
import logging
import time

from orion.hook import layout
from orion.node_agent import descriptors, knowledge, pages
from orion.node_agent.errors import Conflict, NotFound
from orion.node_agent.gpus.interface import Gpu, GpuSource
from orion.node_agent.gpus.usage import MemoryUsage
from orion.node_agent.joining import Counters
from orion.node_agent.owners import Owner, Owners
from orion.node_agent.root import Root
from orion.node_agent.served import ServedGpu
from orion.node_agent.settings import AgentSettings
from orion.node_agent.slots import WEIGHT_MILLI, Slot
from orion.node_agent.state import RememberedGpu, StateFile

_log = logging.getLogger(__name__)

_LOOK_SECONDS = 0.1
_CONTENDED_LOOK_SECONDS = 0.025
""" While several be slots share a GPU, at the most; less often where that costs more than the next says. """
_LOOKING_MAX = 0.01
""" Share of a CPU core. """
_IDLE_LOOK_SECONDS = 0.5
_IDLE_AFTER_NS = 2_000_000_000
""" Nothing launched and nobody came or left for so long: the loop looks less often. """
_RETURN_SECONDS = 5.0
""" Clients of an earlier agent are waited for so long. """
_SLOTS_MAX = 128
""" Of one GPU. """


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
            gpu.stop()
        self.gpus.clear()

    async def run(self) -> None:
        """Look after the boards until cancelled."""
        worked = time.thread_time()
        while True:
            try:
                seconds = self.look()
            except Exception:  # one bad look must not be the last
                _log.exception("look: failed")
                seconds = _LOOK_SECONDS
            before, worked = worked, time.thread_time()
            seconds = max(seconds, min(_LOOK_SECONDS, (worked - before) / _LOOKING_MAX))
            self._wake.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self._wake.wait()
                    await asyncio.sleep(_LOOK_SECONDS)

    def look(self) -> float:
        """Look at every board once; return the seconds until the next look."""
        now = time.monotonic_ns()
        for gpu in self.gpus.values():
            if gpu.look(now):
                self._active_ns = now
        if any(gpu.unsaved for gpu in self.gpus.values()):
            self.save_all()
        if any(gpu.contended for gpu in self.gpus.values()):
            return _CONTENDED_LOOK_SECONDS
        return _IDLE_LOOK_SECONDS if now - self._active_ns > _IDLE_AFTER_NS else _LOOK_SECONDS

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
        self,
        uuid: str,
        name: str,
        role: layout.Role,
        memory_limit_bytes: int,
        owner_process_id: int,
        weight_milli: int = WEIGHT_MILLI,
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
        name = name or board.free_name(role)
        slot = board.slots.get(name)
        if slot is not None and slot.role is not role:
            raise Conflict(f"slot {name} of GPU {uuid} is {slot.role.name.lower()}, not {role.name.lower()}")
        if slot is None:
            if len(board.slots) >= _SLOTS_MAX:
                raise Conflict(f"GPU {uuid} has {_SLOTS_MAX} slots already")
            slot = self._open(self.gpu(uuid), name, role, permanent=False)
        slot.set(memory_limit_bytes=memory_limit_bytes, weight_milli=weight_milli)
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
        slot.set(memory_limit_bytes=0, weight_milli=WEIGHT_MILLI)
        self._save(gpu)
        _log.info("slot: %s %s made ready", uuid, name)
        return slot

    def set_grant(
        self, uuid: str, name: str, memory_limit_bytes: int | None = None, weight_milli: int | None = None
    ) -> Slot:
        """Change what a slot may do; None stays as it is.

        Raises:
            NotFound: no such GPU or slot.
        """
        slot = self.gpu(uuid).board.slot(name)
        if slot.set(memory_limit_bytes=memory_limit_bytes, weight_milli=weight_milli):
            self._save(self.gpu(uuid))
        return slot

    def set_policy(self, uuid: str, policy: pages.Policy) -> ServedGpu:
        """Change how a GPU is shared.

        Raises:
            NotFound: no such GPU.
            Invalid: it promises to hp what cannot be kept here.
        """
        gpu = self.gpu(uuid)
        gpu.set_policy(policy)
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
        served = ServedGpu(
            gpu,
            policy,
            before.next_generation if before else 1,
            self.counters,
            pending_max,
            self._save,
            self._changed,
        )
        board = served.board
        self.gpus[gpu.uuid] = served
        knowledge.sweep(self.root.knowledge(gpu.uuid), _SLOTS_MAX)
        for each in before.slots if before else []:
            slot = self._open(served, each.name, each.role, each.permanent)
            slot.set(memory_limit_bytes=each.memory_limit_bytes, weight_milli=each.weight_milli)
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
        uuid = gpu.board.gpu.uuid
        slot = Slot(uuid, name, role, self.root.slot(uuid, name), self.root.knowledge(uuid) / name, permanent)
        gpu.board.slots[name] = slot
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
