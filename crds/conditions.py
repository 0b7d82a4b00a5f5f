"""Conditions of Kubernetes (metav1.Condition). Setting one changes its transition time only if its status changes."""

from collections.abc import Sequence
from datetime import UTC, datetime
from enum import StrEnum
from typing import Annotated, Literal

from pydantic import Field

from orion.crds.model import Model

MESSAGE_MAX = 1_024


class ConditionType(StrEnum):
    """The types of conditions of GPUShares and GPUDevices; each kind uses some of them."""

    READY = "Ready"
    HOOK_INJECTED = "HookInjected"
    POLICY_CONFLICT = "PolicyConflict"
    DEGRADED = "Degraded"
    NOT_ENFORCED = "NotEnforced"
    MODE_PENDING = "ModePending"
    PARKED = "Parked"


class Condition(Model):
    """A statement about the object that is true, false or unknown."""

    type: Annotated[str, Field(min_length=1, max_length=316, pattern="^[A-Za-z]([-A-Za-z0-9_./]*[A-Za-z0-9])?$")]
    """ The type of the condition, such as Ready. """

    status: Literal["True", "False", "Unknown"]
    """ Whether the condition is true. """

    observed_generation: Annotated[int | None, Field(ge=0)] = None
    """ The metadata.generation that the condition was computed from. If it is lower than the object's, the condition
    may be out of date. """

    last_transition_time: Annotated[str, Field(max_length=40, json_schema_extra={"format": "date-time"})]
    """ The time at which the condition's status last changed, in RFC 3339 format. """

    reason: Annotated[str, Field(min_length=1, max_length=256, pattern="^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$")]
    """ The reason for the status, as one CamelCase word for programs. """

    message: Annotated[str, Field(max_length=MESSAGE_MAX)] = ""
    """ The reason for the status, as a sentence for people. """


Conditions = Annotated[
    list[Condition],
    Field(
        max_length=16,
        json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"]},
    ),
]


def with_condition(
    before: Sequence[Condition],
    kind: ConditionType,
    status: bool | None,
    reason: str,
    message: str = "",
    generation: int | None = None,
    now: datetime | None = None,
) -> list[Condition]:
    """Return the conditions with one of them set; the others and the order do not change.

    Args:
        before: the conditions so far.
        kind: the type of the condition to set.
        status: None: unknown.
        reason: one CamelCase word.
        message: cut at the API's limit, `MESSAGE_MAX` characters.
        generation: the metadata.generation of the object that the condition was computed from.
        now: the time, for tests; it is used only if the status changes.
    """
    word: Literal["True", "False", "Unknown"] = "Unknown" if status is None else "True" if status else "False"
    old = next((each for each in before if each.type == kind), None)
    since = old.last_transition_time if old and old.status == word else timestamp(now or datetime.now(UTC))
    text = message if len(message) <= MESSAGE_MAX else f"{message[: MESSAGE_MAX - 3]}..."
    new = Condition(
        type=kind.value,
        status=word,
        observed_generation=generation,
        last_transition_time=since,
        reason=reason,
        message=text,
    )
    return [new if each.type == kind else each for each in before] + ([] if old else [new])


def timestamp(moment: datetime) -> str:
    """Return a time in the API server's format: RFC 3339, UTC, whole seconds."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
