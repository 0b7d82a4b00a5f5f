"""Computes the policy page from a GPUShare's policy, which is in a pod's grant, and the node's default policy.

The operator and the API have checked the values. But every launch of every client reads the page, so this module limits
the values again to the bounds of the page.
"""

from orion.crds.grant import GrantedPolicy
from orion.hook.policy_table import RELEASE
from orion.node_agent.pages.policy_words import Policy


def as_page(granted: GrantedPolicy, default: Policy) -> Policy:
    """Return a GPUShare's policy for the page; options that the GPUShare does not set come from the default."""
    values = {row: getattr(granted, row.granted, None) for row in RELEASE.rows}
    words = {row.word: row.from_grant(value) for row, value in values.items() if value is not None}
    policy = default.changed(RELEASE.number(granted.policy.value), words)
    floor, ceiling = policy.linger_floor_ns, policy.linger_ceiling_ns
    if floor <= ceiling:
        return policy
    # One limit comes from the GPUShare and the other from the default: the GPUShare's value applies to both.
    of_share = "linger_floor_ns" in words
    return policy.changed(words={"linger_ceiling_ns": floor} if of_share else {"linger_floor_ns": ceiling})
