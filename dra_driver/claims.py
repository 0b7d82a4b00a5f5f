"""Reads a ResourceClaim: which slots of which GPUs the scheduler has allocated, and for which pods.

The role of a request (hp or be) comes from the config of its DeviceClass, which no tenant can write, and the claim must
have consumed one slot of that role. Everything else that a claim could ask of this driver is refused: config of the
claim itself, since it could contradict the class, and `adminAccess`, which ignores what others have claimed.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic.alias_generators import to_camel

from orion.crds.claims import CLAIM, DRIVER, MEMORY, SLOTS, TIME
from orion.crds.quantities import Quantity
from orion.errors import Invalid, Unavailable

_NAME_IN_POD = "resource.kubernetes.io/pod-claim-name"
""" On a claim that was made from a template: what the pod calls it. """


class _Read(BaseModel):
    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, extra="ignore", frozen=True)


class _Metadata(_Read):
    name: str
    namespace: str
    uid: str
    annotations: dict[str, str] = {}


class _Result(_Read):
    request: str
    driver: str
    pool: str
    device: str
    admin_access: bool | None = None
    share_id: str | None = Field(default=None, alias="shareID")
    consumed_capacity: dict[str, Quantity] = {}


class _Opaque(_Read):
    driver: str
    parameters: Any = None


class _Config(_Read):
    source: str
    requests: list[str] = []
    opaque: _Opaque | None = None


class _Devices(_Read):
    results: list[_Result] = []
    config: list[_Config] = []


class _Allocation(_Read):
    devices: _Devices = _Devices()


class _Consumer(_Read):
    api_group: str = ""
    resource: str
    name: str
    uid: str


class _Status(_Read):
    allocation: _Allocation | None = None
    reserved_for: list[_Consumer] = []


class _Claim(_Read):
    metadata: _Metadata
    status: _Status = _Status()


class _Parameters(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    role: Literal["hp", "be"]


class Pod(BaseModel):
    """A pod that may use the claim."""

    model_config = ConfigDict(frozen=True)

    name: str
    uid: str


class Share(BaseModel):
    """One slot that the scheduler has allocated: a share of a GPU."""

    model_config = ConfigDict(frozen=True)

    request: str
    """ The request's name, without that of the alternative that was chosen. """
    pool: str
    device: str
    share_id: str | None
    role: Literal["hp", "be"]
    time_milli: int = Field(ge=0, le=1_000)
    memory_bytes: int = Field(ge=0, lt=2**63)

    @property
    def key(self) -> str:
        """What distinguishes it from the claim's other shares."""
        return self.share_id or f"{self.request}/{self.device}"


@dataclass(frozen=True)
class AllocatedClaim:
    """A claim with the slots that this driver has to give."""

    uid: str
    namespace: str
    name: str
    pods: tuple[Pod, ...]
    shares: tuple[Share, ...]
    governed: bool = False
    """ Whether GPUShares govern the pods, as far as the claim shows it. """


def read(plain: Mapping[str, Any], uid: str) -> AllocatedClaim:
    """Return a claim of the API server.

    Args:
        plain: the object.
        uid: the uid that the claim must have.

    Raises:
        Invalid: the claim can never be prepared.
        Unavailable: the claim is not allocated, or another claim has its name now.
    """
    try:
        claim = _Claim.model_validate(plain)
    except ValidationError as error:
        first = error.errors()[0]
        raise Invalid(f"the claim cannot be read: {'.'.join(map(str, first['loc']))}: {first['msg']}") from None
    meta, title = claim.metadata, f"claim {claim.metadata.namespace}/{claim.metadata.name}"
    if meta.uid != uid:
        raise Unavailable(f"{title} was deleted and made again since its pod was scheduled; delete the pod")
    if claim.status.allocation is None:
        raise Unavailable(f"{title} has no device; delete the pod, so that it is scheduled again")
    devices = claim.status.allocation.devices
    ours = [result for result in devices.results if result.driver == DRIVER]
    shares = tuple(_share(title, result, _role(title, result, devices.config)) for result in ours)
    consumers = (each for each in claim.status.reserved_for if (each.api_group, each.resource) == ("", "pods"))
    pods = (Pod(name=each.name, uid=each.uid) for each in consumers)
    governed = meta.annotations.get(_NAME_IN_POD) == CLAIM
    return AllocatedClaim(meta.uid, meta.namespace, meta.name, tuple(pods), shares, governed)


def _role(title: str, result: _Result, config: Iterable[_Config]) -> Literal["hp", "be"]:
    """Return the role that the class of a request gives.

    Raises:
        Invalid: the class gives none, or the claim has config for this driver.
    """
    names = (result.request, result.request.partition("/")[0])
    ours = [
        each
        for each in config
        if each.opaque is not None
        and each.opaque.driver == DRIVER
        and (not each.requests or any(name in each.requests for name in names))
    ]
    if any(each.source != "FromClass" for each in ours):
        raise Invalid(f"{title} has config for {DRIVER}, which only a DeviceClass may have: remove it from the claim")
    try:
        (role,) = {_Parameters.model_validate(each.opaque.parameters).role for each in ours if each.opaque}
    except (ValidationError, ValueError):
        raise Invalid(
            f"the DeviceClass of request {result.request} in {title} does not say one role, hp or be, for {DRIVER}: "
            "use the class orion-hp or orion-be"
        ) from None
    return role


def _share(title: str, result: _Result, role: Literal["hp", "be"]) -> Share:
    if result.admin_access:
        raise Invalid(f"{title} asks for adminAccess, which {DRIVER} gives to nobody: remove it from the request")
    consumed = {role: result.consumed_capacity.get(name) for role, name in SLOTS.items()}
    slots = {role: amount.bytes for role, amount in consumed.items() if amount is not None and amount.bytes}
    if slots != {role: 1}:
        claimed = ", ".join(f"{SLOTS[each]} {count}" for each, count in slots.items()) or "no slot"
        raise Invalid(
            f"request {result.request} in {title} has the role {role} and must claim one such slot, not {claimed}: "
            f"set {SLOTS[role]} to 1, and {' and '.join(name for each, name in SLOTS.items() if each != role)} to 0"
        )
    amounts = {name: result.consumed_capacity.get(name) for name in (TIME, MEMORY)}
    time, memory = (amounts[name].bytes if amounts[name] is not None else 0 for name in (TIME, MEMORY))  # type: ignore[union-attr]
    try:
        return Share(
            request=result.request.partition("/")[0],
            pool=result.pool,
            device=result.device,
            share_id=result.share_id,
            role=role,
            time_milli=time,
            memory_bytes=memory,
        )
    except ValidationError as error:
        first = error.errors()[0]
        raise Invalid(f"request {result.request} in {title}: {first['loc'][0]}: {first['msg']}") from None
