from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Call(_message.Message):
    __slots__ = ("token",)
    TOKEN_FIELD_NUMBER: _ClassVar[int]
    token: str
    def __init__(self, token: _Optional[str] = ...) -> None: ...

class Answer(_message.Message):
    __slots__ = ("pods", "refusal")
    PODS_FIELD_NUMBER: _ClassVar[int]
    REFUSAL_FIELD_NUMBER: _ClassVar[int]
    pods: PodsOfNode
    refusal: Refusal
    def __init__(self, pods: _Optional[_Union[PodsOfNode, _Mapping]] = ..., refusal: _Optional[_Union[Refusal, _Mapping]] = ...) -> None: ...

class Refusal(_message.Message):
    __slots__ = ("code", "reason")
    CODE_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    code: str
    reason: str
    def __init__(self, code: _Optional[str] = ..., reason: _Optional[str] = ...) -> None: ...

class PodsOfNode(_message.Message):
    __slots__ = ("pods", "rollout", "allocation")
    PODS_FIELD_NUMBER: _ClassVar[int]
    ROLLOUT_FIELD_NUMBER: _ClassVar[int]
    ALLOCATION_FIELD_NUMBER: _ClassVar[int]
    pods: _containers.RepeatedCompositeFieldContainer[Pod]
    rollout: str
    allocation: str
    def __init__(self, pods: _Optional[_Iterable[_Union[Pod, _Mapping]]] = ..., rollout: _Optional[str] = ..., allocation: _Optional[str] = ...) -> None: ...

class Pod(_message.Message):
    __slots__ = ("namespace", "name", "uid", "created", "leaving", "grant", "ended", "is_static", "revision", "kept")
    NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    UID_FIELD_NUMBER: _ClassVar[int]
    CREATED_FIELD_NUMBER: _ClassVar[int]
    LEAVING_FIELD_NUMBER: _ClassVar[int]
    GRANT_FIELD_NUMBER: _ClassVar[int]
    ENDED_FIELD_NUMBER: _ClassVar[int]
    IS_STATIC_FIELD_NUMBER: _ClassVar[int]
    REVISION_FIELD_NUMBER: _ClassVar[int]
    KEPT_FIELD_NUMBER: _ClassVar[int]
    namespace: str
    name: str
    uid: str
    created: str
    leaving: bool
    grant: str
    ended: bool
    is_static: bool
    revision: str
    kept: str
    def __init__(self, namespace: _Optional[str] = ..., name: _Optional[str] = ..., uid: _Optional[str] = ..., created: _Optional[str] = ..., leaving: _Optional[bool] = ..., grant: _Optional[str] = ..., ended: _Optional[bool] = ..., is_static: _Optional[bool] = ..., revision: _Optional[str] = ..., kept: _Optional[str] = ...) -> None: ...
