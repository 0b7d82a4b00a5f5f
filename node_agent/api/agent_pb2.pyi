from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Role(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    ROLE_UNSPECIFIED: _ClassVar[Role]
    HP: _ClassVar[Role]
    BE: _ClassVar[Role]
ROLE_UNSPECIFIED: Role
HP: Role
BE: Role

class Empty(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class SnapshotRequest(_message.Message):
    __slots__ = ("interval_ms",)
    INTERVAL_MS_FIELD_NUMBER: _ClassVar[int]
    interval_ms: int
    def __init__(self, interval_ms: _Optional[int] = ...) -> None: ...

class OpenSlotRequest(_message.Message):
    __slots__ = ("gpu", "name", "role", "memory_limit_bytes", "owner_process_id")
    GPU_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    ROLE_FIELD_NUMBER: _ClassVar[int]
    MEMORY_LIMIT_BYTES_FIELD_NUMBER: _ClassVar[int]
    OWNER_PROCESS_ID_FIELD_NUMBER: _ClassVar[int]
    gpu: str
    name: str
    role: Role
    memory_limit_bytes: int
    owner_process_id: int
    def __init__(self, gpu: _Optional[str] = ..., name: _Optional[str] = ..., role: _Optional[_Union[Role, str]] = ..., memory_limit_bytes: _Optional[int] = ..., owner_process_id: _Optional[int] = ...) -> None: ...

class SlotRequest(_message.Message):
    __slots__ = ("gpu", "name")
    GPU_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    gpu: str
    name: str
    def __init__(self, gpu: _Optional[str] = ..., name: _Optional[str] = ...) -> None: ...

class SetGrantRequest(_message.Message):
    __slots__ = ("gpu", "name", "memory_limit_bytes")
    GPU_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    MEMORY_LIMIT_BYTES_FIELD_NUMBER: _ClassVar[int]
    gpu: str
    name: str
    memory_limit_bytes: int
    def __init__(self, gpu: _Optional[str] = ..., name: _Optional[str] = ..., memory_limit_bytes: _Optional[int] = ...) -> None: ...

class SetPolicyRequest(_message.Message):
    __slots__ = ("gpu", "policy", "window_us", "linger_floor_us", "linger_ceiling_us")
    GPU_FIELD_NUMBER: _ClassVar[int]
    POLICY_FIELD_NUMBER: _ClassVar[int]
    WINDOW_US_FIELD_NUMBER: _ClassVar[int]
    LINGER_FLOOR_US_FIELD_NUMBER: _ClassVar[int]
    LINGER_CEILING_US_FIELD_NUMBER: _ClassVar[int]
    gpu: str
    policy: str
    window_us: int
    linger_floor_us: int
    linger_ceiling_us: int
    def __init__(self, gpu: _Optional[str] = ..., policy: _Optional[str] = ..., window_us: _Optional[int] = ..., linger_floor_us: _Optional[int] = ..., linger_ceiling_us: _Optional[int] = ...) -> None: ...

class Snapshot(_message.Message):
    __slots__ = ("agent_version", "agent_process_id", "gpus")
    AGENT_VERSION_FIELD_NUMBER: _ClassVar[int]
    AGENT_PROCESS_ID_FIELD_NUMBER: _ClassVar[int]
    GPUS_FIELD_NUMBER: _ClassVar[int]
    agent_version: str
    agent_process_id: int
    gpus: _containers.RepeatedCompositeFieldContainer[Gpu]
    def __init__(self, agent_version: _Optional[str] = ..., agent_process_id: _Optional[int] = ..., gpus: _Optional[_Iterable[_Union[Gpu, _Mapping]]] = ...) -> None: ...

class Gpu(_message.Message):
    __slots__ = ("uuid", "index", "model", "simulated", "memory_bytes", "policy", "window_us", "hp_busy_ratio", "slots", "memory_used_bytes")
    UUID_FIELD_NUMBER: _ClassVar[int]
    INDEX_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    SIMULATED_FIELD_NUMBER: _ClassVar[int]
    MEMORY_BYTES_FIELD_NUMBER: _ClassVar[int]
    POLICY_FIELD_NUMBER: _ClassVar[int]
    WINDOW_US_FIELD_NUMBER: _ClassVar[int]
    HP_BUSY_RATIO_FIELD_NUMBER: _ClassVar[int]
    SLOTS_FIELD_NUMBER: _ClassVar[int]
    MEMORY_USED_BYTES_FIELD_NUMBER: _ClassVar[int]
    uuid: str
    index: int
    model: str
    simulated: bool
    memory_bytes: int
    policy: str
    window_us: int
    hp_busy_ratio: float
    slots: _containers.RepeatedCompositeFieldContainer[Slot]
    memory_used_bytes: int
    def __init__(self, uuid: _Optional[str] = ..., index: _Optional[int] = ..., model: _Optional[str] = ..., simulated: _Optional[bool] = ..., memory_bytes: _Optional[int] = ..., policy: _Optional[str] = ..., window_us: _Optional[int] = ..., hp_busy_ratio: _Optional[float] = ..., slots: _Optional[_Iterable[_Union[Slot, _Mapping]]] = ..., memory_used_bytes: _Optional[int] = ...) -> None: ...

class Slot(_message.Message):
    __slots__ = ("gpu", "name", "role", "directory", "memory_limit_bytes", "window_share_us", "clients")
    GPU_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    ROLE_FIELD_NUMBER: _ClassVar[int]
    DIRECTORY_FIELD_NUMBER: _ClassVar[int]
    MEMORY_LIMIT_BYTES_FIELD_NUMBER: _ClassVar[int]
    WINDOW_SHARE_US_FIELD_NUMBER: _ClassVar[int]
    CLIENTS_FIELD_NUMBER: _ClassVar[int]
    gpu: str
    name: str
    role: Role
    directory: str
    memory_limit_bytes: int
    window_share_us: int
    clients: _containers.RepeatedCompositeFieldContainer[Client]
    def __init__(self, gpu: _Optional[str] = ..., name: _Optional[str] = ..., role: _Optional[_Union[Role, str]] = ..., directory: _Optional[str] = ..., memory_limit_bytes: _Optional[int] = ..., window_share_us: _Optional[int] = ..., clients: _Optional[_Iterable[_Union[Client, _Mapping]]] = ...) -> None: ...

class Client(_message.Message):
    __slots__ = ("place", "generation", "process_id", "command", "state", "launches", "gated_launches", "gated_seconds", "busy_seconds", "linger_us", "in_flight_us", "memory_bytes", "condition", "joined_seconds_ago")
    PLACE_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    PROCESS_ID_FIELD_NUMBER: _ClassVar[int]
    COMMAND_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    LAUNCHES_FIELD_NUMBER: _ClassVar[int]
    GATED_LAUNCHES_FIELD_NUMBER: _ClassVar[int]
    GATED_SECONDS_FIELD_NUMBER: _ClassVar[int]
    BUSY_SECONDS_FIELD_NUMBER: _ClassVar[int]
    LINGER_US_FIELD_NUMBER: _ClassVar[int]
    IN_FLIGHT_US_FIELD_NUMBER: _ClassVar[int]
    MEMORY_BYTES_FIELD_NUMBER: _ClassVar[int]
    CONDITION_FIELD_NUMBER: _ClassVar[int]
    JOINED_SECONDS_AGO_FIELD_NUMBER: _ClassVar[int]
    place: int
    generation: int
    process_id: int
    command: str
    state: str
    launches: int
    gated_launches: int
    gated_seconds: float
    busy_seconds: float
    linger_us: int
    in_flight_us: int
    memory_bytes: int
    condition: str
    joined_seconds_ago: float
    def __init__(self, place: _Optional[int] = ..., generation: _Optional[int] = ..., process_id: _Optional[int] = ..., command: _Optional[str] = ..., state: _Optional[str] = ..., launches: _Optional[int] = ..., gated_launches: _Optional[int] = ..., gated_seconds: _Optional[float] = ..., busy_seconds: _Optional[float] = ..., linger_us: _Optional[int] = ..., in_flight_us: _Optional[int] = ..., memory_bytes: _Optional[int] = ..., condition: _Optional[str] = ..., joined_seconds_ago: _Optional[float] = ...) -> None: ...
