"""What an administrator asks of a GPU's policy, laid over the one that it has, and what cannot be promised."""

from dataclasses import replace
from typing import Any

from orion.hook import layout
from orion.node_agent import pages
from orion.node_agent.errors import Invalid
from orion.node_agent.requests import SetPolicyRequest
from orion.node_agent.settings import POLICY_KINDS, milli

_US = 1_000


def changed(now: pages.Policy, asked: SetPolicyRequest) -> pages.Policy:
    """Return ``now`` with what was asked for.

    Raises:
        Invalid: the linger's floor is above its ceiling.
    """
    new: dict[str, Any] = {
        "window_ns": _scaled(asked.window_us, _US),
        "linger_floor_ns": _scaled(asked.linger_floor_us, _US),
        "linger_ceiling_ns": _scaled(asked.linger_ceiling_us, _US),
        "max_slowdown_milli": None if asked.max_slowdown is None else milli(asked.max_slowdown),
        "sharing_cost_milli": None if asked.sharing_cost is None else milli(asked.sharing_cost),
        "overlap_sms": asked.overlap_sms,
        "minimum_share_milli": None if asked.minimum_share is None else milli(asked.minimum_share),
        "long_kernel_ns": _scaled(asked.long_kernel_us, _US),
        "reef_depth": asked.reef_depth,
        "orion_2024_sms": asked.orion_2024_sms,
        "orion_2024_duration_ns": _scaled(asked.orion_2024_duration_us, _US),
        "kind": None if asked.policy is None else POLICY_KINDS[asked.policy],
    }
    policy = replace(now, **{name: value for name, value in new.items() if value is not None})
    if policy.linger_floor_ns > policy.linger_ceiling_ns:
        raise Invalid("the linger's floor must not be above its ceiling")
    return policy


def _scaled(value: int | None, unit: int) -> int | None:
    return None if value is None else value * unit


def gates(policy: pages.Policy) -> bool:
    """Return whether be waits for hp under it, so that it can be made to wait for its peers too."""
    return policy.kind in (layout.PolicyKind.GATE, layout.PolicyKind.ORION)


def grants_overlap(policy: pages.Policy) -> bool:
    """Return whether hp's owner lets be run beside hp."""
    return policy.kind is layout.PolicyKind.ORION and policy.max_slowdown_milli > 1_000


def unkept(policy: pages.Policy) -> str:
    """Return why a budget cannot be kept where contexts are shared, or nothing."""
    if not grants_overlap(policy) or policy.max_slowdown_milli >= policy.sharing_cost_milli:
        return ""
    cost = policy.sharing_cost_milli / 1_000
    return (
        f"maxSlowdown {policy.max_slowdown_milli / 1_000:g} is less than what sharing a context (MPS) alone costs "
        f"this hp: {cost:g}; ask for at least {cost:g}, or use the mode timeslice"
    )
