"""How much each tenant has had of what it is due, from one look to the next: the order in which tenants take turns.

A clock runs while its tenant is here and somebody waits to come back, the faster the less of the time the tenant is
due. Whoever is behind comes back first. So if one got behind by hours, the others would be away for hours in one piece:
- Who begins, or could not come back at all for a while, has had as much as the one that has had the least.
- Nobody falls further behind the next one than a few rounds, as where it has no room beside hp for long. The order
  stays: if two clocks became equal, neither of the tenants would leave for the other one.
"""

from collections.abc import Collection, Mapping

from orion.node_agent.parking.view import Place, Tenant

_ROUNDS = 3
""" A round: for how long others are here until a tenant that has stayed comes back. """
_LEAST_STAY_SECONDS = 60.0
""" A tenant stays longer than for the least time if it is quick to move: the looks are seconds apart. """


def clocks(tenants: Collection[Tenant], here: Mapping[str, float], stay_factor: float) -> dict[str, float]:
    """Return the tenants' clocks by name.

    Args:
        tenants: all that share GPUs, directly or through others.
        here: how long each was here since its clock was read, in seconds; missing: not at all.
        stay_factor: a tenant stays at least so many times as long as a change takes.
    """
    rivals = [each for each in tenants if each.takes_turns]
    runs = any(each.place is Place.AWAY for each in rivals)
    found = {each.name: each.clock_after(here.get(each.name, 0.0) if runs else 0.0) for each in tenants}
    begun = [found[each.name] for each in rivals if each.has_clock]
    for each in tenants:
        if not (each.takes_turns and each.has_clock):
            found[each.name] = max(found[each.name], min(begun, default=0.0))
    stays = (max(stay_factor * each.change_seconds, _LEAST_STAY_SECONDS) / each.part for each in rivals)
    return found | _together({each.name: found[each.name] for each in rivals}, _ROUNDS * max(stays, default=0.0))


def _together(read: Mapping[str, float], most: float) -> dict[str, float]:
    """Return clocks in the same order, of which none is further behind the next one than that."""
    found, raised = dict[str, float](), 0.0
    above = max(read.values(), default=0.0)
    for name in sorted(read, key=lambda each: -read[each]):
        raised += max(0.0, above - read[name] - most)
        above = read[name]
        found[name] = above + raised
    return found
