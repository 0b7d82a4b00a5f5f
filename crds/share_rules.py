"""Rules between the fields of a GPUShare; each error names the field and says what to do."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from orion.crds.decimals import Number
from orion.crds.durations import Duration
from orion.crds.policy import Oversubscribe, PolicyName, Priority
from orion.crds.quantities import Memory
from orion.crds.rules import Rule
from orion.hook.policy_table import HP_REQUEST_LEAST, RELEASE

if TYPE_CHECKING:
    from orion.crds.share import GPUShareSpec


def _ordered(what: str, low: str, high: str, kind: type[Duration] | type[Number] | type[Memory], advice: str) -> Rule:
    """Return the rule that one member is not above another. It applies if both members are present and well-formed.

    A malformed value has its own error. If the rule also applied to it, the API server would also report that it cannot
    evaluate the rule.
    """
    formed = (kind.cel_valid(f"self.{low}"), kind.cel_valid(f"self.{high}"))
    both = " && ".join(filter(None, (f"has(self.{low})", f"has(self.{high})", *formed)))
    compared = kind.cel_compare(kind.cel(f"self.{low}"), "<=", kind.cel(f"self.{high}"))

    def holds(model: Any) -> bool:
        least, most = getattr(model, low), getattr(model, high)
        return least is None or most is None or least.value <= most.value

    message = f"{what}.{low} must not be above {what}.{high}: {advice}"
    return Rule(f"!({both}) || {compared}", message, low, holds)


COMPUTE = (_ordered("spec.compute", "request", "limit", Number, "lower the request or raise the limit"),)
LINGER = (_ordered("spec.tuning.linger", "floor", "ceiling", Duration, "the defaults are 50us and 2ms"),)


def _camel(name: str) -> str:
    head, *rest = name.split("_")
    return head + "".join(part.capitalize() for part in rest)


def _only_for(priority: Priority, names: Sequence[str], why: str) -> list[Rule]:
    """Return one rule for each field that only one priority may have."""

    def rule(name: str) -> Rule:
        field = ".".join(_camel(part) for part in name.split("."))
        message = f"spec.{field} is for priority {priority} only: {why}; remove spec.{field}"

        def holds(spec: "GPUShareSpec") -> bool:
            return spec.priority is priority or member(spec, field) is None

        return Rule(f"self.priority == '{priority}' || {_absent(field)}", message, field, holds)

    return [rule(name) for name in names]


def _needs_policy(path: str, policies: Sequence[PolicyName], default: bool) -> Rule:
    """Return the rule that a field is allowed only with policies that use it.

    Args:
        path: the field's path in the spec, such as "tuning.window".
        policies: the policies that use the field.
        default: whether the default policy is one of them.
    """
    names = ", ".join(f"'{policy}'" for policy in policies)
    fits = f"(has(self.policy) ? self.policy in [{names}] : {str(default).lower()})"
    words = " or ".join(filter(None, (", ".join(policies[:-1]), policies[-1])))

    def holds(spec: "GPUShareSpec") -> bool:
        value = member(spec, path)
        return value is None or (default if spec.policy is None else spec.policy in policies)

    message = f"spec.{path} needs the policy {words}: set spec.policy to it, or remove spec.{path}"
    return Rule(f"{_absent(path)} || {fits}", message, path, holds)


def _absent(path: str) -> str:
    """Return the CEL expression that is true if a field of the spec is not set, such as "tuning.window"."""
    parts = path.split(".")
    has = [f"has(self.{'.'.join(parts[: end + 1])})" for end in range(len(parts))]
    return f"!({' && '.join(has)})" if len(has) > 1 else f"!{has[0]}"


def member(model: Any, path: str) -> Any:
    """Return the value at a path such as "tuning.window"; None: it is not set."""
    for field in path.split("."):
        model = model and _member(model, field)
    return model


def _member(model: Any, field: str) -> Any:
    name = next(name for name, info in type(model).model_fields.items() if info.alias == field)
    return getattr(model, name)


def _budget_is_possible(spec: "GPUShareSpec") -> bool:
    if spec.max_slowdown is None or spec.tuning is None or spec.tuning.sharing_cost is None:
        return True
    return spec.max_slowdown.value == 1 or spec.max_slowdown.value >= spec.tuning.sharing_cost.value


_BUDGET = Rule(
    "!(has(self.maxSlowdown) && has(self.tuning) && has(self.tuning.sharingCost)) || self.maxSlowdown == 1.0 || "
    "self.maxSlowdown >= self.tuning.sharingCost",
    "spec.maxSlowdown must be 1 or at least spec.tuning.sharingCost: sharing a context already slows hp down by that "
    "factor, so a smaller budget is impossible; raise spec.maxSlowdown",
    "maxSlowdown",
    _budget_is_possible,
)


def _hp_request_is_possible(spec: "GPUShareSpec") -> bool:
    request = member(spec, "compute.request")
    return spec.priority is Priority.BE or request is None or request.value >= HP_REQUEST_LEAST


_HP_REQUEST = Rule(
    "self.priority == 'be' || !(has(self.compute) && has(self.compute.request)) || "
    f"self.compute.request >= {HP_REQUEST_LEAST}",
    f"spec.compute.request of priority hp is at least {HP_REQUEST_LEAST}: be is sure of the rest, so a lower request "
    "would put be first; raise spec.compute.request, or set spec.priority to be",
    "compute.request",
    _hp_request_is_possible,
)


def _needs_park(field: str, why: str = "") -> Rule:
    """Return the rule that a switch of spec.memory is of use only to pods that park."""
    return Rule(
        f"!has(self.{field}) || !self.{field} || {PARKS}",
        f"spec.memory.{field} needs spec.memory.oversubscribe park{why}: set spec.memory.oversubscribe to park, or "
        f"remove spec.memory.{field}",
        field,
        lambda memory: not member(memory, field) or memory.oversubscribe is Oversubscribe.PARK,
    )


PARKS = "(has(self.oversubscribe) && self.oversubscribe == 'park')"
UNIFIED = "(has(self.oversubscribe) && self.oversubscribe == 'unified')"
MEMORY = (
    _ordered("spec.memory", "request", "limit", Memory, "lower the request or raise the limit"),
    Rule(
        f"!{PARKS} || has(self.limit)",
        "spec.memory.oversubscribe park needs spec.memory.limit, which says how much a slot may have to move to the "
        "host memory of its pod: set spec.memory.limit",
        "oversubscribe",
        lambda memory: memory.oversubscribe is not Oversubscribe.PARK or memory.limit is not None,
    ),
    Rule(
        f"!{UNIFIED} || has(self.limit)",
        "spec.memory.oversubscribe unified needs spec.memory.limit, because the GPU does not bound memory that moves: "
        "set spec.memory.limit",
        "oversubscribe",
        lambda memory: memory.oversubscribe is not Oversubscribe.UNIFIED or memory.limit is not None,
    ),
    _needs_park("parkWithLivenessProbe"),
    _needs_park("evictUnparked", ", because no other pod is asked to leave the GPU"),
)


def borrows_for_good(spec: "GPUShareSpec") -> bool:
    """Return whether a be slot could have more memory than its request without ever giving it back."""
    memory = spec.memory
    gives_back = memory is not None and memory.oversubscribe in (Oversubscribe.PARK, Oversubscribe.UNIFIED)
    if spec.priority is not Priority.BE or memory is None or gives_back:
        return False
    return memory.request is not None and memory.limit is not None and memory.request.value < memory.limit.value


def _borrowing() -> Rule:
    """Return the rule that a be slot gives back what it borrows. Shares that were stored before it stay readable."""
    request, limit = "self.memory.request", "self.memory.limit"
    formed = f"{Memory.cel_valid(request)} && {Memory.cel_valid(limit)}"
    both = f"has(self.memory) && has({request}) && has({limit}) && {formed}"
    less = Memory.cel_compare(Memory.cel(request), "<", Memory.cel(limit))
    gives_back = "(has(self.memory.oversubscribe) && self.memory.oversubscribe in ['park', 'unified'])"
    return Rule(
        f"self.priority != 'be' || !({both}) || {gives_back} || !({less})",
        BORROWS_FOR_GOOD,
        "memory.request",
        lambda spec: not borrows_for_good(spec),
        spares_stored=True,
    )


BORROWS_FOR_GOOD = (
    "spec.memory.request of priority be is under spec.memory.limit, but nothing says how a slot gives back what it "
    "borrows: set spec.memory.oversubscribe to park or unified, or set request and limit to the same amount"
)


def _rules_of_policy_fields() -> list[Rule]:
    """Return one rule for each field of the policy table; the two fields of `tuning.linger` share one rule."""
    users = {".".join(row.share.split(".")[:2]): row.policies for row in RELEASE.rows if row.share}
    return [
        _needs_policy(path, [PolicyName(policy) for policy in policies], RELEASE.names[0] in policies)
        for path, policies in users.items()
    ]


SPEC = (
    *_only_for(
        Priority.HP,
        ("policy", "max_slowdown", "tuning"),
        "the hp pod of a GPU decides how it is shared",
    ),
    *_only_for(Priority.HP, ("slo",), "a be pod waits for hp, so it cannot have a latency objective"),
    *_only_for(
        Priority.BE,
        ("memory.oversubscribe", "memory.park_with_liveness_probe", "memory.evict_unparked"),
        "hp never leaves the GPU's memory; be does, where its own share says so",
    ),
    *_only_for(
        Priority.HP,
        ("memory.wait",),
        "nobody makes room for be, whose allocation fails at once where the GPU is full",
    ),
    _borrowing(),
    _HP_REQUEST,
    *_rules_of_policy_fields(),
    _BUDGET,
)
