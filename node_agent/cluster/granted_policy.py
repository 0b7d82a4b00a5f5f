"""A share's policy, as a grant has it, laid over the node's default, as the policy page has it.

Operator and API have checked the figures. A page is read by every launch of every client, so what could not be in
it is brought into its bounds here again, whoever wrote the annotation.
"""

from dataclasses import replace

from orion.crds.grant import GrantedPolicy
from orion.node_agent import pages
from orion.node_agent.settings import MINIMUM_SHARE_MAX, POLICY_KINDS, SLOWDOWN_MAX, milli

_US = 1_000
_WINDOW_US = (50, 1_000_000)
_LINGER_US = (1, 1_000_000)
_RATIO_MILLI = (1_000, milli(SLOWDOWN_MAX))


def as_page(granted: GrantedPolicy, default: pages.Policy) -> pages.Policy:
    """Return a share's policy; what the share does not say is as in the default."""
    floor = _nanoseconds(granted.linger_floor_us, default.linger_floor_ns, _LINGER_US)
    ceiling = _nanoseconds(granted.linger_ceiling_us, default.linger_ceiling_ns, _LINGER_US)
    return replace(
        default,
        kind=POLICY_KINDS[granted.policy.value],
        window_ns=_nanoseconds(granted.window_us, default.window_ns, _WINDOW_US),
        # One of them may be the share's and the other the default's.
        linger_floor_ns=min(floor, ceiling) if granted.linger_floor_us is None else floor,
        linger_ceiling_ns=ceiling if granted.linger_floor_us is None else max(floor, ceiling),
        max_slowdown_milli=_bounded(granted.max_slowdown_milli, default.max_slowdown_milli, _RATIO_MILLI),
        sharing_cost_milli=_bounded(granted.sharing_cost_milli, default.sharing_cost_milli, _RATIO_MILLI),
        minimum_share_milli=_bounded(
            granted.minimum_share_milli, default.minimum_share_milli, (0, milli(MINIMUM_SHARE_MAX))
        ),
        overlap_sms=_bounded(granted.overlap_sms, default.overlap_sms),
        long_kernel_ns=_nanoseconds(granted.long_kernel_us, default.long_kernel_ns),
        reef_depth=_bounded(granted.reef_depth, default.reef_depth),
        orion_2024_sms=_bounded(granted.orion_2024_sms, default.orion_2024_sms),
        orion_2024_duration_ns=_nanoseconds(granted.orion_2024_duration_us, default.orion_2024_duration_ns),
    )


def _bounded(value: int | None, default: int, bounds: tuple[int, int] | None = None) -> int:
    """Return a value within its bounds; where none are given, the grant's model has the page's."""
    if value is None:
        return default
    return value if bounds is None else min(max(value, bounds[0]), bounds[1])


def _nanoseconds(us: int | None, default_ns: int, bounds: tuple[int, int] | None = None) -> int:
    return default_ns if us is None else _bounded(us, 0, bounds) * _US
