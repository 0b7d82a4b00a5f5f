"""The planners of services by name."""

from collections.abc import Mapping

from .cases import Prepare
from .glet import planners as glet
from .orion import cases as orion

PLANNERS: Mapping[str, Prepare] = {
    "orion": orion.prepare,
    "glet": glet.glet,
    "greedy": glet.greedy,
    "temporal": glet.temporal,
    "full-search": glet.full_search,
}
