"""Figures from samples: percentiles, paired ratios, and intervals that say how far to trust them.

Systems are compared inside a round, where they replay the same arrivals within the same minutes, and the ratios of
the rounds are summed up by their median: drift of clocks and temperature between rounds then cancels. Intervals come
from a bootstrap over rounds and, inside a round, over blocks of consecutive requests, the same blocks on both sides:
a queue makes neighbouring requests alike, so single requests drawn at random would promise too narrow an interval.
"""

import bisect
import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Samples = NDArray[np.float64]
BLOCK = 25  # requests that are resampled together: longer than a busy period at 40 % load
RESAMPLES = 1000


@dataclass(frozen=True)
class Estimate:
    """A median over rounds with its 95 % bootstrap interval."""

    value: float
    low: float
    high: float
    rounds: tuple[float, ...]

    def to_json(self) -> dict[str, Any]:
        """Return plain types for a JSON file."""
        return {"median": self.value, "low": self.low, "high": self.high, "rounds": list(self.rounds)}


def percentile(samples: Sequence[float] | Samples, rank: float) -> float:
    """Return the percentile `rank` (0 to 100), linearly interpolated; NaN where there is no sample."""
    return float(np.percentile(np.asarray(samples, dtype=np.float64), rank)) if len(samples) else float("nan")


def latencies_ms(arrivals: Sequence[float], ends: Sequence[float]) -> list[float]:
    """Latency of each request in milliseconds, from its scheduled arrival; both arguments in seconds."""
    return [1e3 * (end - arrival) for arrival, end in zip(arrivals, ends, strict=True)]


def completed_between(ends: Sequence[float], begin: float, end: float) -> float:
    """Count steps of a closed loop in a window, the steps across its edges by their part inside.

    Args:
        ends: Ascending completion times of consecutive steps, seconds.
        begin: The window's begin; a step is taken to begin when the one before it ends.
        end: The window's end.

    Returns:
        Steps in [begin, end], a fraction allowed. Outside the first and last completion nothing is known, and nothing
        counted.
    """
    return _position(ends, end) - _position(ends, begin)


def _position(ends: Sequence[float], time: float) -> float:
    index = bisect.bisect_right(ends, time)
    if index == 0:
        return 0.0
    if index == len(ends):
        return float(len(ends) - 1)
    before, after = ends[index - 1], ends[index]
    return index - 1 + (time - before) / (after - before)


def paired_percentile_ratio(
    pairs: Sequence[tuple[Sequence[float], Sequence[float]]], rank: float, resamples: int = RESAMPLES, seed: int = 0
) -> Estimate:
    """Compare a latency percentile of two systems.

    Args:
        pairs: One (system, reference) a round: latencies of the same requests in the same order.
        rank: The percentile, 0 to 100.
        resamples: Bootstrap repetitions.
        seed: Of the bootstrap, so that a report can be made again.
    """
    rounds = [(np.asarray(one, dtype=np.float64), np.asarray(other, dtype=np.float64)) for one, other in pairs]
    if any(one.shape != other.shape for one, other in rounds):
        raise ValueError("a round's two sides must hold the same requests")

    def resampled(generator: np.random.Generator, number: int) -> float:
        one, other = rounds[number]
        chosen = _blocks(generator, len(one))
        return float(np.percentile(one[chosen], rank) / np.percentile(other[chosen], rank))

    exact = [float(np.percentile(one, rank) / np.percentile(other, rank)) for one, other in rounds]
    return _bootstrap(exact, resampled, resamples, seed)


def paired_rate_ratio(
    pairs: Sequence[tuple[Sequence[float], Sequence[float]]], resamples: int = RESAMPLES, seed: int = 0
) -> Estimate:
    """Compare the throughput of two systems.

    Args:
        pairs: One (system, reference) a round: the rate in each of a window's equal bins. The sides may differ in
            length.
        resamples: Bootstrap repetitions.
        seed: Of the bootstrap.
    """
    rounds = [(np.asarray(one, dtype=np.float64), np.asarray(other, dtype=np.float64)) for one, other in pairs]

    def resampled(generator: np.random.Generator, number: int) -> float:
        one, other = rounds[number]
        mean = generator.choice(one, len(one)).mean()
        return float(mean / generator.choice(other, len(other)).mean())

    return _bootstrap([float(one.mean() / other.mean()) for one, other in rounds], resampled, resamples, seed)


def binned_rates(ends: Sequence[float], begin: float, end: float, bins: int) -> list[float]:
    """Steps a second in each of `bins` equal parts of a window; arguments in seconds as for `completed_between`."""
    width = (end - begin) / bins
    edges = [begin + width * number for number in range(bins + 1)]
    return [completed_between(ends, low, high) / width for low, high in itertools.pairwise(edges)]


def _blocks(generator: np.random.Generator, count: int) -> NDArray[np.int64]:
    """Indices of `count` samples, drawn as blocks of consecutive ones around a circle."""
    starts = generator.integers(0, count, size=-(-count // BLOCK))
    indices = (starts[:, None] + np.arange(BLOCK)[None, :]) % count
    return np.asarray(indices.reshape(-1)[:count], dtype=np.int64)


def _bootstrap(
    exact: list[float], resampled: Callable[[np.random.Generator, int], float], resamples: int, seed: int
) -> Estimate:
    if not exact:
        raise ValueError("no round to compare")
    generator = np.random.default_rng(seed)
    medians = []
    for _ in range(resamples):
        numbers = generator.integers(0, len(exact), size=len(exact))
        medians.append(np.median([resampled(generator, int(number)) for number in numbers]))
    low, high = np.percentile(medians, [2.5, 97.5])
    return Estimate(float(np.median(exact)), float(low), float(high), tuple(exact))
