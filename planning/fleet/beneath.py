"""Which services let best-effort work run beneath them.

Work beneath a service delays the first request of a busy period by a switch. So a service with a tight objective may
need more GPUs with work beneath it than without, or may not hold its objective at all. Refused: all combinations of
services. Three choices are tried: as many services as can, those that need no GPU more for it, and none.
"""

from collections.abc import Callable
from dataclasses import replace

from .fleets import Fleet, Service
from .layout import fewest
from .waiting import highest_rate


def choices(fleet: Fleet) -> list[Fleet]:
    """Return the fleet with each choice of services that let best-effort work run beneath them, the most first.

    Args:
        fleet: every service must hold its objective on GPUs of its own.
    """
    found: list[Fleet] = []
    for is_fit in (_can, _needs_no_more, _never):
        chosen = _with(fleet, is_fit)
        if chosen not in found:
            found.append(chosen)
    return found


def _with(fleet: Fleet, is_fit: Callable[[Service, float], bool]) -> Fleet:
    late_s = fleet.late_s
    services = (replace(each, has_be=not late_s or is_fit(each, late_s)) for each in fleet.services)
    return replace(fleet, services=tuple(services))


def _can(service: Service, late_s: float) -> bool:
    return not service.peak or highest_rate(service.service_s, service.objective_s, late_s) > 0


def _needs_no_more(service: Service, late_s: float) -> bool:
    if not service.peak or not _can(service, late_s):
        return not service.peak
    return fewest(service, service.peak, late_s) == fewest(service, service.peak, 0.0)


def _never(service: Service, late_s: float) -> bool:
    return False
