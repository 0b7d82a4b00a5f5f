"""What must hold between the fields of a GPUShare, each sentence naming the field and saying what to do."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from orion.crds.decimals import Number
from orion.crds.durations import Duration
from orion.crds.policy import PolicyName, Priority
from orion.crds.quantities import Memory
from orion.crds.rules import Rule
from orion.hook.policy_table import RELEASE

if TYPE_CHECKING:
    from orion.crds.share import GPUShareSpec


def _ordered(what: str, low: str, high: str, kind: type[Duration] | type[Number] | type[Memory], advice: str) -> Rule:
    """Return the rule that one member is not above another, where both are there and well-formed.

    A malformed one has its own sentence; without the guard the API server would add that it cannot evaluate this one.
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
MEMORY = (_ordered("spec.memory", "request", "limit", Memory, "lower the request or raise the limit"),)
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
        path: as in the spec, such as "tuning.window".
        policies: those that heed it.
        default: whether one of them holds where no policy is named.
    """
    parts = path.split(".")
    there = " && ".join(f"has(self.{'.'.join(parts[: end + 1])})" for end in range(len(parts)))
    names = ", ".join(f"'{policy}'" for policy in policies)
    fits = f"(has(self.policy) ? self.policy in [{names}] : {str(default).lower()})"
    words = " or ".join(filter(None, (", ".join(policies[:-1]), policies[-1])))

    def holds(spec: "GPUShareSpec") -> bool:
        value = member(spec, path)
        return value is None or (default if spec.policy is None else spec.policy in policies)

    message = f"spec.{path} needs the policy {words}: set spec.policy to it, or remove spec.{path}"
    return Rule(f"!({there}) || {fits}", message, path, holds)


def member(model: Any, path: str) -> Any:
    """Return what stands at a path such as "tuning.window"; None: nothing."""
    for field in path.split("."):
        model = model and _member(model, field)
    return model


def _member(model: Any, field: str) -> Any:
    name = next(name for name, info in type(model).model_fields.items() if info.alias == field)
    return getattr(model, name)


def _keeps_budget(spec: "GPUShareSpec") -> bool:
    if spec.max_slowdown is None or spec.tuning is None or spec.tuning.sharing_cost is None:
        return True
    return spec.max_slowdown.value == 1 or spec.max_slowdown.value >= spec.tuning.sharing_cost.value


_BUDGET = Rule(
    "!(has(self.maxSlowdown) && has(self.tuning) && has(self.tuning.sharingCost)) || self.maxSlowdown == 1.0 || "
    "self.maxSlowdown >= self.tuning.sharingCost",
    "spec.maxSlowdown must be 1 or at least spec.tuning.sharingCost: sharing a context alone costs hp that much, so a "
    "smaller budget cannot be kept; raise spec.maxSlowdown",
    "maxSlowdown",
    _keeps_budget,
)


def _policies_that_heed() -> list[Rule]:
    """Return a rule for each field of the policy; the two of `tuning.linger` stand or fall together."""
    heed = {".".join(row.share.split(".")[:2]): row.policies for row in RELEASE.rows if row.share}
    return [
        _needs_policy(path, [PolicyName(policy) for policy in policies], RELEASE.names[0] in policies)
        for path, policies in heed.items()
    ]


SPEC = (
    *_only_for(
        Priority.HP,
        ("policy", "max_slowdown", "minimum_share", "tuning"),
        "the hp pod of a GPU decides how it is shared",
    ),
    *_only_for(Priority.HP, ("slo",), "a be pod gets what hp leaves, and can promise no latency"),
    *_only_for(Priority.BE, ("weight",), "it shares out among be pods the time that hp leaves"),
    *_policies_that_heed(),
    _BUDGET,
)
