"""Opens and closes the slots of each GPU, so that they match the configuration and no slot in use is closed.

A slot is opened if it is configured, or if a container holds it. A slot that is neither configured nor in use is
surplus: the agent first withdraws the slot (no longer advertises it), and closes it later. The delay is necessary: the
kubelet may have given the slot to a pod just before the withdrawal. That pod's container mounts the slot's directory,
so it can start only while the slot is open.

**Rolling updates.** A GPU with n hp slots has n + 1 names for them, and offers so many that n pods can hold one. During
a rolling update it offers one more (`successor`). While n + 1 pods hold slots, the slot that has been held longest is
closed: when its pod ends, nobody else gets it, and the next rolling update uses its name.
"""

import logging
import math
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from orion.hook import layout
from orion.node_agent.gpus.interface import Gpu
from orion.node_agent.settings import AgentSettings
from orion.node_agent.sharing.served import Serves
from orion.node_agent.sharing.slot_operations import SlotOperations
from orion.node_agent.slots.slot import Slot

if TYPE_CHECKING:  # so that an agent without a configuration does not load the API types
    from orion.crds.configuration_file import ConfigurationFile
    from orion.crds.node_configuration import NodeSettings

_log = logging.getLogger(__name__)

_WITHDRAWN_SECONDS = 5.0
""" How long a withdrawn slot stays open. After this time the agent knows every pod that got it before. """


def slot_name(role: layout.Role, number: int) -> str:
    """Return the advertised name of a slot: "hp-0", "be-3"."""
    return f"{role.name.lower()}-{number}"


class OpensSlots(Serves, Protocol):
    """What `SlotNumbers` needs from an agent."""

    @property
    def settings(self) -> AgentSettings:
        """The agent's settings."""

    @property
    def slots(self) -> SlotOperations:
        """The operations on slots."""


class SlotNumbers:
    """The permanent slots of one agent's GPUs.

    Args:
        agent: the agent.
    """

    def __init__(self, agent: OpensSlots) -> None:
        self._agent = agent
        self._file = _configuration(agent.settings)
        self.mig_enabled: Callable[[str], bool] = lambda _: False
        """ Whether a GPU has MIG enabled; such GPUs get no slots. """
        self.successor: Callable[[str], bool] = lambda _: False
        """ Whether a GPU should offer one hp slot more than configured, for a rolling update. """
        self._held_since: dict[Slot, float] = {}
        """ The hp slots in use, and since when (in seconds, monotonic). """
        self._refused: set[tuple[str, str]] = set()
        """ Slots that could not be opened; each is logged once. """
        self._withdrawn: dict[Slot, float] = {}
        """ The surplus slots, and since when each has been withdrawn (in seconds, monotonic). """

    @property
    def settings(self) -> "NodeSettings | None":
        """The configuration of this node; None: no configuration exists, or the agent could never read it."""
        return self._file.settings if self._file is not None else None

    @property
    def needs_labels(self) -> bool:
        """Whether the configuration has settings that go by the node's labels."""
        return self._file is not None and self._file.needs_labels

    def look(self) -> None:
        """Read the configuration, and open and close slots for it."""
        if self._file is not None:
            self._file.look()
        for uuid in list(self._agent.gpus):
            self._fit(uuid)

    def wanted(self, gpu: Gpu) -> dict[str, layout.Role]:
        """Return the slots that a GPU should have, by name.

        If the agent could never read a configuration, the GPU should keep its current slots.
        """
        numbers = self._numbers(gpu)
        if numbers is None:
            served = self._agent.gpus.get(gpu.uuid)
            return {slot.name: slot.role for slot in served.shared_gpu.slots.values()} if served else {}
        names = {slot_name(role, number): role for role, count in numbers.items() for number in range(count)}
        count = numbers.get(layout.Role.HP, 0)
        if count and gpu.uuid in self._agent.gpus:
            others = {name: role for name, role in names.items() if role is not layout.Role.HP}
            names = dict.fromkeys(self._hp_names(gpu.uuid, count), layout.Role.HP) | others
        return names

    def count_hp(self, uuid: str) -> int:
        """Return how many pods may hold hp slots of a GPU, rolling updates aside."""
        shared_gpu = self._agent.gpus[uuid].shared_gpu
        numbers = self._numbers(shared_gpu.gpu)
        return numbers.get(layout.Role.HP, 0) if numbers is not None else len(self._hp_slots(uuid))

    def advertised(self, uuid: str) -> list[Slot]:
        """Return the slots of a GPU that a plugin may advertise, hp first.

        A withdrawn hp slot stays in the list for as long as it is open, but closed. A pod that was given it just before
        can then start: a plugin refuses slots that it does not know.
        """
        shared_gpu = self._agent.gpus[uuid].shared_gpu
        listed = (slot for slot in shared_gpu.slots.values() if slot.permanent)
        slots = (slot for slot in listed if slot not in self._withdrawn or self._is_hp_of_configuration(slot))
        return sorted(slots, key=lambda slot: (slot.role, int(slot.name.rpartition("-")[2])))

    def is_closed(self, slot: Slot) -> bool:
        """Return whether no further pod may get an advertised slot, although a container may hold it."""
        if slot.role is not layout.Role.HP:
            return False
        held = sorted(self._held(slot.gpu), key=lambda each: (self._held_since.get(each, math.inf), each.name))
        count = self.count_hp(slot.gpu)
        return slot in self._withdrawn or (count > 0 and slot in held[: max(0, len(held) - count)])

    def in_use(self, slot: Slot) -> bool:
        """Return whether a slot is in use: a container or claim holds it, it has a client, or one may still return."""
        shared_gpu = self._agent.gpus[slot.gpu].shared_gpu
        return self._agent.holders.holds(slot) or slot.claim is not None or shared_gpu.has_clients(slot)

    def why_not(self, gpu: Gpu) -> tuple[str, str] | None:
        """Return why a GPU should have no slots: one CamelCase word and a sentence. None: the GPU should have slots."""
        if self.mig_enabled(gpu.uuid):
            return (
                "MIGEnabled",
                "MIG is enabled on this GPU; disable MIG (nvidia-smi -mig 0) to share the GPU with Orion",
            )
        if self._file is None:
            return None
        if self._file.settings is None:
            return ("ConfigurationUnreadable", self._file.problem) if not self.wanted(gpu) else None
        if not self._file.settings.includes(gpu.uuid, gpu.index):
            return "NotIncluded", "the node's configuration does not include this GPU"
        return None

    def _numbers(self, gpu: Gpu) -> dict[layout.Role, int] | None:
        """Return how many slots of each role a GPU should have; None: the configuration was never readable."""
        if self._file is None:
            settings = self._agent.settings
            numbers = {layout.Role.HP: settings.hp_slots, layout.Role.BE: settings.be_slots}
        elif self._file.settings is None:
            return None
        else:
            slots = self._file.settings.slots_of(gpu.uuid, gpu.index)
            numbers = {layout.Role.HP: slots.hp, layout.Role.BE: slots.be}
        return numbers if self.why_not(gpu) is None else {}

    def _is_hp_of_configuration(self, slot: Slot) -> bool:
        return slot.role is layout.Role.HP and self.count_hp(slot.gpu) > 0

    def _hp_slots(self, uuid: str) -> list[Slot]:
        slots = self._agent.gpus[uuid].shared_gpu.slots.values()
        return [slot for slot in slots if slot.permanent and slot.role is layout.Role.HP]

    def _held(self, uuid: str) -> list[Slot]:
        return [slot for slot in self._hp_slots(uuid) if self.in_use(slot)]

    def _hp_names(self, uuid: str, count: int) -> list[str]:
        """Return the names of a GPU's hp slots: those in use, and as many free ones as pods can get."""
        held = {slot.name for slot in self._held(uuid)}
        held |= {name for name, role in self._agent.holders.held(uuid).items() if role is layout.Role.HP}
        free = count - len(held)
        if free == 0 and self.successor(uuid):
            free = 1
        opened = {slot.name for slot in self._hp_slots(uuid) if slot not in self._withdrawn}
        names = [slot_name(layout.Role.HP, number) for number in range(count + 1)]
        # A free slot that is already open comes first, so that a change of holders changes no other slot.
        unused = sorted((name for name in names if name not in held), key=lambda name: name not in opened)
        return [*held, *unused[: max(0, free)]]

    def _note_held(self, uuid: str) -> None:
        held, now = self._held(uuid), time.monotonic()
        for slot in held:
            self._held_since.setdefault(slot, now)
        for slot in [each for each in self._held_since if each.gpu == uuid and each not in held]:
            del self._held_since[slot]

    def _fit(self, uuid: str) -> None:
        """Open the missing slots of a GPU, and withdraw its surplus slots."""
        shared_gpu = self._agent.gpus[uuid].shared_gpu
        wanted = self.wanted(shared_gpu.gpu)
        for name, role in {**wanted, **self._agent.holders.held(uuid)}.items():
            if name not in shared_gpu.slots:
                self._open(uuid, name, role)
        for slot in list(shared_gpu.slots.values()):
            if slot.permanent:
                self._withdraw(slot, surplus=slot.name not in wanted and not self.in_use(slot))
        self._note_held(uuid)

    def _withdraw(self, slot: Slot, surplus: bool) -> None:
        """Stop advertising a surplus slot, and close it after `_WITHDRAWN_SECONDS`; advertise a needed slot again."""
        if not surplus:
            self._withdrawn.pop(slot, None)
        elif self._agent.holders.certain:
            since = self._withdrawn.setdefault(slot, time.monotonic())
            if time.monotonic() - since > _WITHDRAWN_SECONDS:
                del self._withdrawn[slot]
                self._agent.slots.close(slot.gpu, slot.name)

    def _open(self, uuid: str, name: str, role: layout.Role) -> None:
        try:
            self._agent.slots.open_permanent(uuid, name, role)
        except OSError as error:
            if (uuid, name) not in self._refused:
                self._refused.add((uuid, name))
                _log.error("slot: %s %s cannot be opened, the agent tries again: %s", uuid, name, error)
        else:
            self._refused.discard((uuid, name))


def _configuration(settings: AgentSettings) -> "ConfigurationFile | None":
    path = settings.configuration
    if path is None:
        return None
    from orion.crds.configuration_file import LABELS_FILE, ConfigurationFile  # only this function needs the API types

    return ConfigurationFile(path, settings.root / LABELS_FILE if settings.node_name else None)
