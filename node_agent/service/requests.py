"""What administrators may ask, checked before anything acts on it."""

import reprlib
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from orion.hook import join, layout
from orion.node_agent.errors import Invalid
from orion.node_agent.pages.policy_changes import PolicyChanges

WEIGHT_LEAST, WEIGHT_MOST = 0.01, 100.0

_U64 = 2**64 - 1

# 0 says as little as nothing does.
_Zero = BeforeValidator(lambda value: value or None)
_Weight = Annotated[Annotated[float, Field(ge=WEIGHT_LEAST, le=WEIGHT_MOST, allow_inf_nan=False)] | None, _Zero]


class _Request(BaseModel):
    pass


class SlotRequest(_Request):
    """Names a slot."""

    gpu: str = Field(min_length=1, max_length=47)
    name: str = Field(min_length=1, max_length=63)


class OpenSlotRequest(_Request):
    """Makes a slot, or takes the one of that name; no name: a new one."""

    gpu: str = Field(min_length=1, max_length=47)
    name: str = Field(max_length=63)
    role: Literal[layout.Role.HP, layout.Role.BE]
    memory_limit_bytes: int = Field(ge=0, le=_U64)
    owner_process_id: int = Field(ge=0, lt=2**31)
    weight: _Weight = None


class SetGrantRequest(SlotRequest):
    """Changes what a slot may do; None stays as it is."""

    memory_limit_bytes: int | None = Field(default=None, ge=0, le=_U64)
    weight: _Weight = None


class SetPolicyRequest(_Request):
    """Changes how a GPU is shared; what is not named stays as it is."""

    gpu: str = Field(min_length=1, max_length=47)
    policy: Annotated[str | None, _Zero] = None
    fields: Annotated[dict[str, float], BeforeValidator(dict)]

    @property
    def changes(self) -> PolicyChanges:
        """The policy and the fields, checked.

        Raises:
            Invalid: with a sentence that names the field and what is allowed.
        """
        said = {"policy": self.policy} if self.policy else {}
        try:
            changes: PolicyChanges = PolicyChanges.model_validate(said | self.fields)
        except ValidationError as error:
            raise _invalid(error) from None
        return changes


class ProfileRow(BaseModel):
    """What a profile says of one kernel; a `knowledge.Row`."""

    model_config = ConfigDict(from_attributes=True)

    identity: int = Field(ge=0, le=_U64)
    duration_ns: int = Field(ge=0, le=_U64)
    sms: int = Field(ge=0, lt=2**32)
    kernel_class: layout.KernelClass


class SetProfileRequest(SlotRequest):
    """Replaces the profile that a slot's clients receive."""

    rows: Annotated[list[ProfileRow], BeforeValidator(list), Field(max_length=join.KNOWLEDGE_ENTRIES)]


class SnapshotRequest(_Request):
    """Asks for everything, once or again and again."""

    interval_ms: int = Field(ge=0, le=3_600_000)


Request = TypeVar("Request", bound=_Request)


def check(model: type[Request], message: Any) -> Request:
    """Return a protobuf message as a checked request.

    Raises:
        Invalid: with a sentence that names the field and what is allowed.
    """
    fields = message.DESCRIPTOR.fields_by_name
    said = [name for name in model.model_fields if not fields[name].has_presence or message.HasField(name)]
    try:
        return model.model_validate({name: getattr(message, name) for name in said})
    except ValidationError as error:
        raise _invalid(error) from None


def _invalid(error: ValidationError) -> Invalid:
    first = error.errors()[0]
    # Short: gRPC puts it into a header, which has a bound.
    return Invalid(f"{'.'.join(map(str, first['loc']))}: {first['msg']}, not {reprlib.repr(first['input'])}")
