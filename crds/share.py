"""GPUShare: how a set of pods shares GPUs. People write the spec; share_status.py defines the status.

Common fields (priority, maxSlowdown, memory) are at the top level, rarely used ones in `tuning`. A field that only one
priority can use has no default in the schema: the API server would add the default to every object, so a rule such as
"slo is for hp" would reject objects that did not set the field. The field's description gives the default instead.

Rejected: a field `policy` in best-effort shares. The share of the hp pod decides how its GPU is shared, and an error is
better than a setting without an effect.
"""

from typing import Annotated, Literal

from pydantic import Field, StrictBool, create_model

from orion.crds import policy_fields
from orion.crds.bounds import Between
from orion.crds.decimals import Number
from orion.crds.durations import Duration
from orion.crds.kinds import AGE, Column, Kind, condition_column
from orion.crds.metadata import Metadata
from orion.crds.model import Model
from orion.crds.policy import Oversubscribe, PolicyName, Priority
from orion.crds.quantities import Memory
from orion.crds.rules import Immutable
from orion.crds.selectors import LabelSelector
from orion.crds.share_rules import COMPUTE, LINGER, MEMORY, SPEC
from orion.crds.share_status import GPUShareStatus


def _number(least: float, most: float, example: str) -> Between:
    return Between(Number(least), Number(most), "a number", example)


def _time(least: str, most: str, example: str) -> Between:
    return Between(Duration(least), Duration(most), "a duration", example)


Slowdown = Annotated[Number, _number(1, 100, "1.3")]
PartOfGPU = Annotated[Number, _number(0.001, 1, "0.5")]
MemoryAmount = Annotated[Memory, Between(Memory("1Mi"), Memory("16Ti"), "an amount of memory", "8Gi or 8GiB")]


class Compute(Model):
    """The GPU time of a slot, as a part of the GPU's time: 1 is a whole GPU, 0.5 is half of one."""

    request: PartOfGPU | None = None
    """ The part of the time that the slot gets at least, whenever it wants the time. be: a part of the time that hp
    leaves. Requests that add up to more than that are scaled, and slots without a request share what the requests
    leave, at least 0.01 each. hp: hp is sure of this part of a saturated GPU, and the floors of be hold within the
    rest; at least 0.5; policies orion and gate only. Unit: a part such as 0.4, in steps of a thousandth.
    Default: none for be; 1 for hp, so be has no floor. """

    limit: PartOfGPU | None = None
    """ The part of the time that the slot gets at most, measured over 1 s, also on a GPU that is otherwise idle.
    Priority hp: be runs while hp has used its limit. Unit: a part such as 0.6, in
    steps of a thousandth. Default: no limit. """

    rules = COMPUTE


class DeviceMemory(Model):
    """The device memory of a slot."""

    request: MemoryAmount | None = None
    """ The device memory that counts as reserved on the GPU when pods are placed, so the slot is sure of it. Between
    request and limit the slot borrows what is free. A be request under the limit needs oversubscribe: park
    or unified. Unit: bytes. Default: the limit. """

    limit: MemoryAmount | None = None
    """ The device memory that all processes of the slot may hold together: what they allocate, what their memory pools
    keep, and what the driver takes for their contexts and code. An allocation beyond the limit fails with the error of
    a full GPU. Mapped host memory and imported memory do not count. A lower limit does not free memory that is already
    allocated. Unit: bytes. Default: no limit.
    """

    oversubscribe: Oversubscribe | None = None
    """ How a slot gives back what it borrows; priority be only. none: not at all, so its request is its limit. park:
    when hp needs the memory, or others have waited for their turn, the processes of the slot leave the GPU: what they
    hold there moves to the host memory of the pod, and they wait until there is room again. unified: what they allocate
    becomes managed memory, which the driver moves page by page; beyond the memory of the GPU on simulated GPUs only;
    what cannot move must not exceed the request. park and unified need a limit. Default: none. """

    wait: Annotated[Duration, _time("0s", "10m", "30s")] | None = None
    """ For how long an allocation within the limit that finds the GPU full waits for be slots to park, instead of
    failing; priority hp only. 0s: it fails at once. Unit: a duration. Default: 30s. """

    park_with_liveness_probe: StrictBool | None = None
    """ If true, a pod may be parked although one of its containers with a slot has a liveness probe. While it is parked
    its programs wait, so the probe may fail and restart the container. Priority be and oversubscribe: park only.
    Default: false. """

    evict_unparked: StrictBool | None = None
    """ If true, a pod is evicted that was asked to leave the GPU because others need the room, and does not leave:
    at once if it cannot leave at all, else if it has not left within --parking-retry-seconds of the agent, a minute,
    and the room is still needed then. Disruption budgets count. Priority be and oversubscribe: park only.
    Default: false. """

    rules = MEMORY


_LABEL = "[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?"
ATTRIBUTE = rf"^{_LABEL}(\.{_LABEL})*/[A-Za-z_][A-Za-z0-9_]{{0,31}}$"
""" The name of a device's attribute with its domain, as the API server accepts it. """


class Devices(Model):
    """Which GPUs the pods may use, where they get GPUs by ResourceClaims. The device plugin ignores it."""

    selector: Annotated[str | None, Field(min_length=1, max_length=1_024)] = None
    """ A CEL expression over the attributes of a GPU (docs/dra.md), such as
    device.attributes["orion.gpu"].model == "NVIDIA H200". Default: any GPU. """

    in_common: Annotated[str | None, Field(pattern=ATTRIBUTE, max_length=96)] = None
    """ An attribute of which all GPUs of a container must have the same value, such as orion.gpu/nvlink or
    resource.kubernetes.io/numaNode. Default: none. """


class Objective(Model):
    """A latency objective of the hp pods, for documentation only: this version neither reports nor enforces it."""

    latency: Annotated[Duration, _time("10us", "1h", "20ms")]
    """ The time that a request, iteration or token of the pod may take on the GPU. Unit: a duration such as 20ms.
    Required. """

    percentile: Annotated[Number, _number(50, 99.999, "99.9")] = Number(99)
    """ The percentage of requests that must meet the latency. Default: 99. """


class Linger(Model):
    """Bounds of the time for which hp still counts as busy after its work has completed.

    The hook learns the time from the gaps between hp's launches and keeps it between these bounds.
    """

    floor: Annotated[Duration, _time("1us", "1s", "50us")] = Duration("50us")
    """ The lower bound. Unit: a duration. Default: 50us. """

    ceiling: Annotated[Duration, _time("1us", "1s", "2ms")] = Duration("2ms")
    """ The upper bound. With a higher bound, be stays stopped through longer gaps between hp's launches. Unit: a
    duration. Default: 2ms. """

    rules = LINGER


_Tuning = create_model("_Tuning", __base__=Model, **policy_fields.tuning())


class Tuning(_Tuning):  # type: ignore[misc, valid-type]
    """Settings of the policy that few users need. The default of the GPU's node agent applies to an absent field."""

    linger: Linger | None = None
    """ The time for which hp still counts as busy after its work has completed. Policies orion, gate. Default: 50us to
    2ms. """


class GPUShareSpec(Model):
    """How the pods that this share governs use their GPUs."""

    priority: Annotated[
        Priority, Immutable("pods hold slots of that priority; create another GPUShare and start the pods again")
    ]
    """ hp (high priority): the latency of the pods matters, and their work goes first. be (best effort): their
    throughput matters, and they get the GPU time that hp leaves. The annotation orion/priority of the pods must have
    the same value. Required; it cannot be changed. """

    selector: LabelSelector | None = None
    """ Selects the pods of the namespace that this share governs, by their labels. An empty selector selects all pods.
    The webhook rejects a pod that two shares select. Default: the share governs only pods that name it in their
    annotation orion/share. """

    policy: PolicyName | None = None
    """ The policy by which the GPUs of these pods are shared; priority hp only. orion: be waits while hp is busy,
    except for the overlap that maxSlowdown allows. gate: be always waits while hp is busy. none: be does not wait for
    hp; requests and limits hold. Default: orion. """

    max_slowdown: Slowdown | None = None
    """ The slowdown of hp's work that the owner accepts so that be may run at the same time, relative to a GPU that
    only hp uses. Priority hp and policy orion only; it takes effect in mode mps only. Unit: a factor such as 1.3, in
    steps of a thousandth. Default: 1, no overlap. """

    compute: Compute | None = None
    """ The GPU time of each slot. Default: hp is sure of all of it, be of none; neither is limited. """

    memory: DeviceMemory | None = None
    """ The device memory of each slot. Default: not limited. """

    devices: Devices | None = None
    """ Which GPUs the pods may use, in clusters that give GPUs by ResourceClaims. Default: any. """

    sm_share: PartOfGPU | None = None
    """ The fraction of the GPU's SMs that a slot may use; mode mps only. The grant records the value, but no policy of
    this version limits the SMs of a slot. Unit: a part such as 0.5, in steps of a thousandth. Default: all. """

    slo: Objective | None = None
    """ A latency objective, for documentation only; priority hp only. Default: none. """

    fail_closed: StrictBool = False
    """ If true, a pod must not use its GPU without the hook: the pod does not start until the hook and the node agent
    are available, and the operator evicts a pod that has a process on a GPU without the hook. At a pod's first start on
    a node without an agent, onNoAgent of the node's configuration decides instead. If false, such a pod runs unmanaged,
    and the condition HookInjected reports it. Default: false. """

    tuning: Tuning | None = None
    """ Detailed settings of the policy; priority hp only. Default: the settings of the node agents. """

    rules = SPEC


class GPUShare(Model):
    """How a set of pods shares GPUs."""

    api_version: Literal["orion.gpu/v1alpha1"] = "orion.gpu/v1alpha1"
    kind: Literal["GPUShare"] = "GPUShare"
    metadata: Metadata
    spec: GPUShareSpec
    status: GPUShareStatus | None = None


KIND = Kind(
    GPUShare,
    plural="gpushares",
    singular="gpushare",
    short=("gs", "gshare"),
    scope="Namespaced",
    columns=(
        Column("Priority", ".spec.priority", "string", "The priority of the pods: hp or be."),
        Column("Policy", ".spec.policy", "string", "The policy of the GPUs of hp pods; empty: orion.", wide=True),
        Column("Slowdown", ".spec.maxSlowdown", "number", "The accepted slowdown of hp's work, a factor.", wide=True),
        Column("Memory", ".spec.memory.limit", "string", "The device memory of each slot."),
        Column("Pods", ".status.pods.governed", "integer", "The number of pods that this share governs."),
        Column("Parked", ".status.pods.parked", "integer", "The number of them that have left the GPU.", wide=True),
        Column("Clients", ".status.clientCounts.total", "integer", "The number of their processes that use slots."),
        condition_column("Ready", "Whether all governed pods have the grant of this share."),
        condition_column("Ready", "The reason of the condition Ready.", reason=True),
        condition_column("HookInjected", "Whether all of their processes on GPUs use the hook.", wide=True),
        AGE,
    ),
)
