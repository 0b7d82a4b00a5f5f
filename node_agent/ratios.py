"""A ratio for those who act on it: smoothed over a minute and told in steps, so that it seldom changes.

A device plugin sends its whole list to the kubelet again for each change, so noise has to end here. A step is left only
when the ratio is clearly out of it; else one that hovers between two steps would be told again and again.
"""

import math

_TIME_CONSTANT_SECONDS = 60.0
_STEP = 0.05
_CLEARLY = 0.8
""" Of a step: so far from what was told, the next is told. """


class SteppedRatio:
    """One ratio.

    Args:
        first: its value at the beginning, 0 to 1.
    """

    def __init__(self, first: float) -> None:
        self._smooth = first
        self._told = _rounded(first)
        self._at: float | None = None

    def take(self, value: float, now: float) -> float:
        """Take in its value now (seconds, monotonic); return what to tell."""
        elapsed = 0.0 if self._at is None else max(0.0, now - self._at)
        self._at = now
        self._smooth += (value - self._smooth) * -math.expm1(-elapsed / _TIME_CONSTANT_SECONDS)
        if abs(self._smooth - self._told) >= _CLEARLY * _STEP:
            self._told = _rounded(self._smooth)
        return self._told


def _rounded(ratio: float) -> float:
    return round(round(ratio / _STEP) * _STEP, 2)
