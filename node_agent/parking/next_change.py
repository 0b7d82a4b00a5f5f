"""When `deciding.decide` may ask somebody to move only because time has passed: a pure function of a `View`.

Until then a view in which nothing but times has changed needs no decision, if the last one has moved nobody.
"""

import math
from collections.abc import Iterator

from orion.node_agent.parking.view import Place, Tenant, View


def next_change(view: View) -> float:
    """Return the first such moment, in seconds; infinity: there is none.

    Args:
        view: what was decided upon, with the result that nobody moves. It must know of no lack of host memory.
    """
    if any(room.rate > 0 for room in view.cards.values()):  # the longer hp grows, the more it takes
        return view.now
    moments = [moment for each in view.tenants for moment in _moments(view, each) if moment > view.now]
    return min([*moments, *_overtakings(view)], default=math.inf)


def _moments(view: View, tenant: Tenant) -> Iterator[float]:
    if tenant.place is Place.HERE:
        yield tenant.since + view.stay_seconds(tenant)
        yield tenant.refused_until
    elif tenant.place is Place.AWAY:
        yield tenant.came + view.stay_seconds(tenant)


def _overtakings(view: View) -> Iterator[float]:
    """Yield when tenants that are here will have had more of what they are due than one that waits for their room."""
    here = [each for each in view.tenants if each.place is Place.HERE]
    for waiting in view.tenants:
        if waiting.place is Place.AWAY and waiting.takes_turns:
            for each in here:
                if each.clock <= waiting.clock and each.gpus & waiting.gpus:
                    yield view.now + each.seconds_until(waiting.clock)
