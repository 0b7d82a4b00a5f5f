"""Chooses a client's GPUs, and its slot on each.

`orion run` takes a free slot of the right role before it makes a new one. It makes no hp slots: `orion agent
--hp-slots` sets their number, because a second latency-critical process would have to wait for the first. A slot is
held if it has clients, or if a living process owns it that has not joined yet. The agent knows both. `orion run` holds
a lock from its search for a free slot until it has opened the slot, so two of them never choose the same slot.
"""

import contextlib
import fcntl
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from orion.cli import agents, launching
from orion.errors import Conflict, Exhausted, Invalid, NotFound
from orion.node_agent.api import address, agent_pb2
from orion.node_agent.processes import liveness


@dataclass(frozen=True)
class SlotLimits:
    """What each slot of a program may use; 0: not set."""

    memory_bytes: int = 0
    """ For each process of the slot. """
    request: float = 0.0
    """ The part of the GPU's time that the slot gets at least. """
    limit: float = 0.0
    """ The part of the GPU's time that the slot gets at most. """
    rule: str = ""
    """ The id in the agent's resource file that decides all of them instead. """
    sharing: Mapping[str, Any] = field(default_factory=dict)
    """ How it shares memory, as `AgentClient.open_slot` takes it. """


def choose_gpus(snapshot: agent_pb2.Snapshot, wanted: str, named: str = "--gpu") -> list[agent_pb2.Gpu]:
    """Return the GPUs that a user names: by a UUID, an index, or ``all``.

    Args:
        snapshot: has all GPUs.
        wanted: what the user wrote.
        named: the option's name, for the error.
    """
    gpus = list(snapshot.gpus)
    if not gpus:
        raise NotFound(
            "the agent has no GPU, and `orion doctor` says why: end it with `orion stop`, and start it again when a "
            "GPU is there, or with --simulated"
        )
    if wanted == "all":
        return gpus
    chosen = [gpu for gpu in gpus if wanted.lower() in (gpu.uuid.lower(), str(gpu.index))]
    if not chosen:
        known = ", ".join(f"{gpu.index} ({gpu.uuid})" for gpu in gpus)
        raise Invalid(f"there is no GPU {wanted!r}; {named} takes all, or one of: {known}")
    return chosen


def take_slots(
    root: Path,
    gpus: list[agent_pb2.Gpu],
    priority: str,
    limits: SlotLimits,
    policy: Mapping[str, Any] | None = None,
    profile: Sequence[agent_pb2.ProfileRow] = (),
) -> Path:
    """Take a slot on each GPU for this process and return the folder that its ORION_ROOT names.

    Args:
        root: the agent's.
        gpus: to use.
        priority: ``hp`` or ``be``.
        limits: of each slot.
        policy: changes of the GPUs' policies, as `AgentClient.set_policy` takes them.
        profile: rows for the slots; none leaves the profile that they have.
    """
    role = agent_pb2.HP if priority == "hp" else agent_pb2.BE
    with _one_at_a_time(root), agents.asking(root) as agent:
        snapshot = agent.snapshot()
        _refuse_another_namespace(root, snapshot.agent_process_id)
        now = {gpu.uuid: gpu for gpu in snapshot.gpus}
        launching.sweep(root, {each for gpu in now.values() for slot in gpu.slots for each in slot.owner_process_ids})
        names = {
            gpu.uuid: "" if limits.rule else _free_slot(now.get(gpu.uuid, gpu), role, len(now) > 1) for gpu in gpus
        }
        if policy:
            for uuid in names:
                agent.set_policy(uuid, **policy)
        taken = [
            agent.open_slot(
                uuid,
                role,
                name=name,
                memory_limit_bytes=limits.memory_bytes,
                owner_process_id=os.getpid(),
                request=limits.request,
                limit=limits.limit,
                rule=limits.rule,
                **limits.sharing,
            )
            for uuid, name in names.items()
        ]
        for slot in taken if profile else []:
            agent.set_profile(slot.gpu, slot.name, profile)
        return launching.make_client_root(root, os.getpid(), {slot.gpu: slot.directory for slot in taken})


def _refuse_another_namespace(root: Path, agent_process_id: int) -> None:
    """Refuse an agent that would know this process by another id, and take another one for the slot's owner."""
    if address.listening_process(root) != agent_process_id:
        raise Conflict(
            f"the agent at {root} runs in another container (pid namespace) and would not see this program's end: "
            "run both in one, or give another --root"
        )


@contextlib.contextmanager
def _one_at_a_time(root: Path) -> Iterator[None]:
    with open(root / "run.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _free_slot(gpu: agent_pb2.Gpu, role: agent_pb2.Role, one_of_several: bool) -> str:
    """Return the name of a free slot; empty for a new one (be)."""
    holders = []
    for slot in gpu.slots:
        if slot.role != role or slot.rule:
            continue
        holder = _holder(slot)
        if not holder:
            return slot.name
        holders.append(holder)
    if role == agent_pb2.BE:
        return ""
    if not holders:
        raise NotFound(f"GPU {gpu.index} has no hp slot: start its agent with --hp-slots 1")
    elsewhere = "name another GPU with --gpu, " if one_of_several else ""
    raise Exhausted(
        f"the hp slot of GPU {gpu.index} is held by {', '.join(holders)}: "
        f"{elsewhere}wait until it has ended, end it, or run this program with --priority be"
    )


def _holder(slot: agent_pb2.Slot) -> str:
    """Return the holder of a slot, for people; empty if the slot is free."""
    for client in slot.clients:
        return f"process {client.process_id} ({client.command})"
    for process_id in slot.owner_process_ids:
        if process_id != os.getpid():  # this process may have taken it, and become `orion run` again
            command = liveness.Stat.of(Path("/proc", str(process_id))).command
            return f"process {process_id} ({command or 'ended, but not what it started'})"
    return ""
