"""What administrators may ask, checked before anything acts on it."""

from typing import Any, Literal, TypeVar

from pydantic import BaseModel, Field, ValidationError

from orion.hook import layout
from orion.node_agent.errors import Invalid

_U64 = 2**64 - 1
_MICROSECONDS_MAX = 1_000_000


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


class SetGrantRequest(SlotRequest):
    """Changes what a slot may do."""

    memory_limit_bytes: int = Field(ge=0, le=_U64)


class SetPolicyRequest(_Request):
    """Changes how a GPU is shared; what is empty or 0 stays as it is."""

    gpu: str = Field(min_length=1, max_length=47)
    policy: Literal["", "gate", "none"]
    window_us: int = Field(ge=0, le=_MICROSECONDS_MAX)
    linger_floor_us: int = Field(ge=0, le=_MICROSECONDS_MAX)
    linger_ceiling_us: int = Field(ge=0, le=_MICROSECONDS_MAX)


class SnapshotRequest(_Request):
    """Asks for everything, once or again and again."""

    interval_ms: int = Field(ge=0, le=3_600_000)


Request = TypeVar("Request", bound=_Request)


def check(model: type[Request], message: Any) -> Request:
    """Return a protobuf message as a checked request.

    Raises:
        Invalid: with a sentence that names the field and what is allowed.
    """
    try:
        return model.model_validate({name: getattr(message, name) for name in model.model_fields})
    except ValidationError as error:
        first = error.errors()[0]
        raise Invalid(f"{'.'.join(map(str, first['loc']))}: {first['msg']}, not {first['input']!r}") from None
