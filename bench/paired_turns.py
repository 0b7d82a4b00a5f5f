"""Systems measured time-sliced: medians, their spread, and what each cost over the first in the same turn.

Clocks, temperature and the machine's other work drift from second to second and meet all systems of a turn alike, so
what a system costs is a figure of each turn, which has a median and quartiles over turns. A cost whose quartiles lie on
both sides of none is none.
"""

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass

Turn = Mapping[str, Sequence[float]]
"""Samples by system."""


@dataclass(frozen=True)
class Spread:
    """A median between the quartiles of what it is the median of."""

    median: float
    low: float
    high: float

    def to_json(self) -> dict[str, float]:
        """Return plain types."""
        return asdict(self)


def spread(values: Sequence[float]) -> Spread:
    """Return median and quartiles of one value or more."""
    if len(values) == 1:
        return Spread(values[0], values[0], values[0])
    low, median, high = statistics.quantiles(values, n=4, method="inclusive")
    return Spread(median, low, high)


def by_system(turns: Sequence[Turn]) -> dict[str, Spread]:
    """Return the spread of all samples of each system."""
    names = dict.fromkeys(name for turn in turns for name in turn)
    return {name: spread([value for turn in turns for value in turn.get(name, ())]) for name in names}


def over(turns: Sequence[Turn], name: str, reference: str, compare: Callable[[float, float], float]) -> Spread:
    """Return what a system costs over another: the spread over the turns that have both.

    Args:
        turns: Samples by turn.
        name: Of the system.
        reference: Of what it is held to.
        compare: Makes a turn's figure of both medians, the system's first.
    """
    return spread([
        compare(statistics.median(turn[name]), statistics.median(turn[reference]))
        for turn in turns if name in turn and reference in turn
    ])  # fmt: skip
