"""Rates over time, from numbers and files, and arrivals at these rates.

A rates file has one of two forms:

    seconds,rate        a rate holds from its time until the next line's time; the last one holds to the end
    0,120
    3600,340.5

    120                 one rate a line, each for 20 s, as glet's client reads them; then no more requests
    340.5

Lines that are blank or begin with # do not count.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from orion.errors import Unreadable
from orion.simulation.traces.numbers import number
from orion.simulation.traces.text import numbered

GLET_STEP_S = 20.0
MOST_REQUESTS = 50_000_000
PROCESSES = ("poisson", "uniform")


@dataclass(frozen=True)
class Rates:
    """Requests per second over time.

    Attributes:
        steps: (from second, rate), ascending in time; the last rate holds to the end.
        ends_s: when the rates end by themselves; infinity if they do not.
    """

    steps: tuple[tuple[float, float], ...]
    ends_s: float = math.inf

    def expected(self, seconds: float) -> float:
        """Return the expected number of requests from 0 to `seconds`."""
        edges, rates = self._edges(seconds)
        return float(np.dot(rates, np.diff(edges)))

    def arrivals(self, seconds: float, process: str, random: np.random.Generator) -> np.ndarray:
        """Return when requests arrive from 0 until `seconds`: whole nanoseconds, ascending.

        Args:
            seconds: the end, exclusive.
            process: `poisson`: independent of each other; `uniform`: in equal gaps while a rate holds, from the begin.
            random: for `poisson`.
        """
        edges, rates = self._edges(seconds)
        sums = np.concatenate([[0.0], np.cumsum(rates * np.diff(edges))])
        if process == "poisson":
            marks = np.sort(random.random(random.poisson(sums[-1]))) * sums[-1]
        else:
            marks = np.arange(math.ceil(sums[-1] - 1e-9), dtype=float)
        step = np.minimum(np.searchsorted(sums, marks, side="right") - 1, len(rates) - 1)
        found: np.ndarray = np.rint((edges[step] + (marks - sums[step]) / rates[step]) * 1e9)
        return np.extract(found < seconds * 1e9, found)

    def _edges(self, seconds: float) -> tuple[np.ndarray, np.ndarray]:
        """Return the steps until `seconds`: their edges, and the rate of each."""
        end = min(seconds, self.ends_s)
        inside = [(max(0.0, at), rate) for at, rate in self.steps if at < end]
        edges = [at for at, _ in inside] + [end]
        return np.array(edges, dtype=float), np.array([rate for _, rate in inside], dtype=float)


def constant(rate: float) -> Rates:
    """Return a rate that always holds."""
    return Rates(((0.0, rate),))


def read(path: Path) -> Rates:
    """Read a rates file.

    Raises:
        Unreadable: the file cannot be read, or a line is wrong; with the line and the reason.
    """
    steps: list[tuple[float, float]] = []
    width = 0
    for line, text in _lines(path):
        cells = [cell.strip() for cell in text.split(",")]
        if not width:
            width = len(cells)
            if [cell.lower() for cell in cells] in (["seconds", "rate"], ["rate"]):
                continue
        try:
            if len(cells) != width or width > 2:
                raise ValueError(f"the line has {len(cells)} columns in place of {min(width, 2)}")
            at_s = number(cells[0], "the time") if width == 2 else GLET_STEP_S * len(steps)
            if width == 2 and steps and at_s <= steps[-1][0]:
                raise ValueError(f"the time {at_s:g} is not after the time of the line before")
            steps.append((at_s, number(cells[-1], "the rate")))
        except ValueError as error:
            raise Unreadable(f"{path}, line {line}: {error}: correct the line") from error
    if not steps:
        raise Unreadable(f"{path} has no rates: give lines of seconds,rate, or one rate a line")
    return Rates(tuple(steps), math.inf if width == 2 else GLET_STEP_S * len(steps))


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    for line, text in numbered(path):
        if not text.startswith("#"):
            yield line, text
