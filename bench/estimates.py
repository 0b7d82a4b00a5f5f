"""Ratios of percentiles, means and rates between two systems, with bootstrap intervals.

Two systems are compared inside a round: they replay the same arrivals within the same minutes. The result is the
median of the rounds' ratios, so a drift of clocks or temperature between rounds cancels. The bootstrap resamples rounds
and, inside a round, blocks of consecutive requests, the same blocks for both systems. Resampling single requests was
rejected: latencies of neighbouring requests depend on each other through the queue, so intervals would be too narrow.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Samples = NDArray[np.float64]
Pair = tuple[Sequence[float] | Samples, Sequence[float] | Samples]
"""One round of a comparison: the samples of the system, and those of the reference."""
BLOCK = 25  # requests that are resampled together; a busy period at 40 % load is shorter
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


def paired_percentile_ratios(
    pairs: Sequence[Pair], ranks: Sequence[float], resamples: int = RESAMPLES, seed: int = 0
) -> list[Estimate]:
    """Compare latency percentiles of two systems.

    Args:
        pairs: One (system, reference) for each round: latencies of the same requests in the same order.
        ranks: The percentiles, 0 to 100; all of them use the same resamples.
        resamples: Bootstrap repetitions.
        seed: Seed of the bootstrap, which makes a report reproducible.

    Returns:
        One estimate for each rank.
    """
    return _ratios(_matched(pairs), _percentiles(ranks), paired=True, resamples=resamples, seed=seed)


def unpaired_percentile_ratios(
    pairs: Sequence[Pair], ranks: Sequence[float], resamples: int = RESAMPLES, seed: int = 0
) -> list[Estimate]:
    """Compare percentiles of samples that do not form pairs, such as iteration times of two closed loops."""
    return _ratios(_arrays(pairs), _percentiles(ranks), paired=False, resamples=resamples, seed=seed)


def paired_mean_ratio(pairs: Sequence[Pair], resamples: int = RESAMPLES, seed: int = 0) -> Estimate:
    """Compare means over the same requests. The ratio of means is also the ratio of totals, such as total GPU time."""

    def mean(samples: Samples) -> Samples:
        return np.asarray(samples.mean(axis=-1))[None]

    return _ratios(_matched(pairs), mean, paired=True, resamples=resamples, seed=seed)[0]


def paired_rate_ratio(pairs: Sequence[Pair], resamples: int = RESAMPLES, seed: int = 0) -> Estimate:
    """Compare the throughput of two systems.

    A resample in which the reference did nothing has no ratio, and is drawn again. It happens where a window has few
    steps.

    Args:
        pairs: One (system, reference) for each round: the rate in each of a window's equal bins. The two windows may
            have different numbers of bins. No reference is zero in all of its bins.
        resamples: Bootstrap repetitions.
        seed: Seed of the bootstrap.
    """
    rounds = _arrays(pairs)

    def resampled(generator: np.random.Generator, number: int, count: int) -> Samples:
        one, other = (generator.choice(side, (count, len(side))).mean(axis=1) for side in rounds[number])
        reference = rounds[number][1]
        while (idle := other == 0).any():
            other[idle] = generator.choice(reference, (idle.sum(), len(reference))).mean(axis=1)
        return np.asarray(one / other)[None]

    exact = [float(one.mean() / other.mean()) for one, other in rounds]
    return _bootstrap([exact], resampled, resamples, seed)[0]


def median_of_rounds(values: Sequence[float], resamples: int = RESAMPLES, seed: int = 0) -> Estimate:
    """Return the median of one figure per round; the interval ignores the spread inside a round."""

    def resampled(_: np.random.Generator, number: int, count: int) -> Samples:
        return np.full((1, count), values[number])

    return _bootstrap([list(values)], resampled, resamples, seed)[0]


def _arrays(pairs: Sequence[Pair]) -> list[tuple[Samples, Samples]]:
    return [(np.asarray(one, dtype=np.float64), np.asarray(other, dtype=np.float64)) for one, other in pairs]


def _matched(pairs: Sequence[Pair]) -> list[tuple[Samples, Samples]]:
    rounds = _arrays(pairs)
    if any(one.shape != other.shape for one, other in rounds):
        raise ValueError("the two systems of a round must have the same requests")
    return rounds


def _percentiles(ranks: Sequence[float]) -> Callable[[Samples], Samples]:
    """Return a function from samples (along the last axis) to percentiles (along a new first axis)."""
    return lambda samples: np.asarray(np.percentile(samples, ranks, axis=-1))


def _ratios(
    rounds: list[tuple[Samples, Samples]],
    statistics: Callable[[Samples], Samples],
    paired: bool,
    resamples: int,
    seed: int,
) -> list[Estimate]:
    def resampled(generator: np.random.Generator, number: int, count: int) -> Samples:
        one, other = rounds[number]
        chosen = _blocks(generator, len(one), count)
        of_other = chosen if paired else _blocks(generator, len(other), count)
        return np.asarray(statistics(one[chosen]) / statistics(other[of_other]))

    by_round = [statistics(one) / statistics(other) for one, other in rounds]
    exact = [[float(ratio) for ratio in ratios] for ratios in zip(*by_round, strict=True)]
    return _bootstrap(exact, resampled, resamples, seed)


def _blocks(generator: np.random.Generator, samples: int, count: int) -> NDArray[np.int64]:
    """Draw `count` resamples, one per row: indices of samples, in blocks of consecutive indices that wrap around."""
    starts = generator.integers(0, samples, size=(count, -(-samples // BLOCK)))
    indices = (starts[:, :, None] + np.arange(BLOCK)) % samples
    return np.asarray(indices.reshape(count, -1)[:, :samples], dtype=np.int64)


def _bootstrap(
    exact: list[list[float]],
    resampled: Callable[[np.random.Generator, int, int], Samples],
    resamples: int,
    seed: int,
) -> list[Estimate]:
    """Resample rounds; `resampled` resamples inside a round.

    Args:
        exact: For each figure, its value in each round.
        resampled: (generator, round, count) -> the figures of `count` resamples of the round, shape (figures, count).
        resamples: Number of resamples.
        seed: Seed of the generator.
    """
    if not exact or not exact[0]:
        raise ValueError("no round to compare")
    rounds = len(exact[0])
    generator = np.random.default_rng(seed)
    chosen = generator.integers(0, rounds, size=(resamples, rounds))
    drawn = np.empty((len(exact), resamples, rounds))
    for number in range(rounds):
        here = chosen == number
        drawn[:, here] = resampled(generator, number, int(here.sum()))
    low, high = np.percentile(np.median(drawn, axis=2), [2.5, 97.5], axis=1)
    return [
        Estimate(float(np.median(values)), float(low[figure]), float(high[figure]), tuple(values))
        for figure, values in enumerate(exact)
    ]
