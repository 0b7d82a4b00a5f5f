"""Kubernetes Events as Orion's programs post them: about an object, under a name that follows from the content.

The API server rejects a second Event of the same name for as long as it keeps the first, an hour by default. So a
program that was restarted, or one beside it, does not post an Event again.
"""

import hashlib
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

NOTE_MAX = 1_024
""" The maximum length of an Event's note, in bytes. """
_INSTANCE_MAX = 128


def event_name(about: str, *content: str) -> str:
    """Return the name of an Event.

    Args:
        about: the name of the object that the Event is about.
        content: Events about the object with the same content have the same name.
    """
    digest = hashlib.sha256("\0".join(content).encode()).hexdigest()
    return f"{about[:200].rstrip('-.')}.{digest[:16]}"


def short_note(note: str) -> str:
    """Return a note, cut to `NOTE_MAX` bytes at a character boundary."""
    return note.encode()[:NOTE_MAX].decode(errors="ignore")


def event(
    name: str,
    regarding: Mapping[str, str],
    warning: bool,
    reason: str,
    action: str,
    note: str,
    program: str,
    instance: str,
) -> dict[str, Any]:
    """Return an Event that happens now.

    Args:
        name: its name (`event_name`).
        regarding: a reference to the object.
        warning: the Event's type; false: Normal.
        reason: one CamelCase word.
        action: one CamelCase word: what the program did.
        note: what happens, why, and what to do next; it is cut (`short_note`).
        program: the program that posts it, such as orion.gpu/agent.
        instance: the name of the process.
    """
    return {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        # Events about objects without a namespace are in `default`.
        "metadata": {"name": name, "namespace": regarding.get("namespace") or "default"},
        "eventTime": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
        "type": "Warning" if warning else "Normal",
        "reason": reason,
        "action": action,
        "note": short_note(note),
        "regarding": dict(regarding),
        "reportingController": program,
        "reportingInstance": instance[:_INSTANCE_MAX],
    }


def path_of(event: Mapping[str, Any]) -> str:
    """Return the path of the Events of an Event's namespace."""
    return f"/apis/events.k8s.io/v1/namespaces/{event['metadata']['namespace']}/events"
