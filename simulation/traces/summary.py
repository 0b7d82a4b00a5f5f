"""Counts, means and quantiles of a trace, in one pass.

The memory needed grows with the number of different values, not with the number of entries.
"""

import math
from bisect import bisect_right
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any

from .entries import Entry, RequestEntry, Skipped

SCHEMA = "orion.trace/1"


class Spread:
    """The distribution of values."""

    def __init__(self) -> None:
        self._counts: Counter[float] = Counter()

    def add(self, value: float) -> None:
        """Count a value."""
        self._counts[value] += 1

    def figures(self, quantiles: Mapping[str, float]) -> dict[str, float | None]:
        """Return total, mean, min, max and quantiles by name; all are None if there is no value.

        A quantile between two values is interpolated linearly, as in numpy.
        """
        names = ("total", "mean", "min", "max", *quantiles)
        if not self._counts:
            return dict.fromkeys(names)
        values = sorted(self._counts)
        behind = list(accumulate(self._counts[value] for value in values))
        total: float = math.fsum(value * count for value, count in self._counts.items())
        if all(isinstance(value, int) for value in values):
            total = int(total)
        found = [_quantile(values, behind, quantile) for quantile in quantiles.values()]
        return dict(zip(names, [total, total / behind[-1], values[0], values[-1], *found], strict=True))


def _quantile(values: list[float], behind: list[int], quantile: float) -> float:
    """Return a quantile of ascending values; `behind[i]` entries of the trace are at most `values[i]`."""
    position = quantile * (behind[-1] - 1)
    below = math.floor(position)
    low, high = values[bisect_right(behind, below)], values[bisect_right(behind, min(below + 1, behind[-1] - 1))]
    return low + (high - low) * (position - below)


@dataclass
class Summary:
    """What one pass over a trace finds.

    Attributes:
        form: the form's name.
        kind: jobs or requests.
        is_sorted: whether the entries are in the order of arrival.
    """

    form: str
    kind: str
    entries: int = 0
    skipped: list[Skipped] = field(default_factory=list)
    first_s: float = math.inf
    last_s: float = -math.inf
    is_sorted: bool = True
    gpus: Counter[float] = field(default_factory=Counter)
    duration_s: Spread = field(default_factory=Spread)
    prompt_tokens: Spread = field(default_factory=Spread)
    output_tokens: Spread = field(default_factory=Spread)
    _before_s: float = -math.inf

    def add(self, entry: Entry) -> None:
        """Count an entry."""
        self.entries += 1
        self.first_s, self.last_s = min(self.first_s, entry.arrival_s), max(self.last_s, entry.arrival_s)
        self.is_sorted = self.is_sorted and entry.arrival_s >= self._before_s
        self._before_s = entry.arrival_s
        if isinstance(entry, RequestEntry):
            self.prompt_tokens.add(entry.prompt_tokens)
            self.output_tokens.add(entry.output_tokens)
            return
        self.gpus[entry.gpus] += 1
        if entry.duration_s is not None:
            self.duration_s.add(entry.duration_s)

    def plain(self) -> dict[str, Any]:
        """Return the object that `--json` prints; times count from the first arrival."""
        found: dict[str, Any] = {
            "schema": SCHEMA,
            "format": self.form,
            "kind": self.kind,
            "entries": self.entries,
            "skipped": [{"line": each.line, "reason": each.reason, "bad": each.is_bad} for each in self.skipped],
            "first_s": 0.0 if self.entries else None,
            "last_s": self.last_s - self.first_s if self.entries else None,
        }
        if self.kind == "jobs":
            found["gpus"] = {f"{gpus:g}": self.gpus[gpus] for gpus in sorted(self.gpus)}
            figures = self.duration_s.figures({"p50": 0.5})
            found["duration_s"] = {name: figures[name] for name in ("min", "mean", "p50", "max")}
            return found
        for name, spread in (("prompt_tokens", self.prompt_tokens), ("output_tokens", self.output_tokens)):
            figures = spread.figures({"p50": 0.5, "p99": 0.99})
            found[name] = {key: figures[key] for key in ("total", "mean", "p50", "p99")}
        return found
