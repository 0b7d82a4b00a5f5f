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

class KernelClass(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    UNKNOWN: _ClassVar[KernelClass]
    COMPUTE: _ClassVar[KernelClass]
    MEMORY: _ClassVar[KernelClass]
ROLE_UNSPECIFIED: Role
HP: Role
BE: Role
UNKNOWN: KernelClass
COMPUTE: KernelClass
MEMORY: KernelClass

class Empty(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class SnapshotRequest(_message.Message):
    __slots__ = ("interval_ms",)
    INTERVAL_MS_FIELD_NUMBER: _ClassVar[int]
    interval_ms: int
    def __init__(self, interval_ms: _Optional[int] = ...) -> None: ...

class OpenSlotRequest(_message.Message):
    __slots__ = ("gpu", "name", "role", "memory_limit_bytes", "owner_process_id", "request", "limit", "rule", "memory_request_bytes", "memory_parks", "memory_wait_ms", "memory_unified")
    GPU_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    ROLE_FIELD_NUMBER: _ClassVar[int]
    MEMORY_LIMIT_BYTES_FIELD_NUMBER: _ClassVar[int]
    OWNER_PROCESS_ID_FIELD_NUMBER: _ClassVar[int]
    REQUEST_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    RULE_FIELD_NUMBER: _ClassVar[int]
    MEMORY_REQUEST_BYTES_FIELD_NUMBER: _ClassVar[int]
    MEMORY_PARKS_FIELD_NUMBER: _ClassVar[int]
    MEMORY_WAIT_MS_FIELD_NUMBER: _ClassVar[int]
    MEMORY_UNIFIED_FIELD_NUMBER: _ClassVar[int]
    gpu: str
    name: str
    role: Role
    memory_limit_bytes: int
    owner_process_id: int
    request: float
    limit: float
    rule: str
    memory_request_bytes: int
    memory_parks: bool
    memory_wait_ms: int
    memory_unified: bool
    def __init__(self, gpu: _Optional[str] = ..., name: _Optional[str] = ..., role: _Optional[_Union[Role, str]] = ..., memory_limit_bytes: _Optional[int] = ..., owner_process_id: _Optional[int] = ..., request: _Optional[float] = ..., limit: _Optional[float] = ..., rule: _Optional[str] = ..., memory_request_bytes: _Optional[int] = ..., memory_parks: _Optional[bool] = ..., memory_wait_ms: _Optional[int] = ..., memory_unified: _Optional[bool] = ...) -> None: ...

class SlotRequest(_message.Message):
    __slots__ = ("gpu", "name")
    GPU_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    gpu: str
    name: str
    def __init__(self, gpu: _Optional[str] = ..., name: _Optional[str] = ...) -> None: ...

class PreparedSlot(_message.Message):
    __slots__ = ("slot", "fail_closed", "pod")
    SLOT_FIELD_NUMBER: _ClassVar[int]
    FAIL_CLOSED_FIELD_NUMBER: _ClassVar[int]
    POD_FIELD_NUMBER: _ClassVar[int]
    slot: Slot
    fail_closed: bool
    pod: str
    def __init__(self, slot: _Optional[_Union[Slot, _Mapping]] = ..., fail_closed: _Optional[bool] = ..., pod: _Optional[str] = ...) -> None: ...

class HoldSlotRequest(_message.Message):
    __slots__ = ("gpu", "name", "claim", "had_it", "await_grant")
    GPU_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    CLAIM_FIELD_NUMBER: _ClassVar[int]
    HAD_IT_FIELD_NUMBER: _ClassVar[int]
    AWAIT_GRANT_FIELD_NUMBER: _ClassVar[int]
    gpu: str
    name: str
    claim: ClaimOfSlot
    had_it: bool
    await_grant: bool
    def __init__(self, gpu: _Optional[str] = ..., name: _Optional[str] = ..., claim: _Optional[_Union[ClaimOfSlot, _Mapping]] = ..., had_it: _Optional[bool] = ..., await_grant: _Optional[bool] = ...) -> None: ...

class ReleaseSlotsRequest(_message.Message):
    __slots__ = ("claim_uid",)
    CLAIM_UID_FIELD_NUMBER: _ClassVar[int]
    claim_uid: str
    def __init__(self, claim_uid: _Optional[str] = ...) -> None: ...

class ClaimOfSlot(_message.Message):
    __slots__ = ("uid", "share", "namespace", "name", "pods", "memory_bytes", "time_milli")
    UID_FIELD_NUMBER: _ClassVar[int]
    SHARE_FIELD_NUMBER: _ClassVar[int]
    NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    PODS_FIELD_NUMBER: _ClassVar[int]
    MEMORY_BYTES_FIELD_NUMBER: _ClassVar[int]
    TIME_MILLI_FIELD_NUMBER: _ClassVar[int]
    uid: str
    share: str
    namespace: str
    name: str
    pods: _containers.RepeatedCompositeFieldContainer[PodOfClaim]
    memory_bytes: int
    time_milli: int
    def __init__(self, uid: _Optional[str] = ..., share: _Optional[str] = ..., namespace: _Optional[str] = ..., name: _Optional[str] = ..., pods: _Optional[_Iterable[_Union[PodOfClaim, _Mapping]]] = ..., memory_bytes: _Optional[int] = ..., time_milli: _Optional[int] = ...) -> None: ...

class PodOfClaim(_message.Message):
    __slots__ = ("name", "uid")
    NAME_FIELD_NUMBER: _ClassVar[int]
    UID_FIELD_NUMBER: _ClassVar[int]
    name: str
    uid: str
    def __init__(self, name: _Optional[str] = ..., uid: _Optional[str] = ...) -> None: ...

class WatchDevicesRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Devices(_message.Message):
    __slots__ = ("devices", "not_advertised", "giver", "handover", "other_users")
    DEVICES_FIELD_NUMBER: _ClassVar[int]
    NOT_ADVERTISED_FIELD_NUMBER: _ClassVar[int]
    GIVER_FIELD_NUMBER: _ClassVar[int]
    HANDOVER_FIELD_NUMBER: _ClassVar[int]
    OTHER_USERS_FIELD_NUMBER: _ClassVar[int]
    devices: _containers.RepeatedCompositeFieldContainer[Device]
    not_advertised: _containers.RepeatedCompositeFieldContainer[NotAdvertised]
    giver: str
    handover: str
    other_users: _containers.RepeatedCompositeFieldContainer[UsersOfClaim]
    def __init__(self, devices: _Optional[_Iterable[_Union[Device, _Mapping]]] = ..., not_advertised: _Optional[_Iterable[_Union[NotAdvertised, _Mapping]]] = ..., giver: _Optional[str] = ..., handover: _Optional[str] = ..., other_users: _Optional[_Iterable[_Union[UsersOfClaim, _Mapping]]] = ...) -> None: ...

class UsersOfClaim(_message.Message):
    __slots__ = ("claim_uid", "pods")
    CLAIM_UID_FIELD_NUMBER: _ClassVar[int]
    PODS_FIELD_NUMBER: _ClassVar[int]
    claim_uid: str
    pods: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, claim_uid: _Optional[str] = ..., pods: _Optional[_Iterable[str]] = ...) -> None: ...

class Device(_message.Message):
    __slots__ = ("uuid", "index", "model", "simulated", "memory_bytes", "memory_reserved_bytes", "hp_busy_ratio", "slots", "held", "healthy", "cordoned", "reason", "message", "numa_node", "linked", "minor", "closed", "fail_closed", "mode", "compute_capability", "driver_version", "pci_bus_id", "pcie_root", "fail_open")
    UUID_FIELD_NUMBER: _ClassVar[int]
    INDEX_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    SIMULATED_FIELD_NUMBER: _ClassVar[int]
    MEMORY_BYTES_FIELD_NUMBER: _ClassVar[int]
    MEMORY_RESERVED_BYTES_FIELD_NUMBER: _ClassVar[int]
    HP_BUSY_RATIO_FIELD_NUMBER: _ClassVar[int]
    SLOTS_FIELD_NUMBER: _ClassVar[int]
    HELD_FIELD_NUMBER: _ClassVar[int]
    HEALTHY_FIELD_NUMBER: _ClassVar[int]
    CORDONED_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    NUMA_NODE_FIELD_NUMBER: _ClassVar[int]
    LINKED_FIELD_NUMBER: _ClassVar[int]
    MINOR_FIELD_NUMBER: _ClassVar[int]
    CLOSED_FIELD_NUMBER: _ClassVar[int]
    FAIL_CLOSED_FIELD_NUMBER: _ClassVar[int]
    MODE_FIELD_NUMBER: _ClassVar[int]
    COMPUTE_CAPABILITY_FIELD_NUMBER: _ClassVar[int]
    DRIVER_VERSION_FIELD_NUMBER: _ClassVar[int]
    PCI_BUS_ID_FIELD_NUMBER: _ClassVar[int]
    PCIE_ROOT_FIELD_NUMBER: _ClassVar[int]
    FAIL_OPEN_FIELD_NUMBER: _ClassVar[int]
    uuid: str
    index: int
    model: str
    simulated: bool
    memory_bytes: int
    memory_reserved_bytes: int
    hp_busy_ratio: float
    slots: _containers.RepeatedScalarFieldContainer[str]
    held: _containers.RepeatedScalarFieldContainer[str]
    healthy: bool
    cordoned: bool
    reason: str
    message: str
    numa_node: int
    linked: _containers.RepeatedScalarFieldContainer[str]
    minor: int
    closed: _containers.RepeatedScalarFieldContainer[str]
    fail_closed: _containers.RepeatedScalarFieldContainer[str]
    mode: str
    compute_capability: str
    driver_version: str
    pci_bus_id: str
    pcie_root: str
    fail_open: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, uuid: _Optional[str] = ..., index: _Optional[int] = ..., model: _Optional[str] = ..., simulated: _Optional[bool] = ..., memory_bytes: _Optional[int] = ..., memory_reserved_bytes: _Optional[int] = ..., hp_busy_ratio: _Optional[float] = ..., slots: _Optional[_Iterable[str]] = ..., held: _Optional[_Iterable[str]] = ..., healthy: _Optional[bool] = ..., cordoned: _Optional[bool] = ..., reason: _Optional[str] = ..., message: _Optional[str] = ..., numa_node: _Optional[int] = ..., linked: _Optional[_Iterable[str]] = ..., minor: _Optional[int] = ..., closed: _Optional[_Iterable[str]] = ..., fail_closed: _Optional[_Iterable[str]] = ..., mode: _Optional[str] = ..., compute_capability: _Optional[str] = ..., driver_version: _Optional[str] = ..., pci_bus_id: _Optional[str] = ..., pcie_root: _Optional[str] = ..., fail_open: _Optional[_Iterable[str]] = ...) -> None: ...

class NotAdvertised(_message.Message):
    __slots__ = ("uuid", "reason", "message")
    UUID_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    uuid: str
    reason: str
    message: str
    def __init__(self, uuid: _Optional[str] = ..., reason: _Optional[str] = ..., message: _Optional[str] = ...) -> None: ...

class RulesRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Rules(_message.Message):
    __slots__ = ("gpus",)
    GPUS_FIELD_NUMBER: _ClassVar[int]
    gpus: _containers.RepeatedCompositeFieldContainer[GpuRules]
    def __init__(self, gpus: _Optional[_Iterable[_Union[GpuRules, _Mapping]]] = ...) -> None: ...

class GpuRules(_message.Message):
    __slots__ = ("gpu", "file", "rules", "remarks", "faulty")
    GPU_FIELD_NUMBER: _ClassVar[int]
    FILE_FIELD_NUMBER: _ClassVar[int]
    RULES_FIELD_NUMBER: _ClassVar[int]
    REMARKS_FIELD_NUMBER: _ClassVar[int]
    FAULTY_FIELD_NUMBER: _ClassVar[int]
    gpu: str
    file: str
    rules: _containers.RepeatedCompositeFieldContainer[Rule]
    remarks: _containers.RepeatedScalarFieldContainer[str]
    faulty: bool
    def __init__(self, gpu: _Optional[str] = ..., file: _Optional[str] = ..., rules: _Optional[_Iterable[_Union[Rule, _Mapping]]] = ..., remarks: _Optional[_Iterable[str]] = ..., faulty: _Optional[bool] = ...) -> None: ...

class Rule(_message.Message):
    __slots__ = ("id", "line", "request", "limit", "memory_limit_bytes")
    ID_FIELD_NUMBER: _ClassVar[int]
    LINE_FIELD_NUMBER: _ClassVar[int]
    REQUEST_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    MEMORY_LIMIT_BYTES_FIELD_NUMBER: _ClassVar[int]
    id: str
    line: int
    request: float
    limit: float
    memory_limit_bytes: int
    def __init__(self, id: _Optional[str] = ..., line: _Optional[int] = ..., request: _Optional[float] = ..., limit: _Optional[float] = ..., memory_limit_bytes: _Optional[int] = ...) -> None: ...

class SetGrantRequest(_message.Message):
    __slots__ = ("gpu", "name", "memory_limit_bytes", "request", "limit", "memory_request_bytes", "memory_parks", "memory_wait_ms", "memory_unified")
    GPU_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    MEMORY_LIMIT_BYTES_FIELD_NUMBER: _ClassVar[int]
    REQUEST_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    MEMORY_REQUEST_BYTES_FIELD_NUMBER: _ClassVar[int]
    MEMORY_PARKS_FIELD_NUMBER: _ClassVar[int]
    MEMORY_WAIT_MS_FIELD_NUMBER: _ClassVar[int]
    MEMORY_UNIFIED_FIELD_NUMBER: _ClassVar[int]
    gpu: str
    name: str
    memory_limit_bytes: int
    request: float
    limit: float
    memory_request_bytes: int
    memory_parks: bool
    memory_wait_ms: int
    memory_unified: bool
    def __init__(self, gpu: _Optional[str] = ..., name: _Optional[str] = ..., memory_limit_bytes: _Optional[int] = ..., request: _Optional[float] = ..., limit: _Optional[float] = ..., memory_request_bytes: _Optional[int] = ..., memory_parks: _Optional[bool] = ..., memory_wait_ms: _Optional[int] = ..., memory_unified: _Optional[bool] = ...) -> None: ...

class ParkSlotRequest(_message.Message):
    __slots__ = ("gpu", "name", "away")
    GPU_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    AWAY_FIELD_NUMBER: _ClassVar[int]
    gpu: str
    name: str
    away: bool
    def __init__(self, gpu: _Optional[str] = ..., name: _Optional[str] = ..., away: _Optional[bool] = ...) -> None: ...

class ProfileRow(_message.Message):
    __slots__ = ("identity", "duration_ns", "sms", "kernel_class")
    IDENTITY_FIELD_NUMBER: _ClassVar[int]
    DURATION_NS_FIELD_NUMBER: _ClassVar[int]
    SMS_FIELD_NUMBER: _ClassVar[int]
    KERNEL_CLASS_FIELD_NUMBER: _ClassVar[int]
    identity: int
    duration_ns: int
    sms: int
    kernel_class: KernelClass
    def __init__(self, identity: _Optional[int] = ..., duration_ns: _Optional[int] = ..., sms: _Optional[int] = ..., kernel_class: _Optional[_Union[KernelClass, str]] = ...) -> None: ...

class SetProfileRequest(_message.Message):
    __slots__ = ("gpu", "name", "rows")
    GPU_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    gpu: str
    name: str
    rows: _containers.RepeatedCompositeFieldContainer[ProfileRow]
    def __init__(self, gpu: _Optional[str] = ..., name: _Optional[str] = ..., rows: _Optional[_Iterable[_Union[ProfileRow, _Mapping]]] = ...) -> None: ...

class SetPolicyRequest(_message.Message):
    __slots__ = ("gpu", "policy", "fields")
    class FieldsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: float
        def __init__(self, key: _Optional[str] = ..., value: _Optional[float] = ...) -> None: ...
    GPU_FIELD_NUMBER: _ClassVar[int]
    POLICY_FIELD_NUMBER: _ClassVar[int]
    FIELDS_FIELD_NUMBER: _ClassVar[int]
    gpu: str
    policy: str
    fields: _containers.ScalarMap[str, float]
    def __init__(self, gpu: _Optional[str] = ..., policy: _Optional[str] = ..., fields: _Optional[_Mapping[str, float]] = ...) -> None: ...

class Policy(_message.Message):
    __slots__ = ("policy", "fields")
    class FieldsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: float
        def __init__(self, key: _Optional[str] = ..., value: _Optional[float] = ...) -> None: ...
    POLICY_FIELD_NUMBER: _ClassVar[int]
    FIELDS_FIELD_NUMBER: _ClassVar[int]
    policy: str
    fields: _containers.ScalarMap[str, float]
    def __init__(self, policy: _Optional[str] = ..., fields: _Optional[_Mapping[str, float]] = ...) -> None: ...

class Condition(_message.Message):
    __slots__ = ("reason", "message", "since")
    REASON_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    SINCE_FIELD_NUMBER: _ClassVar[int]
    reason: str
    message: str
    since: float
    def __init__(self, reason: _Optional[str] = ..., message: _Optional[str] = ..., since: _Optional[float] = ...) -> None: ...

class Snapshot(_message.Message):
    __slots__ = ("agent_version", "agent_process_id", "gpus", "taken_seconds")
    AGENT_VERSION_FIELD_NUMBER: _ClassVar[int]
    AGENT_PROCESS_ID_FIELD_NUMBER: _ClassVar[int]
    GPUS_FIELD_NUMBER: _ClassVar[int]
    TAKEN_SECONDS_FIELD_NUMBER: _ClassVar[int]
    agent_version: str
    agent_process_id: int
    gpus: _containers.RepeatedCompositeFieldContainer[Gpu]
    taken_seconds: float
    def __init__(self, agent_version: _Optional[str] = ..., agent_process_id: _Optional[int] = ..., gpus: _Optional[_Iterable[_Union[Gpu, _Mapping]]] = ..., taken_seconds: _Optional[float] = ...) -> None: ...

class Gpu(_message.Message):
    __slots__ = ("uuid", "index", "model", "simulated", "memory_bytes", "policy", "window_us", "hp_busy_ratio", "slots", "memory_used_bytes", "settings", "conditions", "memory_reserve_bytes", "parkings")
    class ParkingsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
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
    SETTINGS_FIELD_NUMBER: _ClassVar[int]
    CONDITIONS_FIELD_NUMBER: _ClassVar[int]
    MEMORY_RESERVE_BYTES_FIELD_NUMBER: _ClassVar[int]
    PARKINGS_FIELD_NUMBER: _ClassVar[int]
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
    settings: Policy
    conditions: _containers.RepeatedCompositeFieldContainer[Condition]
    memory_reserve_bytes: int
    parkings: _containers.ScalarMap[str, int]
    def __init__(self, uuid: _Optional[str] = ..., index: _Optional[int] = ..., model: _Optional[str] = ..., simulated: _Optional[bool] = ..., memory_bytes: _Optional[int] = ..., policy: _Optional[str] = ..., window_us: _Optional[int] = ..., hp_busy_ratio: _Optional[float] = ..., slots: _Optional[_Iterable[_Union[Slot, _Mapping]]] = ..., memory_used_bytes: _Optional[int] = ..., settings: _Optional[_Union[Policy, _Mapping]] = ..., conditions: _Optional[_Iterable[_Union[Condition, _Mapping]]] = ..., memory_reserve_bytes: _Optional[int] = ..., parkings: _Optional[_Mapping[str, int]] = ...) -> None: ...

class Slot(_message.Message):
    __slots__ = ("gpu", "name", "role", "directory", "memory_limit_bytes", "window_share_us", "clients", "held", "profile_kernels", "learnt_kernels", "request", "limit", "usage", "reasons", "rule", "claim", "memory_request_bytes", "memory_parks", "memory_wait_ms", "memory_unified", "parking", "owner_process_ids")
    GPU_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    ROLE_FIELD_NUMBER: _ClassVar[int]
    DIRECTORY_FIELD_NUMBER: _ClassVar[int]
    MEMORY_LIMIT_BYTES_FIELD_NUMBER: _ClassVar[int]
    WINDOW_SHARE_US_FIELD_NUMBER: _ClassVar[int]
    CLIENTS_FIELD_NUMBER: _ClassVar[int]
    HELD_FIELD_NUMBER: _ClassVar[int]
    PROFILE_KERNELS_FIELD_NUMBER: _ClassVar[int]
    LEARNT_KERNELS_FIELD_NUMBER: _ClassVar[int]
    REQUEST_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    USAGE_FIELD_NUMBER: _ClassVar[int]
    REASONS_FIELD_NUMBER: _ClassVar[int]
    RULE_FIELD_NUMBER: _ClassVar[int]
    CLAIM_FIELD_NUMBER: _ClassVar[int]
    MEMORY_REQUEST_BYTES_FIELD_NUMBER: _ClassVar[int]
    MEMORY_PARKS_FIELD_NUMBER: _ClassVar[int]
    MEMORY_WAIT_MS_FIELD_NUMBER: _ClassVar[int]
    MEMORY_UNIFIED_FIELD_NUMBER: _ClassVar[int]
    PARKING_FIELD_NUMBER: _ClassVar[int]
    OWNER_PROCESS_IDS_FIELD_NUMBER: _ClassVar[int]
    gpu: str
    name: str
    role: Role
    directory: str
    memory_limit_bytes: int
    window_share_us: int
    clients: _containers.RepeatedCompositeFieldContainer[Client]
    held: bool
    profile_kernels: int
    learnt_kernels: int
    request: float
    limit: float
    usage: Usage
    reasons: _containers.RepeatedCompositeFieldContainer[Reason]
    rule: str
    claim: ClaimOfSlot
    memory_request_bytes: int
    memory_parks: bool
    memory_wait_ms: int
    memory_unified: bool
    parking: Parking
    owner_process_ids: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, gpu: _Optional[str] = ..., name: _Optional[str] = ..., role: _Optional[_Union[Role, str]] = ..., directory: _Optional[str] = ..., memory_limit_bytes: _Optional[int] = ..., window_share_us: _Optional[int] = ..., clients: _Optional[_Iterable[_Union[Client, _Mapping]]] = ..., held: _Optional[bool] = ..., profile_kernels: _Optional[int] = ..., learnt_kernels: _Optional[int] = ..., request: _Optional[float] = ..., limit: _Optional[float] = ..., usage: _Optional[_Union[Usage, _Mapping]] = ..., reasons: _Optional[_Iterable[_Union[Reason, _Mapping]]] = ..., rule: _Optional[str] = ..., claim: _Optional[_Union[ClaimOfSlot, _Mapping]] = ..., memory_request_bytes: _Optional[int] = ..., memory_parks: _Optional[bool] = ..., memory_wait_ms: _Optional[int] = ..., memory_unified: _Optional[bool] = ..., parking: _Optional[_Union[Parking, _Mapping]] = ..., owner_process_ids: _Optional[_Iterable[int]] = ...) -> None: ...

class Parking(_message.Message):
    __slots__ = ("state", "seconds", "bytes", "reason", "wished", "total_seconds", "keeps_room")
    STATE_FIELD_NUMBER: _ClassVar[int]
    SECONDS_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    WISHED_FIELD_NUMBER: _ClassVar[int]
    TOTAL_SECONDS_FIELD_NUMBER: _ClassVar[int]
    KEEPS_ROOM_FIELD_NUMBER: _ClassVar[int]
    state: str
    seconds: float
    bytes: int
    reason: str
    wished: bool
    total_seconds: float
    keeps_room: bool
    def __init__(self, state: _Optional[str] = ..., seconds: _Optional[float] = ..., bytes: _Optional[int] = ..., reason: _Optional[str] = ..., wished: _Optional[bool] = ..., total_seconds: _Optional[float] = ..., keeps_room: _Optional[bool] = ...) -> None: ...

class Usage(_message.Message):
    __slots__ = ("due_seconds", "charged_seconds", "measured_seconds", "waited_seconds", "debt_seconds", "second", "recent")
    DUE_SECONDS_FIELD_NUMBER: _ClassVar[int]
    CHARGED_SECONDS_FIELD_NUMBER: _ClassVar[int]
    MEASURED_SECONDS_FIELD_NUMBER: _ClassVar[int]
    WAITED_SECONDS_FIELD_NUMBER: _ClassVar[int]
    DEBT_SECONDS_FIELD_NUMBER: _ClassVar[int]
    SECOND_FIELD_NUMBER: _ClassVar[int]
    RECENT_FIELD_NUMBER: _ClassVar[int]
    due_seconds: float
    charged_seconds: float
    measured_seconds: float
    waited_seconds: float
    debt_seconds: float
    second: UsageParts
    recent: UsageParts
    def __init__(self, due_seconds: _Optional[float] = ..., charged_seconds: _Optional[float] = ..., measured_seconds: _Optional[float] = ..., waited_seconds: _Optional[float] = ..., debt_seconds: _Optional[float] = ..., second: _Optional[_Union[UsageParts, _Mapping]] = ..., recent: _Optional[_Union[UsageParts, _Mapping]] = ...) -> None: ...

class UsageParts(_message.Message):
    __slots__ = ("seconds", "due", "charged", "measured", "waited", "wanted", "shut", "hp", "turns")
    SECONDS_FIELD_NUMBER: _ClassVar[int]
    DUE_FIELD_NUMBER: _ClassVar[int]
    CHARGED_FIELD_NUMBER: _ClassVar[int]
    MEASURED_FIELD_NUMBER: _ClassVar[int]
    WAITED_FIELD_NUMBER: _ClassVar[int]
    WANTED_FIELD_NUMBER: _ClassVar[int]
    SHUT_FIELD_NUMBER: _ClassVar[int]
    HP_FIELD_NUMBER: _ClassVar[int]
    TURNS_FIELD_NUMBER: _ClassVar[int]
    seconds: float
    due: float
    charged: float
    measured: float
    waited: float
    wanted: float
    shut: float
    hp: float
    turns: float
    def __init__(self, seconds: _Optional[float] = ..., due: _Optional[float] = ..., charged: _Optional[float] = ..., measured: _Optional[float] = ..., waited: _Optional[float] = ..., wanted: _Optional[float] = ..., shut: _Optional[float] = ..., hp: _Optional[float] = ..., turns: _Optional[float] = ...) -> None: ...

class Reason(_message.Message):
    __slots__ = ("reason", "message")
    REASON_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    reason: str
    message: str
    def __init__(self, reason: _Optional[str] = ..., message: _Optional[str] = ...) -> None: ...

class Client(_message.Message):
    __slots__ = ("place", "generation", "process_id", "command", "state", "launches", "gated_launches", "gated_seconds", "busy_seconds", "linger_us", "in_flight_us", "memory_bytes", "condition", "joined_seconds_ago", "gpu_seconds", "overlapped_launches", "overlapped_seconds", "partitioned_launches", "slowdown", "overlap_us", "control_periods", "shares_context", "long_kernel", "long_kernel_seconds", "conditions", "counted_seconds")
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
    GPU_SECONDS_FIELD_NUMBER: _ClassVar[int]
    OVERLAPPED_LAUNCHES_FIELD_NUMBER: _ClassVar[int]
    OVERLAPPED_SECONDS_FIELD_NUMBER: _ClassVar[int]
    PARTITIONED_LAUNCHES_FIELD_NUMBER: _ClassVar[int]
    SLOWDOWN_FIELD_NUMBER: _ClassVar[int]
    OVERLAP_US_FIELD_NUMBER: _ClassVar[int]
    CONTROL_PERIODS_FIELD_NUMBER: _ClassVar[int]
    SHARES_CONTEXT_FIELD_NUMBER: _ClassVar[int]
    LONG_KERNEL_FIELD_NUMBER: _ClassVar[int]
    LONG_KERNEL_SECONDS_FIELD_NUMBER: _ClassVar[int]
    CONDITIONS_FIELD_NUMBER: _ClassVar[int]
    COUNTED_SECONDS_FIELD_NUMBER: _ClassVar[int]
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
    gpu_seconds: float
    overlapped_launches: int
    overlapped_seconds: float
    partitioned_launches: int
    slowdown: float
    overlap_us: int
    control_periods: int
    shares_context: bool
    long_kernel: str
    long_kernel_seconds: float
    conditions: _containers.RepeatedCompositeFieldContainer[Condition]
    counted_seconds: float
    def __init__(self, place: _Optional[int] = ..., generation: _Optional[int] = ..., process_id: _Optional[int] = ..., command: _Optional[str] = ..., state: _Optional[str] = ..., launches: _Optional[int] = ..., gated_launches: _Optional[int] = ..., gated_seconds: _Optional[float] = ..., busy_seconds: _Optional[float] = ..., linger_us: _Optional[int] = ..., in_flight_us: _Optional[int] = ..., memory_bytes: _Optional[int] = ..., condition: _Optional[str] = ..., joined_seconds_ago: _Optional[float] = ..., gpu_seconds: _Optional[float] = ..., overlapped_launches: _Optional[int] = ..., overlapped_seconds: _Optional[float] = ..., partitioned_launches: _Optional[int] = ..., slowdown: _Optional[float] = ..., overlap_us: _Optional[int] = ..., control_periods: _Optional[int] = ..., shares_context: _Optional[bool] = ..., long_kernel: _Optional[str] = ..., long_kernel_seconds: _Optional[float] = ..., conditions: _Optional[_Iterable[_Union[Condition, _Mapping]]] = ..., counted_seconds: _Optional[float] = ...) -> None: ...
