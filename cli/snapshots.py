"""Converts the agent's answers to plain objects for JSON."""

from typing import Any

from google.protobuf.message import Message

from orion.hook.policy_table import TABLE
from orion.node_agent.api import agent_pb2


def plain(message: Message) -> dict[str, Any]:
    """Return a message as JSON-ready objects, every field present.

    Rejected: protobuf's own JSON. It writes 64-bit integers as strings and omits zeros.
    """
    return {field.name: _plain_field(message, field) for field in message.DESCRIPTOR.fields}


def _plain_field(message: Message, field: Any) -> Any:
    value = getattr(message, field.name)
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        return dict(value)
    if field.message_type is not None:
        return [plain(item) for item in value] if field.is_repeated else plain(value)
    if field.enum_type is not None:
        return field.enum_type.values_by_number[value].name.lower()
    return list(value) if field.is_repeated else value


def policy(settings: agent_pb2.Policy) -> dict[str, Any]:
    """Return a policy as plain values: its name, then the fields in the table's order."""
    fields = {row.name: row.kind(settings.fields[row.name]) for row in TABLE.rows if row.name in settings.fields}
    return {"policy": settings.policy, **fields}
