"""Opens, changes, parks and closes the slots of an agent's GPUs, for administrators and the cluster."""

import logging

from orion.errors import Conflict, NotFound
from orion.hook import layout
from orion.node_agent.parking.answers import why_it_stays
from orion.node_agent.parking.parking import Parking
from orion.node_agent.processes.liveness import Owner
from orion.node_agent.sharing.saved_gpus import SavedGpus
from orion.node_agent.sharing.served import ServedGpu
from orion.node_agent.slots.claim import remembered_claim
from orion.node_agent.slots.memory_sharing import MemorySharing
from orion.node_agent.slots.owners import Owners
from orion.node_agent.slots.slot import Slot
from orion.node_agent.state.root import Root
from orion.node_agent.state.state_file import RememberedSlot

_log = logging.getLogger(__name__)

SLOTS_MAX = 128
""" The maximum number of slots of one GPU. """


class SlotOperations:
    """The operations on the slots of one agent. Each that changes something writes the state file.

    Args:
        saved: the agent's GPUs.
        root: the root directory, which contains the slots' directories.
        parking: learns of changes of slots that may leave a GPU's memory.
    """

    def __init__(self, saved: SavedGpus, root: Root, parking: Parking) -> None:
        self._saved, self._root, self._parking = saved, root, parking
        self._owners = Owners(self._owner_ended)

    def stop(self) -> None:
        """Stop waiting for the ends of owners; slots keep their owners for the next agent."""
        self._owners.close()

    def make(self, gpu: ServedGpu, name: str, role: layout.Role, *, permanent: bool) -> Slot:
        """Make a slot and listen for its clients; do not write the state file.

        Raises:
            OSError: the slot's socket cannot be opened.
        """
        slot = self._make(gpu, name, role, permanent)
        slot.write_known_limit()  # an agent that lost its state may have left another one
        return slot

    def _make(self, gpu: ServedGpu, name: str, role: layout.Role, permanent: bool) -> Slot:
        uuid = gpu.shared_gpu.gpu.uuid
        slot = Slot(uuid, name, role, self._root.slot(uuid, name), self._root.knowledge(uuid) / name, permanent)
        slot.pages_cost_time_only = gpu.shared_gpu.gpu.simulated
        try:
            gpu.joining.open(slot)
        except OSError:
            slot.close()  # the directory stays: a container may have it mounted
            raise
        gpu.shared_gpu.slots[name] = slot
        gpu.activity.share_out()
        return slot

    def restore(self, gpu: ServedGpu, saved: RememberedSlot) -> None:
        """Make a slot of the previous agent again, as that agent left it; do not write the state file.

        Raises:
            OSError: the slot's socket cannot be opened.
        """
        slot = self._make(gpu, saved.name, saved.role, saved.permanent)
        slot.set(
            memory_limit_bytes=saved.memory_limit_bytes,
            request_milli=saved.request_milli,
            limit_milli=saved.limit_milli,
            known_again=False,
        )
        slot.share_memory(
            MemorySharing(saved.memory_request_bytes, saved.memory_parks, saved.memory_unified, saved.memory_wait_ms)
        )
        slot.parking.number, slot.parking.is_wished_away = saved.park, saved.wished_away
        slot.parking.left_bytes = saved.left_bytes
        slot.write_park()  # before its clients return
        slot.holder_text = saved.holder
        slot.claim = remembered_claim(saved.claim)
        if saved.owner is not None:
            self._owners.set(slot, Owner(*saved.owner))
        for sharer in saved.sharers:
            self._owners.share(slot, Owner(*sharer))
        slot.rule = saved.rule

    def open(
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
        gpu = self._saved.find(uuid)
        shared_gpu = gpu.shared_gpu
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
            if len(shared_gpu.slots) >= SLOTS_MAX:
                raise Conflict(f"GPU {uuid} has {SLOTS_MAX} slots already")
            slot = self.make(gpu, name, role, permanent=False)
        gpu.joining.credit.changes(slot, memory_limit_bytes)
        slot.set(memory_limit_bytes=memory_limit_bytes, request_milli=request_milli, limit_milli=limit_milli)
        slot.share_memory(memory_sharing or MemorySharing())
        gpu.joining.credit.look_at(slot)
        self._parking.wake()
        slot.rule = rule
        self._set_owner(slot, owner)
        self._saved.save(gpu)
        _log.info("slot: %s %s opened for process %s", uuid, name, owner_process_id or "any")
        return slot

    def open_permanent(self, uuid: str, name: str, role: layout.Role) -> None:
        """Open a permanent slot. If a slot that a process owns has this name, that slot stays.

        Raises:
            OSError: the slot's socket cannot be opened.
        """
        gpu = self._saved.find(uuid)
        if name not in gpu.shared_gpu.slots and len(gpu.shared_gpu.slots) < SLOTS_MAX:
            self.make(gpu, name, role, permanent=True)
            self._saved.save(gpu)

    def close(self, uuid: str, name: str) -> None:
        """Close a slot.

        Raises:
            NotFound: there is no such GPU or slot.
        """
        gpu = self._saved.find(uuid)
        slot = gpu.shared_gpu.slot(name)
        self._owners.set(slot, None)
        gpu.joining.close(slot)
        gpu.turns.forget(name)
        del gpu.shared_gpu.slots[name]
        slot.remove()
        self._saved.save(gpu)
        _log.info("slot: %s %s closed", uuid, name)

    def prepare(self, uuid: str, name: str, *, saves: bool = True) -> Slot:
        """Reset a slot for another container.

        Args:
            uuid: the GPU.
            name: the slot.
            saves: write the state file; False: the caller does, after further changes.

        Raises:
            NotFound: there is no such GPU or slot.
        """
        gpu = self._saved.find(uuid)
        slot = gpu.shared_gpu.slot(name)
        gpu.joining.reset(slot)
        slot.debt_ns = max(slot.debt_ns, gpu.turns.forget(name))  # the greater one, if its pod never became known
        slot.set(memory_limit_bytes=0, request_milli=0, limit_milli=0)
        slot.begin_again()
        self._parking.wake()
        if saves:
            self._saved.save(gpu)
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
        known_again: bool = True,
    ) -> Slot:
        """Change a slot's grant; None leaves a value unchanged (`Slot.set`).

        Raises:
            NotFound: there is no such GPU or slot.
        """
        gpu = self._saved.find(uuid)
        slot = gpu.shared_gpu.slot(name)
        if memory_limit_bytes is not None:
            gpu.joining.credit.changes(slot, memory_limit_bytes)
        changed = slot.set(
            memory_limit_bytes=memory_limit_bytes,
            request_milli=request_milli,
            limit_milli=limit_milli,
            known_again=known_again,
        )
        if changed | (memory_sharing is not None and slot.share_memory(memory_sharing)):
            gpu.joining.credit.look_at(slot)
            self._parking.wake()
            self._saved.save(gpu)
        return slot

    def park(self, uuid: str, name: str, away: bool) -> Slot:
        """Note that an administrator wants a slot's processes out of the GPU's memory, or no longer wants that.

        Raises:
            NotFound: there is no such GPU or slot.
            Conflict: the slot may not leave the GPU's memory, or no process uses it.
        """
        shared_gpu = self._saved.find(uuid).shared_gpu
        slot = shared_gpu.slot(name)
        if away and not slot.memory_sharing.parks:
            raise Conflict(f"slot {name} of GPU {uuid} may not leave the GPU's memory: {why_it_stays(slot)}")
        if away and not shared_gpu.has_clients(slot):
            raise Conflict(f"no process uses slot {name} of GPU {uuid}, so nothing can leave: start its program first")
        self._parking.wish(uuid, slot, away)
        return slot

    def end_unused(self, gpu: ServedGpu) -> None:
        """Close or reset the slots whose owners have ended and whose last clients have left."""
        for slot in self._owners.ended(gpu.shared_gpu.slots.values()):
            if gpu.shared_gpu.has_clients(slot):
                continue
            if slot.permanent:
                self._owners.set(slot, None)
                self.prepare(slot.gpu, slot.name)
            else:
                self.close(slot.gpu, slot.name)

    def _set_owner(self, slot: Slot, owner: Owner | None) -> None:
        if owner is not None and slot.rule and slot.owner is not None:
            self._owners.share(slot, owner)
        else:
            self._owners.set(slot, owner)

    def _owner_ended(self, slot: Slot) -> None:
        gpu = self._saved.find(slot.gpu)
        self.end_unused(gpu)
        clients = gpu.shared_gpu.of_slot(slot)
        # The owner itself may be a client whose connection has ended too, which the agent sees in a moment.
        others = [each for each in clients if slot.owner and each.process_id != slot.owner.process_id]
        if others:
            names = ", ".join(f"{each.process_id} ({each.command})" for each in others)
            _log.info("slot: %s %s stays: its program has ended, but not %s", slot.gpu, slot.name, names)
