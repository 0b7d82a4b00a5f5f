"""Opens and closes the slots of each GPU, by the configuration and by which slots are in use.

Missing slots are opened, and so are held slots that are not configured. A free slot too many is withdrawn first and
closed later: the kubelet may have given it to a pod just before it learnt of the withdrawal, and a container whose
mount is gone would not start.
"""

import logging
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from orion.hook import layout
from orion.node_agent.gpus.interface import Gpu
from orion.node_agent.settings import AgentSettings
from orion.node_agent.sharing.served import Serves
from orion.node_agent.slots.slot import Slot

if TYPE_CHECKING:  # an agent without a configuration loads no API types
    from orion.crds.configuration_file import ConfigurationFile
    from orion.crds.node_configuration import NodeSettings

_log = logging.getLogger(__name__)

_WITHDRAWN_SECONDS = 5.0
""" After this time since the plugin was notified, the agent knows a pod that got the slot before. """


def slot_name(role: layout.Role, number: int) -> str:
    """Return the advertised name of a slot: "hp-0", "be-3"."""
    return f"{role.name.lower()}-{number}"


class OpensSlots(Serves, Protocol):
    """What `SlotNumbers` needs from an agent."""

    @property
    def settings(self) -> AgentSettings:
        """The agent's settings."""

    def open_permanent(self, uuid: str, name: str, role: layout.Role) -> None:
        """Open a permanent slot."""

    def close_slot(self, uuid: str, name: str) -> None:
        """Close a slot."""


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
        self._refused: set[tuple[str, str]] = set()
        """ Slots that could not be opened; each is logged once. """
        self._withdrawn: dict[Slot, float] = {}
        """ Free slots too many, and since when (in seconds, monotonic). """

    @property
    def settings(self) -> "NodeSettings | None":
        """The configuration of this node; None: there is none, or it could never be read."""
        return self._file.settings if self._file is not None else None

    def look(self) -> None:
        """Read the configuration, and open and close slots for it."""
        if self._file is not None:
            self._file.look()
        for uuid in list(self._agent.gpus):
            self._fit(uuid)

    def wanted(self, gpu: Gpu) -> dict[str, layout.Role]:
        """Return the slots that a GPU should have, by name; without a readable configuration, those that it has."""
        numbers = self._numbers(gpu)
        if numbers is None:
            served = self._agent.gpus.get(gpu.uuid)
            return {slot.name: slot.role for slot in served.shared_gpu.slots.values()} if served else {}
        return {slot_name(role, number): role for role, count in numbers.items() for number in range(count)}

    def advertised(self, uuid: str) -> list[Slot]:
        """Return the slots of a GPU that a plugin may advertise, hp first."""
        shared_gpu = self._agent.gpus[uuid].shared_gpu
        slots = (slot for slot in shared_gpu.slots.values() if slot.permanent and slot not in self._withdrawn)
        return sorted(slots, key=lambda slot: (slot.role, int(slot.name.rpartition("-")[2])))

    def in_use(self, slot: Slot) -> bool:
        """Return whether a container holds a slot, or processes use it whose container is not known."""
        shared_gpu = self._agent.gpus[slot.gpu].shared_gpu
        return (
            self._agent.holders.holds(slot)
            or bool(shared_gpu.of_slot(slot))
            or any(each.slot == slot.name for each in shared_gpu.awaited.values())
        )

    def why_not(self, gpu: Gpu) -> tuple[str, str] | None:
        """Return why a GPU should have no slots: one CamelCase word and a sentence; None: it should have slots."""
        if self.mig_enabled(gpu.uuid):
            return "MIGEnabled", "MIG is enabled on it; disable that (nvidia-smi -mig 0) to share it by Orion"
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

    def _fit(self, uuid: str) -> None:
        """Open the missing slots, and withdraw free slots too many."""
        shared_gpu = self._agent.gpus[uuid].shared_gpu
        wanted = self.wanted(shared_gpu.gpu)
        for name, role in {**wanted, **self._agent.holders.held(uuid)}.items():
            if name not in shared_gpu.slots:
                self._open(uuid, name, role)
        for slot in list(shared_gpu.slots.values()):
            if slot.permanent:
                self._withdraw(slot, spare=slot.name not in wanted and not self.in_use(slot))

    def _withdraw(self, slot: Slot, spare: bool) -> None:
        """Stop advertising a spare slot, and close it after a while."""
        if not spare:
            self._withdrawn.pop(slot, None)
        elif self._agent.holders.certain:
            since = self._withdrawn.setdefault(slot, time.monotonic())
            if time.monotonic() - since > _WITHDRAWN_SECONDS:
                del self._withdrawn[slot]
                self._agent.close_slot(slot.gpu, slot.name)

    def _open(self, uuid: str, name: str, role: layout.Role) -> None:
        try:
            self._agent.open_permanent(uuid, name, role)
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
    from orion.crds.configuration_file import ConfigurationFile  # here: only this needs the API types

    return ConfigurationFile(path, settings.node_name)
