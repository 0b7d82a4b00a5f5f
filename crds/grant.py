"""The grant of a pod: what its containers may do on their GPUs. The operator writes it, and the node agent reads it.

Numbers have the units of the shared pages (thousandths, microseconds, bytes), and fields have the node agent's names.
So the agent needs neither the share nor a parser of quantities. If a field is absent, the agent uses its default.
"""

from collections.abc import Mapping
from typing import Annotated, ClassVar

from pydantic import Field, create_model

from orion.crds import policy_fields
from orion.crds.annotation_text import AnnotationText
from orion.crds.decimals import Number
from orion.crds.model import Model
from orion.crds.policy import Oversubscribe, PolicyName, Priority
from orion.crds.share import GPUShare, GPUShareSpec
from orion.crds.share_rules import member
from orion.hook.policy_table import RELEASE

_Bytes = Annotated[int, Field(ge=1, le=2**63 - 1)]
_Milli = Annotated[int, Field(ge=0, le=100_000)]
_Part = Annotated[int, Field(ge=0, le=1_000)]
""" A part of a GPU's time, in thousandths. """

_Fields = create_model("_Fields", __base__=Model, **policy_fields.granted())


class GrantedPolicy(_Fields):  # type: ignore[misc, valid-type]
    """How the pod's GPUs are shared; only hp pods have it. The fields are those of `hook/policy_table.py`."""

    policy: PolicyName = PolicyName.ORION


class ContainerGrant(Model):
    """What each slot of a container may do."""

    slots: Annotated[int, Field(ge=1, le=64)] = 1
    """ The number of slots that the container requests: one for each GPU. """

    memory_limit_bytes: _Bytes | None = None
    memory_request_bytes: _Bytes | None = None
    memory_parks: bool | None = None
    """ be: whether the agent may park the slot. All slots of a pod have the same value. """

    memory_evict_unparked: bool | None = None
    """ be: whether the operator evicts the pod if the slot keeps memory that it should have left. """

    memory_unified: bool | None = None
    """ be: whether device allocations become managed memory. """

    memory_wait_ms: Annotated[int, Field(ge=0, le=600_000)] | None = None
    """ hp: for how long an allocation that finds the GPU full waits for others to park. Unit: milliseconds. """

    compute_request_milli: _Part | None = None
    compute_limit_milli: _Part | None = None
    sm_share_milli: _Milli | None = None


class PodGrant(AnnotationText):
    """The grants of all containers of a pod, and the share that they come from."""

    FORMAT: ClassVar[int] = 1
    """ Increase it if an older agent would misread a grant; a new field alone does not need that. """

    what: ClassVar[str] = "grant"
    strictly: ClassVar[bool] = False

    format: Annotated[int, Field(ge=1)] = FORMAT
    priority: Priority
    """ The priority that the pod should have. The slot decides the actual role; an agent reports a difference. """

    share: str | None = None
    """ The name of the GPUShare; None: the defaults apply. """

    share_uid: str | None = None
    """ The uid of the share. It distinguishes a deleted share from a new one of the same name. """

    share_generation: int | None = None
    """ The metadata.generation of the share. """

    fail_closed: bool = False
    """ Whether the pod must not use its GPU without the hook. """

    policy: GrantedPolicy | None = None
    """ None for be pods, and for hp pods without a share. """

    containers: dict[str, ContainerGrant] = Field(default_factory=dict)
    """ By container name; a container without an entry has no slot. """


WAIT_MS = 30_000
""" The default of `spec.memory.wait`, in milliseconds. """


def granted(priority: Priority, share: GPUShare | None, slots: Mapping[str, int], probed: bool = False) -> PodGrant:
    """Return the grant of a pod.

    Args:
        priority: the pod's priority.
        share: the share that governs the pod; None: the defaults apply.
        slots: the number of slots by container name; containers without slots are left out.
        probed: whether one of these containers has a liveness probe.
    """
    if share is None:
        wait = WAIT_MS if priority is Priority.HP else None
        rows = {name: ContainerGrant(slots=count, memory_wait_ms=wait) for name, count in slots.items()}
        return PodGrant(priority=priority, containers=rows)
    return PodGrant(
        priority=priority,
        share=share.metadata.name,
        share_uid=share.metadata.uid,
        share_generation=share.metadata.generation,
        fail_closed=share.spec.fail_closed,
        policy=_policy(share.spec) if priority is Priority.HP else None,
        containers={name: _container(share.spec, count, probed) for name, count in slots.items()},
    )


def may_park(spec: GPUShareSpec, probed: bool) -> bool:
    """Return whether the slots of a pod may be parked.

    Args:
        spec: of the share that governs the pod.
        probed: whether a container with a slot has a liveness probe, which would fail while the pod is parked.
    """
    memory = spec.memory
    if spec.priority is not Priority.BE or memory is None or memory.oversubscribe is not Oversubscribe.PARK:
        return False
    return not probed or bool(memory.park_with_liveness_probe)


def _is_unified(spec: GPUShareSpec) -> bool:
    memory = spec.memory
    return spec.priority is Priority.BE and memory is not None and memory.oversubscribe is Oversubscribe.UNIFIED


def _wait_ms(spec: GPUShareSpec) -> int | None:
    if spec.priority is not Priority.HP:
        return None
    return WAIT_MS if spec.memory is None or spec.memory.wait is None else -(-spec.memory.wait.nanoseconds // 1_000_000)


def _container(spec: GPUShareSpec, slots: int, probed: bool) -> ContainerGrant:
    memory, compute = spec.memory, spec.compute
    limit = memory.limit.bytes if memory and memory.limit else None
    request = memory.request.bytes if memory and memory.request else limit
    return ContainerGrant(
        slots=slots,
        memory_limit_bytes=limit,
        memory_request_bytes=request,
        memory_parks=may_park(spec, probed) or None,
        memory_evict_unparked=(memory.evict_unparked if memory else None) or None,
        memory_unified=_is_unified(spec) or None,
        memory_wait_ms=_wait_ms(spec),
        compute_request_milli=_milli(compute.request if compute else None),
        compute_limit_milli=_milli(compute.limit if compute else None),
        sm_share_milli=_milli(spec.sm_share),
    )


def _milli(number: Number | None) -> int | None:
    return None if number is None else number.milli


def _policy(spec: GPUShareSpec) -> GrantedPolicy:
    fields = {row.granted: (row, member(spec, row.share)) for row in RELEASE.rows if row.share}
    amounts = {name: policy_fields.amount(row, value) for name, (row, value) in fields.items() if value is not None}
    return GrantedPolicy(policy=spec.policy or PolicyName.ORION, **amounts)
