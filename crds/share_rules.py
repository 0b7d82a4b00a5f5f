"""What must hold between the fields of a GPUShare, each sentence naming the field and saying what to do."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from orion.crds.durations import Duration
from orion.crds.policy import PolicyName, Priority
from orion.crds.quantities import Quantity
from orion.crds.rules import Rule

if TYPE_CHECKING:
    from orion.crds.share import GPUShareSpec


def _ordered(what: str, low: str, high: str, kind: type[Duration] | type[Quantity], advice: str) -> Rule:
    """Return the rule that one member is not above another, where both are there and well-formed.

    A malformed one has its own sentence; without the guard the API server would add that it cannot evaluate this one.
    """
    both = f"has(self.{low}) && has(self.{high})"
    formed = f"{kind.cel_valid(f'self.{low}')} && {kind.cel_valid(f'self.{high}')}"
    compared = kind.cel_compare(kind.cel(f"self.{low}"), "<=", kind.cel(f"self.{high}"))

    def holds(model: Any) -> bool:
        least, most = getattr(model, low), getattr(model, high)
        return least is None or most is None or least.value <= most.value

    message = f"{what}.{low} must not be above {what}.{high}: {advice}"
    return Rule(f"!({both} && {formed}) || {compared}", message, low, holds)


COMPUTE = (_ordered("spec.compute", "request", "limit", Quantity, "lower the request or raise the limit"),)
MEMORY = (_ordered("spec.memory", "request", "limit", Quantity, "lower the request or raise the limit"),)
LINGER = (_ordered("spec.tuning.linger", "floor", "ceiling", Duration, "the defaults are 50us and 2ms"),)


def _camel(name: str) -> str:
    head, *rest = name.split("_")
    return head + "".join(part.capitalize() for part in rest)


def _only_for(priority: Priority, names: Sequence[str], why: str) -> list[Rule]:
    """Return a rule for each field that only one priority may have."""

    def rule(name: str) -> Rule:
        field = _camel(name)
        message = f"spec.{field} is for priority {priority} only: {why}; remove spec.{field}"

        def holds(spec: "GPUShareSpec") -> bool:
            return spec.priority is priority or getattr(spec, name) is None

        return Rule(f"self.priority == '{priority}' || !has(self.{field})", message, field, holds)

    return [rule(name) for name in names]


def _needs_policy(path: str, policies: Sequence[PolicyName], default: bool) -> Rule:
    """Return the rule that a field is there only under policies that heed it.

    Args:
        path: as in the spec, such as "tuning.reefDepth".
        policies: those that heed it.
        default: whether one of them holds where no policy is named.
    """
    parts = path.split(".")
    there = " && ".join(f"has(self.{'.'.join(parts[: end + 1])})" for end in range(len(parts)))
    names = ", ".join(f"'{policy}'" for policy in policies)
    fits = f"(has(self.policy) ? self.policy in [{names}] : {str(default).lower()})"
    words = " or ".join(filter(None, (", ".join(policies[:-1]), policies[-1])))

    def holds(spec: "GPUShareSpec") -> bool:
        value: Any = spec
        for part in parts:
            value = value and _member(value, part)
        return value is None or (default if spec.policy is None else spec.policy in policies)

    message = f"spec.{path} needs the policy {words}: set spec.policy to it, or remove spec.{path}"
    return Rule(f"!({there}) || {fits}", message, path, holds)


def _member(model: Any, field: str) -> Any:
    name = next(name for name, info in type(model).model_fields.items() if info.alias == field)
    return getattr(model, name)


def _keeps_budget(spec: "GPUShareSpec") -> bool:
    if spec.max_slowdown is None or spec.tuning is None or spec.tuning.sharing_cost is None:
        return True
    return spec.max_slowdown.value == 1 or spec.max_slowdown.value >= spec.tuning.sharing_cost.value


_BUDGET_NAME, _COST_NAME = "self.maxSlowdown", "self.tuning.sharingCost"
_BUDGET_VALUE, _COST_VALUE = Quantity.cel(_BUDGET_NAME), Quantity.cel(_COST_NAME)
_BUDGET = Rule(
    f"!(has({_BUDGET_NAME}) && has(self.tuning) && has({_COST_NAME}) && {Quantity.cel_valid(_BUDGET_NAME)} && "
    f"{Quantity.cel_valid(_COST_NAME)}) || "
    f"{Quantity.cel_compare(_BUDGET_VALUE, '==', Quantity('1').cel_literal)} || "
    f"{Quantity.cel_compare(_BUDGET_VALUE, '>=', _COST_VALUE)}",
    "spec.maxSlowdown must be 1 or at least spec.tuning.sharingCost: sharing a context alone costs hp that much, so a "
    "smaller budget cannot be kept; raise spec.maxSlowdown",
    "maxSlowdown",
    _keeps_budget,
)

_OVERLAPS = (PolicyName.ORION,)
_GATES = (PolicyName.ORION, PolicyName.GATE)

SPEC = (
    *_only_for(
        Priority.HP,
        ("policy", "max_slowdown", "minimum_share", "tuning"),
        "the hp pod of a GPU decides how it is shared",
    ),
    *_only_for(Priority.HP, ("slo",), "a be pod gets what hp leaves, and can promise no latency"),
    *_only_for(Priority.BE, ("weight",), "it shares out among be pods the time that hp leaves"),
    _needs_policy("maxSlowdown", _OVERLAPS, default=True),
    _needs_policy("minimumShare", _GATES, default=True),
    _needs_policy("tuning.window", (*_GATES, PolicyName.ORION_2024), default=True),
    _needs_policy("tuning.linger", _GATES, default=True),
    _needs_policy("tuning.sharingCost", _OVERLAPS, default=True),
    _needs_policy("tuning.overlapSMs", _OVERLAPS, default=True),
    _needs_policy("tuning.longKernel", _OVERLAPS, default=True),
    _needs_policy("tuning.reefDepth", (PolicyName.REEF,), default=False),
    _needs_policy("tuning.orion2024SMs", (PolicyName.ORION_2024,), default=False),
    _needs_policy("tuning.orion2024Duration", (PolicyName.ORION_2024,), default=False),
    _BUDGET,
)
