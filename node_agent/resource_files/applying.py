"""Applies the rules of resource files to the slots of the programs that joined by an id.

All programs with one id share one slot of a GPU, which opens with the first of them and closes with the last one. The
slot follows its rule while they run. If the rule vanishes, the slot keeps what it was granted, since its programs run
in that knowledge, and no further program can join by that id.
"""

import asyncio
import contextlib
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol
from weakref import WeakSet

from orion.errors import Conflict, NotFound
from orion.hook import layout
from orion.node_agent.pacing.tolerating import Tolerating
from orion.node_agent.resource_files.reading import FileRules, ResourceFiles
from orion.node_agent.resource_files.rules import Rule
from orion.node_agent.resource_files.watching import Watching
from orion.node_agent.sharing.looking import Looking
from orion.node_agent.sharing.served import ServedGpu, ServesGpus
from orion.node_agent.sharing.slot_operations import SlotOperations
from orion.node_agent.slots.slot import Slot

_log = logging.getLogger(__name__)

_CALM_SECONDS = 0.02
""" A change can have several steps, such as removing a file and writing another one: wait for the last step. """
_NAMED = 12
""" An error names so many ids. """


class GrantsSlots(ServesGpus, Protocol):
    """What `Rules` needs from an agent."""

    @property
    def looking(self) -> Looking:
        """Checks the GPUs."""

    def gpu(self, uuid: str) -> ServedGpu:
        """Return one GPU."""

    @property
    def slots(self) -> SlotOperations:
        """The operations on slots."""


class Rules:
    """The rules of one agent.

    Args:
        agent: has the slots.
        path: the resource file, or a folder with one for each GPU; None: there are no rules.
    """

    def __init__(self, agent: GrantsSlots, path: Path | None) -> None:
        self._agent = agent
        self._files = ResourceFiles(path.absolute()) if path else None
        self._without: WeakSet[Slot] = WeakSet()
        """ Slots whose rule has vanished; logged once. """

    @property
    def path(self) -> Path | None:
        """The file or folder; None: there are no rules."""
        return self._files.path if self._files else None

    def of(self, uuid: str) -> FileRules:
        """Return the rules for a GPU.

        Raises:
            Conflict: this agent reads no resource file.
        """
        if self._files is None:
            raise Conflict("the agent reads no resource file: start it with --resource-config FILE")
        return self._files.of(uuid)

    def open(self, uuid: str, rule_id: str, owner_process_id: int) -> Slot:
        """Open the slot of an id, or find it open; the process owns it together with the other owners.

        Raises:
            Conflict: this agent reads no resource file, or the GPU has the maximum number of slots.
            NotFound: no rule has this id, or there is no such GPU or process.
        """
        shared_gpu = self._agent.gpu(uuid).shared_gpu
        rule = self._rule(uuid, rule_id)
        name = next((slot.name for slot in shared_gpu.slots.values() if slot.rule == rule_id), "")
        return self._agent.slots.open(
            uuid, name, layout.Role.BE, rule.memory_limit_bytes, owner_process_id, rule.request_milli, rule.limit_milli,
            rule_id,
        )  # fmt: skip

    def _rule(self, uuid: str, rule_id: str) -> Rule:
        found = self.of(uuid)
        if rule_id in found.rules:
            return found.rules[rule_id]
        known = ", ".join(list(found.rules)[:_NAMED]) + ", ..." * (len(found.rules) > _NAMED)
        why = "".join(f"; {remark}" for remark in found.remarks if found.fault)
        raise NotFound(f"{found.file} has no id {rule_id!r}; its ids are: {known or 'none'}{why}")

    async def run(self) -> None:
        """Follow changes until cancelled."""
        if self._files is None:
            return
        tolerating = Tolerating("resource file: a check")
        with contextlib.closing(Watching(self._files.path)) as watching:
            while True:
                with tolerating:
                    watching.follow()
                    self.look()
                await watching.changed()
                await asyncio.sleep(_CALM_SECONDS)

    def look(self) -> None:
        """Read the files and apply what has changed."""
        if self._files is None:
            return
        self._files.read()
        changed = False
        for uuid, served in self._agent.gpus.items():
            found = self._files.of(uuid)
            served.conditions.resource_file = "; ".join(found.remarks)
            for slot in _slots_with_rules(served):
                changed |= self._apply(slot, found)
        if changed:
            self._agent.looking.look()  # so that turns follow at once

    def _apply(self, slot: Slot, found: FileRules) -> bool:
        """Set a slot's grant; return whether it changed."""
        rule = found.rules.get(slot.rule)
        if rule is None:
            if slot not in self._without:
                self._without.add(slot)
                _log.warning(
                    "resource file: %s has no id %s any more; slot %s of GPU %s keeps its grant until its programs end",
                    found.file, slot.rule, slot.name, slot.gpu,
                )  # fmt: skip
            return False
        self._without.discard(slot)
        before = slot.grant
        self._agent.slots.set_grant(slot.gpu, slot.name, rule.memory_limit_bytes, rule.request_milli, rule.limit_milli)
        return slot.grant != before


def _slots_with_rules(served: ServedGpu) -> Iterator[Slot]:
    return (slot for slot in list(served.shared_gpu.slots.values()) if slot.rule)
