"""Which tenants keep room that others need although they should have left: a pure function of a `View`.

Such a tenant would be asked to leave now, besides those that do leave, if it had not refused. What a tenant needs
itself does not count, nor what it may come to need.
"""

from collections.abc import Collection
from dataclasses import replace

from orion.node_agent.parking.deciding import decide
from orion.node_agent.parking.view import Place, Tenant, View, Wishes


def who_keep_room(
    view: View,
    wishes: Wishes,
    refusing: Collection[str],
    keeping: Collection[str] = (),
    staying: Collection[str] = (),
) -> set[str]:
    """Return who keeps room.

    Args:
        view: what was decided upon.
        wishes: the decision.
        refusing: the tenants that would not leave.
        keeping: those of them that kept room before. If they suffice, no other one does: each may be evicted.
        staying: those of them that nobody may evict. They keep room only if those that may be evicted do not suffice.
    """
    again = _asked(view, wishes, set(keeping) - set(staying))
    wishes = replace(wishes, leave=(*wishes.leave, *again))
    more = _asked(view, wishes, set(refusing) - set(staying) - again)
    wishes = replace(wishes, leave=(*wishes.leave, *more))
    return again | more | (_asked(view, wishes, set(refusing) - again - more) & set(staying))


def _asked(view: View, wishes: Wishes, refusing: Collection[str]) -> set[str]:
    """Return who would be asked to leave besides those that do, if these had not refused."""
    if not refusing:
        return set()
    tenants = tuple(_as_if(each, wishes, each.name in refusing) for each in view.tenants)
    wished = {each.name for each in view.tenants if each.is_wished_away}
    return set(decide(replace(view, tenants=tenants)).leave) & set(refusing) - wished


def _as_if(tenant: Tenant, wishes: Wishes, refuses: bool) -> Tenant:
    if tenant.name in wishes.leave:
        return replace(tenant, place=Place.LEAVING)
    if tenant.name in wishes.back:
        return replace(tenant, place=Place.RETURNING, coming=tenant.held)
    if not refuses:
        return tenant
    held = {gpu: tenant.frees(gpu) for gpu in tenant.held}
    return replace(tenant, refused_until=float("-inf"), held=held, lacks={}, wants={}, is_new=False)
