"""Questions about a GPU's policy: does it gate be, does it grant overlap, and can its budget be kept."""

from collections.abc import Iterable

from orion.hook import layout
from orion.node_agent.pages.policy_words import Policy
from orion.node_agent.slots.slot import Slot


def takes_turns(policy: Policy, slots: Iterable[Slot]) -> bool:
    """Return whether be slots wait for each other. Under the policy none they do if one has a request or a limit."""
    if policy.kind == layout.PolicyKind.NONE:
        return any(slot.grant.request_milli or slot.grant.limit_milli for slot in slots if slot.role is layout.Role.BE)
    return gates(policy)


def gates(policy: Policy) -> bool:
    """Return whether be waits for hp under the policy."""
    return policy.kind in (layout.PolicyKind.GATE, layout.PolicyKind.ORION)


def grants_overlap(policy: Policy) -> bool:
    """Return whether the policy lets be run beside hp."""
    return policy.kind == layout.PolicyKind.ORION and policy.max_slowdown_milli > 1_000


def unkept(policy: Policy) -> str:
    """Return why a policy's budget cannot be kept while clients share contexts (MPS); empty: it can be kept."""
    if not grants_overlap(policy) or policy.max_slowdown_milli >= policy.sharing_cost_milli:
        return ""
    cost = policy.sharing_cost_milli / 1_000
    return (
        f"maxSlowdown {policy.max_slowdown_milli / 1_000:g} is less than the slowdown that sharing a context "
        f"(MPS) by itself causes this hp: {cost:g}; ask for at least {cost:g}, or use the mode timeslice"
    )
