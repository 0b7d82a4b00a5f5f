"""What the agent tells, as plain objects for machines and as rows for people."""

from dataclasses import dataclass
from typing import Any

from google.protobuf.message import Message

from orion.cli.sizes import format_size
from orion.node_agent.api import agent_pb2


def plain(message: Message) -> dict[str, Any]:
    """Return a message as JSON-ready objects, every field present.

    protobuf's own JSON writes 64-bit integers as strings and leaves zeros out; a reader of `orion top --json` wants
    neither.
    """
    return {field.name: _plain_field(message, field) for field in message.DESCRIPTOR.fields}


def _plain_field(message: Message, field: Any) -> Any:
    value = getattr(message, field.name)
    if field.message_type is not None:
        return [plain(item) for item in value] if field.is_repeated else plain(value)
    if field.enum_type is not None:
        return field.enum_type.values_by_number[value].name.lower()
    return value


@dataclass(frozen=True)
class Row:
    """One client, as a person reads it; rates are over the time between two snapshots."""

    slot: str
    process: str
    command: str
    state: str
    launches: str
    gated: str
    gpu: str
    memory: str
    condition: str


def rows(gpu: agent_pb2.Gpu, before: agent_pb2.Gpu | None, seconds: float) -> list[Row]:
    """Return a row for each client of a GPU, hp first; an empty slot has one too.

    Args:
        gpu: as it is now.
        before: as it was ``seconds`` ago; None: no rates yet.
        seconds: between the two.
    """
    earlier = {(c.place, c.generation): c for slot in (before.slots if before else []) for c in slot.clients}
    found = []
    for slot in sorted(gpu.slots, key=lambda slot: (slot.role != agent_pb2.HP, slot.name)):
        for client in slot.clients:
            found.append(_row(slot, client, earlier.get((client.place, client.generation)), seconds))
        if not slot.clients:
            found.append(Row(slot.name, "", "", "empty", "", "", "", "", ""))
    return found


def _row(slot: agent_pb2.Slot, client: agent_pb2.Client, before: agent_pb2.Client | None, seconds: float) -> Row:
    launches = gated = used = ""
    if before is not None and seconds > 0:
        launches = f"{(client.launches - before.launches) / seconds:,.0f}"
        if slot.role == agent_pb2.BE:
            gated = f"{min(1.0, (client.gated_seconds - before.gated_seconds) / seconds):.0%}"
            used = f"{min(1.0, max(0.0, client.gpu_seconds - before.gpu_seconds) / seconds):.0%}"
        elif client.slowdown:
            used = f"x{min(client.slowdown, 999):.2f}"
    memory = format_size(client.memory_bytes)
    if slot.memory_limit_bytes:
        memory += f" of {format_size(slot.memory_limit_bytes)}"
    state = "held" if slot.held and client.state == "gated" else client.state
    return Row(
        slot.name, str(client.process_id), client.command, state, launches, gated, used, memory, client.condition
    )
