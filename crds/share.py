"""GPUShare: how a set of pods shares GPUs, as people write it (share_status.py: what is said of it).

Flat where every user looks (priority, maxSlowdown, memory), nested in `tuning` where few do. What only one priority
can use has no default in the schema: a default that appears on every object could not be told from a wish, and rules
such as "weight is for be" could not be stated. Each such description says what holds where nothing is set.

Refused: a policy on best-effort shares. The hp pod's share decides how its GPU is shared, and a wish that nobody
carries out is worse than a refusal.
"""

from typing import Annotated, Literal

from pydantic import StrictBool, create_model

from orion.crds import policy_fields
from orion.crds.bounds import Between
from orion.crds.decimals import Number
from orion.crds.durations import Duration
from orion.crds.kinds import AGE, Column, Kind, condition_column
from orion.crds.metadata import Metadata
from orion.crds.model import Model
from orion.crds.policy import PolicyName, Priority
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
    """GPU time of a slot, as a part of the GPU's time: 1 is a whole GPU, 0.5 half of one."""

    request: PartOfGPU | None = None
    """ What the slot is to get where it asks for it. Unit: GPUs. Default: nothing is promised.
    Recorded in the grant; no policy of this version promises time. """

    limit: PartOfGPU | None = None
    """ What the slot gets at most. Unit: GPUs. Default: no limit.
    Recorded in the grant; no policy of this version limits time. """

    rules = COMPUTE


class DeviceMemory(Model):
    """Device memory of a slot."""

    request: MemoryAmount | None = None
    """ What is counted as taken on the GPU when pods are placed. Unit: bytes. Default: the limit. """

    limit: MemoryAmount | None = None
    """ What each process of the slot may allocate; an allocation beyond it fails as on a full GPU. Unit: bytes.
    Default: no limit. A limit that is lowered frees nothing that is already allocated. """

    rules = MEMORY


class Objective(Model):
    """What the owner of hp pods promises to others. Recorded; this version neither reports nor enforces it."""

    latency: Annotated[Duration, _time("10us", "1h", "20ms")]
    """ What a request, iteration or token of the pod may take on the GPU. Unit: a duration such as 20ms. Required. """

    percentile: Annotated[Number, _number(50, 99.999, "99.9")] = Number(99)
    """ The share of requests for which that holds, in percent. Default: 99. """


class Linger(Model):
    """How long a drained hp still counts as busy; learnt from its own gaps, between these two."""

    floor: Annotated[Duration, _time("1us", "1s", "50us")] = Duration("50us")
    """ At least so long. Unit: a duration. Default: 50us. """

    ceiling: Annotated[Duration, _time("1us", "1s", "2ms")] = Duration("2ms")
    """ And at most so long; the longer, the rather be waits for the next request. Unit: a duration. Default: 2ms. """

    rules = LINGER


_Tuning = create_model("_Tuning", __base__=Model, **policy_fields.tuning())


class Tuning(_Tuning):  # type: ignore[misc, valid-type]
    """What few people need to set. Where a field is absent, the default of the GPU's node agent holds."""

    linger: Linger | None = None
    """ How long a drained hp still counts as busy. Policies orion, gate. Default: 50us to 2ms. """


class GPUShareSpec(Model):
    """How the pods that this share governs use their GPUs."""

    priority: Annotated[
        Priority, Immutable("pods hold slots of that kind; make another GPUShare and start the pods again")
    ]
    """ hp: latency matters; the pod finds a GPU that feels its own. be: throughput matters; the pod gets the time that
    hp leaves. Pods say the same in their annotation orion/priority. Required; it cannot be changed. """

    selector: LabelSelector | None = None
    """ Which pods of the namespace this share governs, by their labels; an empty selector means all of them. A pod that
    two shares select is refused. Default: only pods that name the share in their annotation orion/share. """

    policy: PolicyName | None = None
    """ How the GPUs of these pods are shared; priority hp only. orion: be waits while hp is busy, but for what
    maxSlowdown allows. gate: be always waits for hp. none: nobody waits. Default: orion. """

    max_slowdown: Slowdown | None = None
    """ How much longer hp's work may take than on a GPU of its own, so that be may run beside it; priority hp and
    policy orion only; it takes effect in mode mps. Unit: a factor such as 1.3, in steps of a thousandth. Default: 1,
    no overlap. """

    minimum_share: Annotated[Number, _number(0, 0.5, "0.1")] | None = None
    """ The share of the time for which be runs, however busy hp is; priority hp and policies orion and gate only.
    Unit: a part of the time such as 0.1, in steps of a thousandth. Default: 0, no floor. """

    compute: Compute | None = None
    """ GPU time of each slot. Default: neither promised nor limited. """

    memory: DeviceMemory | None = None
    """ Device memory of each slot. Default: not limited. """

    sm_share: PartOfGPU | None = None
    """ The part of the GPU's SMs that a slot may use; mode mps only. Unit: a part such as 0.5, in steps of a
    thousandth. Default: all. Recorded in the grant; no policy of this version partitions by slot. """

    weight: Annotated[Number, _number(0.01, 100, "2")] | None = None
    """ What a slot gets of the time that hp leaves, in proportion to the other be slots of the GPU; priority be only.
    Unit: none; twice the weight is twice the time. Default: 1. """

    slo: Objective | None = None
    """ The latency that hp promises to its own users; priority hp only. Default: none. """

    fail_closed: StrictBool = False
    """ Whether a pod must not use its GPU without the hook: it does not start until hook and node agent are there,
    and is evicted where it is seen on a GPU without. Default: false: such a pod runs unmanaged, and a condition says
    so. """

    tuning: Tuning | None = None
    """ How the policy works in detail; priority hp only. Default: as the node agents are set. """

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
        Column("Priority", ".spec.priority", "string", "hp or be."),
        Column("Policy", ".spec.policy", "string", "How the GPUs of hp pods are shared; empty: orion.", wide=True),
        Column("Slowdown", ".spec.maxSlowdown", "number", "How much longer hp's work may take than alone.", wide=True),
        Column("Memory", ".spec.memory.limit", "string", "Device memory that each process may allocate."),
        Column("Pods", ".status.pods.governed", "integer", "Pods that this share governs."),
        Column("Clients", ".status.clientCounts.total", "integer", "Processes of them that the hook has joined."),
        condition_column("Ready", "Whether the pods have what the share says."),
        condition_column("Ready", "Why it is ready or not.", reason=True),
        condition_column("HookInjected", "Whether all processes are under the hook.", wide=True),
        AGE,
    ),
)
