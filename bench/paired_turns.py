"""Computes medians, quartiles, and costs relative to a reference system. A turn measures each system once.

Clocks, temperature and other load drift from second to second, but are about the same for all systems of one turn. So
a system's cost is computed in each turn, and reported as the median and quartiles of all turns. If the quartiles
enclose "no cost", the measurement shows no cost.
"""

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass

Turn = Mapping[str, Sequence[float]]
"""Samples by system."""


@dataclass(frozen=True)
class Spread:
    """A median with its quartiles."""

    median: float
    low: float
    high: float

    def to_json(self) -> dict[str, float]:
        """Return plain types."""
        return asdict(self)


def spread(values: Sequence[float]) -> Spread:
    """Return the median and quartiles of at least one value."""
    if len(values) == 1:
        return Spread(values[0], values[0], values[0])
    low, median, high = statistics.quantiles(values, n=4, method="inclusive")
    return Spread(median, low, high)


def by_system(turns: Sequence[Turn]) -> dict[str, Spread]:
    """Return the spread of all samples of each system."""
    names = dict.fromkeys(name for turn in turns for name in turn)
    return {name: spread([value for turn in turns for value in turn.get(name, ())]) for name in names}


def over(turns: Sequence[Turn], name: str, reference: str, compare: Callable[[float, float], float]) -> Spread:
    """Return the cost of a system relative to a reference: the spread of the costs in all turns that have both.

    Args:
        turns: Samples by turn.
        name: Name of the system.
        reference: Name of the reference system.
        compare: Returns a turn's cost, from the median of the system and the median of the reference.
    """
    return spread([
        compare(statistics.median(turn[name]), statistics.median(turn[reference]))
        for turn in turns if name in turn and reference in turn
    ])  # fmt: skip
