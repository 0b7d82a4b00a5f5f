"""Questions about a GPU's policy: does it gate be, does it grant overlap, and can its budget be kept."""

from orion.hook import layout
from orion.node_agent.pages.policy_words import Policy


def gates(policy: Policy) -> bool:
    """Return whether be waits for hp under this policy. Only then can be slots also wait for each other."""
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
