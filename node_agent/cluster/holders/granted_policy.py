"""Computes the policy page from a share's policy in a grant and the node's default policy.

The operator and the API have checked the values. But every launch of every client reads the page, and anyone with the
right to do so can write the annotation. So this module limits the values again to what the page may contain.
"""

from orion.crds.grant import GrantedPolicy
from orion.hook.policy_table import RELEASE, Row, Unit
from orion.node_agent.pages.policy_words import Policy


def as_page(granted: GrantedPolicy, default: Policy) -> Policy:
    """Return a share's policy for the page; options that the share does not set come from the default."""
    said = {row.word: word for row in RELEASE.rows if (word := _word(row, granted)) is not None}
    policy = default.changed(RELEASE.number(granted.policy.value), said)
    floor, ceiling = policy.linger_floor_ns, policy.linger_ceiling_ns
    if floor <= ceiling:
        return policy
    # If one of the two comes from the share and the other from the default, the share's value wins.
    of_share = "linger_floor_ns" in said
    return policy.changed(words={"linger_ceiling_ns": floor} if of_share else {"linger_floor_ns": ceiling})


def _word(row: Row, granted: GrantedPolicy) -> int | None:
    """Return an option in the page's unit, limited to its bounds; None: the grant does not set it."""
    value = getattr(granted, row.granted, None)
    if value is None:
        return None
    return row.within(value if row.unit is Unit.RATIO else row.to_page(value))
