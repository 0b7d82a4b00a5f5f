"""The rows of the table of `orion bench memory`."""

from collections.abc import Sequence
from typing import NamedTuple

from orion.bench.samples import percentile


class Row(NamedTuple):
    """One figure."""

    figure: str
    text: str
    target: float | None = None
    value: float = 0.0
    at_least: bool = False

    @property
    def is_met(self) -> bool | None:
        """Whether the target is met; None: there is none."""
        if self.target is None:
            return None
        return self.value >= self.target if self.at_least else self.value <= self.target


def of_times(what: str, times: Sequence[float], target: float) -> list[Row]:
    """Return rows of times in milliseconds; the target is for the 99th percentile."""
    p99 = percentile(times, 99)
    return [
        Row(f"{what}, p50, ms", f"{percentile(times, 50):.2f}"),
        Row("the same, p90, ms", f"{percentile(times, 90):.2f}"),
        Row("the same, p99, ms", f"{p99:.2f}", target, p99),
        Row("the same, least and most, ms", f"{min(times):.2f}, {max(times):.2f}"),
    ]
