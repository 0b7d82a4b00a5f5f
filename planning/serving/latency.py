"""How long one batch of a service takes, by its size and by the part's share of the GPU."""

from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Latency:
    """Measured times of one service.

    Attributes:
        points: milliseconds by share of the GPU (percent) and then by batch. Each share has at least one batch.
    """

    points: Mapping[int, Mapping[int, float]]

    def ms(self, batch: float, share: float = 100) -> float:
        """Return how long a batch takes, in milliseconds.

        The time is linear between measured batches and between measured shares. Beyond the measured batches it is on
        the line through the two nearest ones. Beyond the measured shares it is that of the nearest share.
        """
        shares = sorted(self.points)
        place = bisect_left(shares, share)
        if place == len(shares) or shares[place] == share or place == 0:
            return _between(self.points[shares[min(place, len(shares) - 1)]], batch)
        low, high = shares[place - 1], shares[place]
        weight = (share - low) / (high - low)
        return (1 - weight) * _between(self.points[low], batch) + weight * _between(self.points[high], batch)


def _between(times: Mapping[int, float], batch: float) -> float:
    """Return the time of a batch on the line through its two neighbours among the measured batches."""
    batches = sorted(times)
    if len(batches) == 1:
        return times[batches[0]] * max(1.0, batch / batches[0])
    place = min(max(bisect_left(batches, batch), 1), len(batches) - 1)
    low, high = batches[place - 1], batches[place]
    return times[low] + (times[high] - times[low]) * (batch - low) / (high - low)
