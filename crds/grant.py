"""The grant of a pod: what its containers may do on their GPUs, as the operator writes it and the node agent reads it.

Numbers in the units of the shared pages (thousandths, microseconds, bytes) under the node agent's own names, all
resolved: the agent needs neither the share nor a parser of quantities. What is absent is the agent's default. Written
in one line with sorted keys, so that equal grants are equal text and an unchanged one is not written again.
"""

import json
from collections.abc import Mapping
from typing import Annotated, Self

from pydantic import Field

from orion.crds.errors import Unreadable
from orion.crds.model import Model
from orion.crds.policy import PolicyName, Priority
from orion.crds.share import GPUShare, GPUShareSpec

FORMAT = 1
""" Grows when an older agent would misread a grant; new fields alone do not. """

_Bytes = Annotated[int, Field(ge=1, le=2**63 - 1)]
_Milli = Annotated[int, Field(ge=0, le=100_000)]
_Microseconds = Annotated[int, Field(ge=1, le=60_000_000)]
_SMs = Annotated[int, Field(ge=1, le=65_535)]


class GrantedPolicy(Model):
    """How the pod's GPUs are shared; given by hp pods alone."""

    policy: PolicyName = PolicyName.ORION
    max_slowdown_milli: _Milli | None = None
    sharing_cost_milli: _Milli | None = None
    minimum_share_milli: _Milli | None = None
    window_us: _Microseconds | None = None
    linger_floor_us: _Microseconds | None = None
    linger_ceiling_us: _Microseconds | None = None
    overlap_sms: _SMs | None = None
    long_kernel_us: _Microseconds | None = None
    reef_depth: Annotated[int | None, Field(ge=1, le=4_096)] = None
    orion_2024_sms: Annotated[_SMs | None, Field(alias="orion2024Sms")] = None
    orion_2024_duration_us: Annotated[_Microseconds | None, Field(alias="orion2024DurationUs")] = None


class ContainerGrant(Model):
    """What each slot of a container may do."""

    slots: Annotated[int, Field(ge=1, le=64)] = 1
    """ How many it asks for: one for each GPU. """

    memory_limit_bytes: _Bytes | None = None
    memory_request_bytes: _Bytes | None = None
    compute_request_milli: _Milli | None = None
    compute_limit_milli: _Milli | None = None
    sm_share_milli: _Milli | None = None
    weight_milli: _Milli | None = None


class PodGrant(Model):
    """All of a pod's grants, and where they come from."""

    format: Annotated[int, Field(ge=1)] = FORMAT
    priority: Priority
    """ What the pod is meant to be. The role comes from the slot; an agent reports where the two differ. """

    share: str | None = None
    """ The GPUShare; None: the defaults. """

    share_uid: str | None = None
    """ Its uid, so that a share made anew under the old name is told from the old one. """

    share_generation: int | None = None
    """ Its metadata.generation. """

    fail_closed: bool = False
    """ Whether the pod must not use its GPU without the hook. """

    policy: GrantedPolicy | None = None
    """ None: be pods, and hp pods without a share. """

    containers: dict[str, ContainerGrant] = Field(default_factory=dict)
    """ By the container's name; a container that is not here has no slot. """

    @classmethod
    def from_json(cls, text: str, what: str = "grant") -> Self:
        """Return what an annotation says.

        Raises:
            Unreadable: it is no grant, or one of a later format.
        """
        try:
            plain = json.loads(text)
        except (ValueError, RecursionError):
            raise Unreadable(f"{what}: it is not JSON") from None
        grant = cls.read(plain, what)
        if grant.format > FORMAT:
            raise Unreadable(f"{what}: its format {grant.format} is later than {FORMAT}, the last that is known here")
        return grant

    def as_json(self) -> str:
        """Return it as the annotation has it."""
        return json.dumps(self.plain(), sort_keys=True, separators=(",", ":"))


def granted(priority: Priority, share: GPUShare | None, slots: Mapping[str, int]) -> PodGrant:
    """Return the grant of a pod.

    Args:
        priority: the pod's.
        share: the one that governs it; None: the defaults.
        slots: how many slots each of its containers asks for, those that ask for none left out.
    """
    if share is None:
        return PodGrant(priority=priority, containers={name: ContainerGrant(slots=n) for name, n in slots.items()})
    return PodGrant(
        priority=priority,
        share=share.metadata.name,
        share_uid=share.metadata.uid,
        share_generation=share.metadata.generation,
        fail_closed=share.spec.fail_closed,
        policy=_policy(share.spec) if priority is Priority.HP else None,
        containers={name: _container(share.spec, count) for name, count in slots.items()},
    )


def _container(spec: GPUShareSpec, slots: int) -> ContainerGrant:
    memory, compute = spec.memory, spec.compute
    limit = memory.limit.bytes if memory and memory.limit else None
    request = memory.request.bytes if memory and memory.request else limit
    return ContainerGrant(
        slots=slots,
        memory_limit_bytes=limit,
        memory_request_bytes=request,
        compute_request_milli=compute.request.milli if compute and compute.request else None,
        compute_limit_milli=compute.limit.milli if compute and compute.limit else None,
        sm_share_milli=spec.sm_share.milli if spec.sm_share else None,
        weight_milli=spec.weight.milli if spec.weight else None,
    )


def _policy(spec: GPUShareSpec) -> GrantedPolicy:
    tuning = spec.tuning
    policy = GrantedPolicy(
        policy=spec.policy or PolicyName.ORION,
        max_slowdown_milli=spec.max_slowdown.milli if spec.max_slowdown else None,
        minimum_share_milli=spec.minimum_share.milli if spec.minimum_share else None,
    )
    if tuning is None:
        return policy
    return policy.model_copy(
        update={
            "sharing_cost_milli": tuning.sharing_cost.milli if tuning.sharing_cost else None,
            "window_us": tuning.window.microseconds if tuning.window else None,
            "linger_floor_us": tuning.linger.floor.microseconds if tuning.linger else None,
            "linger_ceiling_us": tuning.linger.ceiling.microseconds if tuning.linger else None,
            "overlap_sms": tuning.overlap_sms,
            "long_kernel_us": tuning.long_kernel.microseconds if tuning.long_kernel else None,
            "reef_depth": tuning.reef_depth,
            "orion_2024_sms": tuning.orion_2024_sms,
            "orion_2024_duration_us": tuning.orion_2024_duration.microseconds if tuning.orion_2024_duration else None,
        }
    )
