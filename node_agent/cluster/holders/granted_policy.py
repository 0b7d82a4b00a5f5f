"""A share's policy, as a grant has it, laid over the node's default, as the policy page has it.

Operator and API have checked the figures. A page is read by every launch of every client, so what could not be in
it is brought into its bounds here again, whoever wrote the annotation.
"""

from orion.crds.grant import GrantedPolicy
from orion.hook.policy_table import RELEASE, Row, Unit
from orion.node_agent.pages.policy_words import Policy


def as_page(granted: GrantedPolicy, default: Policy) -> Policy:
    """Return a share's policy; what the share does not say is as in the default."""
    said = {row.word: word for row in RELEASE.rows if (word := _word(row, granted)) is not None}
    policy = default.changed(RELEASE.number(granted.policy.value), said)
    floor, ceiling = policy.linger_floor_ns, policy.linger_ceiling_ns
    if floor <= ceiling:
        return policy
    # One of them may be the share's and the other the default's.
    of_share = "linger_floor_ns" in said
    return policy.changed(words={"linger_ceiling_ns": floor} if of_share else {"linger_floor_ns": ceiling})


def _word(row: Row, granted: GrantedPolicy) -> int | None:
    """Return a field as the page has it, within its bounds; None: the grant does not say it."""
    value = getattr(granted, row.granted, None)
    if value is None:
        return None
    return row.within(value if row.unit is Unit.RATIO else row.to_page(value))
