"""The agent: its GPUs, and the operations on them for administrators and the cluster."""

import asyncio
import logging
from collections.abc import Iterable

from prometheus_client import CollectorRegistry

from orion.errors import Conflict, NotFound, Unavailable
from orion.hook import layout
from orion.node_agent.advertising.advertising import Advertising
from orion.node_agent.advertising.claims import Claims
from orion.node_agent.clients.counters import Counters
from orion.node_agent.clients.jobs import Jobs
from orion.node_agent.clients.shared_gpu import SharedGpu
from orion.node_agent.gpus.asking import AskingThread
from orion.node_agent.gpus.interface import Gpu, GpuSource
from orion.node_agent.gpus.keeper import HealthKeeper
from orion.node_agent.gpus.usage import MemoryUsage
from orion.node_agent.mps.modes import Modes
from orion.node_agent.pages import descriptors, policy_words
from orion.node_agent.pages.policy_words import Policy
from orion.node_agent.parking.answers import why_it_stays
from orion.node_agent.parking.parking import Parking
from orion.node_agent.processes.liveness import Owner
from orion.node_agent.resource_files.applying import Rules
from orion.node_agent.settings import AgentSettings
from orion.node_agent.sharing.driver_memory import DriverMemory
from orion.node_agent.sharing.joint import Agreement
from orion.node_agent.sharing.looking import Looking
from orion.node_agent.sharing.served import ServedGpu
from orion.node_agent.sharing.turn_lengths import TurnLengths
from orion.node_agent.slots import knowledge
from orion.node_agent.slots.claim import remembered_claim
from orion.node_agent.slots.holders import Holders, NoHolders
from orion.node_agent.slots.memory_sharing import MemorySharing
from orion.node_agent.slots.owners import Owners
from orion.node_agent.slots.slot import Slot
from orion.node_agent.state.root import Root
from orion.node_agent.state.state_file import RememberedGpu, StateFile

_log = logging.getLogger(__name__)

_RETURN_SECONDS = 5.0
""" How long clients of the previous agent can return. """
_SLOTS_MAX = 128
""" The maximum number of slots of one GPU. """


class Agent:
    """The agent of one root directory. Create it inside a running event loop.

    Args:
        settings: the agent's settings.
        root: the root directory; this process holds its lock.
        source: finds the GPUs.
    """

    def __init__(self, settings: AgentSettings, root: Root, source: GpuSource) -> None:
        self.settings = settings
        self.root = root
        self.source = source
        self.usage = MemoryUsage(source)
        self.health: HealthKeeper | None = None
        """ None: health is not checked, because no device plugin depends on this agent. """
        self.registry = CollectorRegistry()
        """ Metrics of parts that have their own collectors. """
        self.counters = Counters()
        self._jobs, self._agreement = Jobs(self._save_every_gpu), Agreement()
        self.gpus: dict[str, ServedGpu] = {}
        self.holders: Holders = NoHolders()
        self.advertising = Advertising(self)
        self.claims = Claims(self)
        self.modes = Modes(self)
        self.advertising.mode_of = self.modes.mode
        self.looking = Looking(self.gpus, self.save_all)
        self._memory_thread = AskingThread("memory")
        self.driver_memory = DriverMemory(source, self.gpus, self._memory_thread)
        self.parking = Parking(source, self.gpus, self._memory_thread, settings, self._save_gpus)
        self.rules = Rules(self, settings.resource_config)
        self._loop = asyncio.get_running_loop()
        self._state = StateFile(root.state)
        self._owners = Owners(self._owner_ended)
        self._share_soon = False
        self._pending_max = 16

    def start(self) -> None:
        """Open the sockets of all slots, including the previous agent's slots: their clients may return.

        Raises:
            OSError: a socket cannot be opened.
        """
        limit, remembered, found = descriptors.raise_limit(), self._state.read(), self._found()
        slots = max([1, *(len(self.advertising.slots.wanted(gpu)) for gpu in found)])
        self._pending_max = max(16, min(256, limit // (4 * slots * max(1, len(found)))))
        for gpu in found:
            self._serve(gpu, remembered.pop(gpu.uuid, None))
        self.rules.look()
        for uuid in remembered:
            _log.warning("gpu: %s was served by the previous agent and is gone; its clients are removed", uuid)
        self.save_all()

    def limit_returning(self) -> None:
        """Start the time in which clients of the previous agent can return. Call it when all sockets are ready."""
        self._loop.call_later(_RETURN_SECONDS, self._stop_awaiting)

    def _found(self) -> list[Gpu]:
        try:
            return self.source.find()
        except Unavailable as error:
            _log.warning("gpus: none for now: %s", error)
            return []

    def stop(self) -> None:
        """Close everything; clients continue."""
        self.save_all()
        self.usage.close()
        self._memory_thread.close()
        self.source.close()
        self._owners.close()
        for gpu in self.gpus.values():
            gpu.stop()
        self.gpus.clear()
        self._jobs.close()

    def add_gpu(self, gpu: Gpu) -> None:
        """Serve a GPU that was found after the start, or update the description of a served one.

        Slots that cannot be opened now are opened later.
        """
        if gpu.uuid in self.gpus:
            self.gpus[gpu.uuid].shared_gpu.gpu = gpu
        else:
            try:
                self._serve(gpu, None)
            except OSError as error:
                _log.error("gpu: %s: not all of its slots can be opened: %s", gpu.uuid, error)
            self.save_all()
        self.advertising.changed()

    def gpu(self, uuid: str) -> ServedGpu:
        """Return a GPU.

        Raises:
            NotFound: this machine has no such GPU.
        """
        try:
            return self.gpus[uuid]
        except KeyError:
            raise NotFound(f"there is no GPU {uuid!r} here; the GPUs are: {', '.join(self.gpus) or 'none'}") from None

    def open_slot(
        self,
        uuid: str,
        name: str,
        role: layout.Role,
        memory_limit_bytes: int,
        owner_process_id: int,
        request_milli: int = 0,
        limit_milli: int = 0,
        rule: str = "",
        memory_sharing: MemorySharing | None = None,
    ) -> Slot:
        """Open a slot, or find the open slot of that name; an empty name chooses a free one.

        The slot of a rule (an id of the resource file) can have several owners.

        Raises:
            NotFound: there is no such GPU, or no such owner.
            Conflict: the slot exists with another role or rule, or the GPU has the maximum number of slots.
            Invalid: a slot cannot have this name.
        """
        shared_gpu = self.gpu(uuid).shared_gpu
        owner = Owner.of(owner_process_id) if owner_process_id else None
        if owner_process_id and owner is None:
            raise NotFound(f"there is no process {owner_process_id} to own the slot")
        name = name or shared_gpu.free_name(role)
        slot = shared_gpu.slots.get(name)
        if slot is not None and slot.role is not role:
            raise Conflict(f"slot {name} of GPU {uuid} is {slot.role.name.lower()}, not {role.name.lower()}")
        if slot is not None and slot.rule != rule:
            raise Conflict(f"slot {name} of GPU {uuid} is for programs that join by the id {slot.rule or 'of none'}")
        if slot is None:
            if len(shared_gpu.slots) >= _SLOTS_MAX:
                raise Conflict(f"GPU {uuid} has {_SLOTS_MAX} slots already")
            slot = self._open(self.gpu(uuid), name, role, permanent=False)
        slot.set(memory_limit_bytes=memory_limit_bytes, request_milli=request_milli, limit_milli=limit_milli)
        slot.share_memory(memory_sharing or MemorySharing())
        self.gpu(uuid).joining.credit.look_at(slot)
        self.parking.wake()
        slot.rule = rule
        self._set_owner(slot, owner)
        self.save(self.gpu(uuid))
        _log.info("slot: %s %s opened for process %s", uuid, name, owner_process_id or "any")
        return slot

    def _set_owner(self, slot: Slot, owner: Owner | None) -> None:
        if owner is not None and slot.rule and slot.owner is not None:
            self._owners.share(slot, owner)
        else:
            self._owners.set(slot, owner)

    def open_permanent(self, uuid: str, name: str, role: layout.Role) -> None:
        """Open a permanent slot. If a slot that a process owns has this name, that slot stays.

        Raises:
            OSError: the slot's socket cannot be opened.
        """
        gpu = self.gpu(uuid)
        if name not in gpu.shared_gpu.slots and len(gpu.shared_gpu.slots) < _SLOTS_MAX:
            self._open(gpu, name, role, permanent=True)
            self.save(gpu)

    def close_slot(self, uuid: str, name: str) -> None:
        """Close a slot.

        Raises:
            NotFound: there is no such GPU or slot.
        """
        gpu = self.gpu(uuid)
        slot = gpu.shared_gpu.slot(name)
        self._owners.set(slot, None)
        gpu.joining.close(slot)
        del gpu.shared_gpu.slots[name]
        slot.remove()
        self.save(gpu)
        _log.info("slot: %s %s closed", uuid, name)

    def prepare_slot(self, uuid: str, name: str, *, saves: bool = True) -> Slot:
        """Reset a slot for another container.

        Args:
            uuid: the GPU.
            name: the slot.
            saves: write the state file; False: the caller does, after further changes.

        Raises:
            NotFound: there is no such GPU or slot.
        """
        gpu = self.gpu(uuid)
        slot = gpu.shared_gpu.slot(name)
        gpu.joining.forget_all(slot)
        slot.set(memory_limit_bytes=0, request_milli=0, limit_milli=0)
        slot.begin_again()
        self.parking.wake()
        if saves:
            self.save(gpu)
        _log.info("slot: %s %s reset for another container", uuid, name)
        return slot

    def set_grant(
        self,
        uuid: str,
        name: str,
        memory_limit_bytes: int | None = None,
        request_milli: int | None = None,
        limit_milli: int | None = None,
        memory_sharing: MemorySharing | None = None,
    ) -> Slot:
        """Change a slot's grant; None leaves a value unchanged.

        Raises:
            NotFound: there is no such GPU or slot.
        """
        gpu = self.gpu(uuid)
        slot = gpu.shared_gpu.slot(name)
        changed = slot.set(memory_limit_bytes=memory_limit_bytes, request_milli=request_milli, limit_milli=limit_milli)
        if changed | (memory_sharing is not None and slot.share_memory(memory_sharing)):
            gpu.joining.credit.look_at(slot)
            self.parking.wake()
            self.save(gpu)
        return slot

    def park_slot(self, uuid: str, name: str, away: bool) -> Slot:
        """Note that an administrator wants a slot's processes out of the GPU's memory, or no longer wants that.

        Raises:
            NotFound: there is no such GPU or slot.
            Conflict: the slot may not leave the GPU's memory, or no process uses it.
        """
        shared_gpu = self.gpu(uuid).shared_gpu
        slot = shared_gpu.slot(name)
        if away and not slot.memory_sharing.parks:
            raise Conflict(f"slot {name} of GPU {uuid} may not leave the GPU's memory: {why_it_stays(slot)}")
        if away and not shared_gpu.has_clients(slot):
            raise Conflict(f"no process uses slot {name} of GPU {uuid}, so nothing can leave: start its program first")
        self.parking.wish(uuid, slot, away)
        return slot

    def set_policy(self, uuid: str, policy: Policy) -> ServedGpu:
        """Change the policy of a GPU.

        Raises:
            NotFound: there is no such GPU.
            Invalid: the policy makes a promise to hp that cannot be kept.
        """
        gpu = self.gpu(uuid)
        gpu.set_policy(policy)
        self.save(gpu)
        return gpu

    def save_all(self) -> None:
        """Write the state file with the changes of all GPUs; if that fails, the next check tries again."""
        if not self._state.write([gpu.current_text() for gpu in self.gpus.values()]):
            for gpu in self.gpus.values():
                gpu.unsaved = True

    def _serve(self, gpu: Gpu, before: RememberedGpu | None) -> None:
        fresh = self.settings.policy.over(policy_words.DEFAULT)
        policy, default = before.policies() if before else (fresh, fresh)
        shared_gpu = SharedGpu(gpu, policy, before.next_generation if before else 1, default)
        served = ServedGpu(
            shared_gpu, self.counters, self._jobs, self._agreement, self._pending_max, self.save, self._changed,
            TurnLengths.of(self.settings.shortest_turn_ms, self.settings.longest_turn_ms), self.parking.room,
        )  # fmt: skip
        self.gpus[gpu.uuid] = served
        knowledge.sweep(self.root.knowledge(gpu.uuid), _SLOTS_MAX)
        for each in before.slots if before else []:
            slot = self._open(served, each.name, each.role, each.permanent)
            slot.set(
                memory_limit_bytes=each.memory_limit_bytes,
                request_milli=each.request_milli,
                limit_milli=each.limit_milli,
            )
            slot.share_memory(
                MemorySharing(each.memory_request_bytes, each.memory_parks, each.memory_unified, each.memory_wait_ms)
            )
            slot.parking.number, slot.parking.is_wished_away = each.park, each.wished_away
            slot.write_park()  # before its clients return
            slot.holder_text = each.holder
            slot.claim = remembered_claim(each.claim)
            if each.owner is not None:
                self._owners.set(slot, Owner(*each.owner))
            for sharer in each.sharers:
                self._owners.share(slot, Owner(*sharer))
            slot.rule = each.rule
        for name, role in self.advertising.slots.wanted(gpu).items():
            if name not in shared_gpu.slots:
                self._open(served, name, role, permanent=True)
        shared_gpu.await_return(before.clients if before else [])
        self._jobs.await_return(gpu.uuid, shared_gpu.awaited.values())
        served.activity.share_out()
        _log.info(
            "gpu: %s (%s) has %d slots; %d clients may return",
            gpu.uuid, gpu.model, len(shared_gpu.slots), len(shared_gpu.awaited),
        )  # fmt: skip

    def _open(self, gpu: ServedGpu, name: str, role: layout.Role, permanent: bool) -> Slot:
        uuid = gpu.shared_gpu.gpu.uuid
        slot = Slot(uuid, name, role, self.root.slot(uuid, name), self.root.knowledge(uuid) / name, permanent)
        slot.pages_cost_time_only = gpu.shared_gpu.gpu.simulated
        try:
            gpu.joining.open(slot)
        except OSError:
            slot.close()  # the directory stays: a container may have it mounted
            raise
        gpu.shared_gpu.slots[name] = slot
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
        self._jobs.stop_awaiting()

    def save(self, gpu: ServedGpu) -> None:
        """Write the state file after a change of a GPU."""
        gpu.unsaved = True
        self.save_all()

    def _save_every_gpu(self) -> None:
        self._save_gpus(self.gpus)

    def _save_gpus(self, uuids: Iterable[str]) -> None:
        for uuid in uuids:
            self.gpus[uuid].unsaved = True
        self.save_all()

    def _changed(self, gpu: ServedGpu) -> None:
        """Check the GPUs often for a while, and divide the windows again: clients have joined or left.

        Several changes cause one division.
        """
        gpu.unsaved = True
        self.looking.wake()
        self.parking.wake()
        self.driver_memory.wake()
        if not self._share_soon:
            self._share_soon = True
            self._loop.call_soon(self._share_out)

    def _share_out(self) -> None:
        self._share_soon = False
        for gpu in self.gpus.values():
            gpu.activity.share_out()
