"""Administrators' requests, checked before the agent acts on them."""

import reprlib
from dataclasses import replace
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, field_validator

from orion.errors import Invalid
from orion.hook import join, layout
from orion.node_agent.pages.policy_changes import PolicyChanges
from orion.node_agent.slots.claim import Claim
from orion.node_agent.slots.memory_sharing import MemorySharing

PART_LEAST, PART_MOST = 0.001, 1.0
""" Bounds of requests and limits, which are parts of a GPU's time. """

_U64 = 2**64 - 1

# In protobuf, 0 is the same as an unset field.
_Zero = BeforeValidator(lambda value: value or None)
_Part = Annotated[Annotated[float, Field(ge=PART_LEAST, le=PART_MOST, allow_inf_nan=False)] | None, _Zero]


class _Request(BaseModel):
    model_config = ConfigDict(defer_build=True)  # most agents get few kinds of requests, and each kind takes 2 ms


class _Time(_Request):
    """The GPU time of a slot; None: not given."""

    request: _Part = None
    limit: _Part = None

    @property
    def request_milli(self) -> int | None:
        """The request in thousandths."""
        return None if self.request is None else round(self.request * 1_000)

    @property
    def limit_milli(self) -> int | None:
        """The limit in thousandths."""
        return None if self.limit is None else round(self.limit * 1_000)

    def refuse_for(self, role: layout.Role, request_milli: int = 0, limit_milli: int = 0) -> None:
        """Refuse times that a slot cannot have.

        Args:
            role: the slot's.
            request_milli: applies if no request is given; 0: none.
            limit_milli: applies if no limit is given; 0: none.

        Raises:
            Invalid: the request is above the limit, or it is for hp.
        """
        if self.request is not None and role is layout.Role.HP:
            raise Invalid("request: that of hp is a part of the GPU's policy, not of a slot: set the policy's request")
        request, limit = self.request_milli or request_milli, self.limit_milli or limit_milli
        if limit and request > limit:
            asked = f"{request / 1_000:g} is above the limit {limit / 1_000:g}"
            raise Invalid(f"request: {asked}; lower the request or raise the limit")


class _Sharing(_Request):
    """How a slot shares memory; None: not given."""

    memory_request_bytes: int | None = Field(default=None, ge=0, le=_U64)
    memory_parks: bool | None = None
    memory_unified: bool | None = None
    memory_wait_ms: int | None = Field(default=None, ge=0, le=3_600_000)

    def sharing(self, role: layout.Role, before: MemorySharing, limit_bytes: int) -> MemorySharing:
        """Return how the slot shares memory.

        Args:
            role: the slot's.
            before: applies where nothing is given.
            limit_bytes: the slot's limit; 0: none.

        Raises:
            Invalid: a slot cannot share memory so.
        """
        sharing = replace(
            before,
            request_bytes=before.request_bytes if self.memory_request_bytes is None else self.memory_request_bytes,
            parks=before.parks if self.memory_parks is None else self.memory_parks,
            unified=before.unified if self.memory_unified is None else self.memory_unified,
            wait_ms=before.wait_ms if self.memory_wait_ms is None else self.memory_wait_ms,
        )
        if self.memory_parks and role is layout.Role.HP:
            raise Invalid("memory_parks: only be leaves the GPU's memory, and hp gets the room; give it for be")
        if self.memory_unified and role is layout.Role.HP:
            raise Invalid("memory_unified: hp's memory never leaves the GPU; give it for be")
        if sharing.parks and sharing.unified:
            raise Invalid("memory_unified: managed memory cannot be parked; give memory_parks or memory_unified")
        if sharing.unified and not limit_bytes:
            raise Invalid("memory_unified: needs memory_limit_bytes, because the GPU does not bound such memory")
        if self.memory_wait_ms and role is layout.Role.BE:
            raise Invalid("memory_wait_ms: only hp waits for others to leave the GPU's memory; give it for hp")
        if limit_bytes and self.memory_request_bytes and self.memory_request_bytes > limit_bytes:
            raise Invalid(
                f"memory_request_bytes: {self.memory_request_bytes} is above the limit {limit_bytes}; lower the "
                "request or raise the limit"
            )
        return sharing


class SlotRequest(_Request):
    """Names a slot."""

    gpu: str = Field(min_length=1, max_length=47)
    name: str = Field(min_length=1, max_length=63)


class OpenSlotRequest(_Time, _Sharing):
    """Opens a slot, or finds the open slot of that name; an empty name chooses a free one."""

    gpu: str = Field(min_length=1, max_length=47)
    name: str = Field(max_length=63)
    role: Literal[layout.Role.HP, layout.Role.BE]
    memory_limit_bytes: int = Field(ge=0, le=_U64)
    owner_process_id: int = Field(ge=0, lt=2**31)
    rule: str = Field(default="", max_length=320)

    def refuse_beside_rule(self) -> None:
        """Refuse what a rule decides.

        Raises:
            Invalid: the request has a rule, and something that contradicts it.
        """
        if self.rule and self.role is layout.Role.HP:
            raise Invalid("rule: the ids of a resource file are for be; open a slot for hp without one")
        if self.rule and (self.name or self.memory_limit_bytes or self.request or self.limit):
            raise Invalid("rule: it decides name, request, limit and memory limit; give none of them with it")


class HoldSlotRequest(SlotRequest):
    """Gives a slot to a claim."""

    claim: Claim
    had_it: bool
    await_grant: bool

    @field_validator("claim", mode="before")
    @classmethod
    def _of_message(cls, message: Any) -> dict[str, Any]:
        fields = ("uid", "share", "namespace", "name", "memory_bytes", "time_milli")
        return {name: getattr(message, name) for name in fields} | {"pods": tuple(message.pods)}


class ReleaseSlotsRequest(_Request):
    """Takes back a claim's slots."""

    claim_uid: str = Field(min_length=1, max_length=128)


class SetGrantRequest(SlotRequest, _Time, _Sharing):
    """Changes a slot's grant; None leaves a value unchanged."""

    memory_limit_bytes: int | None = Field(default=None, ge=0, le=_U64)


class ParkSlotRequest(SlotRequest):
    """Wants a slot's processes out of the GPU's memory, or no longer wants that."""

    away: bool


class SetPolicyRequest(_Request):
    """Changes a GPU's policy; fields that are not given do not change."""

    gpu: str = Field(min_length=1, max_length=47)
    policy: Annotated[str | None, _Zero] = None
    fields: Annotated[dict[str, float], BeforeValidator(dict)]

    @property
    def changes(self) -> PolicyChanges:
        """The checked changes.

        Raises:
            Invalid: one sentence that names the field and what is allowed.
        """
        name = {"policy": self.policy} if self.policy else {}
        try:
            changes: PolicyChanges = PolicyChanges.model_validate(name | self.fields)
        except ValidationError as error:
            raise _invalid(error) from None
        return changes


class ProfileRow(BaseModel):
    """A profile's row for one kernel; a `knowledge.Row`."""

    model_config = ConfigDict(from_attributes=True)

    identity: int = Field(ge=0, le=_U64)
    duration_ns: int = Field(ge=0, le=_U64)
    sms: int = Field(ge=0, lt=2**32)
    kernel_class: layout.KernelClass


class SetProfileRequest(SlotRequest):
    """Replaces the profile that a slot's clients receive."""

    rows: Annotated[list[ProfileRow], BeforeValidator(list), Field(max_length=join.KNOWLEDGE_ENTRIES)]


class SnapshotRequest(_Request):
    """Requests one snapshot, or one every interval."""

    interval_ms: int = Field(ge=0, le=3_600_000)


Request = TypeVar("Request", bound=_Request)


def check(model: type[Request], message: Any) -> Request:
    """Return a protobuf message as a checked request.

    Raises:
        Invalid: one sentence that names the field and what is allowed.
    """
    fields = message.DESCRIPTOR.fields_by_name
    given = [name for name in model.model_fields if not fields[name].has_presence or message.HasField(name)]
    try:
        return model.model_validate({name: getattr(message, name) for name in given})
    except ValidationError as error:
        raise _invalid(error) from None


def _invalid(error: ValidationError) -> Invalid:
    first = error.errors()[0]
    # Short, because gRPC sends the text in a header of limited size.
    return Invalid(f"{'.'.join(map(str, first['loc']))}: {first['msg']}, not {reprlib.repr(first['input'])}")
